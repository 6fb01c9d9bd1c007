//! The only unsafe code of the kit: steps between fork and exec, and a connection that is closed without FIN and RST.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each has its SAFETY line")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal};

/// An action of a child between fork and exec, with the credentials that it will have.
#[derive(Debug)]
pub enum Step {
    /// Join a cgroup through its `cgroup.procs`, opened for writing by a process with the right to do so: the kernel
    /// checks the opener of the file.
    JoinCgroup(OwnedFd),
    /// Start a session whose controlling terminal is this one.
    ControllingTerminal(OwnedFd),
    /// Start a session without a terminal.
    OwnSession,
    /// Lower a resource limit.
    Limit(Resource, u64),
    /// Ignore a signal.
    Ignore(Signal),
    /// Block a signal.
    Block(Signal),
    /// Close this descriptor.
    Close(RawFd),
    /// Keep this descriptor across the exec, with its number.
    Keep(OwnedFd),
    /// Be killed when the thread that starts it ends.
    DieWithParent,
}

/// Adds `steps` to the actions of `command` before exec, in that order.
pub fn prepare(command: &mut Command, steps: Vec<Step>) {
    let run = move || steps.iter().try_for_each(take);
    // SAFETY: every step is a few system calls on things that exist already; nothing is allocated and no lock is taken.
    unsafe { command.pre_exec(run) };
}

fn take(step: &Step) -> io::Result<()> {
    match step {
        Step::JoinCgroup(procs) => {
            rustix::io::write(procs, b"0")?;
        }
        Step::ControllingTerminal(terminal) => {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(terminal)?;
        }
        Step::OwnSession => {
            rustix::process::setsid()?;
        }
        Step::Limit(resource, most) => {
            let limit = Rlimit { current: Some(*most), maximum: Some(*most) };
            rustix::process::setrlimit(*resource, limit)?;
        }
        Step::Ignore(signal) => {
            // SAFETY: SIG_IGN is a valid action.
            unsafe { libc::signal(signal.as_raw(), libc::SIG_IGN) };
        }
        Step::Block(signal) => block(*signal),
        Step::Close(fd) => {
            // SAFETY: this runs in the forked child just before exec, where no other code uses the number.
            drop(unsafe { OwnedFd::from_raw_fd(*fd) });
        }
        Step::Keep(fd) => {
            let flags = rustix::io::fcntl_getfd(fd)? - rustix::io::FdFlags::CLOEXEC;
            rustix::io::fcntl_setfd(fd, flags)?;
            debug_assert!(fd.as_raw_fd() > 2);
        }
        Step::DieWithParent => rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?,
    }
    Ok(())
}

fn block(signal: Signal) {
    // SAFETY: the set is initialised by `sigemptyset` before use, and the number is valid.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal.as_raw());
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Gives this thread, and the processes that it starts from now on, their own mount namespace. No other process sees
/// its mounts, which end with it.
pub fn own_mounts() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: the descriptor table is not among the flags; other threads keep the mounts they had.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Checks that [`close_silently`] works here; the error says why not.
pub fn may_close_silently() -> Result<(), String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let stream = std::net::TcpStream::connect(address).map_err(|error| error.to_string())?;
    repair(&stream).map_err(|error| format!("a socket cannot be closed silently: {error}"))
}

/// Closes a connection without FIN and RST, as a machine does that loses power.
///
/// # Panics
/// If [`may_close_silently`] returns an error.
pub fn close_silently(stream: std::net::TcpStream) {
    repair(&stream).expect("may_close_silently was checked before");
}

/// The kernel closes a socket in repair mode without FIN and RST.
fn repair(stream: &std::net::TcpStream) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int, which lives until the call returns.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
