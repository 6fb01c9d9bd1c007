//! The only unsafe code of the zoo: system calls that `rustix` does not wrap, or wraps as unsafe.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each has its SAFETY line")]

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// The side of a fork that this process is on.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process, with the pid of the new one.
    Parent(Pid),
}

/// Forks the process.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the zoo never forks after it has started a thread, so the child may run any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Pid::from_raw(pid).expect("fork returned a pid"))),
    }
}

/// Leaves the given namespaces for new ones.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the descriptor table is not among the flags the zoo uses, and there is no other thread.
    unsafe { rustix::thread::unshare_unsafe(flags)? };
    Ok(())
}

/// Attaches to a process with ptrace and stops it, as a debugger does.
pub(crate) fn seize_and_stop(pid: Pid) -> io::Result<()> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
        // SAFETY: neither request reads or writes memory of this process.
        if unsafe { libc::ptrace(request, pid.as_raw_nonzero().get(), nothing, nothing) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Exits at once: no destructor, no flush of a buffer inherited from the parent.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(code) }
}

/// Ends the calling thread, and no other thread of the process.
pub(crate) fn exit_thread() -> ! {
    loop {
        // SAFETY: the thread owns nothing that others need: its stack is never freed, and no thread joins it.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Becomes the tracer of a process, without stopping it.
pub(crate) fn seize(pid: i32) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: PTRACE_SEIZE reads no memory of ours; the address must be null, and no option is set.
    let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts `socket` to one network interface, as `curl --interface` does.
pub(crate) fn bind_to_device(socket: &impl AsRawFd, name: &str) -> io::Result<()> {
    let (level, option) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    // SAFETY: the name lives across the call, which copies as many bytes of it as it is told.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, name.as_ptr().cast(), name.len() as libc::socklen_t)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes uninitialised bytes.
pub(crate) fn write_uninitialised(file: &impl AsRawFd) -> io::Result<()> {
    let mut room: Vec<u8> = Vec::with_capacity(64);
    let room = room.spare_capacity_mut();
    // SAFETY: the memory is allocated and that long. Only the kernel reads the bytes, and it accepts any value.
    let written = unsafe { libc::write(file.as_raw_fd(), room.as_ptr().cast(), room.len()) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The reaction of a process to a signal.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// The default action of the kernel.
    Default,
    /// The process ignores it, and so do the programs that it executes.
    Ignore,
    /// The process ignores it, but programs that it executes get the default action. A signal handler of a Node or
    /// Python host has this effect.
    Shrug,
    /// The process exits with code 0, even when it is blocked in a system call.
    Leave,
}

extern "C" fn shrug(_: libc::c_int) {}

extern "C" fn leave(_: libc::c_int) {
    exit_now(0)
}

/// Sets the reaction of this process to `signal`.
pub(crate) fn answer(signal: i32, answer: Answer) {
    let action = match answer {
        Answer::Default => libc::SIG_DFL,
        Answer::Ignore => libc::SIG_IGN,
        Answer::Shrug => shrug as *const () as libc::sighandler_t,
        Answer::Leave => leave as *const () as libc::sighandler_t,
    };
    // SAFETY: both handlers are async-signal-safe; a refused signal number changes nothing.
    unsafe { libc::signal(signal, action) };
}

/// Sends `signal` to this process with its default action.
pub(crate) fn raise(signal: i32) {
    answer(signal, Answer::Default);
    // SAFETY: `raise` has no precondition.
    unsafe { libc::raise(signal) };
}

/// The signals that are blocked in this thread.
pub(crate) fn blocked_signals() -> Vec<i32> {
    // SAFETY: an all-zero set is a valid set, filled by the call; a null new set leaves the mask alone.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
        set
    };
    // SAFETY: `set` was filled above, and the numbers are valid.
    (1..=64).filter(|&signal| unsafe { libc::sigismember(&set, signal) } == 1).collect()
}

/// The signals that were ignored when this program started.
pub(crate) fn ignored_signals() -> Vec<i32> {
    (1..=64)
        .filter(|&signal| match signal {
            libc::SIGPIPE => AT_START.load(Ordering::Relaxed) & SIGPIPE_IGNORED != 0,
            _ => is_ignored(signal),
        })
        .collect()
}

/// The standard descriptors that were closed when this program started.
pub(crate) fn closed_at_start() -> Vec<RawFd> {
    (0..3).filter(|fd| AT_START.load(Ordering::Relaxed) & (1 << fd) != 0).collect()
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero action is valid memory for the call to fill; a null new action changes nothing.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

/// Bits 0 to 2: that standard descriptor was closed. Bit 3: SIGPIPE was ignored.
static AT_START: AtomicU8 = AtomicU8::new(0);
const SIGPIPE_IGNORED: u8 = 1 << 3;

/// Rust's runtime opens missing standard descriptors and ignores SIGPIPE before `main`, so `zoo env` would report what
/// the runtime did, and not what it was started with. A constructor runs before the runtime.
// SAFETY: the section holds pointers to functions of this type, called once before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let mut seen = 0;
        for fd in 0..3 {
            // SAFETY: F_GETFD has no side effect and accepts any number.
            if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
                seen |= 1 << fd;
            }
        }
        if is_ignored(libc::SIGPIPE) {
            seen |= SIGPIPE_IGNORED;
        }
        AT_START.store(seen, Ordering::Relaxed);
    }
    look
};
