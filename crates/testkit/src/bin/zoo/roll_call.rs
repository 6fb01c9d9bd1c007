//! The census of the test, and the muster of a tree that grows.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::process::getpid;

/// The write end of the census FIFO.
pub(crate) struct Census(OwnedFd);

impl Census {
    /// Opens the FIFO without CLOEXEC, so that it survives an exec. Opens it non-blocking, so that a reader that is
    /// gone or does not read blocks no process of the tree.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?))
    }

    /// Duplicates the descriptor, for another thread.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    pub(crate) fn say(&self, name: &str) {
        self.line(&format!("{} {name}\n", getpid().as_raw_nonzero()));
    }

    pub(crate) fn ready(&self, size: usize) {
        self.line(&format!("ready {size}\n"));
    }

    fn line(&self, line: &str) {
        // The lines serve `ready` and people who read the log. The open descriptor itself is the proof of life.
        let _ = rustix::io::write(&self.0, line.as_bytes());
    }
}

/// The pipe on which the members of a growing tree report to its leader.
pub(crate) struct Muster {
    leader: OwnedFd,
    members: OwnedFd,
}

impl Muster {
    pub(crate) fn new() -> io::Result<Self> {
        let (leader, members) = rustix::pipe::pipe()?;
        rustix::io::ioctl_fionbio(&members, true)?;
        Ok(Self { leader, members })
    }

    /// Duplicates both descriptors, for another thread.
    pub(crate) fn again(&self) -> io::Result<Self> {
        Ok(Self { leader: self.leader.try_clone()?, members: self.members.try_clone()? })
    }

    pub(crate) fn report(&self) {
        let _ = rustix::io::write(&self.members, b".");
    }

    /// Waits for `expected` reports, and then closes both ends in the leader.
    pub(crate) fn wait(self, expected: usize) -> io::Result<()> {
        let mut buffer = [0; 256];
        let mut seen = 0;
        while seen < expected {
            match rustix::io::read(&self.leader, &mut buffer) {
                Ok(got) => seen += got,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
