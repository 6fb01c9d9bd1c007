//! Starts a server: fork, prepare, exec. Runs in the single-threaded keeper only.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Signal, getpid, getppid};

use super::linux::{self, CloneInto, Forked, InheritedSignals};

/// The program to execute, ready for the system call.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: CString,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: Option<CString>,
    pub(crate) signals: InheritedSignals,
}

/// The step at which a start stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SpawnStep {
    /// Not a failure: the kernel will kill the namespace's first process when the keeper dies.
    Armed = 1,
    /// Mapping the user into the new user namespace.
    UserMap,
    /// Mounting a /proc for the new PID namespace.
    MountProc,
    /// A further fork inside the namespace.
    Fork,
    /// Changing to the server's directory.
    Chdir,
    /// Executing the program.
    Exec,
    /// The parent process was gone before the server could start.
    Orphaned,
}

impl SpawnStep {
    fn from_byte(byte: u8) -> Option<SpawnStep> {
        [
            SpawnStep::Armed,
            SpawnStep::UserMap,
            SpawnStep::MountProc,
            SpawnStep::Fork,
            SpawnStep::Chdir,
            SpawnStep::Exec,
            SpawnStep::Orphaned,
        ]
        .into_iter()
        .find(|stage| *stage as u8 == byte)
    }
}

/// The reason why a server could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpawnError {
    /// The kernel made no process, or refused it the containment.
    Clone(Errno),
    /// The new process failed at this stage.
    At(SpawnStep, Errno),
    /// The kernel gave no pipe to talk to the new process.
    Pipe(Errno),
}

/// The child's end of the pipe on which it reports failures. exec closes it, so end of file without a report means
/// success.
pub(crate) struct ReportPipe(OwnedFd);

/// The keeper's end of the report pipe.
pub(crate) struct Progress(File);

pub(crate) fn report_pipe() -> Result<(Progress, ReportPipe), SpawnError> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::Pipe)?;
    Ok((Progress(File::from(reader)), ReportPipe(writer)))
}

impl ReportPipe {
    /// Not a failure: tells the keeper that the kernel will kill this process when the keeper dies.
    pub(crate) fn armed(&self) {
        self.send(SpawnStep::Armed, 0);
    }

    fn send(&self, stage: SpawnStep, errno: i32) {
        let mut message = [stage as u8; 5];
        message[1..].copy_from_slice(&errno.to_le_bytes());
        // If this fails, the keeper is gone and no process reads the report.
        let _ = rustix::io::write(&self.0, &message);
    }

    /// Reports a failure and ends the forked process.
    pub(crate) fn fail(&self, stage: SpawnStep, errno: Errno) -> ! {
        self.send(stage, errno.raw_os_error());
        linux::exit_now(127)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Progress {
    /// The next report; `None` when exec closed the pipe, which means success.
    pub(crate) fn next(&mut self) -> Option<(SpawnStep, Errno)> {
        let mut message = [0; 5];
        self.0.read_exact(&mut message).ok()?;
        let errno = i32::from_le_bytes([message[1], message[2], message[3], message[4]]);
        // Zero is not an error number. Only `Armed` sends it.
        Some((SpawnStep::from_byte(message[0])?, if errno > 0 { Errno::from_raw_os_error(errno) } else { Errno::IO }))
    }
}

/// Starts the server as a child of this process, in `into`. Returns its pid once exec has worked.
pub(crate) fn spawn(program: &Program, into: CloneInto<'_>) -> Result<i32, SpawnError> {
    let (mut progress, report) = report_pipe()?;
    let parent = getpid();
    match linux::fork_into(into).map_err(SpawnError::Clone)? {
        Forked::Child => become_server(program, parent, &report),
        Forked::Parent(pid) => {
            drop(report);
            match progress.next() {
                None => Ok(pid),
                Some((stage, errno)) => {
                    // The child exits right after the report.
                    let _ = rustix::process::waitpid(
                        rustix::process::Pid::from_raw(pid),
                        rustix::process::WaitOptions::empty(),
                    );
                    Err(SpawnError::At(stage, errno))
                }
            }
        }
    }
}

/// Turns the forked child into the server: prepares it and calls exec. Stdin, stdout and stderr stay those that the
/// host gave.
pub(crate) fn become_server(program: &Program, parent: rustix::process::Pid, report: &ReportPipe) -> ! {
    // The server gets its own process group, so that a signal that it sends to its group never reaches the keeper.
    let _ = rustix::process::setpgid(None, None);
    // The last resort: if the keeper vanishes, the kernel kills at least the leader. The keeper has one thread, so this
    // death signal can't fire because a thread ended.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(parent) {
        report.fail(SpawnStep::Orphaned, Errno::SRCH);
    }
    program.signals.restore();
    if let Some(cwd) = &program.cwd
        && let Err(errno) = rustix::process::chdir(cwd.as_c_str())
    {
        report.fail(SpawnStep::Chdir, errno);
    }
    // Close every descriptor that is not the server's. Only the report pipe is kept, at number 3.
    let kept = linux::keep_only(report.as_fd().as_raw_fd());
    let errno = execute(program);
    ReportPipe(kept).fail(SpawnStep::Exec, errno)
}

/// Calls exec as execvp does: a script without `#!` is given to the shell.
fn execute(program: &Program) -> Errno {
    let errno = linux::exec(&program.path, &program.argv, &program.env);
    if errno != Errno::NOEXEC {
        return errno;
    }
    let shell = c"/bin/sh";
    let mut argv = vec![shell.to_owned(), program.path.clone()];
    argv.extend(program.argv.iter().skip(1).cloned());
    linux::exec(shell, &argv, &program.env)
}

/// Points stdin, stdout and stderr of this process at /dev/null. The pipes belong to the host and the server: if this
/// process held a copy, one of them would not see that the other has closed its end.
pub fn detach_stdio() {
    point_at_null(&[0, 1, 2]);
}

/// Closes stdin and stdout, which are /dev/null since [`detach_stdio`]. This frees two descriptors, with the lowest
/// numbers, for a keeper that has none left. Without a descriptor it can neither list the processes to kill nor report
/// them. The keeper writes nothing to stdout. Stderr stays open, because a panic writes to it.
pub fn close_stdin_and_stdout() {
    for number in [0, 1] {
        drop(linux::inherited_fd(number));
    }
}

/// The same as [`detach_stdio`], for a process that still writes to stderr.
pub(crate) fn detach_stdin_and_stdout() {
    point_at_null(&[0, 1]);
}

fn point_at_null(numbers: &[i32]) {
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else { return };
    for number in numbers {
        let _ = linux::place_fd(null.as_raw_fd(), *number);
    }
}

/// A C string from an OS string. An inner NUL byte ends it, as it would end the real argument.
pub(crate) fn c_string(text: &OsStr) -> CString {
    let bytes = text.as_bytes();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).unwrap_or_default()
}
