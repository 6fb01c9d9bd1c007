//! The D-Bus wire format: small functions that write and read one type each.
//!
//! Every value is aligned to its own size, counted from the start of the message. Headers and bodies start on
//! a multiple of eight, so each can be written and read on its own.

use thiserror::Error;

/// The largest message that we send or accept.
///
/// The protocol allows 128 MiB. We send a few properties and read an object path or a short string. 64 KiB leaves room
/// for a guard with a long command line and for a long error text.
pub(super) const MAX_MESSAGE: usize = 64 * 1024;

/// The reason why received bytes are not a D-Bus message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum MalformedMessage {
    /// A value ends beyond the received bytes.
    #[error("a value ends beyond the message")]
    Truncated,
    /// The message says that it is larger than we accept.
    #[error("a message of {bytes} bytes is over the limit of {MAX_MESSAGE}")]
    TooLarge {
        /// The size it claims.
        bytes: u64,
    },
    /// The first byte names no byte order.
    #[error("`{0:#04x}` is not a byte order")]
    ByteOrder(u8),
    /// Only version 1 of the protocol exists.
    #[error("`{0}` is not a protocol version")]
    Version(u8),
    /// The text of a value has no terminator, holds one inside, or is not UTF-8.
    #[error("a string is not valid")]
    Text,
    /// A header field or a reply has the wrong type.
    #[error("expected type `{expected}`, got `{found}`")]
    Type {
        /// The signature that was needed.
        expected: &'static str,
        /// The signature that was there.
        found: String,
    },
    /// A line of the authentication has no end within the limit.
    #[error("an authentication line is too long")]
    Line,
}

/// The reason why a call can't be encoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Unsendable {
    /// D-Bus strings can't carry a NUL byte.
    #[error("`{0:?}` holds a NUL byte")]
    Nul(String),
    /// The call is larger than [`MAX_MESSAGE`].
    #[error("a call of {bytes} bytes is over the limit of {MAX_MESSAGE}")]
    TooLarge {
        /// The size it would have.
        bytes: usize,
    },
}

/// Writes values, little-endian, each at its alignment.
///
/// A mistake (a NUL byte, too many bytes) is remembered, and [`Encoder::finish`] returns it. So the functions that
/// describe a message read like the message.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
    mistake: Option<Unsendable>,
}

impl Encoder {
    /// Returns the bytes, or the first mistake.
    pub(super) fn finish(self) -> Result<Vec<u8>, Unsendable> {
        match self.mistake {
            Some(mistake) => Err(mistake),
            None if self.bytes.len() > MAX_MESSAGE => Err(Unsendable::TooLarge { bytes: self.bytes.len() }),
            None => Ok(self.bytes),
        }
    }

    /// Pads with zeroes up to a multiple of `boundary`.
    pub(super) fn align(&mut self, boundary: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(boundary), 0);
    }

    /// Appends bytes that are already encoded.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// `y`
    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// `u`
    pub(super) fn u32(&mut self, value: u32) {
        self.align(4);
        self.raw(&value.to_le_bytes());
    }

    /// `i`
    pub(super) fn i32(&mut self, value: i32) {
        self.align(4);
        self.raw(&value.to_le_bytes());
    }

    /// `t`
    pub(super) fn u64(&mut self, value: u64) {
        self.align(8);
        self.raw(&value.to_le_bytes());
    }

    /// `b`: a whole word, of which only 0 and 1 are allowed.
    pub(super) fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// `s` and `o`
    pub(super) fn str(&mut self, value: &str) {
        self.check_text(value);
        self.u32(length(value.len()));
        self.raw(value.as_bytes());
        self.u8(0);
    }

    /// `g`
    pub(super) fn signature(&mut self, value: &'static str) {
        self.u8(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.raw(value.as_bytes());
        self.u8(0);
    }

    /// `a..`: `elements` writes the elements, which are aligned to `boundary`.
    pub(super) fn array(&mut self, boundary: usize, elements: impl FnOnce(&mut Encoder)) {
        self.u32(0);
        let length_at = self.bytes.len() - 4;
        // The padding before the first element is there even if the array is empty. It is not counted.
        self.align(boundary);
        let start = self.bytes.len();
        elements(self);
        let counted = length(self.bytes.len() - start);
        self.bytes[length_at..length_at + 4].copy_from_slice(&counted.to_le_bytes());
    }

    /// `as`
    pub(super) fn strings(&mut self, values: &[String]) {
        self.array(4, |list| values.iter().for_each(|value| list.str(value)));
    }

    fn check_text(&mut self, value: &str) {
        if value.contains('\0') {
            self.mistake.get_or_insert_with(|| Unsendable::Nul(value.to_owned()));
        }
    }
}

