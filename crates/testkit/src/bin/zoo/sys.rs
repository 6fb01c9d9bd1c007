//! The only unsafe code of the zoo: what `rustix` does not wrap, or wraps as unsafe.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each has its SAFETY line")]

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Which side of a fork we are on.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process, with the new one's number.
    Parent(Pid),
}

/// Splits the process in two.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: a process of the zoo that starts a thread does not fork afterwards, so the child may run any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Pid::from_raw(pid).expect("fork returned a pid"))),
    }
}

/// Ends the main thread alone: /proc shows the process as a zombie while its other threads work on.
pub(crate) fn exit_main_thread() -> ! {
    loop {
        // SAFETY: the call has no precondition; the stack of the main thread stays mapped for those who borrow from it.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Leaves the given namespaces for new ones.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the descriptor table is not among the flags the zoo uses, and there is no other thread.
    unsafe { rustix::thread::unshare_unsafe(flags)? };
    Ok(())
}

/// Leaves at once: no destructor, no flush of a buffer inherited from the parent.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no precondition.
    unsafe { libc::_exit(code) }
}

/// Has `socket` use one network interface only, as `curl --interface` does.
pub(crate) fn bind_to_device(socket: &impl AsRawFd, name: &str) -> io::Result<()> {
    let (level, option) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    // SAFETY: the name lives across the call, which copies as many bytes of it as it is told.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, name.as_ptr().cast(), name.len() as libc::socklen_t)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes bytes that nobody has ever set.
pub(crate) fn write_uninitialised(file: &impl AsRawFd) -> io::Result<()> {
    let mut room: Vec<u8> = Vec::with_capacity(64);
    let room = room.spare_capacity_mut();
    // SAFETY: the memory is allocated and that long. What is in it is read by the kernel alone, to which all bytes are alike.
    let written = unsafe { libc::write(file.as_raw_fd(), room.as_ptr().cast(), room.len()) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What a process does about a signal.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// What the kernel does by default.
    Default,
    /// Nothing, and neither do the programs it executes.
    Ignore,
    /// Nothing, but programs it executes are back at the default. This is what a signal handler of a Node or Python host amounts to.
    Shrug,
    /// Leave with exit code 0, even when blocked in a system call.
    Leave,
}

extern "C" fn shrug(_: libc::c_int) {}

extern "C" fn leave(_: libc::c_int) {
    exit_now(0)
}

/// Sets what this process does about `signal`.
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

/// Rust's runtime opens missing standard descriptors and ignores SIGPIPE before `main`, so `zoo env` would report
/// the runtime instead of what it was given. A constructor runs before the runtime.
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
