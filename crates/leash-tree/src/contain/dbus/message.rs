//! Whole messages: the calls that we send, and the replies that we understand.

use super::wire::{ByteOrder, Decoder, Encoder, MAX_MESSAGE, MalformedMessage, Unsendable, expect_type};

/// The bytes of a header that are the same size in every message. The message's length follows from them.
pub(super) const PREFIX: usize = 16;

/// The numbers of the header fields.
mod field {
    pub(super) const PATH: u8 = 1;
    pub(super) const INTERFACE: u8 = 2;
    pub(super) const MEMBER: u8 = 3;
    pub(super) const ERROR_NAME: u8 = 4;
    pub(super) const REPLY_SERIAL: u8 = 5;
    pub(super) const DESTINATION: u8 = 6;
    pub(super) const SIGNATURE: u8 = 8;
}

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

/// `NO_AUTO_START`: the bus must not start a service for our call. If no manager owns its name, we want an error at
/// once.
const NO_AUTO_START: u8 = 2;

/// One method call.
#[derive(Debug)]
pub(super) struct MethodCall<'a> {
    /// The bus name of the receiver; a peer-to-peer connection has none.
    pub(super) destination: Option<&'static str>,
    /// The object.
    pub(super) path: &'a str,
    /// The method.
    pub(super) member: &'static str,
    /// The interface that the method belongs to.
    pub(super) interface: &'static str,
    /// The types of the arguments, empty if there are none.
    pub(super) signature: &'static str,
}

impl MethodCall<'_> {
    /// The bytes of the call. `arguments` must write the types that `signature` names.
    pub(super) fn encode(&self, serial: u32, arguments: impl FnOnce(&mut Encoder)) -> Result<Vec<u8>, Unsendable> {
        let mut body = Encoder::default();
        arguments(&mut body);
        let body = body.finish()?;

        let mut message = Encoder::default();
        message.raw(&[b'l', METHOD_CALL, NO_AUTO_START, 1]);
        message.u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
        message.u32(serial);
        message.array(8, |fields| self.encode_fields(fields));
        message.align(8);
        message.raw(&body);
        message.finish()
    }

    fn encode_fields(&self, fields: &mut Encoder) {
        text_field(fields, field::PATH, "o", self.path);
        text_field(fields, field::MEMBER, "s", self.member);
        text_field(fields, field::INTERFACE, "s", self.interface);
        if let Some(destination) = self.destination {
            text_field(fields, field::DESTINATION, "s", destination);
        }
        if !self.signature.is_empty() {
            begin_field(fields, field::SIGNATURE, "g");
            fields.signature(self.signature);
        }
    }
}

fn begin_field(fields: &mut Encoder, code: u8, signature: &'static str) {
    fields.align(8);
    fields.u8(code);
    fields.signature(signature);
}

fn text_field(fields: &mut Encoder, code: u8, signature: &'static str, text: &str) {
    begin_field(fields, code, signature);
    fields.str(text);
}

/// A message from the other side, for a caller that waits for one reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Incoming {
    /// The method returned.
    Return { to: u32, body: MessageBody },
    /// The method failed.
    Error { to: u32, name: String, body: MessageBody },
    /// A signal or a call that we did not ask for.
    Unasked,
}

/// The values of a message, not yet read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageBody {
    order: ByteOrder,
    signature: String,
    bytes: Vec<u8>,
}

/// Returns the length of the message that starts with `prefix`.
pub(super) fn total_length(prefix: &[u8; PREFIX]) -> Result<usize, MalformedMessage> {
    let mut decoder = Decoder::new(prefix, ByteOrder::from_mark(prefix[0])?);
    decoder.u32()?;
    let body = u64::from(decoder.u32()?);
    decoder.u32()?;
    let fields = u64::from(decoder.u32()?);
    // Two lengths below 2^32 can't overflow 64 bits.
    let bytes = (PREFIX as u64 + fields).next_multiple_of(8) + body;
    usize::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_MESSAGE).ok_or(MalformedMessage::TooLarge { bytes })
}

