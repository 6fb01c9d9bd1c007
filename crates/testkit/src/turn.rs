//! Turns between tests in different processes: whoever makes noise does it alone.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, Mode, OFlags};

/// A turn, until it is dropped; the kernel also takes it from a test that is killed.
#[derive(Debug)]
pub struct Turn {
    _lock: OwnedFd,
}

impl Turn {
    /// Waits for a turn with nobody else: for trees that fork without end. Two bombs on two CPUs measure the patience of the
    /// machine, not leash.
    pub fn alone() -> io::Result<Self> {
        Self::take(FlockOperation::LockExclusive)
    }

    /// Waits for a turn without noise: for what gives up when the machine does not answer, as leash does with a user manager.
    pub fn quiet() -> io::Result<Self> {
        Self::take(FlockOperation::LockShared)
    }

    fn take(how: FlockOperation) -> io::Result<Self> {
        let name = format!("leash-test-turn-{}", rustix::process::geteuid().as_raw());
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = rustix::fs::open(std::env::temp_dir().join(name), flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&lock, how)?;
        Ok(Self { _lock: lock })
    }
}
