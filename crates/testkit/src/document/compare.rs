//! Compares the output on a page with the output of a command.

/// True if `printed` is the output that a page shows: `[..]` stands for any characters within a line, and a line `...`
/// for any lines, also none. Blanks at the end of a line do not count, because a page has none.
pub(super) fn is_match(expected: &str, printed: &str) -> bool {
    let expected: Vec<&str> = expected.lines().collect();
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    are_lines(&expected, &printed)
}

fn are_lines(expected: &[&str], printed: &[&str]) -> bool {
    match expected {
        [] => printed.is_empty(),
        ["...", rest @ ..] => (0..=printed.len()).any(|skipped| are_lines(rest, &printed[skipped..])),
        [first, rest @ ..] => match printed {
            [line, others @ ..] => is_line(first, line) && are_lines(rest, others),
            [] => false,
        },
    }
}

fn is_line(expected: &str, printed: &str) -> bool {
    let pieces: Vec<&str> = expected.split("[..]").collect();
    let [first, between @ .., last] = &pieces[..] else { return expected == printed };
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    for piece in between {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case is the output on a page, the output of a command, and whether they match.
    fn check(cases: &[(&str, &str, bool)]) {
        for &(expected, printed, well) in cases {
            assert_eq!(is_match(expected, printed), well, "{expected:?} and {printed:?}");
        }
    }

    #[test]
    fn output_is_compared_line_by_line() {
        check(&[
            ("", "", true),
            ("", "a\n", false),
            ("a\n", "", false),
            ("a\n", "a\n", true),
            ("a\n", "a", true),
            ("a\n", "a  \n", true),
            ("a\n", " a\n", false),
            ("a\n", "ab\n", false),
            ("a\n", "b\n", false),
            ("a\nb\n", "a\n", false),
            ("a\nb\n", "b\na\n", false),
            ("a\n", "a\nb\n", false),
            ("a\n", "a\n\n", false),
        ]);
    }

    #[test]
    fn dots_in_brackets_match_within_a_line() {
        check(&[
            ("[..]\n", "", false),
            ("[..]\n", "\n", true),
            ("[..]\n", "a b\n", true),
            ("[..]\n", "a\nb\n", false),
            ("a [..] d\n", "a b c d\n", true),
            ("a [..] d\n", "a d\n", false),
            ("a[..]d\n", "ad\n", true),
            ("a[..]d\n", "ade\n", false),
            ("a[..]d\n", "bad\n", false),
            ("[..]b[..]b\n", "ab\n", false),
            ("[..]b[..]b\n", "abb\n", true),
            ("[..] gone ([..])\n", "all gone (leaf)\n", true),
            ("[..] gone ([..])\n", "all gone\n", false),
        ]);
    }

    #[test]
    fn a_line_of_dots_matches_any_lines() {
        check(&[
            ("...\n", "", true),
            ("...\n", "a\nb\n", true),
            ("...\nb\n", "b\n", true),
            ("...\nb\n", "a\nb\n", true),
            ("...\nb\n", "a\nb\nc\n", false),
            ("...\nb\n...\n", "a\nb\nb\nc\n", true),
            ("...\nb\n...\n", "a\nc\n", false),
            ("a\n...\nd\n...\nd\n", "a\nb\nd\n", false),
            ("a\n...\nd\n...\nd\n", "a\nd\nb\nd\n", true),
            // Only a whole line of them.
            ("a...\n", "ab\n", false),
        ]);
    }
}
