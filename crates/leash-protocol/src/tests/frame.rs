//! Lines, cut in any way.

use proptest::prelude::*;

use crate::frame::{Line, Lines};
use crate::fuzzing;

fn whole(text: &str) -> Line {
    Line::Whole(text.to_owned().into())
}

fn check(limit: usize, input: &str, expected: &[Line]) {
    let mut lines = Lines::new(limit);
    lines.push(input.as_bytes());
    let found: Vec<Line> = std::iter::from_fn(|| lines.finish()).collect();
    assert_eq!(found, expected, "{input:?}");
    assert!(lines.is_empty());
}

#[test]
fn lines_end_with_a_newline_or_with_the_stream() {
    check(9, "", &[]);
    check(9, "a", &[whole("a")]);
    check(9, "a\n", &[whole("a")]);
    check(9, "a\nb", &[whole("a"), whole("b")]);
    check(9, "\n\n", &[whole(""), whole("")]);
}

#[test]
fn a_return_before_the_newline_is_not_part_of_the_line() {
    check(9, "a\r\n\r\n", &[whole("a"), whole("")]);
    check(9, "a\rb\r\r\n", &[whole("a\rb\r")]);
    check(9, "a\r", &[whole("a")]);
}

#[test]
fn a_line_over_the_limit_is_skipped_and_measured() {
    check(3, "abc\nabcd\nabc", &[whole("abc"), Line::TooLong { length: 4 }, whole("abc")]);
    check(3, "a\nabcdef", &[whole("a"), Line::TooLong { length: 6 }]);
    check(3, "ab\r\nabc\r\n", &[whole("ab"), Line::TooLong { length: 4 }]);
}

#[test]
fn a_stream_is_empty_when_nothing_was_begun() {
    let mut lines = Lines::new(3);
    assert!(lines.is_empty());
    lines.push(b"abcdef");
    assert_eq!(lines.next_line(), None);
    assert!(!lines.is_empty(), "within a line that is too long");
    lines.push(b"\n");
    assert_eq!(lines.next_line(), Some(Line::TooLong { length: 6 }));
    assert!(lines.is_empty());
}

#[test]
fn large_lines_come_out_whole() {
    let mut lines = Lines::new(1 << 24);
    let mut expected = Vec::new();
    for length in [4095, 4096, 4097, 100_000, 1, 70_000] {
        let line = vec![b'a' + (length % 26) as u8; length];
        lines.buffer().extend_from_slice(&line);
        lines.buffer().extend_from_slice(b"\r\n");
        expected.push(Line::Whole(line.into()));
    }
    let found: Vec<Line> = std::iter::from_fn(|| lines.next_line()).collect();
    assert!(found == expected);
}

proptest! {
    #[test]
    fn lines_do_not_depend_on_how_the_stream_is_cut(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200),
        cuts in proptest::collection::vec(0..20_usize, 1..20),
        limit in 0..30_usize,
    ) {
        let all = |pieces: &[&[u8]]| {
            let mut lines = Lines::new(limit);
            let mut found = Vec::new();
            for piece in pieces {
                lines.push(piece);
                found.extend(std::iter::from_fn(|| lines.next_line()));
            }
            found.extend(std::iter::from_fn(|| lines.finish()));
            found
        };
        prop_assert_eq!(all(&super::sse::cut(&bytes, &cuts)), all(&[&bytes]));
        fuzzing::line_framer(&bytes);
    }
}
