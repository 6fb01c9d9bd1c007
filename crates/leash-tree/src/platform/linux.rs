//! The system calls that rustix does not wrap, and nothing else. All `unsafe` of the library lives in this file.
#![expect(clippy::disallowed_methods, reason = "each use says why the number can't be another process's")]
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each has its SAFETY line")]

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::{io, ptr};

use leash_model::receipt::Exit;
use rustix::io::Errno;

/// Returns `Errno` of the last failed libc call.
fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn check(result: i64) -> Result<i64, Errno> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

/// The namespaces and the cgroup that a new process is born in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CloneInto<'a> {
    /// `CLONE_NEW*` flags.
    pub(crate) namespaces: u64,
    /// A cgroup2 directory: the child is a member before its first instruction.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
}

/// The side of a fork that this process is on.
pub(crate) enum Forked {
    /// This is the new process.
    Child,
    /// This is the old process; the child's pid in our namespace.
    Parent(i32),
}

/// `fork` through clone3, into a cgroup and namespaces. Only for a single-threaded process: the child goes on in a copy
/// of this one and may allocate, because no other thread can hold a lock.
pub(crate) fn fork_into(into: CloneInto<'_>) -> Result<Forked, Errno> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    #[repr(C)]
    #[derive(Default)]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    if into.cgroup.is_none() && into.namespaces == 0 {
        // Plain fork keeps libc's own bookkeeping right, and works below 5.3.
        // SAFETY: single-threaded by contract; no pointers are passed.
        return match check(i64::from(unsafe { libc::fork() }))? {
            0 => Ok(Forked::Child),
            pid => Ok(Forked::Parent(pid as i32)),
        };
    }
    let args = CloneArgs {
        flags: into.namespaces | if into.cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 },
        exit_signal: libc::SIGCHLD as u64,
        cgroup: into.cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
        ..CloneArgs::default()
    };
    // SAFETY: `args` lives across the call and its size is given. Without CLONE_VM and with a zero stack this is a
    // fork, so both sides return here on their own copy of the stack.
    let result = unsafe { libc::syscall(libc::SYS_clone3, ptr::from_ref(&args), size_of::<CloneArgs>()) };
    match check(result)? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid as i32)),
    }
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: RawFd) {
    // SAFETY: no code uses the descriptors with these numbers any more: callers are about to exec, or are a keeper that
    // has just been executed and owns only the descriptors below.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first as u32, u32::MAX, 0u32) };
    if done == 0 {
        return;
    }
    // Linux before 5.9 has no close_range.
    for fd in first..4096 {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// Makes `to` a copy of `from` that survives exec.
pub(crate) fn place_fd(from: RawFd, to: RawFd) -> Result<(), Errno> {
    if from == to {
        // dup2 onto itself would leave close-on-exec set.
        // SAFETY: plain integers.
        check(i64::from(unsafe { libc::fcntl(from, libc::F_SETFD, 0) }))?;
        return Ok(());
    }
    // SAFETY: plain integers; the caller owns the number `to`, so its old descriptor may be replaced.
    check(i64::from(unsafe { libc::dup2(from, to) }))?;
    Ok(())
}

/// Closes everything above stderr except `keep`, which is moved to number 3 and closes on exec.
pub(crate) fn keep_only(keep: RawFd) -> OwnedFd {
    // SAFETY: plain integers; we are a forked child about to exec, or at the very start of a process, so no other code
    // uses these numbers.
    unsafe {
        if keep != 3 {
            libc::dup2(keep, 3);
        }
        libc::fcntl(3, libc::F_SETFD, libc::FD_CLOEXEC);
    }
    close_from(4);
    // SAFETY: open, by the dup2 above; its former number was closed with the rest.
    unsafe { OwnedFd::from_raw_fd(3) }
}

/// Takes ownership of a descriptor that was inherited at a known number.
pub fn inherited_fd(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: plain integers.
    check(i64::from(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) }))?;
    // SAFETY: it is open (fcntl worked), and by the keeper's contract no other code in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The signals that were ignored when this process started, before Rust's start-up code or leash changed any
/// disposition.
#[derive(Clone, Copy, Debug, Default)]
pub struct InheritedSignals {
    ignored: u64,
}

impl InheritedSignals {
    /// Reads the current dispositions. SIGPIPE counts as default: Rust's start-up code has already set it to ignore,
    /// and its earlier disposition cannot be known. SIGCHLD counts as default, because an ignored SIGCHLD breaks every
    /// `wait`.
    pub fn look() -> InheritedSignals {
        let mut ignored = 0;
        for signal in 1..=31 {
            if signal != libc::SIGPIPE && signal != libc::SIGCHLD && disposition(signal) == Some(libc::SIG_IGN) {
                ignored |= 1 << signal;
            }
        }
        InheritedSignals { ignored }
    }

    /// True if `signal` was ignored (`nohup` ignores SIGHUP, a shell's background job SIGINT).
    pub fn ignores(&self, signal: i32) -> bool {
        (1..=31).contains(&signal) && self.ignored & (1 << signal) != 0
    }

    /// The signals as a number, to hand to the keeper.
    pub(crate) fn to_bits(self) -> u64 {
        self.ignored
    }

    /// Reads the number that [`InheritedSignals::to_bits`] made.
    pub(crate) fn from_bits(ignored: u64) -> InheritedSignals {
        InheritedSignals { ignored }
    }

    /// Restores the dispositions that this process had at its start, with an empty signal mask. A server starts with
    /// these.
    pub(crate) fn restore(self) {
        for signal in (1..=31).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
            let action = if self.ignores(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
            set_disposition(signal, action);
        }
        // SAFETY: a zeroed set is a valid argument to sigemptyset; the set lives across the calls.
        unsafe {
            let mut empty: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut empty);
            libc::sigprocmask(libc::SIG_SETMASK, &empty, ptr::null_mut());
        }
    }
}

