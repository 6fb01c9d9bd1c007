//! The host's side: lines from stdin, lines to stdout.
//!
//! The open file descriptions of both may be shared with the host or with a terminal, so their flags are never changed. Where
//! it can be had, a description of our own is opened (a pipe or a terminal, through /proc), which may be non-blocking; a socket can
//! be told with every call not to block; anything else is asked first whether it is ready.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::Timespec;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use leash_model::limits;
use leash_protocol::frame::{Line, Lines};
use leash_tree::platform::linux;

/// What a read takes at once: what a pipe holds at most, by default.
const READ: usize = 64 * 1024;

/// A pipe that can be written at all takes this much without blocking (`PIPE_BUF`).
const SAFE_WRITE: usize = 4096;

/// What is collected for one write.
const WRITE: usize = 64 * 1024;

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From the host.
    In,
    /// To the host.
    Out,
}

/// How reading or writing is kept from blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// A description of our own, which is non-blocking.
    Own,
    /// A socket: told with every call.
    Socket,
    /// Somebody else's description: asked before every call.
    Shared,
}

/// One end of the host's pipes.
#[derive(Debug)]
enum End {
    /// It may have to be waited for.
    Waits(AsyncFd<OwnedFd>, Manner),
    /// A file or a device that is always ready.
    Ready(OwnedFd),
}

impl End {
    fn open(fd: BorrowedFd<'_>, way: Way) -> io::Result<End> {
        let copy = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        let (end, manner) = match kind {
            FileType::Socket => (copy, Manner::Socket),
            FileType::Fifo => own(&copy, way).map_or((copy, Manner::Shared), |own| (own, Manner::Own)),
            FileType::CharacterDevice if rustix::termios::isatty(fd) => {
                own(&copy, way).map_or((copy, Manner::Shared), |own| (own, Manner::Own))
            }
            _ => return Ok(End::Ready(copy)),
        };
        let end = match way {
            Way::In => linux::readable(end)?,
            Way::Out => linux::writable(end)?,
        };
        Ok(End::Waits(end, manner))
    }
}

/// Opens a description of our own of the same pipe or terminal.
fn own(fd: &OwnedFd, way: Way) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    let mut options = File::options();
    options.read(way == Way::In).write(way == Way::Out);
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok().map(OwnedFd::from)
}

/// Asks whether a call would block.
fn ready(fd: &impl AsFd, wanted: PollFlags) -> io::Result<()> {
    let mut fds = [PollFd::new(fd, wanted)];
    match rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
        Ok(_) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The host's lines.
#[derive(Debug)]
pub(crate) struct Input {
    end: End,
    lines: Lines,
    scratch: Box<[u8]>,
    over: bool,
}

impl Input {
    /// Takes stdin.
    pub(crate) fn open() -> io::Result<Input> {
        Ok(Input {
            end: End::open(rustix::stdio::stdin(), Way::In)?,
            lines: Lines::new(limits::LINE),
            scratch: vec![0; READ].into_boxed_slice(),
            over: false,
        })
    }

    /// The next line; `None` at the end. Nothing is lost when the wait is given up.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        loop {
            if self.over {
                return self.lines.finish();
            }
            if let Some(line) = self.lines.next_line() {
                return Some(line);
            }
            match self.read().await {
                Ok(0) => self.over = true,
                Ok(count) => self.lines.push(&self.scratch[..count]),
                // A terminal that was hung up answers EIO. Nothing more will come.
                Err(_) => self.over = true,
            }
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        let buffer = &mut *self.scratch;
        let (fd, manner) = match &self.end {
            End::Ready(fd) => return Ok(uninterrupted(|| rustix::io::read(fd, &mut *buffer))?),
            End::Waits(fd, manner) => (fd, *manner),
        };
        loop {
            let mut guard = fd.readable().await?;
            let read = guard.try_io(|fd| match manner {
                Manner::Own => Ok(uninterrupted(|| rustix::io::read(fd, &mut *buffer))?),
                Manner::Socket => Ok(uninterrupted(|| rustix::net::recv(fd, &mut *buffer, RecvFlags::DONTWAIT))
                    .map(|(_, count)| count)?),
                Manner::Shared => {
                    ready(fd, PollFlags::IN)?;
                    Ok(uninterrupted(|| rustix::io::read(fd, &mut *buffer))?)
                }
            });
            if let Ok(read) = read {
                return read;
            }
        }
    }
}

