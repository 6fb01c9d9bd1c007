//! The difference of two texts as a unified diff, which people and `patch` can read.

/// The number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// A unified diff; empty if the texts are equal.
pub fn unified(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let blocks = blocks(&old, &new);
    if blocks.is_empty() {
        return String::new();
    }
    let mut text = format!("--- {old_name}\n+++ {new_name}\n");
    for hunk in hunks(&blocks) {
        write_hunk(&mut text, &old, &new, hunk);
    }
    text
}

/// Lines of the old text that were replaced by lines of the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    old: (usize, usize),
    new: (usize, usize),
}

/// Blocks that are close enough to share their context.
fn hunks(blocks: &[Block]) -> impl Iterator<Item = &[Block]> {
    blocks.chunk_by(|before, after| after.old.0 - before.old.1 <= 2 * CONTEXT)
}

fn write_hunk(text: &mut String, old: &[&str], new: &[&str], blocks: &[Block]) {
    let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return };
    let lead = first.old.0.min(CONTEXT);
    let tail = (old.len() - last.old.1).min(CONTEXT);
    let (old_from, old_to) = (first.old.0 - lead, last.old.1 + tail);
    let (new_from, new_to) = (first.new.0 - lead, last.new.1 + tail);
    text.push_str(&format!("@@ -{} +{} @@\n", range(old_from, old_to), range(new_from, new_to)));
    let mut at = old_from;
    for block in blocks {
        old[at..block.old.0].iter().for_each(|line| push(text, ' ', line));
        old[block.old.0..block.old.1].iter().for_each(|line| push(text, '-', line));
        new[block.new.0..block.new.1].iter().for_each(|line| push(text, '+', line));
        at = block.old.1;
    }
    old[at..old_to].iter().for_each(|line| push(text, ' ', line));
}

/// `START,COUNT` as diff writes it: an empty range names the line before it.
fn range(from: usize, to: usize) -> String {
    match to - from {
        0 => format!("{from},0"),
        1 => format!("{}", from + 1),
        count => format!("{},{count}", from + 1),
    }
}

fn push(text: &mut String, sign: char, line: &str) {
    text.push(sign);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

/// Myers' greedy algorithm. Its cost grows with the number of changed lines, not with the size of the files.
fn blocks(old: &[&str], new: &[&str]) -> Vec<Block> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = |lines: usize| lines - head;
    let most = rest(old.len()).min(rest(new.len()));
    let tail = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut blocks: Vec<Block> = Vec::new();
    for (x, y, deleted) in walk_back(&paths(old, new), old.len(), new.len()).into_iter().rev() {
        let (old_end, new_end) = (x + usize::from(deleted), y + usize::from(!deleted));
        match blocks.last_mut() {
            Some(block) if block.old.1 == x && block.new.1 == y => (block.old.1, block.new.1) = (old_end, new_end),
            _ => blocks.push(Block { old: (x, old_end), new: (y, new_end) }),
        }
    }
    for block in &mut blocks {
        (block.old, block.new) = ((block.old.0 + head, block.old.1 + head), (block.new.0 + head, block.new.1 + head));
    }
    blocks
}

/// For each number of edits, the furthest position on each diagonal. Diagonal `k` is at index `k + edits`.
fn paths(old: &[&str], new: &[&str]) -> Vec<Vec<usize>> {
    let mut paths: Vec<Vec<usize>> = Vec::new();
    loop {
        let edits = paths.len();
        let mut reach = vec![0; 2 * edits + 1];
        for index in (0..=2 * edits).step_by(2) {
            let mut x = start_of(paths.last(), edits, index).0;
            // The diagonal is index - edits; x - y is constant on it.
            let Some(mut y) = (x + edits).checked_sub(index) else { continue };
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            reach[index] = x;
            if x >= old.len() && y >= new.len() {
                paths.push(reach);
                return paths;
            }
        }
        paths.push(reach);
    }
}

/// The start of the path on a diagonal, coming from its better neighbour, and true if that step deletes a line.
fn start_of(before: Option<&Vec<usize>>, edits: usize, index: usize) -> (usize, bool) {
    let Some(before) = before else { return (0, false) };
    // The diagonals k-1 and k+1 of one edit less are at index-2 and index there.
    let from_left = index.checked_sub(2).and_then(|left| before.get(left)).map(|x| x + 1);
    let from_above = before.get(index).copied().filter(|_| index < 2 * edits);
    match (from_left, from_above) {
        (Some(left), Some(above)) if left > above => (left, true),
        (Some(left), None) => (left, true),
        (_, above) => (above.unwrap_or(0), false),
    }
}

/// The edits from the end to the beginning: the position of each, and true if it deletes a line of the old text.
fn walk_back(paths: &[Vec<usize>], old: usize, new: usize) -> Vec<(usize, usize, bool)> {
    let (mut x, mut y) = (old, new);
    let mut found = Vec::new();
    for edits in (1..paths.len()).rev() {
        let index = x + edits - y;
        let (start, deleted) = start_of(paths.get(edits - 1), edits, index);
        let start_y = start + edits - index;
        (x, y) = if deleted { (start - 1, start_y) } else { (start, start_y - 1) };
        found.push((x, y, deleted));
    }
    found
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
    }

    proptest! {
        /// For all texts: the blocks turn the old lines into the new ones, and no block is empty.
        #[test]
        fn blocks_lead_from_old_to_new(old in prop::collection::vec(0..4u8, 0..40), new in prop::collection::vec(0..4u8, 0..40)) {
            let text = |numbers: &[u8]| numbers.iter().map(|number| format!("{number}\n")).collect::<Vec<_>>();
            let (old, new) = (text(&old), text(&new));
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            let mut built: Vec<&str> = Vec::new();
            let mut at = 0;
            for block in blocks(&old, &new) {
                prop_assert!(block.old.0 < block.old.1 || block.new.0 < block.new.1);
                built.extend(&old[at..block.old.0]);
                prop_assert_eq!(built.len(), block.new.0);
                built.extend(&new[block.new.0..block.new.1]);
                at = block.old.1;
            }
            built.extend(&old[at..]);
            prop_assert_eq!(built, new);
        }
    }
}