fn disposition(signal: i32) -> Option<libc::sighandler_t> {
    // SAFETY: a null new action only reads; `old` lives across the call.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &mut old) == 0).then_some(old.sa_sigaction)
    }
}

fn set_disposition(signal: i32, action: libc::sighandler_t) {
    // SAFETY: the structure is fully initialised; SIG_DFL and SIG_IGN need no handler.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
        libc::sigaction(signal, &new, ptr::null_mut());
    }
}

/// Gives a signal its default disposition.
pub(crate) fn set_default(signal: i32) {
    set_disposition(signal, libc::SIG_DFL);
}

/// Removes a variable from the environment of this process. Only for a process with a single thread.
pub(crate) fn remove_variable(name: &str) {
    // SAFETY: no other thread exists that could read the environment at the same time.
    unsafe { std::env::remove_var(name) }
}

/// Makes the kernel kill nearly any other process before this one when memory is short. Only root may; for others
/// nothing changes. A process of leash calls it after it has started its last child, because children inherit it.
pub(crate) fn resist_memory_shortage() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "-900");
}

/// Ignores SIGXFSZ, so that a ledger that may not grow (`ulimit -f`) makes the write fail and does not end leash.
pub fn survive_file_size_limit() {
    set_disposition(libc::SIGXFSZ, libc::SIG_IGN);
}

/// One signal as read from a signalfd.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedSignal {
    /// The signal.
    pub signal: i32,
    /// Sent by `sigqueue` with this value.
    pub queued: Option<i32>,
}

