//! Hands the sessions of a killed gateway over to a new one: the new gateway connects to the old gateway's keeper
//! through a socket beside the book (the old gateway's file in the ledger).
//!
//! The keeper sends the book's lock and everything that it was told, and waits until the new gateway closes the
//! connection. The book's cover then says which of the two has the sessions: the new gateway replaces the cover in one
//! step (`Book::own`).

use std::io::{self, BufRead as _, BufReader, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{collections::HashMap, fs, mem::MaybeUninit, net::Shutdown};

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use serde_json::value::RawValue;

use super::{HeldSession, KeeperMessage};
use leash_model::limits;

/// Creates the socket. A process that connects waits until the keeper responds, which it does when its gateway is dead.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let _ = fs::remove_file(path);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux creates the file with the socket's mode.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
    let (_dir, short) = short(path)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(short)?)?;
    rustix::net::listen(&socket, 1)?;
    Ok(socket)
}

/// Returns a short form of a path that fits into a socket address, because runtime directories may be longer. It is
/// valid while the returned directory is open.
fn short(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((dir, short))
}

/// Accepts a connection. `None` for a process of another user.
pub(super) fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    let (successor, _) = listener.accept()?;
    Ok(check(&successor).ok().map(|()| successor))
}

/// Returns an error if the peer is a process of another user.
fn check(stream: &UnixStream) -> io::Result<()> {
    if sockopt::socket_peercred(stream)?.uid == rustix::process::geteuid() {
        return Ok(());
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

/// Sends everything to the new gateway, and returns when that has closed the connection or is dead. There is no
/// timeout, even if the new gateway is stopped: otherwise it could take the sessions over after the keeper has begun to
/// end them.
pub(super) fn hand_over(mut successor: UnixStream, lock: BorrowedFd<'_>, sessions: &HashMap<Box<str>, Box<RawValue>>) {
    let given = send_all(&mut successor, lock, sessions).and_then(|()| successor.shutdown(Shutdown::Write));
    if given.is_ok() {
        let _ = successor.read(&mut [0]);
    }
}

fn send_all(
    successor: &mut UnixStream,
    lock: BorrowedFd<'_>,
    sessions: &HashMap<Box<str>, Box<RawValue>>,
) -> io::Result<()> {
    let (locks, mut space) = ([lock], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&locks));
    rustix::net::sendmsg(successor.as_fd(), &[IoSlice::new(b"\n")], &mut control, SendFlags::NOSIGNAL)?;
    let mut to = io::BufWriter::new(successor);
    for (key, session) in sessions {
        write_line(&mut to, &KeeperMessage::Hold(key.clone(), session.clone()))?;
    }
    write_line(&mut to, &KeeperMessage::Done)?;
    to.flush()
}

fn write_line(to: &mut impl io::Write, message: &KeeperMessage) -> io::Result<()> {
    serde_json::to_writer(&mut *to, message)?;
    to.write_all(b"\n")
}

/// Everything that a keeper has handed over.
pub struct Handover {
    /// The connection. The keeper waits until this is dropped.
    pub keeper: UnixStream,
    /// The lock of the book.
    pub lock: OwnedFd,
    /// The open sessions, by key.
    pub sessions: HashMap<Box<str>, HeldSession>,
}

/// Asks a keeper for its sessions. After an error, the keeper still has them.
pub fn take_over(path: &Path) -> io::Result<Handover> {
    let (_dir, short) = short(path)?;
    let keeper = UnixStream::connect(short)?;
    check(&keeper)?;
    keeper.set_read_timeout(Some(limits::TAKEOVER_ANSWER))?;
    let lock = receive_lock(&keeper)?;
    let (mut sessions, mut whole) = (HashMap::new(), false);
    for line in BufReader::new(&keeper).split(b'\n') {
        match serde_json::from_slice(&line?)? {
            // Another version of leash wrote a session that cannot be read. The book has it.
            KeeperMessage::Hold(key, session) => {
                drop(serde_json::from_str(session.get()).map(|session| sessions.insert(key, session)))
            }
            KeeperMessage::Done => whole = true,
            _ => {}
        }
    }
    if whole { Ok(Handover { keeper, lock, sessions }) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn receive_lock(keeper: &UnixStream) -> io::Result<OwnedFd> {
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(keeper, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let lock = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    lock.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
