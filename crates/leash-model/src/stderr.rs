//! The lines of a server's stderr, out of the bytes as they arrive, and the last of them.

use std::collections::VecDeque;

use crate::{escape, limits};

/// Takes the next line out of the bytes that were read. A line that is too long comes in several pieces, which are cut
/// between characters.
pub fn next_line(begun: &mut Vec<u8>, is_over: bool) -> Option<Vec<u8>> {
    let piece = &begun[..begun.len().min(limits::STDERR_PIECE)];
    if let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
        let mut line: Vec<u8> = begun.drain(..=end).collect();
        line.pop();
        line.pop_if(|byte| *byte == b'\r');
        return Some(line);
    }
    let length = match begun.len() {
        0 => return None,
        length if length >= limits::STDERR_PIECE => {
            // A character has up to three more bytes after its first.
            let starts = |at: &usize| begun[*at] & 0b1100_0000 != 0b1000_0000;
            let most = limits::STDERR_PIECE.min(length - 1);
            (most - 3..=most).rev().find(starts).unwrap_or(most)
        }
        length if is_over => length,
        _ => return None,
    };
    Some(begun.drain(..length).collect())
}

/// The last lines of a server's stderr, which usually say why it exited.
#[derive(Debug, Default)]
pub struct LastLines(VecDeque<Box<[u8]>>);

impl LastLines {
    /// Adds a line; a blank one says nothing.
    pub fn keep(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        if self.0.len() == limits::STDERR_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line[..line.len().min(limits::STDERR_LINE + 1)].into());
    }

    /// The lines, safe to print.
    pub fn shown(&self) -> Vec<String> {
        self.0.iter().map(|line| escape::name(&String::from_utf8_lossy(line), limits::STDERR_LINE)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text, read in pieces of `step` bytes.
    fn lines(text: &[u8], step: usize) -> Vec<String> {
        let (mut begun, mut lines) = (Vec::new(), Vec::new());
        for bytes in text.chunks(step) {
            begun.extend_from_slice(bytes);
            lines.extend(std::iter::from_fn(|| next_line(&mut begun, false)));
        }
        lines.extend(std::iter::from_fn(|| next_line(&mut begun, true)));
        assert!(begun.is_empty());
        lines.into_iter().map(|line| String::from_utf8(line).expect("cut between characters")).collect()
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        for step in [1, 2, 3, 1000] {
            assert_eq!(lines(b"a\nbc\r\n\nlast", step), ["a", "bc", "", "last"]);
            assert!(lines(b"", step).is_empty());
        }
    }

    #[test]
    fn long_lines_come_in_pieces() {
        let text = "ö€𝄞x".repeat(2000);
        for step in [1, 7, 4096, 100_000] {
            let pieces = lines(text.as_bytes(), step);
            assert_eq!(pieces.concat(), text);
            assert!(pieces.len() <= 7 && pieces.iter().all(|piece| piece.len() <= limits::STDERR_PIECE), "{step}");
        }
    }

    #[test]
    fn last_lines_are_kept_and_safe() {
        let mut tail = LastLines::default();
        (0..100).for_each(|number| tail.keep(format!("line {number}").as_bytes()));
        tail.keep(b"  ");
        tail.keep(b"\x1b[2J\xff");
        tail.keep("x".repeat(10_000).as_bytes());
        let last = tail.shown();
        assert_eq!(last.len(), limits::STDERR_LINES);
        assert_eq!(last[limits::STDERR_LINES - 3], "line 99");
        assert_eq!(last[limits::STDERR_LINES - 2], "\\u{1b}[2J\u{fffd}");
        let cut = &last[limits::STDERR_LINES - 1];
        assert!(cut.len() <= limits::STDERR_LINE && cut.ends_with("..."), "{cut}");
    }
}
