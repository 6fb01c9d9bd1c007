//! Splits event streams into events without changing a byte.
//!
//! The rules are those of the HTML standard, section "event streams": lines end with LF, CRLF or CR, a blank line ends
//! an event, and a byte order mark counts only at the beginning of the stream.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;
use thiserror::Error;

use super::frame;

/// A comment that keeps a connection alive: without traffic, proxies and clients may take it for dead.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The ending of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnding {
    Lf,
    Cr,
    CrLf,
}

/// Splits a stream into complete events as bytes come in. All [`Event::raw`] and the [rest](Splitter::rest) together
/// are the input.
///
/// A blank line that ends in CR is complete, but an LF that belongs to it may follow. The line before decides whether
/// to wait for the next byte: after CRLF the LF will come, after CR or LF it will not. (If it does come, it is the
/// first byte of the next event, where it has no meaning.) So no event waits for a byte that is never sent, and the
/// result does not depend on how the bytes were cut.
#[derive(Debug)]
pub struct Splitter {
    buffer: BytesMut,
    /// The buffer has no end of an event before this index.
    scanned: usize,
    /// True if the line at `scanned` has no bytes before that index.
    blank: bool,
    /// The ending of the last line.
    ending: Option<LineEnding>,
    /// True if the next byte may be the LF of a CR that already ended an event.
    owed_lf: bool,
    /// True until the first bytes were scanned: a byte order mark may come.
    opening: bool,
    /// True if the event in the buffer is the first one.
    first: bool,
    /// True while an event that is too large is being skipped.
    skipping: bool,
    limit: usize,
}

/// An event is larger than the limit. The splitter skips it and continues with the next one.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("an event of more than {limit} bytes")]
pub struct TooLarge {
    /// The limit.
    pub limit: usize,
}

impl Splitter {
    /// Splits into events of up to `limit` bytes, terminator included.
    pub fn new(limit: usize) -> Splitter {
        Splitter {
            buffer: BytesMut::new(),
            scanned: 0,
            blank: true,
            ending: None,
            owed_lf: false,
            opening: true,
            first: true,
            skipping: false,
            limit,
        }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete event.
    pub fn next_event(&mut self) -> Option<Result<Event, TooLarge>> {
        loop {
            let Some(end) = self.find_end(false) else {
                return self.unfinished().map(Err);
            };
            if let Some(event) = self.cut(end) {
                return Some(event);
            }
        }
    }

    /// Returns the event that waited for an LF. Call it at the end of the stream, when
    /// [`next_event`](Splitter::next_event) has no more; the bytes in the rest are then an event that was cut off.
    pub fn finish(&mut self) -> Option<Result<Event, TooLarge>> {
        let end = self.find_end(true)?;
        self.cut(end)
    }

    /// The bytes of an unfinished event, and of events that were not taken. Empty while an event that is too large is
    /// skipped.
    pub fn rest(&self) -> &[u8] {
        if self.skipping { &[] } else { &self.buffer }
    }

    /// Takes the rest. Bytes that are pushed afterwards begin a new stream.
    pub fn take_rest(&mut self) -> Bytes {
        let old = std::mem::replace(self, Splitter::new(self.limit));
        if old.skipping { Bytes::new() } else { old.buffer.freeze() }
    }

    /// Scans for the end of an event and returns its index; `at_end` says that no further byte can come.
    fn find_end(&mut self, at_end: bool) -> Option<usize> {
        self.skip_opening()?;
        loop {
            let from = self.scanned;
            let Some(found) = memchr2(b'\n', b'\r', &self.buffer[from..]) else {
                self.blank &= from == self.buffer.len();
                self.scanned = self.buffer.len();
                return None;
            };
            let at = from + found;
            self.blank &= found == 0;
            self.scanned = at;
            let ending = self.ending_at(at, at_end)?;
            let is_end = self.blank;
            self.scanned = at + if ending == LineEnding::CrLf { 2 } else { 1 };
            self.ending = Some(ending);
            self.blank = true;
            if is_end {
                return Some(self.scanned);
            }
        }
    }

    /// The kind of the line ending at `at`; `None` if that depends on a byte that has not come yet.
    fn ending_at(&mut self, at: usize, at_end: bool) -> Option<LineEnding> {
        if self.buffer[at] == b'\n' {
            return Some(LineEnding::Lf);
        }
        if self.blank && matches!(self.ending, Some(LineEnding::Cr | LineEnding::Lf)) {
            self.owed_lf = true;
            return Some(LineEnding::Cr);
        }
        match self.buffer.get(at + 1) {
            Some(b'\n') => Some(LineEnding::CrLf),
            Some(_) => Some(LineEnding::Cr),
            None => at_end.then_some(LineEnding::Cr),
        }
    }

    /// Skips bytes that may come before the first line of an event: a byte order mark, or a late LF. `None` means to
    /// wait.
    fn skip_opening(&mut self) -> Option<()> {
        if self.opening {
            let seen = self.buffer.len().min(BYTE_ORDER_MARK.len());
            if self.buffer[..seen] != BYTE_ORDER_MARK[..seen] {
                self.opening = false;
            } else if seen == BYTE_ORDER_MARK.len() {
                self.opening = false;
                self.scanned = seen;
            } else {
                return None;
            }
        }
        if self.owed_lf {
            let next = *self.buffer.get(self.scanned)?;
            self.scanned += usize::from(next == b'\n');
            self.owed_lf = false;
        }
        Some(())
    }

    /// Takes the event that ends at `end` out of the buffer; `None` for the rest of one that was too large.
    fn cut(&mut self, end: usize) -> Option<Result<Event, TooLarge>> {
        self.scanned = 0;
        let opens_stream = std::mem::replace(&mut self.first, false);
        if std::mem::replace(&mut self.skipping, false) {
            self.buffer.advance(end);
            return None;
        }
        if end > self.limit {
            self.buffer.advance(end);
            return Some(Err(TooLarge { limit: self.limit }));
        }
        Some(Ok(Event { raw: frame::take(&mut self.buffer, end), opens_stream }))
    }

    /// Keeps an event without an end within the limit.
    fn unfinished(&mut self) -> Option<TooLarge> {
        if self.skipping || self.buffer.len() > self.limit {
            // At most a CR is not scanned yet.
            self.buffer.advance(self.scanned);
            self.scanned = 0;
            return (!std::mem::replace(&mut self.skipping, true)).then_some(TooLarge { limit: self.limit });
        }
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        None
    }
}

/// One event, or a single blank line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its bytes with the terminating blank line; CR, LF, CRLF and byte order mark as received.
    pub raw: Bytes,
    /// True if it is the first of its stream, where a byte order mark counts.
    opens_stream: bool,
}