/// Where lines for the host are written.
#[derive(Debug)]
struct Output {
    end: End,
}

impl Output {
    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.write(bytes).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (fd, manner) = match &self.end {
            End::Ready(fd) => return Ok(uninterrupted(|| rustix::io::write(fd, bytes))?),
            End::Waits(fd, manner) => (fd, *manner),
        };
        loop {
            let mut guard = fd.writable().await?;
            let written = guard.try_io(|fd| match manner {
                Manner::Own => Ok(uninterrupted(|| rustix::io::write(fd, bytes))?),
                Manner::Socket => {
                    Ok(uninterrupted(|| rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))?)
                }
                Manner::Shared => {
                    ready(fd, PollFlags::OUT)?;
                    Ok(uninterrupted(|| rustix::io::write(fd, &bytes[..bytes.len().min(SAFE_WRITE)]))?)
                }
            });
            if let Ok(written) = written {
                return written;
            }
        }
    }
}

fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// The host does not listen any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostDeaf;

/// What is said to the host. Lines are whole and in the order in which they were said; who says more than the host reads has
/// to wait.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    queue: mpsc::UnboundedSender<Said>,
    /// Room in units of [`UNIT`] bytes.
    room: Arc<Semaphore>,
}

type Said = (Vec<u8>, OwnedSemaphorePermit);

/// What one permit stands for.
const UNIT: usize = 1024;

/// All the room there is: a line larger than that takes all of it and goes alone.
const ROOM: u32 = (limits::VOICE / UNIT) as u32;

impl Voice {
    /// A voice that ends at stdout, and the task that writes.
    pub(crate) fn open() -> io::Result<(Voice, Speaker)> {
        let output = Output { end: End::open(rustix::stdio::stdout(), Way::Out)? };
        let (queue, said) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(ROOM as usize));
        Ok((Voice { queue, room }, Speaker { output, said }))
    }

    /// Says a line; the newline is added here. Returns when there is room for it, which may be before it is written.
    pub(crate) async fn say(&self, mut line: Vec<u8>) -> Result<(), HostDeaf> {
        line.push(b'\n');
        let units = u32::try_from(line.len().div_ceil(UNIT)).unwrap_or(ROOM).min(ROOM);
        let permit = Arc::clone(&self.room).acquire_many_owned(units).await.map_err(|_| HostDeaf)?;
        self.queue.send((line, permit)).map_err(|_| HostDeaf)
    }

    /// Waits until everything is written, but not for ever: the host may have stopped reading.
    pub(crate) async fn flush(&self, patience: Duration) {
        // All permits are back when nothing is left to write.
        let _ = tokio::time::timeout(patience, self.room.acquire_many(ROOM)).await;
    }
}

/// Writes what is said.
#[derive(Debug)]
pub(crate) struct Speaker {
    output: Output,
    said: mpsc::UnboundedReceiver<Said>,
}

impl Speaker {
    /// Writes until nobody can say anything any more, or the host does not listen.
    pub(crate) async fn run(mut self) -> Result<(), HostDeaf> {
        while let Some((mut bytes, permit)) = self.said.recv().await {
            let mut permits = vec![permit];
            // What is there already goes with it.
            while bytes.len() < WRITE
                && let Ok((more, permit)) = self.said.try_recv()
            {
                bytes.extend_from_slice(&more);
                permits.push(permit);
            }
            self.output.write_all(&bytes).await.map_err(|_| HostDeaf)?;
        }
        Ok(())
    }
}
