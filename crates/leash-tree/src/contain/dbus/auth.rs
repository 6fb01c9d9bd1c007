//! The text dialogue before the first message: SASL with the mechanism EXTERNAL, in which the kernel vouches
//! for the uid and the client only has to name it.

use super::BusError;
use super::socket::Channel;

/// The longest answer that we read. `OK` and 32 digits, or `REJECTED` and a few mechanisms, are under 100.
const LONGEST_LINE: usize = 512;

/// Becomes known to the other side as `uid`; the next bytes on `channel` are messages.
///
/// `BEGIN` goes out with the first line and not after the answer. systemd's private socket loses a message that
/// it reads together with `BEGIN`: it answers only when more bytes come, and nobody sends any. Once `OK` is here,
/// `BEGIN` was read before.
pub(super) fn authenticate(channel: &mut Channel, uid: u32) -> Result<(), BusError> {
    channel.send(&greeting(uid))?;
    let answer = channel.take_line(LONGEST_LINE)?;
    if accepts(&answer) { Ok(()) } else { Err(BusError::Rejected { uid }) }
}

/// The first byte is a NUL, once meant to carry credentials. The uid is written in decimal, and that in hex.
fn greeting(uid: u32) -> Vec<u8> {
    let mut line = b"\0AUTH EXTERNAL ".to_vec();
    for digit in uid.to_string().bytes() {
        line.extend_from_slice(format!("{digit:02x}").as_bytes());
    }
    line.extend_from_slice(b"\r\nBEGIN\r\n");
    line
}

/// Whether the answer is `OK`, with or without the server's id.
fn accepts(answer: &[u8]) -> bool {
    answer == b"OK" || answer.starts_with(b"OK ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uid_is_hex_of_decimal() {
        assert_eq!(greeting(1000), b"\0AUTH EXTERNAL 31303030\r\nBEGIN\r\n");
        assert_eq!(greeting(0), b"\0AUTH EXTERNAL 30\r\nBEGIN\r\n");
    }

    #[test]
    fn only_ok_is_ok() {
        assert!(accepts(b"OK 1234deadbeef"));
        assert!(accepts(b"OK"));
        assert!(!accepts(b"OKAY"));
        assert!(!accepts(b"REJECTED EXTERNAL"));
        assert!(!accepts(b"DATA"));
        assert!(!accepts(b""));
    }
}
