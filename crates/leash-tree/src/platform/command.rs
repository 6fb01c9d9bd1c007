//! The one place where leash starts a process by `Command`: itself, as a keeper or as a supervisor.
#![expect(clippy::disallowed_methods, reason = "this is the one place")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::linux;

/// Lowest number for descriptors on their way to a child, above every number they can be meant for.
const PARKING: RawFd = 64;

/// Variables that no process started here inherits. One set for the process, as its environment is one.
static WITHHELD: Mutex<BTreeSet<OsString>> = Mutex::new(BTreeSet::new());

/// Removes these variables from the environment of every supervisor and keeper that is started from now on, and so of every
/// server. For variables that hold tokens. A server gets one only by its own [`Spec::env`](crate::tree::Spec::env).
pub fn withhold<N: Into<OsString>>(names: impl IntoIterator<Item = N>) {
    withheld().extend(names.into_iter().map(Into::into));
}

fn withheld() -> std::sync::MutexGuard<'static, BTreeSet<OsString>> {
    // A set is whole even if a thread panicked while it held the lock.
    WITHHELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a process of leash is started.
pub struct Launch<'a> {
    /// The program; it must call [`crate::enter`] first.
    pub program: &'a Path,
    /// What it sees as its first argument, which says what it is.
    pub role: &'a str,
    /// Further arguments.
    pub arguments: &'a [&'a OsStr],
    /// Descriptors, and the numbers at which it finds them.
    pub fds: Vec<(OwnedFd, RawFd)>,
    /// Whether stdin and stdout become pipes to us, or stay ours.
    pub piped: bool,
}

/// Starts it.
pub fn launch(launch: Launch<'_>) -> std::io::Result<Child> {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(launch.program);
    command.arg0(launch.role).args(launch.arguments);
    for name in &*withheld() {
        command.env_remove(name);
    }
    if launch.piped {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    }
    let mut parked = Vec::with_capacity(launch.fds.len());
    for (fd, number) in launch.fds {
        // A descriptor might sit at the number that another one is meant for.
        parked.push((park(&fd)?, number));
    }
    linux::before_exec(&mut command, parked);
    command.spawn()
}

/// A copy at a number that is out of the way.
fn park(fd: &impl AsFd) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, PARKING)
}