/// A length as the wire has it. [`Encoder::finish`] refuses a length that does not fit.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reads values of either byte order. For any bytes it never panics and never allocates more than their length.
#[derive(Debug, Clone)]
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    order: ByteOrder,
}

/// The byte order of a message. The sender chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The order that the first byte of a message names.
    pub(super) fn from_mark(mark: u8) -> Result<ByteOrder, MalformedMessage> {
        match mark {
            b'l' => Ok(ByteOrder::Little),
            b'B' => Ok(ByteOrder::Big),
            other => Err(MalformedMessage::ByteOrder(other)),
        }
    }
}

impl<'a> Decoder<'a> {
    /// Starts at the first of `bytes`, which must sit on a multiple of eight in its message.
    pub(super) fn new(bytes: &'a [u8], order: ByteOrder) -> Decoder<'a> {
        Decoder { bytes, at: 0, order }
    }

    /// The number of bytes that were read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Skips the padding up to a multiple of `boundary`.
    pub(super) fn align(&mut self, boundary: usize) -> Result<(), MalformedMessage> {
        let target = self.at.checked_next_multiple_of(boundary).ok_or(MalformedMessage::Truncated)?;
        self.take(target - self.at)?;
        Ok(())
    }

    /// `y`
    pub(super) fn u8(&mut self) -> Result<u8, MalformedMessage> {
        let [byte] = self.fixed::<1>()?;
        Ok(byte)
    }

    /// `u`
    pub(super) fn u32(&mut self) -> Result<u32, MalformedMessage> {
        self.align(4)?;
        let word = self.fixed::<4>()?;
        Ok(match self.order {
            ByteOrder::Little => u32::from_le_bytes(word),
            ByteOrder::Big => u32::from_be_bytes(word),
        })
    }

    /// `s` and `o`
    pub(super) fn str(&mut self) -> Result<&'a str, MalformedMessage> {
        let length = self.u32()?;
        self.text(length)
    }

    /// `g`
    pub(super) fn signature(&mut self) -> Result<&'a str, MalformedMessage> {
        let length = self.u8()?;
        self.text(length.into())
    }

    /// Reads the start of an array. Returns the position after its last element.
    pub(super) fn array_end(&mut self, boundary: usize) -> Result<usize, MalformedMessage> {
        let length = self.u32()?;
        self.align(boundary)?;
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        end.filter(|end| *end <= self.bytes.len()).ok_or(MalformedMessage::Truncated)
    }

    /// Reads the type of a variant, which must be `expected`; the caller reads the value next.
    pub(super) fn variant(&mut self, expected: &'static str) -> Result<(), MalformedMessage> {
        expect_type(expected, self.signature()?)
    }

    fn text(&mut self, length: u32) -> Result<&'a str, MalformedMessage> {
        let length = usize::try_from(length).map_err(|_| MalformedMessage::Truncated)?;
        let text = self.take(length)?;
        if self.u8()? != 0 || text.contains(&0) {
            return Err(MalformedMessage::Text);
        }
        std::str::from_utf8(text).map_err(|_| MalformedMessage::Text)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], MalformedMessage> {
        self.take(N)?.try_into().map_err(|_| MalformedMessage::Truncated)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], MalformedMessage> {
        let rest = self.bytes.get(self.at..).ok_or(MalformedMessage::Truncated)?;
        let taken = rest.get(..count).ok_or(MalformedMessage::Truncated)?;
        self.at += count;
        Ok(taken)
    }
}

