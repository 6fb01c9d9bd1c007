//! Writing to a descriptor without a buffer, which a fork would copy.

use std::io;
use std::os::fd::AsFd;

/// Writes all bytes.
pub(crate) fn write_all(out: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(out, bytes) {
            Ok(wrote) => bytes = &bytes[wrote..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