/// Blocks the signals that leash listens to and returns a descriptor that delivers them. Sets their dispositions to
/// default first, because the kernel drops an ignored signal even while it is blocked.
pub fn listen(signals: &[i32]) -> Result<OwnedFd, Errno> {
    for &signal in signals {
        set_disposition(signal, libc::SIG_DFL);
    }
    // SAFETY: the set is initialised by sigemptyset before use and lives across the calls; signalfd returns a fresh
    // descriptor that no other code owns.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        check(i64::from(libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut())))?;
        let fd = check(i64::from(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Reads one pending signal, if any.
pub fn receive(fd: BorrowedFd<'_>) -> Option<ReceivedSignal> {
    // SAFETY: the buffer is exactly one record long and a record is plain data, valid for any bytes.
    unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        let read = libc::read(fd.as_raw_fd(), ptr::from_mut(&mut info).cast(), size);
        if read != size as isize {
            return None;
        }
        let queued = (info.ssi_code == libc::SI_QUEUE).then_some(info.ssi_int);
        Some(ReceivedSignal { signal: info.ssi_signo as i32, queued })
    }
}

/// Receives a message from a socket with `SO_PASSCRED`. Returns the number of the process that sent it, as the kernel says;
/// `None` at the end of file. The message is cut if the buffer is too short. Never waits.
pub(crate) fn receive_from(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Option<i32>, Errno> {
    // SAFETY: all pointers are to memory that lives across the calls, with its length. The kernel fills in the control
    // message, which is read through the CMSG functions only; `ucred` is plain data.
    unsafe {
        let mut data = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // Room for the sender and nothing else: the kernel closes descriptors that come with a message.
        let mut control = [0u64; 4];
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut data;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        check(libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) as i64)?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_sender = !header.is_null()
            && ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
        let sender = is_sender.then(|| libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned().pid);
        Ok(sender)
    }
}

/// Blocks every signal that can be blocked.
pub(crate) fn block_all() {
    // SAFETY: the set is initialised by sigfillset and lives across the call.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, ptr::null_mut());
    }
}

/// Sends a signal with a value through a pidfd, as `sigqueue` would.
pub(crate) fn queue(pidfd: BorrowedFd<'_>, signal: i32, value: i32) -> Result<(), Errno> {
    // SAFETY: siginfo is plain data and zeroed; the fields written below are the ones the kernel reads for SI_QUEUE
    // (si_pid, si_uid, si_value lie behind the three leading integers, 8-aligned on 64-bit). It lives across the call.
    unsafe {
        #[repr(C)]
        struct QueuedSignal {
            signo: i32,
            errno: i32,
            code: i32,
            #[cfg(target_pointer_width = "64")]
            _pad: i32,
            pid: i32,
            uid: u32,
            value: libc::sigval,
        }
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let fields = ptr::from_mut(&mut info).cast::<QueuedSignal>();
        (*fields).signo = signal;
        (*fields).code = libc::SI_QUEUE;
        (*fields).pid = libc::getpid();
        (*fields).uid = libc::getuid();
        (*fields).value = libc::sigval { sival_ptr: value as usize as *mut libc::c_void };
        check(libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, ptr::from_ref(&info), 0))?;
    }
    Ok(())
}

/// Sends SIGKILL to a direct child that has not been waited for. Its number cannot have been reused: the kernel keeps
/// it until we reap the child.
pub fn kill_own_child(pid: i32) -> Result<(), Errno> {
    assert!(pid > 1, "0, -1 and 1 mean something else to kill(2)");
    // SAFETY: plain integers; see above for why the number is safe.
    check(i64::from(unsafe { libc::kill(pid, libc::SIGKILL) })).map(drop)
}