/// Reads one whole message.
pub(super) fn decode(message: &[u8]) -> Result<Incoming, MalformedMessage> {
    let mark = *message.first().ok_or(MalformedMessage::Truncated)?;
    let order = ByteOrder::from_mark(mark)?;
    let mut decoder = Decoder::new(message, order);
    decoder.u8()?;
    let kind = decoder.u8()?;
    decoder.u8()?;
    let version = decoder.u8()?;
    if version != 1 {
        return Err(MalformedMessage::Version(version));
    }
    let body_length = usize::try_from(decoder.u32()?).map_err(|_| MalformedMessage::Truncated)?;
    decoder.u32()?;
    let fields = decode_fields(&mut decoder)?;
    decoder.align(8)?;
    let body = message.get(decoder.position()..).and_then(|rest| rest.get(..body_length));
    let bytes = body.ok_or(MalformedMessage::Truncated)?.to_vec();
    let body = MessageBody { order, signature: fields.signature, bytes };
    match (kind, fields.reply_serial) {
        (METHOD_RETURN, Some(to)) => Ok(Incoming::Return { to, body }),
        (ERROR, Some(to)) => Ok(Incoming::Error { to, name: fields.error_name, body }),
        // A reply without a serial can't be matched with any call.
        (METHOD_RETURN | ERROR, None) => Err(MalformedMessage::Type { expected: "u", found: String::new() }),
        // The specification says to ignore unknown kinds.
        _ => Ok(Incoming::Unasked),
    }
}

#[derive(Debug, Default)]
struct HeaderFields {
    reply_serial: Option<u32>,
    error_name: String,
    signature: String,
}

fn decode_fields(decoder: &mut Decoder<'_>) -> Result<HeaderFields, MalformedMessage> {
    let mut fields = HeaderFields::default();
    let end = decoder.array_end(8)?;
    while decoder.position() < end {
        decoder.align(8)?;
        match decoder.u8()? {
            field::REPLY_SERIAL => {
                decoder.variant("u")?;
                fields.reply_serial = Some(decoder.u32()?);
            }
            field::ERROR_NAME => {
                decoder.variant("s")?;
                fields.error_name = decoder.str()?.to_owned();
            }
            field::SIGNATURE => {
                decoder.variant("g")?;
                fields.signature = decoder.signature()?.to_owned();
            }
            _ => skip_field(decoder)?,
        }
    }
    // An element that ends beyond its array makes the message invalid.
    if decoder.position() > end { Err(MalformedMessage::Truncated) } else { Ok(fields) }
}

/// Skips a field that we do not need. All existing fields, and any that an old receiver can be expected to skip, have
/// one of these types.
fn skip_field(decoder: &mut Decoder<'_>) -> Result<(), MalformedMessage> {
    match decoder.signature()? {
        "s" | "o" => decoder.str().map(drop),
        "g" => decoder.signature().map(drop),
        "u" | "i" => decoder.u32().map(drop),
        "y" => decoder.u8().map(drop),
        other => expect_type("s", other),
    }
}

impl MessageBody {
    /// The body if it is one string (`s`) or object path (`o`), as `expected` says.
    pub(super) fn text(&self, expected: &'static str) -> Result<String, MalformedMessage> {
        expect_type(expected, &self.signature)?;
        Ok(self.decoder().str()?.to_owned())
    }

    /// The body if it is a variant with a string in it.
    pub(super) fn variant_text(&self) -> Result<String, MalformedMessage> {
        expect_type("v", &self.signature)?;
        let mut decoder = self.decoder();
        decoder.variant("s")?;
        Ok(decoder.str()?.to_owned())
    }

    /// The text of an error: its first argument by convention, or an empty string.
    pub(super) fn error_text(&self) -> String {
        if !self.signature.starts_with('s') {
            return String::new();
        }
        self.decoder().str().unwrap_or_default().to_owned()
    }

    fn decoder(&self) -> Decoder<'_> {
        Decoder::new(&self.bytes, self.order)
    }
}
