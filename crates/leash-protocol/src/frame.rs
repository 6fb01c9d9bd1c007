//! Splits a stream of bytes into lines, with a length limit and without changing a byte.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

/// The room for the next read: the amount that a pipe usually delivers at once.
const READ: usize = 8 * 1024;

/// A line up to this size is copied out. So the line neither uses up the read buffer nor keeps all of it alive for as
/// long as the line exists.
const COPIED: usize = 4 * 1024;

/// A buffer that grew beyond this is freed when it is empty, so that the memory of one large message is not held for
/// the whole session.
const KEPT: usize = 64 * 1024;

/// Splits a byte stream into lines as bytes come in.
///
/// Memory is bounded by the limit and the bytes pushed since [`Lines::next_line`] last returned `None`.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// The buffer has no newline before this index.
    scanned: usize,
    /// The number of bytes of an over-long line that were already dropped; `None` outside of such a line.
    skipped: Option<usize>,
    limit: usize,
    /// The largest capacity that the buffer had; shows whether it grew.
    largest_capacity: usize,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its `\n` and a `\r` before that; may be empty.
    Whole(Bytes),
    /// A line over the limit, which was skipped.
    TooLong {
        /// The number of its bytes before the `\n`.
        length: usize,
    },
}

impl Lines {
    /// Splits into lines of up to `limit` bytes before the `\n`.
    pub fn new(limit: usize) -> Lines {
        Lines { buffer: BytesMut::new(), scanned: 0, skipped: None, limit, largest_capacity: 0 }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.largest_capacity = self.largest_capacity.max(self.buffer.capacity());
    }

    /// The buffer, with room for a read, to read into without a copy: bytes appended there count as pushed. The caller
    /// must not change the bytes that are already in it.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ);
        self.largest_capacity = self.largest_capacity.max(self.buffer.capacity());
        &mut self.buffer
    }

    /// Returns the next complete line.
    pub fn next_line(&mut self) -> Option<Line> {
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(found) = memchr(b'\n', unseen) else {
            self.scanned = self.buffer.len();
            self.skip_too_long();
            self.give_back();
            return None;
        };
        let end = self.scanned + found;
        self.scanned = 0;
        let skipped = self.skipped.take();
        let length = skipped.unwrap_or(0) + end;
        if skipped.is_some() || length > self.limit {
            self.buffer.advance(end + 1);
            return Some(Line::TooLong { length });
        }
        let line = self.whole(end);
        self.buffer.advance(1);
        Some(line)
    }

    /// Like [`Lines::next_line`], at the end of the stream: the bytes after the last newline are a line as well.
    pub fn finish(&mut self) -> Option<Line> {
        if let Some(line) = self.next_line() {
            return Some(line);
        }
        self.scanned = 0;
        if let Some(length) = self.skipped.take() {
            return Some(Line::TooLong { length });
        }
        (!self.buffer.is_empty()).then(|| self.whole(self.buffer.len()))
    }

    /// The number of bytes that were pushed and neither taken nor dropped.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// True if there is no line to take, and none has begun.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.skipped.is_none()
    }

    /// Takes a line of `length` bytes out of the buffer, with its `\r` if it has one.
    fn whole(&mut self, length: usize) -> Line {
        let returned = self.buffer[..length].ends_with(b"\r");
        let line = take(&mut self.buffer, length - usize::from(returned));
        self.buffer.advance(usize::from(returned));
        Line::Whole(line)
    }

    /// Drops the beginning of a line that is already too long.
    fn skip_too_long(&mut self) {
        if self.skipped.is_some() || self.buffer.len() > self.limit {
            *self.skipped.get_or_insert(0) += self.buffer.len();
            self.buffer.advance(self.buffer.len());
            self.scanned = 0;
        }
    }

    fn give_back(&mut self) {
        if self.buffer.is_empty() && self.largest_capacity > KEPT {
            self.buffer = BytesMut::new();
            self.largest_capacity = 0;
        }
    }
}

/// Takes the first `length` bytes out of a buffer; copies them if they are few.
pub(super) fn take(buffer: &mut BytesMut, length: usize) -> Bytes {
    if length > COPIED {
        return buffer.split_to(length).freeze();
    }
    let taken = Bytes::copy_from_slice(&buffer[..length]);
    buffer.advance(length);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of many pieces takes linear time only if no byte is scanned twice.
    #[test]
    fn no_byte_of_a_line_is_scanned_twice() {
        let mut lines = Lines::new(1 << 20);
        for pushed in 1..=64 {
            lines.push(&[b'x'; 4096]);
            assert_eq!(lines.next_line(), None);
            assert_eq!(lines.scanned, pushed * 4096);
        }
        lines.push(b"\nnext");
        let line = Line::Whole(vec![b'x'; 64 * 4096].into());
        assert_eq!((lines.next_line(), lines.scanned), (Some(line), 0));
        assert_eq!((lines.next_line(), lines.scanned), (None, 4));
    }

    #[test]
    fn a_line_that_is_too_long_takes_no_memory() {
        let mut lines = Lines::new(100_000);
        for _ in 0..1_000 {
            lines.push(&[b'x'; 4096]);
            assert_eq!(lines.next_line(), None);
            assert!(lines.buffer.len() <= 100_000 && lines.buffer.capacity() < 300_000);
        }
        lines.push(b"\nshort\n");
        assert_eq!(lines.next_line(), Some(Line::TooLong { length: 1_000 * 4096 }));
        assert_eq!(lines.next_line(), Some(Line::Whole("short".into())));
    }

    #[test]
    fn a_buffer_that_grew_is_given_back() {
        let mut lines = Lines::new(usize::MAX);
        lines.push(&[b'x'; 1_000_000]);
        lines.push(b"\n");
        let line = lines.next_line();
        assert!(matches!(&line, Some(Line::Whole(line)) if line.len() == 1_000_000));
        assert_eq!(lines.next_line(), None);
        drop(line);
        assert!(lines.buffer().capacity() <= KEPT, "its memory is freed with the line");
    }

    #[test]
    fn a_short_line_does_not_keep_the_read_buffer_alive() {
        let mut lines = Lines::new(usize::MAX);
        lines.buffer().extend_from_slice(b"short\n");
        let before = lines.buffer.as_ptr();
        let line = lines.next_line();
        lines.buffer().extend_from_slice(b"x");
        assert_eq!(lines.buffer.as_ptr(), before, "the room of the first line is used again");
        assert_eq!(line, Some(Line::Whole("short".into())));
    }
}