/// Sends SIGKILL to every process of our PID namespace but this one and its first process, which is leash too (the
/// kernel protects it). Only for a leash that is the first process of a container.
pub(crate) fn kill_all_in_namespace() {
    // SAFETY: plain integers.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Sends a signal to a process group whose leader is a direct child of ours that has not been waited for, so the number
/// can't be reused.
pub(crate) fn signal_own_group(leader: i32, signal: i32) -> Result<(), Errno> {
    assert!(leader > 1, "0 and 1 mean something else to kill(2)");
    // SAFETY: plain integers; see above for why the number is safe.
    check(i64::from(unsafe { libc::kill(-leader, signal) })).map(drop)
}

/// Sends SIGSTOP to the whole group that a pidfd's process leads (Linux 6.9; older kernels answer EINVAL).
pub(crate) fn stop_group(leader: BorrowedFd<'_>) -> Result<(), Errno> {
    const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 1 << 2;
    // SAFETY: a null siginfo is allowed and means a plain signal.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            leader.as_raw_fd(),
            libc::SIGSTOP,
            ptr::null::<libc::siginfo_t>(),
            PIDFD_SIGNAL_PROCESS_GROUP,
        )
    };
    check(sent).map(drop)
}

/// Gives a process (and its later forks) the least possible share of one CPU.
pub(crate) fn demote(pid: i32, cpu: usize) {
    // SAFETY: plain integers and structures that live across the calls; a failure (the process is gone, another uid)
    // leaves the process unchanged, which the caller accepts.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, pid as libc::id_t, 19);
        let param: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(pid, libc::SCHED_IDLE, &param);
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// How a process ended, from what `wait` returned; `None` for a stop or continue.
pub(crate) fn exit_of(status: i32) -> Option<Exit> {
    use std::os::unix::process::ExitStatusExt as _;
    let status = std::process::ExitStatus::from_raw(status);
    status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal))
}

/// Closes every descriptor above stderr.
pub fn close_inherited() {
    close_from(3);
}

/// The same, but keeps a descriptor for the caller, under another number. `None` if it is not open.
pub fn close_inherited_but(keep: RawFd) -> Option<OwnedFd> {
    // SAFETY: plain integers.
    let is_open = keep >= 3 && unsafe { libc::fcntl(keep, libc::F_GETFD) } >= 0;
    if !is_open {
        close_inherited();
        return None;
    }
    Some(keep_only(keep))
}

/// Replaces this process. Returns only on failure.
pub(crate) fn exec(path: &CStr, argv: &[CString], env: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays end in null, every string is NUL-terminated, and all of them outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    last_errno()
}

/// Keeps large buffers out of the allocator's heap, so that the kernel gets their memory back as soon as they are
/// freed. By default glibc puts large buffers into the heap once it has seen one, and keeps up to twice the largest. It
/// would also make a heap for each thread that starts servers, and all of those grow; the one thread that serves needs
/// no heap of its own.
pub fn give_back_large_buffers(from: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers, and does not touch allocated memory.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, from);
        libc::mallopt(libc::M_TRIM_THRESHOLD, from);
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = from;
}

/// Gives memory that this process used once back to the kernel: freed memory that the allocator keeps, and the part of the
/// stack that deeper calls have used. Only for the main thread.
pub(crate) fn give_back_memory() {
    give_back_heap();
    /// What this function and `madvise` may use of the stack below the page that `page` is in.
    const IN_USE: usize = 4 << 10;
    /// The kernel leaves at least 1 MiB below the stack free of other mappings.
    const USED_ONCE: usize = 512 << 10;
    let page = rustix::param::page_size();
    let here = ptr::from_ref(&page) as usize / page * page;
    let start = here.saturating_sub(USED_ONCE);
    // SAFETY: memory below the stack pointer belongs to no call that still runs. Where nothing is mapped, the kernel
    // changes nothing.
    unsafe { libc::madvise(start as *mut libc::c_void, here - IN_USE - start, libc::MADV_DONTNEED) };
}

/// Gives freed memory that the allocator keeps back to the kernel.
pub fn give_back_heap() {
    // dlmalloc of the static program gives back the end of its heap and empty segments by itself.
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and touches only memory that is not allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The allocator's counters.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// Bytes that are allocated.
    pub used: u64,
    /// Bytes that were freed and not given back to the kernel.
    pub free: u64,
}

