//! The text dialogue before the first message: SASL with the mechanism EXTERNAL. The kernel proves the client's uid,
//! and the client only has to name it.

use super::BusError;
use super::socket::BusStream;

/// The longest answer that we read. `OK` with 32 digits, or `REJECTED` with a few mechanisms, has less than 100 bytes.
const LONGEST_LINE: usize = 512;

/// Authenticates to the other side as `uid`. The next bytes on `channel` are messages.
///
/// `BEGIN` goes out with the first line and not after the answer. systemd's private socket loses a message that it
/// reads together with `BEGIN`: it answers only when more bytes come, and we would send none. Once `OK` is here, it has
/// read `BEGIN`.
pub(super) fn authenticate(channel: &mut BusStream, uid: u32) -> Result<(), BusError> {
    channel.send(&greeting(uid))?;
    let answer = channel.take_line(LONGEST_LINE)?;
    if accepts(&answer) { Ok(()) } else { Err(BusError::Rejected { uid }) }
}

/// The first line. Its first byte is a NUL, once meant to carry credentials. The uid is written in decimal, and its
/// digits in hex.
fn greeting(uid: u32) -> Vec<u8> {
    let mut line = b"\0AUTH EXTERNAL ".to_vec();
    for digit in uid.to_string().bytes() {
        line.extend_from_slice(format!("{digit:02x}").as_bytes());
    }
    line.extend_from_slice(b"\r\nBEGIN\r\n");
    line
}

/// True if the answer is `OK`, with or without the server's id.
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
