//! The host's pipes: lines from stdin, lines to stdout.
//!
//! The host or a terminal may share the open file descriptions of both, so leash never changes their flags. For a pipe
//! or a terminal, leash opens a non-blocking description of its own through /proc. For a socket, it passes a flag with
//! every call. For anything else, it polls before every call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fs::File, io, os::unix::fs::OpenOptionsExt as _, sync::Arc, time::Duration};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags};
use rustix::{fs::FileType, io::Errno, time::Timespec};
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use leash_model::limits;
use leash_protocol::frame::{Line, Lines};
use leash_tree::platform::linux;

/// The size of a read: the default capacity of a pipe.
const READ: usize = 64 * 1024;

/// The size of a write that does not block when a pipe is writable (`PIPE_BUF`).
const SAFE_WRITE: usize = 4096;

/// The size from which no more lines are added to a write.
const WRITE: usize = 64 * 1024;

/// The direction of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the host.
    In,
    /// To the host.
    Out,
}

/// The method that keeps a read or write from blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NonBlocking {
    /// A non-blocking description of our own.
    OwnDescription,
    /// A socket: a flag with every call.
    SocketFlag,
    /// A shared description: a poll before every call.
    Poll,
}

/// One end of the host's pipes.
#[derive(Debug)]
enum PipeEnd {
    /// A read or write may have to wait.
    Waits(AsyncFd<OwnedFd>, NonBlocking),
    /// A file or a device that is always ready.
    Ready(OwnedFd),
}

impl PipeEnd {
    fn open(fd: BorrowedFd<'_>, direction: Direction) -> io::Result<PipeEnd> {
        let copy = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        let (end, method) = match kind {
            FileType::Socket => (copy, NonBlocking::SocketFlag),
            _ if kind == FileType::Fifo || rustix::termios::isatty(fd) => {
                own(&copy, direction).map_or((copy, NonBlocking::Poll), |own| (own, NonBlocking::OwnDescription))
            }
            _ => return Ok(PipeEnd::Ready(copy)),
        };
        let end = match direction {
            Direction::In => linux::readable(end)?,
            Direction::Out => linux::writable(end)?,
        };
        Ok(PipeEnd::Waits(end, method))
    }
}

/// Opens a description of our own of the same pipe or terminal.
fn own(fd: &OwnedFd, direction: Direction) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    let mut options = File::options();
    options.read(direction == Direction::In).write(direction == Direction::Out);
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok().map(OwnedFd::from)
}

/// Returns `WouldBlock` if a call would block.
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
pub(crate) struct HostInput {
    end: PipeEnd,
    lines: Lines,
    buffer: Box<[u8]>,
    over: bool,
}

impl HostInput {
    /// Opens stdin.
    pub(crate) fn open() -> io::Result<HostInput> {
        Ok(HostInput {
            end: PipeEnd::open(rustix::stdio::stdin(), Direction::In)?,
            lines: Lines::new(limits::LINE),
            buffer: vec![0; READ].into_boxed_slice(),
            over: false,
        })
    }

    /// Returns the next line. `None` at the end. Cancel safe: a dropped call loses no line.
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
                Ok(count) => self.lines.push(&self.buffer[..count]),
                // A terminal that was hung up returns EIO. No more data will come.
                Err(_) => self.over = true,
            }
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        let buffer = &mut *self.buffer;
        let (fd, method) = match &self.end {
            PipeEnd::Ready(fd) => return Ok(uninterrupted(|| rustix::io::read(fd, &mut *buffer))?),
            PipeEnd::Waits(fd, method) => (fd, *method),
        };
        loop {
            let mut guard = fd.readable().await?;
            let read = guard.try_io(|fd| match method {
                NonBlocking::OwnDescription => Ok(uninterrupted(|| rustix::io::read(fd, &mut *buffer))?),
                NonBlocking::SocketFlag => {
                    Ok(uninterrupted(|| rustix::net::recv(fd, &mut *buffer, RecvFlags::DONTWAIT))
                        .map(|(_, count)| count)?)
                }
                NonBlocking::Poll => {
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

impl PipeEnd {
    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.write(bytes).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let (fd, method) = match self {
            PipeEnd::Ready(fd) => return Ok(uninterrupted(|| rustix::io::write(fd, bytes))?),
            PipeEnd::Waits(fd, method) => (fd, *method),
        };
        loop {
            let mut guard = fd.writable().await?;
            let written = guard.try_io(|fd| match method {
                NonBlocking::OwnDescription => Ok(uninterrupted(|| rustix::io::write(fd, bytes))?),
                NonBlocking::SocketFlag => {
                    Ok(uninterrupted(|| rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))?)
                }
                NonBlocking::Poll => {
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

/// The host no longer reads stdout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StdoutClosed;

/// Queues lines for the host. Lines stay whole and in order. A caller waits while the queue is full because the host
/// does not read.
#[derive(Clone, Debug)]
pub(crate) struct HostQueue {
    queue: mpsc::UnboundedSender<QueuedLine>,
    /// Free room in the queue, in units of [`UNIT`] bytes.
    room: Arc<Semaphore>,
}

type QueuedLine = (Vec<u8>, OwnedSemaphorePermit);

/// The bytes per permit.
const UNIT: usize = 1024;

/// The room of the whole queue. A larger line takes all of it and is queued alone.
const ROOM: u32 = (limits::HOST_QUEUE / UNIT) as u32;

impl HostQueue {
    /// Opens stdout. Returns the queue and the writer.
    pub(crate) fn open() -> io::Result<(HostQueue, HostWriter)> {
        let output = PipeEnd::open(rustix::stdio::stdout(), Direction::Out)?;
        let (queue, lines) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(ROOM as usize));
        Ok((HostQueue { queue, room }, HostWriter { output, lines }))
    }

    /// Queues a line and adds the newline. Returns when the queue has room for it, which may be before it is written.
    pub(crate) async fn send(&self, mut line: Vec<u8>) -> Result<(), StdoutClosed> {
        line.push(b'\n');
        let units = u32::try_from(line.len().div_ceil(UNIT)).unwrap_or(ROOM).min(ROOM);
        let permit = Arc::clone(&self.room).acquire_many_owned(units).await.map_err(|_| StdoutClosed)?;
        self.queue.send((line, permit)).map_err(|_| StdoutClosed)
    }

    /// Waits until everything is written, at most for `patience`: the host may have stopped reading.
    pub(crate) async fn flush(&self, patience: Duration) {
        // All permits are free again when everything is written.
        let _ = tokio::time::timeout(patience, self.room.acquire_many(ROOM)).await;
    }
}

/// Writes the queued lines.
#[derive(Debug)]
pub(crate) struct HostWriter {
    output: PipeEnd,
    lines: mpsc::UnboundedReceiver<QueuedLine>,
}

impl HostWriter {
    /// Writes until all senders are dropped, or the host no longer reads.
    pub(crate) async fn run(mut self) -> Result<(), StdoutClosed> {
        while let Some((mut bytes, permit)) = self.lines.recv().await {
            let mut permits = vec![permit];
            // Lines that are already queued go into the same write.
            while bytes.len() < WRITE
                && let Ok((more, permit)) = self.lines.try_recv()
            {
                bytes.extend_from_slice(&more);
                permits.push(permit);
            }
            self.output.write_all(&bytes).await.map_err(|_| StdoutClosed)?;
        }
        Ok(())
    }
}
