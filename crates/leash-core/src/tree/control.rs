//! The messages between supervisor and keeper, and the orders that the keeper gets at its start.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::contain::caps::Caps;
use super::contain::unit::UserBus;
use super::contain::{Containment, Refusal, Wish};
use crate::event::Rung;
use crate::ledger::receipt::{Reason, Receipt};
use crate::ledger::record::Record;

/// The numbers of the descriptors that a keeper inherits.
pub(crate) mod fds {
    /// The control socket.
    pub(crate) const CONTROL: i32 = 3;
    /// The orders, a memfd.
    pub(crate) const ORDERS: i32 = 4;
    /// The ledger's lock.
    pub(crate) const LOCK: i32 = 5;
    /// A pidfd of the supervisor.
    pub(crate) const SUPERVISOR: i32 = 6;
    /// The first of the owners' descriptors; the others follow.
    pub(crate) const OWNERS: i32 = 7;
}

/// Everything a keeper needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) record: Record,
    pub(crate) wish: Wish,
    pub(crate) caps: Caps,
    pub(crate) max_age_ms: Option<u64>,
    pub(crate) ignored_signals: u64,
    /// Changes to the environment, for the server only.
    pub(crate) env: Vec<(OsString, Option<OsString>)>,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) bus: UserBus,
    pub(crate) pid_one: bool,
}

/// The program to run, as bytes: arguments need not be valid UTF-8.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLine {
    pub(crate) path: OsString,
    pub(crate) cwd: Option<OsString>,
    pub(crate) argv: Vec<OsString>,
}

/// A message from the supervisor to the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// End the tree.
    End(Reason),
    /// The keeper is ending the tree and takes the next step now.
    Nudge,
    /// No more grace.
    Hurry,
}

/// The reason why a keeper could not start a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Failure {
    /// No acceptable containment worked.
    Contain(Vec<Refusal>),
    /// The keeper could not change to the server's working directory.
    Chdir(String, i32),
    /// exec failed.
    Exec(i32),
    /// fork or pipe failed.
    Fork(i32),
    /// The keeper itself failed.
    Keeper(String),
}

/// A message from the keeper to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    /// The server runs. The rest of its record is in the ledger.
    Started { leader: Option<i32>, containment: Containment, refused: Vec<Refusal> },
    /// The server does not run.
    Failed(Failure),
    /// The end has reached a step of the ladder.
    Ending { why: Reason, rung: Rung, members: usize },
    /// A warning to show to the user.
    Warning(String),
    /// The tree is over. The receipt names any processes that are left.
    Over(Box<Receipt>),
}

/// A connected pair of control sockets. Message boundaries are kept (SEQPACKET).
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends a message, and never waits. If the other side is gone or stopped, other code notices that.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &impl Serialize) {
    if let Ok(bytes) = serde_json::to_vec(message) {
        let _ = rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// The result of a read from the control socket.
pub(crate) enum Heard<T> {
    /// A message.
    Message(T),
    /// No message is waiting.
    Nothing,
    /// The other side is gone.
    Closed,
}

/// Receives the next message, if one is waiting.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Heard<T> {
    let mut buffer = Vec::new();
    let mut received = receive_whole(socket, &mut buffer);
    if matches!(received, Err(Errno::CONNRESET)) {
        // The other side exited before it had read all that we sent. The kernel reports that once, before it delivers
        // the messages that the other side had sent.
        received = receive_whole(socket, &mut buffer);
    }
    match received {
        Ok(()) if buffer.is_empty() => Heard::Closed,
        Ok(()) => serde_json::from_slice(&buffer).map_or(Heard::Nothing, Heard::Message),
        Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
        Err(_) => Heard::Closed,
    }
}

/// Reads the next message and leaves it in the socket, for the other processes that hold the socket.
pub(crate) fn peek<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Option<T> {
    let mut buffer = [0; 512];
    let (length, _) = rustix::net::recv(socket, &mut buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT).ok()?;
    serde_json::from_slice(&buffer[..length]).ok()
}

/// Takes one message of any length. An empty buffer means end of file.
fn receive_whole(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Result<(), Errno> {
    let look = RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = rustix::net::recv(socket, &mut [0; 1], look)?;
    buffer.resize(length, 0);
    rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT).map(drop)
}

/// Writes orders and command line into a memfd. Arguments may be megabytes long, and the server's arguments must not
/// appear in the keeper's own command line.
pub(crate) fn write_orders(orders: &Orders, command: &CommandLine) -> std::io::Result<OwnedFd> {
    let json = serde_json::to_vec(orders)?;
    let mut blob = Vec::with_capacity(json.len() + 64);
    blob.extend((json.len() as u64).to_le_bytes());
    blob.extend(json);
    let cwd = command.cwd.clone().unwrap_or_default();
    for text in [&command.path, &cwd].into_iter().chain(&command.argv) {
        blob.extend(text.as_bytes());
        blob.push(0);
    }
    memfd(&blob)
}

/// Writes any value into a memfd, for a process that is about to be executed.
pub(crate) fn write_memfd(content: &impl Serialize) -> std::io::Result<OwnedFd> {
    memfd(&serde_json::to_vec(content)?)
}

fn memfd(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("orders", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    rustix::fs::seek(file.as_fd(), rustix::fs::SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Reads a value that [`write_memfd`] wrote.
pub(crate) fn read_memfd<T: DeserializeOwned>(fd: OwnedFd) -> Option<T> {
    serde_json::from_reader(std::fs::File::from(fd)).ok()
}

/// Reads orders that [`write_orders`] wrote.
pub(crate) fn read_orders(fd: OwnedFd) -> Option<(Orders, CommandLine)> {
    let mut blob = Vec::new();
    std::fs::File::from(fd).read_to_end(&mut blob).ok()?;
    let (length, rest) = blob.split_at_checked(8)?;
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (json, strings) = rest.split_at_checked(length)?;
    let orders = serde_json::from_slice(json).ok()?;
    let mut strings =
        strings.strip_suffix(&[0])?.split(|byte| *byte == 0).map(|bytes| OsString::from_vec(bytes.to_vec()));
    let path = strings.next()?;
    let cwd = strings.next().filter(|cwd| !cwd.is_empty());
    Some((orders, CommandLine { path, cwd, argv: strings.collect() }))
}
