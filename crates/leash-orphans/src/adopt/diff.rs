//! The difference of two texts as a unified diff, which people and `patch` can read.

use similar::{ChangeTag, TextDiff};

/// The number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// A unified diff; empty if the texts are equal.
pub fn unified(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    // `patch` knows no other line ending; `similar` would also split at a carriage return.
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    if old == new {
        return String::new();
    }
    let mut text = format!("--- {old_name}\n+++ {new_name}\n");
    let diff = TextDiff::from_slices(&old, &new);
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        text.push_str(&format!("{}\n", hunk.header()));
        hunk.iter_changes().for_each(|change| push(&mut text, change.tag(), change.value()));
    }
    text
}

fn push(text: &mut String, tag: ChangeTag, line: &str) {
    text.push_str(&format!("{tag}{line}"));
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_diff_has_the_format_of_patch() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";
        let new = "1\n2\n3\nfour\n5\n6\n7\n8\n9\n10\n11\n12\nend";
        let expected = "--- a\n+++ b\n@@ -1,7 +1,7 @@\n 1\n 2\n 3\n-4\n+four\n 5\n 6\n 7\n@@ -10,3 +10,4 @@\n 10\n 11\n 12\n+end\n\\ No newline at end of file\n";
        assert_eq!(unified(old, new, "a", "b"), expected);
        assert_eq!(unified(old, old, "a", "b"), "");
        assert_eq!(unified("", "x\n", "a", "b"), "--- a\n+++ b\n@@ -0,0 +1 @@\n+x\n");
        assert_eq!(
            unified("a\rb", "a\rc\n", "a", "b"),
            "--- a\n+++ b\n@@ -1 +1 @@\n-a\rb\n\\ No newline at end of file\n+a\rc\n"
        );
    }

    /// The new lines that a diff makes from the old ones, as `patch` reads it.
    fn patched<'a>(old: &[&'a str], diff: &'a str) -> Vec<&'a str> {
        let mut built: Vec<&str> = Vec::new();
        let mut at = 0;
        for line in diff.split_inclusive('\n').skip(2) {
            match line.split_at(1) {
                ("@", header) => {
                    let start = header.split(['-', ',', ' ']).find_map(|word| word.parse::<usize>().ok());
                    let is_empty = header.contains(",0 +");
                    let start = start.expect("a number") - usize::from(!is_empty);
                    built.extend(&old[at..start]);
                    at = start;
                }
                (" ", kept) => {
                    assert_eq!(old[at], kept);
                    built.push(kept);
                    at += 1;
                }
                ("-", gone) => {
                    assert_eq!(old[at], gone);
                    at += 1;
                }
                (_, added) => built.push(added),
            }
        }
        built.extend(&old[at..]);
        built
    }

    proptest! {
        /// For all texts: the diff turns the old lines into the new ones.
        #[test]
        fn a_diff_leads_from_old_to_new(old in prop::collection::vec(0..4u8, 0..40), new in prop::collection::vec(0..4u8, 0..40)) {
            let text = |numbers: &[u8]| numbers.iter().map(|number| format!("{number}\n")).collect::<String>();
            let (old, new) = (text(&old), text(&new));
            let diff = unified(&old, &new, "a", "b");
            let lines: Vec<&str> = old.split_inclusive('\n').collect();
            prop_assert_eq!(patched(&lines, &diff).concat(), new);
        }
    }
}
