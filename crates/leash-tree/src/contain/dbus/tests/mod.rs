//! Messages as bytes, and conversations with correct and with faulty servers.

mod bytes;
mod conversation;
mod hostile;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Bus;
use super::message::{PREFIX, total_length};
use super::socket::BusStream;
use super::wire::Encoder;
use leash_model::clock::Moment;

/// Longer than any of these conversations takes. A test that hangs fails after this time.
const LONG: Duration = Duration::from_secs(5);

/// A bus without an address, and the other end of its socket.
fn connected() -> (Bus, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("socketpair");
    ours.set_nonblocking(true).expect("nonblocking");
    let channel = BusStream::over(ours.into(), Moment::now() + LONG);
    (Bus { channel, manager: None, last_serial: 0, broken: false }, theirs)
}

fn read_message(from: &mut UnixStream) -> Vec<u8> {
    let mut prefix = [0; PREFIX];
    from.read_exact(&mut prefix).expect("prefix");
    let mut rest = vec![0; total_length(&prefix).expect("length") - PREFIX];
    from.read_exact(&mut rest).expect("rest");
    [prefix.to_vec(), rest].concat()
}

fn reply_to(serial: u32, signature: &'static str, body: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    incoming(2, serial, None, signature, body)
}

fn error_to(serial: u32, name: &str, text: &str) -> Vec<u8> {
    incoming(3, serial, Some(name), "s", |body| body.str(text))
}

fn incoming(
    kind: u8,
    reply_serial: u32,
    error_name: Option<&str>,
    signature: &'static str,
    body: impl FnOnce(&mut Encoder),
) -> Vec<u8> {
    let mut encoded = Encoder::default();
    body(&mut encoded);
    let body = encoded.finish().expect("encodable");
    let mut message = Encoder::default();
    message.raw(&[b'l', kind, 1, 1]);
    message.u32(body.len().try_into().expect("small"));
    message.u32(9);
    message.array(8, |fields| {
        let begin = |fields: &mut Encoder, code, signature| {
            fields.align(8);
            fields.u8(code);
            fields.signature(signature);
        };
        begin(fields, 5, "u");
        fields.u32(reply_serial);
        if let Some(name) = error_name {
            begin(fields, 4, "s");
            fields.str(name);
        }
        begin(fields, 7, "s");
        fields.str(":1.0");
        begin(fields, 8, "g");
        fields.signature(signature);
    });
    message.align(8);
    message.raw(&body);
    message.finish().expect("encodable")
}
