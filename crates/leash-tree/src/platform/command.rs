//! The one place where leash starts processes of its own: by `Command`, or as a fork of this process.
#![expect(clippy::disallowed_methods, reason = "this is the one place")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::linux::{self, CloneInto, Forked};

/// The lowest number for descriptors on their way to a child, above every number at which a child expects one.
const PARKING: RawFd = 64;

/// Variables that no process started here inherits. One set for the whole process, because a process has one
/// environment.
static WITHHELD: Mutex<BTreeSet<OsString>> = Mutex::new(BTreeSet::new());

/// Removes these variables from the environment of every supervisor and keeper that is started from now on, and so of every
/// server. For variables that hold tokens. A server gets one only by its own [`Spec::env`](crate::tree::Spec::env).
pub fn withhold<N: Into<OsString>>(names: impl IntoIterator<Item = N>) {
    withheld().extend(names.into_iter().map(Into::into));
}

/// The names of these variables, for servers whose supervisor was started before.
pub(crate) fn withheld_names() -> Vec<OsString> {
    withheld().iter().cloned().collect()
}

fn withheld() -> std::sync::MutexGuard<'static, BTreeSet<OsString>> {
    // A set is valid even if a thread panicked while it held the lock.
    WITHHELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parameters of a start of one of leash's own processes.
pub struct Launch<'a> {
    /// The program; it must call [`enter`](crate::tree::keeper::enter) first.
    pub program: &'a Path,
    /// Its `argv[0]`, which says what role it has.
    pub role: &'a str,
    /// Further arguments.
    pub arguments: &'a [&'a OsStr],
    /// Descriptors, and the numbers at which the process finds them.
    pub fds: Vec<(OwnedFd, RawFd)>,
    /// True if stdin and stdout become pipes to us; false if the process inherits ours.
    pub piped: bool,
}

/// Starts the process.
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
    linux::before_exec(&mut command, park(launch.fds)?);
    command.spawn()
}

/// Forks this process, which must have a single thread. The new process has the descriptors at their numbers, runs `run`
/// and exits. Returns its pid.
pub(crate) fn fork(fds: Vec<(OwnedFd, RawFd)>, run: impl FnOnce()) -> rustix::io::Result<i32> {
    let parked = park(fds)?;
    match linux::fork_into(CloneInto::default())? {
        Forked::Parent(pid) => Ok(pid),
        Forked::Child => {
            let placed = parked.iter().all(|(from, to)| linux::place_fd(from.as_raw_fd(), *to).is_ok());
            // A panic must not unwind into the code of the process that forked.
            let ran = placed && std::panic::catch_unwind(AssertUnwindSafe(run)).is_ok();
            linux::exit_now(if ran { 0 } else { 1 })
        }
    }
}

/// Moves descriptors to numbers at [`PARKING`] or above: one of them could have the number that is meant for another.
fn park(fds: Vec<(OwnedFd, RawFd)>) -> rustix::io::Result<Vec<(OwnedFd, RawFd)>> {
    let park = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, PARKING);
    fds.into_iter().map(|(fd, number)| Ok((park(fd)?, number))).collect()
}
