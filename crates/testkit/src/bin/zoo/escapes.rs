//! The ways in which a program of the same user escapes leash: a process without its main thread, a process in the PID
//! namespace of another one, a tracer that never detaches.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use testkit::process::Process;

use crate::sys;
use crate::wrong;

/// The timeout for the exit of the main thread.
const GONE: Duration = Duration::from_secs(10);

/// Runs `rest` in another thread, once the main thread has exited.
pub(crate) fn without_main_thread(rest: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let me = getpid().as_raw_nonzero();
    std::thread::Builder::new().spawn(move || {
        // `/proc/PID/stat` shows the state of the main thread.
        let is_gone = || fs::read_to_string(format!("/proc/{me}/stat")).is_ok_and(|stat| stat.contains(") Z "));
        testkit::wait::within(GONE, || is_gone().then_some(()));
        rest();
    })?;
    sys::exit_thread()
}

/// Makes the next children of this process start in the PID namespace of process `pid`.
pub(crate) fn enter_namespace_of(pid: i32) -> io::Result<()> {
    let pid = Pid::from_raw(pid).ok_or_else(|| wrong("no such process"))?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let own = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).ok();
    let theirs = |kind: &str| fs::read_link(format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero())).ok();
    let mut wanted = ThreadNameSpaceType::PROCESS_ID;
    // The user namespace comes first, if it is another one: it gives an ordinary user the right to enter the PID
    // namespace. The kernel refuses to enter the own user namespace again.
    if own("user") != theirs("user") {
        wanted |= ThreadNameSpaceType::USER;
    }
    Ok(move_into_thread_name_spaces(process.as_fd(), wanted)?)
}

/// Traces the process with this number and start time, prints `traced`, and never waits for the process: it stays a
/// zombie after its exit.
pub(crate) fn trace(pid: i32, start: u64) -> io::Result<()> {
    sys::seize(pid)?;
    // The exit of this process detaches it.
    if Pid::from_raw(pid).and_then(Process::read).is_none_or(|process| process.start != start) {
        return Err(wrong("it is another process"));
    }
    let mut stdout = io::stdout();
    stdout.write_all(b"traced\n")?;
    stdout.flush()?;
    loop {
        rustix::event::pause();
    }
}
