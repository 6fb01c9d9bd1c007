//! A byte stream on which no operation waits beyond the deadline.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use rustix::process::geteuid;

use super::BusError;
use super::address::BusSocket;
use super::wire::MalformedMessage;
use leash_model::clock::{Moment, timeout_until};

/// The number of bytes read at once. Every reply that we expect fits.
const CHUNK: usize = 4096;

/// The pause before the next try if the listener's queue is full. Such a queue empties within a few turns of the
/// listener's event loop, and there is no event to wait for.
const BACKLOG_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// A connected unix socket, with the bytes that were received and not yet used.
#[derive(Debug)]
pub(super) struct BusStream {
    fd: OwnedFd,
    deadline: Moment,
    unread: Vec<u8>,
}

impl BusStream {
    /// Connects.
    pub(super) fn connect(socket: &BusSocket, deadline: Moment) -> Result<BusStream, BusError> {
        let address = match socket {
            BusSocket::Path(path) => {
                check_owner(path)?;
                SocketAddrUnix::new(path)
            }
            BusSocket::Abstract(name) => SocketAddrUnix::new_abstract_name(name),
        };
        let address = address.map_err(BusError::Connect)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(BusError::Connect)?;
        loop {
            match connect(&fd, &address) {
                Ok(()) => return Ok(BusStream::over(fd, deadline)),
                // The listener's queue is full.
                Err(Errno::AGAIN) => pause(deadline)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(BusError::Connect(error)),
            }
        }
    }

    /// Uses a connected, nonblocking socket.
    pub(super) fn over(fd: OwnedFd, deadline: Moment) -> BusStream {
        BusStream { fd, deadline, unread: Vec::new() }
    }

    /// Sets a new deadline.
    pub(super) fn set_deadline(&mut self, deadline: Moment) {
        self.deadline = deadline;
    }

    /// Sends all of `bytes`.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<(), BusError> {
        while !bytes.is_empty() {
            // Without NOSIGNAL, SIGPIPE would end the whole process when the bus is gone.
            match send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(BusError::Io(error)),
            }
        }
        Ok(())
    }

    /// Receives exactly `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<Vec<u8>, BusError> {
        while self.unread.len() < count {
            self.receive()?;
        }
        let rest = self.unread.split_off(count);
        Ok(std::mem::replace(&mut self.unread, rest))
    }

    /// Receives up to and including the next line end, which is `\r\n` and is not returned.
    pub(super) fn take_line(&mut self, longest: usize) -> Result<Vec<u8>, BusError> {
        loop {
            if let Some(length) = self.unread.windows(2).position(|pair| pair == b"\r\n") {
                let mut line = self.take(length + 2)?;
                line.truncate(length);
                return Ok(line);
            }
            if self.unread.len() > longest {
                return Err(MalformedMessage::Line.into());
            }
            self.receive()?;
        }
    }

    /// Receives at least one byte, or waits for it.
    fn receive(&mut self) -> Result<(), BusError> {
        // Checked also for data that has already arrived: a peer that sends without end must not keep us.
        left(self.deadline)?;
        let mut chunk = [0; CHUNK];
        match recv(&self.fd, &mut chunk, RecvFlags::empty()) {
            Ok((0, _)) => return Err(BusError::Closed),
            Ok((received, _)) => self.unread.extend_from_slice(chunk.get(..received).unwrap_or_default()),
            Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(BusError::Io(error)),
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags) -> Result<(), BusError> {
        let left = left(self.deadline)?;
        match poll(&mut [PollFd::new(&self.fd, events)], Some(&left)) {
            // The socket is ready, time is up, or a signal came: the caller tries again and sees which.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(BusError::Io(error)),
        }
    }
}

/// Refuses a socket of another user.
///
/// `sudo -E` keeps the environment, so root would find the bus of the user who called it. That user's manager may not
/// take in root's processes and should not end them. Abstract names have no owner to check; we know of no manager that
/// listens on one.
fn check_owner(path: &Path) -> Result<(), BusError> {
    let metadata = std::fs::metadata(path).map_err(|error| BusError::Connect(errno(&error)))?;
    let us = geteuid().as_raw();
    let owner = metadata.uid();
    if owner == us || owner == 0 {
        return Ok(());
    }
    Err(BusError::OtherUser { owner, us })
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Returns the time left as a timeout, or an error if none is left.
fn left(deadline: Moment) -> Result<Timespec, BusError> {
    let now = Moment::now();
    if now >= deadline { Err(BusError::TimedOut) } else { Ok(timeout_until(deadline, now)) }
}

fn pause(deadline: Moment) -> Result<(), BusError> {
    let left = left(deadline)?;
    match poll(&mut [], Some(&left.min(BACKLOG_PAUSE))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(BusError::Io(error)),
    }
}
