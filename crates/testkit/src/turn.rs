//! Turns between tests in different processes: a test that overloads the machine runs alone.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, Mode, OFlags};

/// A turn, until it is dropped. The kernel also takes it from a test that is killed.
#[derive(Debug)]
pub struct Turn {
    _lock: OwnedFd,
}

impl Turn {
    /// Waits until no other test has a turn: for trees that fork without end. Two fork bombs on two CPUs would measure
    /// the scheduler, not leash.
    pub fn alone() -> io::Result<Self> {
        Self::take(FlockOperation::LockExclusive)
    }

    /// Waits until no fork bomb runs: for code that gives up when the machine is slow, as leash does with a user
    /// manager.
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