/// The counters of this process. `None` if the allocator has none.
pub fn heap() -> Option<Heap> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it takes no argument, and reads the allocator's counters under the allocator's own lock.
        let info = unsafe { libc::mallinfo2() };
        Some(Heap { used: (info.uordblks + info.hblkhd) as u64, free: info.fordblks as u64 })
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Takes pages out of our address space. The kernel reads them again from their file, unchanged, when they are needed.
pub(crate) fn give_back_pages(pages: &super::mappings::UnchangedPages) {
    let range = pages.range();
    // SAFETY: the type guarantees that the pages map a file, are read-only and do not differ from the file. A failure
    // leaves them where they are.
    unsafe { libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED) };
}

/// Replaces the command line that `ps` shows for this process. The old text is overwritten where the kernel put it, so
/// the process must not read its arguments any more. A text that is longer than the old one changes nothing.
pub(crate) fn set_command_line(text: &[u8]) {
    use std::os::unix::ffi::OsStrExt as _;
    // SAFETY: glibc and musl both have it.
    unsafe extern "C" {
        /// The first argument, in the place where the kernel put it. The others follow, each with a NUL at its end.
        static program_invocation_name: *mut libc::c_char;
    }
    let length: usize = std::env::args_os().map(|argument| argument.as_bytes().len() + 1).sum();
    if text.len() + 1 >= length {
        return;
    }
    // SAFETY: libc set it before `main`, and the range is that of the arguments, which a process may write to. No other
    // thread reads them.
    unsafe {
        let start = program_invocation_name.cast::<u8>();
        ptr::write_bytes(start, 0, length);
        ptr::copy_nonoverlapping(text.as_ptr(), start, text.len());
        // Tells the kernel that the text ends at its first NUL.
        start.add(length - 1).write(1);
    }
}

/// Ends this process at once, without destructors or exit handlers: a forked copy of a keeper must not run them.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: never returns and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Puts the keeper's descriptors at their numbers in the forked child of a `Command`. Runs between fork and exec, so it
/// makes only system calls.
pub(crate) fn before_exec(command: &mut std::process::Command, places: Vec<(OwnedFd, RawFd)>) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: the closure only makes system calls (fcntl, dup2), allocates nothing and touches no lock.
    unsafe {
        command.pre_exec(move || {
            for (from, to) in &places {
                place_fd(from.as_raw_fd(), *to)?;
            }
            Ok(())
        });
    }
}

/// A pidfd that a task can wait for.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub struct AsyncPidfd(tokio::io::unix::AsyncFd<OwnedFd>);

#[cfg(feature = "tokio")]
impl AsyncPidfd {
    /// Adds the pidfd to the current runtime's set of descriptors, once: a second one needs a copy of the descriptor.
    pub fn new(pidfd: OwnedFd) -> Result<AsyncPidfd, io::Error> {
        readable(pidfd).map(AsyncPidfd)
    }

    /// Waits until the process has ended. An error means that the runtime is shutting down.
    pub async fn ended(&self) -> Result<(), io::Error> {
        while !super::identity::has_ended(std::os::fd::AsFd::as_fd(self.0.get_ref())) {
            self.0.readable().await?.clear_ready();
        }
        Ok(())
    }
}

/// Registers a descriptor with the runtime, to wait until it is writable.
#[cfg(feature = "tokio")]
pub fn writable(fd: OwnedFd) -> std::io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    // SAFETY: the returned value owns the descriptor and closes it when it is dropped.
    unsafe { tokio::io::unix::AsyncFd::register_with_interest(fd, tokio::io::Interest::WRITABLE) }
        .map_err(std::io::Error::from)
}

/// Registers a descriptor with the runtime, to wait until it is readable.
#[cfg(feature = "tokio")]
pub fn readable(fd: OwnedFd) -> std::io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    // SAFETY: the returned value owns the descriptor and closes it when it is dropped.
    unsafe { tokio::io::unix::AsyncFd::register_with_interest(fd, tokio::io::Interest::READABLE) }
        .map_err(std::io::Error::from)
}