impl Event {
    /// The last `id`; an id with NUL is ignored.
    pub fn id(&self) -> Option<String> {
        self.last(b"id", |value| !value.contains(&0)).map(text)
    }

    /// The type; `None` means `message`.
    pub fn name(&self) -> Option<String> {
        self.last(b"event", |_| true).filter(|value| !value.is_empty()).map(text)
    }

    /// The milliseconds to wait before connecting again. A value that is not a number is ignored.
    pub fn retry(&self) -> Option<u64> {
        let number = |value: &[u8]| value.iter().all(u8::is_ascii_digit).then(|| text(value).parse().ok()).flatten();
        self.last(b"retry", |value| number(value).is_some()).and_then(number)
    }

    /// The data lines joined by LF; `None` without any.
    pub fn data(&self) -> Option<Vec<u8>> {
        let mut lines = self.fields().filter(|(name, _)| *name == b"data").map(|(_, value)| value);
        let mut joined = lines.next()?.to_vec();
        for line in lines {
            joined.push(b'\n');
            joined.extend_from_slice(line);
        }
        Some(joined)
    }

    /// True if it has no field at all, known or unknown: only comments, or nothing.
    pub fn is_comment_only(&self) -> bool {
        self.fields().next().is_none()
    }

    /// The last field of a name whose value is valid by `counts`.
    fn last(&self, name: &[u8], counts: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
        self.fields().filter(|(found, value)| *found == name && counts(value)).map(|(_, value)| value).last()
    }

    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mark = if self.opens_stream { BYTE_ORDER_MARK } else { &[] };
        let text = self.raw.strip_prefix(mark).unwrap_or(&self.raw);
        // Here CRLF counts as two endings. That adds only blank lines, which are filtered out.
        let lines = text.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| !line.is_empty());
        lines.filter(|line| line[0] != b':').map(|line| match memchr::memchr(b':', line) {
            None => (line, &[][..]),
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
        })
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Appends an event. Data with line breaks becomes several data lines, so a CR is read back as LF; JSON-RPC never has
/// any. Bytes that an id or a name must not contain (line breaks, NUL) are left out.
pub fn encode(out: &mut Vec<u8>, id: Option<&str>, name: Option<&str>, data: &[u8]) {
    for (field, value) in [("id", id), ("event", name)] {
        if let Some(value) = value {
            out.extend_from_slice(field.as_bytes());
            out.extend_from_slice(b": ");
            out.extend(value.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r' | 0)));
            out.push(b'\n');
        }
    }
    let mut rest = data;
    loop {
        let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&rest[..end]);
        out.push(b'\n');
        let broken_by = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        match rest.get(end + broken_by..) {
            Some(further) => rest = further,
            None => break,
        }
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of many pieces takes linear time only if no byte is scanned twice.
    #[test]
    fn no_byte_of_an_event_is_scanned_twice() {
        let mut splitter = Splitter::new(1 << 20);
        for pushed in 1..=64 {
            splitter.push(&[b'x'; 4095]);
            splitter.push(b"\n");
            assert_eq!(splitter.next_event(), None);
            assert_eq!(splitter.scanned, pushed * 4096);
        }
        splitter.push(b"\nnext");
        let event = splitter.next_event().map(|event| event.map(|event| event.raw.len()));
        assert_eq!((event, splitter.scanned), (Some(Ok(64 * 4096 + 1)), 0));
        assert_eq!((splitter.next_event(), splitter.scanned), (None, 4));
    }

    #[test]
    fn an_event_that_is_too_large_takes_no_memory() {
        let mut splitter = Splitter::new(100_000);
        let mut failures = 0;
        for _ in 0..1_000 {
            splitter.push(&[b'x'; 4095]);
            splitter.push(b"\n");
            failures += splitter.next_event().map_or(0, |event| usize::from(event.is_err()));
            assert!(splitter.buffer.len() <= 100_000 && splitter.buffer.capacity() < 300_000);
        }
        assert_eq!(failures, 1, "it is reported once");
        splitter.push(b"\ndata: next\n\n");
        let next = splitter.next_event().and_then(Result::ok).and_then(|event| event.data());
        assert_eq!(next.as_deref(), Some(&b"next"[..]));
    }
}
