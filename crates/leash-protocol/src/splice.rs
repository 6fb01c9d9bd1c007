//! Values replaced inside a message whose other bytes stay as they are.

use std::ops::Range;

use serde_json::value::RawValue;

/// Replaces values inside a message and leaves every other byte as it is.
///
/// A part must be borrowed from the source, and must not overlap another part. Otherwise it is a mistake of the caller:
/// a debug build panics, and a release build ignores the part.
#[derive(Debug)]
pub struct Splice<'a> {
    source: &'a [u8],
    /// The replaced parts, in the order of the source, without overlaps.
    parts: Vec<(Range<usize>, Vec<u8>)>,
}

impl<'a> Splice<'a> {
    /// Starts with the message as it was received.
    pub fn new(source: &'a [u8]) -> Self {
        Self { source, parts: Vec::new() }
    }

    /// Puts `with` in the place of `part`; if it is called twice for the same part, the later call counts.
    pub fn replace(&mut self, part: &RawValue, with: impl Into<Vec<u8>>) -> &mut Self {
        let Some(range) = self.place(part) else {
            debug_assert!(false, "a part that is not borrowed from the source");
            return self;
        };
        let at = self.parts.partition_point(|(known, _)| known.start < range.start);
        if let Some((known, text)) = self.parts.get_mut(at)
            && *known == range
        {
            *text = with.into();
            return self;
        }
        let before = at.checked_sub(1).and_then(|before| self.parts.get(before));
        let overlaps = before.is_some_and(|(known, _)| known.end > range.start)
            || self.parts.get(at).is_some_and(|(known, _)| known.start < range.end);
        debug_assert!(!overlaps, "a part inside of another part");
        if !overlaps {
            self.parts.insert(at, (range, with.into()));
        }
        self
    }

    /// The message with its parts replaced.
    pub fn finish(&self) -> Vec<u8> {
        let added: usize = self.parts.iter().map(|(_, with)| with.len()).sum();
        let mut out = Vec::with_capacity(self.source.len() + added);
        let mut copied = 0;
        for (range, with) in &self.parts {
            out.extend_from_slice(&self.source[copied..range.start]);
            out.extend_from_slice(with);
            copied = range.end;
        }
        out.extend_from_slice(&self.source[copied..]);
        out
    }

    /// The range of a part in the source, by its address alone.
    fn place(&self, part: &RawValue) -> Option<Range<usize>> {
        let text = part.get();
        let start = text.as_ptr().addr().checked_sub(self.source.as_ptr().addr())?;
        let end = start.checked_add(text.len())?;
        (end <= self.source.len()).then_some(start..end)
    }
}
