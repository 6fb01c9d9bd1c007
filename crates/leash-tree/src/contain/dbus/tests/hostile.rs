//! For any received bytes the client returns an answer or an error.

use std::io::Write;

use proptest::prelude::*;

use super::super::message::{Incoming, decode, total_length};
use super::super::wire::{ByteOrder, Decoder, Encoder, MalformedMessage};
use super::super::{ExecCommand, Property, property};
use super::{connected, error_to, reply_to};

/// Reads a property back, in the way systemd does: by the type that it announces.
fn read_property(from: &mut Decoder<'_>) -> Result<Property, MalformedMessage> {
    let strings = |from: &mut Decoder<'_>| {
        let end = from.array_end(4)?;
        let mut values = Vec::new();
        while from.position() < end {
            values.push(from.str()?.to_owned());
        }
        Ok(values)
    };
    Ok(match from.signature()? {
        "s" => Property::Str(from.str()?.to_owned()),
        "as" => Property::StrList(strings(from)?),
        "b" => Property::Bool(from.u32()? == 1),
        "i" => Property::I32(from.u32()? as i32),
        "u" => Property::U32(from.u32()?),
        "t" => {
            from.align(8)?;
            Property::U64(u64::from(from.u32()?) | u64::from(from.u32()?) << 32)
        }
        "au" => {
            let end = from.array_end(4)?;
            let mut pids = Vec::new();
            while from.position() < end {
                pids.push(from.u32()?);
            }
            Property::PidList(pids)
        }
        _ => {
            let end = from.array_end(8)?;
            let mut commands = Vec::new();
            while from.position() < end {
                from.align(8)?;
                let path = from.str()?.to_owned();
                commands.push(ExecCommand { path, argv: strings(from)?, ignore_failure: from.u32()? == 1 });
            }
            Property::Exec(commands)
        }
    })
}

fn any_text() -> impl Strategy<Value = String> {
    "[^\0]{0,12}"
}

fn any_property() -> impl Strategy<Value = Property> {
    let texts = || prop::collection::vec(any_text(), 0..4);
    let command = (any_text(), texts(), any::<bool>()).prop_map(|(path, argv, ignore_failure)| ExecCommand {
        path,
        argv,
        ignore_failure,
    });
    prop_oneof![
        any_text().prop_map(Property::Str),
        texts().prop_map(Property::StrList),
        any::<bool>().prop_map(Property::Bool),
        any::<i32>().prop_map(Property::I32),
        any::<u32>().prop_map(Property::U32),
        any::<u64>().prop_map(Property::U64),
        prop::collection::vec(any::<u32>(), 0..5).prop_map(Property::PidList),
        prop::collection::vec(command, 0..3).prop_map(Property::Exec),
    ]
}

/// A valid reply, which the tests then damage.
fn any_reply() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any_text().prop_map(|text| reply_to(1, "o", |body| body.str(&text))),
        any_text().prop_map(|text| error_to(1, "x.y", &text)),
        any_text().prop_map(|text| reply_to(1, "v", |body| {
            body.signature("s");
            body.str(&text);
        })),
    ]
}

/// Reads every value of a message. The values do not matter, only that the function returns.
fn read_all(bytes: &[u8]) {
    if let Some(prefix) = bytes.first_chunk() {
        let _ = total_length(prefix);
    }
    if let Ok(Incoming::Return { body, .. } | Incoming::Error { body, .. }) = decode(bytes) {
        let _ = (body.text("s"), body.text("o"), body.variant_text(), body.error_text());
    }
}

proptest! {
    #[test]
    fn properties_survive_the_wire(name in any_text(), property in any_property(), pad in 0usize..9) {
        let mut encoder = Encoder::default();
        // The alignment must be right at any start position of the value.
        (0..pad).for_each(|_| encoder.u8(0));
        property::encode_all(&[(&name, property.clone())], &mut encoder);
        let bytes = encoder.finish().expect("encodable");
        let mut decoder = Decoder::new(&bytes, ByteOrder::Little);
        (0..pad).for_each(|_| drop(decoder.u8()));
        let end = decoder.array_end(8).expect("array");
        prop_assert_eq!(decoder.str(), Ok(name.as_str()));
        prop_assert_eq!(read_property(&mut decoder), Ok(property));
        prop_assert_eq!(decoder.position(), end);
        prop_assert_eq!(end, bytes.len());
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        read_all(&bytes);
    }

    #[test]
    fn damaged_reply_is_read_without_panic(reply in any_reply(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut spoiled = reply;
        let at = at.index(spoiled.len());
        spoiled[at] = byte;
        read_all(&spoiled);
    }

    #[test]
    fn a_truncated_reply_is_an_error(reply in any_reply(), cut in any::<prop::sample::Index>()) {
        let cut = &reply[..cut.index(reply.len())];
        read_all(cut);
        prop_assert!(decode(cut).is_err());
    }

    #[test]
    fn any_server_output_gives_an_answer_or_an_error(said in prop::collection::vec(any::<u8>(), 0..512), reply in any_reply()) {
        let (mut bus, mut theirs) = connected();
        theirs.write_all(&reply).expect("write");
        theirs.write_all(&said).expect("write");
        theirs.shutdown(std::net::Shutdown::Write).expect("shutdown");
        let _ = bus.stop_unit("x");
        let _ = bus.unit_property_string("x", "Unit", "ActiveState");
        drop(theirs);
    }
}
