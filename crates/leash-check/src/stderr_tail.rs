//! Reads the stderr of a subject. All of it is read, so that a full pipe never blocks the subject; only the end of it
//! is kept.

use std::io::{self, Read as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs::File, os::fd::OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;

use leash_model::limits;

/// The end of the subject's stderr so far.
#[derive(Clone, Debug)]
pub(super) struct StderrTail(Arc<Mutex<TailBuffer>>);

#[derive(Debug)]
struct TailBuffer {
    /// The reading end of the subject's stderr.
    pipe: File,
    kept: Vec<u8>,
}

impl StderrTail {
    /// Starts a reading thread, which ends when the last process that could write has exited. The descriptor is for
    /// the subject.
    pub(super) fn start() -> io::Result<(StderrTail, OwnedFd)> {
        let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Only our end is non-blocking: the subject gets an ordinary pipe.
        rustix::io::ioctl_fionbio(&ours, true)?;
        let watched = ours.try_clone()?;
        let tail = StderrTail(Arc::new(Mutex::new(TailBuffer { pipe: ours.into(), kept: Vec::new() })));
        let reader = tail.clone();
        let read = move || {
            loop {
                let mut polled = [PollFd::new(&watched, PollFlags::IN)];
                match rustix::event::poll(&mut polled, None) {
                    Ok(_) if reader.buffer().read() => {}
                    Err(rustix::io::Errno::INTR) => {}
                    Ok(_) | Err(_) => return,
                }
            }
        };
        std::thread::Builder::new().name("leash-stderr".to_owned()).spawn(read)?;
        Ok((tail, theirs))
    }

    fn buffer(&self) -> MutexGuard<'_, TailBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the text that was written before this call.
    pub(super) fn text(&self) -> String {
        let mut buffer = self.buffer();
        buffer.read();
        String::from_utf8_lossy(&buffer.kept).trim().to_owned()
    }
}

impl TailBuffer {
    /// Reads what is available, within a limit; returns false at the end of the pipe.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        // A pipe holds 64 KiB: a subject that writes without end does not keep this thread here.
        for _ in 0..8 {
            match self.pipe.read(&mut buffer) {
                Ok(0) => return false,
                Ok(got) => self.keep(&buffer[..got]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn keep(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(limits::STDERR_TAIL)..];
        let over = (self.kept.len() + bytes.len()).saturating_sub(limits::STDERR_TAIL);
        self.kept.drain(..over);
        self.kept.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_flood_on_stderr_is_read_and_its_end_is_kept() {
        let (tail, pipe) = StderrTail::start().expect("a pipe");
        let mut pipe = File::from(pipe);
        for number in 0..100_000 {
            writeln!(pipe, "line {number:08}").expect("the reader keeps up");
        }
        let words = tail.text();
        assert!(words.ends_with("line 00099999"), "{words}");
        assert!(words.len() <= limits::STDERR_TAIL && words.len() > limits::STDERR_TAIL - 20, "{}", words.len());
        assert!(tail.buffer().kept.capacity() < 64 * 1024, "{}", tail.buffer().kept.capacity());
        // The last text is available at once, also after the end.
        pipe.write_all(b"bye").expect("the pipe is open");
        drop(pipe);
        assert!(tail.text().ends_with("bye"));
    }
}
