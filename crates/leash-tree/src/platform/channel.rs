//! How processes of leash speak to each other: messages over a socket pair, and orders in a memfd.

use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::linux;

/// A connected pair of control sockets. Message boundaries are kept (SEQPACKET).
pub fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends a message, and never waits. If the other side is gone or stopped, other code notices that.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &impl Serialize) {
    if let Ok(bytes) = serde_json::to_vec(message) {
        let _ = rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// The result of a read from the control socket.
pub enum ChannelRead<T> {
    /// A message.
    Message(T),
    /// None is waiting.
    Nothing,
    /// The other side is gone.
    Closed,
}

/// Receives the next message, if one is waiting.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> ChannelRead<T> {
    receive_next(socket, None)
}

/// Receives the next message of the process `sender`, if one is waiting, and drops those of all others. The kernel says who
/// sent a message, so no other process can forge one. [`name_senders`] comes first.
pub(crate) fn receive_from<T: DeserializeOwned>(socket: BorrowedFd<'_>, sender: i32) -> ChannelRead<T> {
    receive_next(socket, Some(sender))
}

/// Lets the kernel name the sender of each message that comes to this socket.
pub(crate) fn name_senders(socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
    rustix::net::sockopt::set_socket_passcred(socket, true)
}

fn receive_next<T: DeserializeOwned>(socket: BorrowedFd<'_>, wanted: Option<i32>) -> ChannelRead<T> {
    let mut buffer = Vec::new();
    loop {
        let mut received = receive_whole(socket, &mut buffer, wanted.is_some());
        if matches!(received, Err(Errno::CONNRESET)) {
            // The other side exited before it had read all that we sent. The kernel reports that once, before it
            // delivers the messages that the other side had sent.
            received = receive_whole(socket, &mut buffer, wanted.is_some());
        }
        match received {
            // An empty message would look the same, but has a sender.
            Ok(None) if buffer.is_empty() => return ChannelRead::Closed,
            Ok(sender) if sender != wanted => {}
            Ok(_) => return serde_json::from_slice(&buffer).map_or(ChannelRead::Nothing, ChannelRead::Message),
            Err(Errno::AGAIN | Errno::INTR) => return ChannelRead::Nothing,
            Err(_) => return ChannelRead::Closed,
        }
    }
}

/// Reads the next message and leaves it in the socket, for the other processes that hold the socket.
pub(crate) fn peek<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Option<T> {
    // A reason, and a client with a name and a version of at most 80 bytes each.
    let mut buffer = [0; 2048];
    let (length, _) = rustix::net::recv(socket, &mut buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT).ok()?;
    serde_json::from_slice(&buffer[..length]).ok()
}

/// Takes one message of any length. Returns its sender if senders are `named`. An empty buffer without a sender means end
/// of file.
fn receive_whole(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>, named: bool) -> Result<Option<i32>, Errno> {
    let look = RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = rustix::net::recv(socket, &mut [0; 1], look)?;
    buffer.resize(length, 0);
    if named {
        return linux::receive_from(socket, buffer);
    }
    rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT).map(|_| None)
}

/// Writes any value into a memfd, for a process that is about to be executed.
pub fn write_memfd(content: &impl Serialize) -> std::io::Result<OwnedFd> {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("orders", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(content)?)?;
    rustix::fs::seek(file.as_fd(), rustix::fs::SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Reads a value that [`write_memfd`] wrote.
pub fn read_memfd<T: DeserializeOwned>(fd: OwnedFd) -> Option<T> {
    serde_json::from_reader(std::fs::File::from(fd)).ok()
}