/// Refuses a value of a type that we can't read.
pub(super) fn expect_type(expected: &'static str, found: &str) -> Result<(), MalformedMessage> {
    if found == expected {
        return Ok(());
    }
    Err(MalformedMessage::Type { expected, found: found.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        let mut encoder = Encoder::default();
        write(&mut encoder);
        encoder.finish().expect("encodable")
    }

    #[test]
    fn a_string_is_length_text_nul() {
        assert_eq!(encoded(|e| e.str("foo")), b"\x03\0\0\0foo\0");
        assert_eq!(encoded(|e| e.str("")), b"\0\0\0\0\0");
    }

    #[test]
    fn a_signature_has_a_short_length() {
        assert_eq!(encoded(|e| e.signature("a(sv)")), b"\x05a(sv)\0");
    }

    #[test]
    fn values_are_aligned_to_their_size() {
        let bytes = encoded(|e| {
            e.u8(7);
            e.u32(0x0102_0304);
            e.u8(8);
            e.u64(9);
            e.bool(true);
            e.i32(-1);
        });
        let expected: &[u8] = &[
            7, 0, 0, 0, 4, 3, 2, 1, // y, padding, u
            8, 0, 0, 0, 0, 0, 0, 0, // y, padding
            9, 0, 0, 0, 0, 0, 0, 0, // t
            1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // b, i
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn the_padding_of_an_array_is_not_counted() {
        let bytes = encoded(|e| e.array(8, |list| list.u64(1)));
        assert_eq!(bytes, [8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let empty = encoded(|e| e.array(8, |_| ()));
        assert_eq!(empty, [0; 8]);
    }

    #[test]
    fn a_nul_byte_is_refused() {
        let mut encoder = Encoder::default();
        encoder.str("a\0b");
        assert_eq!(encoder.finish(), Err(Unsendable::Nul("a\0b".to_owned())));
    }

    #[test]
    fn a_huge_call_is_refused() {
        let mut encoder = Encoder::default();
        encoder.str(&"x".repeat(MAX_MESSAGE));
        assert!(matches!(encoder.finish(), Err(Unsendable::TooLarge { .. })));
    }

    #[test]
    fn both_byte_orders_are_read() {
        assert_eq!(Decoder::new(&[1, 2, 3, 4], ByteOrder::Little).u32(), Ok(0x0403_0201));
        assert_eq!(Decoder::new(&[1, 2, 3, 4], ByteOrder::Big).u32(), Ok(0x0102_0304));
    }

    #[test]
    fn a_string_without_its_end_is_an_error() {
        let check = |bytes: &[u8], error| assert_eq!(Decoder::new(bytes, ByteOrder::Little).str(), Err(error));
        check(b"\x03\0\0\0foo", MalformedMessage::Truncated);
        check(b"\x03\0\0\0fooX", MalformedMessage::Text);
        check(b"\x03\0\0\0f\0o\0", MalformedMessage::Text);
        check(b"\x01\0\0\0\xff\0", MalformedMessage::Text);
        check(b"\xff\xff\xff\xfffoo\0", MalformedMessage::Truncated);
        check(b"\x03\0", MalformedMessage::Truncated);
    }

    #[test]
    fn an_array_over_the_end_is_an_error() {
        let mut decoder = Decoder::new(b"\x08\0\0\0\0\0\0\0\0\0", ByteOrder::Little);
        assert_eq!(decoder.array_end(8), Err(MalformedMessage::Truncated));
    }
}
