//! The copy of a server's stderr, for its log.
//!
//! With a copy, the server's stderr is a pipe of leash. The driver of the tree (the keeper, or the supervisor once the
//! keeper is gone) passes every byte on to the host and writes whole lines to the log. Keeper and supervisor both hold the
//! reading end, so the pipe breaks only when both are dead. What happens in each case: docs/explain/limits.md.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::PipeFlags;
use rustix::time::Timespec;

use crate::ledger::logs::{LOG_VERSION, LogHead, LogWriter};
use crate::platform::poll;
use leash_model::clock::{self, Moment, timeout_until};
use leash_model::limits;
use leash_model::record::Record;
use leash_model::stderr::{LastLines, next_line};

/// The bytes that are read at once. A pipe that can be written at all takes as many without waiting; and a killed keeper
/// takes no more than these with it.
const PIECE: usize = 4096;

/// The pieces that are copied before the driver looks at its other events.
const PIECES: usize = 16;

/// The most that is read after the end of a tree: a full pipe. A process that is left may write on without an end.
const LAST_PIECES: usize = 16;

/// The ends of the pipe, and the host's stderr.
#[derive(Debug)]
pub(crate) struct StderrPipe {
    /// The end that leash reads.
    pub(crate) reader: OwnedFd,
    /// The host's stderr, for bytes on their way to it.
    pub(crate) host: OwnedFd,
}

impl StderrPipe {
    /// Makes a pipe in front of the host's stderr; also returns the server's end of it.
    pub(crate) fn new(host: BorrowedFd<'_>) -> io::Result<(StderrPipe, OwnedFd)> {
        let host = without_waiting(host)?;
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // The server has another open file description, which stays as every program expects it.
        rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        Ok((StderrPipe { reader, host }, writer))
    }
}

/// The host's stderr, for writes that do not wait. Its open file description belongs to the host, so its flags stay: a pipe
/// or a terminal is opened once more, and a socket has a flag for each message. If a pipe belongs to another user (the
/// host's), it cannot be opened; [`takes_bytes`] asks before each write.
fn without_waiting(stderr: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(stderr)?.st_mode);
    if kind == FileType::Fifo || rustix::termios::isatty(stderr) {
        let path = format!("/proc/self/fd/{}", stderr.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if let Ok(host) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
            return Ok(host);
        }
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(stderr, 3)?)
}

/// True if a write does not wait: a pipe that can be written at all takes 4096 bytes.
fn takes_bytes(host: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut [PollFd::new(host, PollFlags::OUT)], Some(&at_once)), Ok(0))
}

/// Copies a server's stderr to the host and to the log.
#[derive(Debug)]
pub(crate) struct StderrCopy {
    /// `None` when every writer has closed its end.
    reader: Option<OwnedFd>,
    /// `None` when the host has closed its stderr.
    host: Option<OwnedFd>,
    /// Bytes that the host has not taken yet. Nothing more is read before it has.
    unsent: Vec<u8>,
    /// The beginning of a line whose end was not read yet.
    begun: Vec<u8>,
    last_lines: LastLines,
    log: LogWriter,
}

impl StderrCopy {
    pub(crate) fn new(pipe: StderrPipe, record: &Record) -> StderrCopy {
        StderrCopy {
            reader: Some(pipe.reader),
            host: Some(pipe.host),
            unsent: Vec::new(),
            begun: Vec::new(),
            last_lines: LastLines::default(),
            log: log(&record.receipts, record),
        }
    }

    /// The descriptor to wait for.
    pub(crate) fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.host {
            Some(host) if !self.unsent.is_empty() => Some((host.as_fd(), PollFlags::OUT)),
            _ => Some((self.reader.as_ref()?.as_fd(), PollFlags::IN)),
        }
    }

    /// Copies what is there. The error says why lines are missing in the log; the host gets them all the same.
    pub(crate) fn step(&mut self) -> io::Result<()> {
        let mut logged = Ok(());
        for _ in 0..PIECES {
            self.send();
            if !self.unsent.is_empty() || !self.read(PIECE) {
                break;
            }
            logged = logged.and(self.keep_lines(false));
        }
        self.send();
        logged
    }

    /// Reads what the server wrote last. From here on nothing more is read.
    pub(crate) fn read_rest(&mut self) -> io::Result<()> {
        let mut pieces = 0;
        while pieces < LAST_PIECES && self.read(PIECE) {
            pieces += 1;
        }
        self.reader = None;
        self.keep_lines(true)
    }

    /// Gives the host what it has not taken yet, and waits a moment for one that does not read.
    pub(crate) fn send_rest(&mut self) {
        let give_up = Moment::now() + limits::LAST_STDERR;
        loop {
            self.send();
            let (Some(host), now) = (&self.host, Moment::now()) else { return };
            if self.unsent.is_empty() || now >= give_up {
                return;
            }
            let mut fds = [PollFd::new(host, PollFlags::OUT)];
            let _ = poll::poll(&mut fds, Some(&timeout_until(give_up, now)));
        }
    }

    /// The last lines, safe to print.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.last_lines.shown()
    }

    /// Reads once. Returns false if there is nothing to read.
    fn read(&mut self, most: usize) -> bool {
        let Some(reader) = &self.reader else { return false };
        let at = self.unsent.len();
        self.unsent.resize(at + most, 0);
        let read = loop {
            match rustix::io::read(reader, &mut self.unsent[at..]) {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        self.unsent.truncate(at + read.unwrap_or(0));
        self.begun.extend_from_slice(&self.unsent[at..]);
        if !matches!(read, Ok(1..) | Err(Errno::AGAIN)) {
            self.reader = None;
        }
        matches!(read, Ok(1..))
    }

    /// Gives the host as much as it takes without waiting.
    fn send(&mut self) {
        while let Some(host) = self.host.as_ref().filter(|_| !self.unsent.is_empty()) {
            let piece = &self.unsent[..self.unsent.len().min(PIECE)];
            if !takes_bytes(host) {
                return;
            }
            let sent = match rustix::net::send(host, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::NOTSOCK) => rustix::io::write(host, piece),
                sent => sent,
            };
            match sent {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The host has closed its stderr. The server goes on, and so does its log.
                Err(_) => self.host = None,
            }
        }
        self.unsent = Vec::new();
    }

    fn keep_lines(&mut self, is_over: bool) -> io::Result<()> {
        let lines: Vec<Vec<u8>> = std::iter::from_fn(|| next_line(&mut self.begun, is_over)).collect();
        lines.iter().for_each(|line| self.last_lines.keep(line));
        if self.begun.is_empty() {
            self.begun = Vec::new();
        }
        self.log.append(clock::unix_ms(), &lines)
    }
}

/// The log of a run.
fn log(receipts: &Path, record: &Record) -> LogWriter {
    let (run, session, name) = (record.run.clone(), record.session.clone(), record.name.clone());
    LogWriter::new(receipts, LogHead { version: LOG_VERSION, run, session, name })
}

#[cfg(test)]
mod tests;
