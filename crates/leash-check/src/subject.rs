//! The program under test, running in a containment of leash. leash only observes until [`Subject::end`]: the grace of
//! the containment is longer than the longest wait of a check. Only if the check itself dies is there no grace at all.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{ffi::OsString, fs::File, time::Duration};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::{CheckError, StopSignals, stderr_tail::StderrTail, survivor::Survivor, terminal};
use leash_model::clock::{Moment, timeout_until};
use leash_model::limits;
use leash_model::receipt::{Exit, Receipt};
use leash_protocol::frame::{Line, Lines};
use leash_tree::tree::{Spec, SupervisorLost, Tree};
use leash_tree::{places::Places, platform::identity::HeldProcess, platform::proc::Proc};

/// The interval between counts of a tree's members: the kernel does not report the exit of a process that is not our
/// child.
const LOOK: Duration = Duration::from_millis(10);

/// The containment's grace exceeds the longest wait of a check by this, so that it never acts during a check.
const BEYOND: Duration = Duration::from_secs(10);

/// The parameters of a start.
#[derive(Clone, Debug)]
pub(crate) struct SubjectStart<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) env: &'a [(OsString, Option<OsString>)],
    pub(crate) places: &'a Places,
    /// The longest wait of the check.
    pub(crate) time_limit: Duration,
    /// True if its stderr is ours; else its stderr is kept.
    pub(crate) shares_stderr: bool,
    /// True if its stderr is a terminal, which [`Subject::hang_up`] closes; the command makes it its controlling
    /// terminal.
    pub(crate) terminal: bool,
    pub(crate) stop: &'a StopSignals,
}

/// The next event on a subject's stdout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubjectOutput {
    Line(Bytes),
    /// It closed its stdout.
    End,
    /// Nothing arrived until the deadline.
    Nothing,
}

/// A running subject.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    tree: Tree,
    proc: Proc,
    keeper: Option<HeldProcess>,
    leader: Option<HeldProcess>,
    stdin: Option<File>,
    stdout: Option<File>,
    lines: Lines,
    stderr: Option<StderrTail>,
    /// Our side of its terminal.
    terminal: Option<File>,
    stop: &'a StopSignals,
}

impl<'a> Subject<'a> {
    pub(crate) fn start(start: &SubjectStart<'a>) -> Result<Subject<'a>, CheckError> {
        start.stop.check()?;
        let proc = Proc::own().map_err(CheckError::Proc)?;
        let name = start.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let mut spec =
            Spec::new(start.command.iter().cloned()).label("check", &name).grace(start.time_limit + BEYOND).patient();
        for (key, value) in start.env {
            spec = spec.env(key, value.clone());
        }
        let terminal = if start.terminal { Some(terminal::open()?) } else { None };
        let (terminal, seat) = terminal.map(|(ours, theirs)| (File::from(ours), theirs)).unzip();
        let (stderr, pipe) = if start.shares_stderr || start.terminal {
            (None, None)
        } else {
            StderrTail::start().map(|(tail, pipe)| (Some(tail), Some(pipe)))?
        };
        let given: Option<OwnedFd> = pipe.or(seat);
        let started = match given {
            None => Tree::start(spec, start.places),
            Some(fd) => Tree::start_speaking_to(spec, start.places, fd),
        };
        let mut tree = started.map_err(|source| CheckError::Start { name, source })?;
        let keeper = tree.keeper(&proc);
        let leader = tree.leader().and_then(|pid| HeldProcess::open(&proc, pid));
        let file = |fd: OwnedFd| File::from(fd);
        let stdin = tree.take_stdin().map(|pipe| file(pipe.into()));
        // Only this process writes there, and a subject that does not read must not block it.
        stdin.as_ref().map_or(Ok(()), |stdin| rustix::io::ioctl_fionbio(stdin, true)).map_err(std::io::Error::from)?;
        let stdout = tree.take_stdout().map(|pipe| file(pipe.into()));
        let (lines, stop) = (Lines::new(limits::LINE), start.stop);
        Ok(Subject { tree, proc, keeper, leader, stdin, stdout, lines, stderr, terminal, stop })
    }

    /// Writes a line, as far as the pipe has room by the deadline. Other checks show whether the subject reads.
    pub(crate) fn write_line(&mut self, line: &str, deadline: Moment) {
        let line = format!("{line}\n");
        let mut left = line.as_bytes();
        while let Some(stdin) = self.stdin.as_mut().filter(|_| !left.is_empty()) {
            match stdin.write(left) {
                Ok(written @ 1..) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.wait_room(deadline) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Waits for room in its stdin; returns true if a write is worth trying.
    fn wait_room(&self, deadline: Moment) -> bool {
        let now = Moment::now();
        if now >= deadline || self.stop.asked().is_some() {
            return false;
        }
        let mut fds: Vec<PollFd<'_>> = self.stdin.iter().map(|stdin| PollFd::new(stdin, PollFlags::OUT)).collect();
        fds.extend(self.stop.as_fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted or failed poll counts as a wake-up without events.
        let _ = rustix::event::poll(&mut fds, Some(&timeout_until(deadline, now)));
        true
    }

    /// The next line. Output that is already there at the deadline still counts; a line without an end is not waited
    /// for.
    pub(crate) fn read_line(&mut self, deadline: Moment) -> SubjectOutput {
        let mut late = false;
        loop {
            match self.lines.next_line() {
                Some(Line::Whole(line)) => return SubjectOutput::Line(line),
                // No response is that long.
                Some(Line::TooLong { .. }) => continue,
                None => {}
            }
            if self.stdout.is_none() {
                return SubjectOutput::End;
            }
            if late || self.stop.asked().is_some() {
                return SubjectOutput::Nothing;
            }
            late = Moment::now() >= deadline;
            self.listen(deadline, None);
        }
    }

    /// Closes its stdin.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Closes both pipes at once, as the kernel does for a killed process.
    pub(crate) fn close_pipes(&mut self) {
        self.stdin = None;
        self.stdout = None;
    }

    /// Closes its terminal: the kernel sends SIGHUP to the session that has this controlling terminal.
    pub(crate) fn hang_up(&mut self) {
        self.terminal = None;
    }

    /// Waits until it has read everything that was written to it.
    pub(crate) fn wait_read(&mut self, deadline: Moment) {
        let unread = |stdin: &File| rustix::io::ioctl_fionread(stdin).is_ok_and(|bytes| bytes > 0);
        while self.stdin.as_ref().is_some_and(unread) && Moment::now() < deadline && self.lives() {
            if self.stop.asked().is_some() {
                return;
            }
            self.listen(deadline.min(Moment::now() + LOOK), None);
        }
    }

    /// Signals its first process, the one that an SDK knows.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(leader) = &self.leader {
            // An error means that it has exited, which is fine.
            let _ = leader.signal(signal);
        }
    }

    /// True if its first process runs.
    pub(crate) fn lives(&self) -> bool {
        self.leader.as_ref().is_some_and(HeldProcess::lives)
    }

    /// Waits until its first process has exited; returns true if it has.
    pub(crate) fn wait_leader(&mut self, deadline: Moment) -> bool {
        while self.lives() {
            if Moment::now() >= deadline || self.stop.asked().is_some() {
                return false;
            }
            let fd = self.leader.as_ref().and_then(|leader| leader.as_fd().try_clone_to_owned().ok());
            self.listen(deadline, fd.as_ref().map(AsFd::as_fd));
            self.lines = Lines::new(limits::LINE);
        }
        true
    }

    /// Waits until no process is left; returns the processes that are left at the deadline.
    pub(crate) fn wait_gone(&mut self, deadline: Moment) -> Vec<Survivor> {
        loop {
            let left = self.members();
            let now = Moment::now();
            if left.is_empty() || now >= deadline || self.stop.asked().is_some() {
                return left;
            }
            self.pause(deadline);
        }
    }

    /// Waits for a short time, or until it writes something.
    pub(crate) fn pause(&mut self, deadline: Moment) {
        self.listen(deadline.min(Moment::now() + LOOK), None);
        self.lines = Lines::new(limits::LINE);
    }

    /// All of its living processes.
    pub(crate) fn members(&self) -> Vec<Survivor> {
        let Some(keeper) = self.keeper.as_ref().filter(|keeper| keeper.lives()) else { return Vec::new() };
        Survivor::look(&self.proc, &self.proc.descendants(keeper.id.pid).found)
    }

    /// Waits for output, for `other` to become readable, for a stop signal, or for the deadline. Output is kept.
    fn listen(&mut self, deadline: Moment, other: Option<BorrowedFd<'_>>) {
        // Output to the terminal is read so that it does not fill up, but it is never answered. stdout is not read while
        // more than `limits::LINE` bytes are unprocessed: a subject that writes more has to wait.
        let stdout = self.stdout.as_ref().filter(|_| self.lines.len() <= limits::LINE);
        let sources = [stdout, self.terminal.as_ref()];
        let mut fds: Vec<PollFd<'_>> = sources.iter().flatten().map(|file| PollFd::new(file, PollFlags::IN)).collect();
        let others = [other, self.stop.as_fd()];
        fds.extend(others.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted or failed poll counts as a wake-up without events.
        let _ = rustix::event::poll(&mut fds, Some(&timeout_until(deadline, Moment::now())));
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let [speaks, shows] = sources.map(|file| file.is_some() && ready.next().unwrap_or_default());
        drop(fds);
        if shows {
            read(&mut self.terminal);
        }
        if speaks {
            self.lines.push(&read(&mut self.stdout));
        }
    }

    /// The end of its stderr.
    pub(crate) fn stderr_tail(&self) -> String {
        self.stderr.as_ref().map(StderrTail::text).unwrap_or_default()
    }

    /// Ends all processes that are left, without grace.
    pub(crate) fn end(mut self) -> Result<Receipt, SupervisorLost> {
        self.close_pipes();
        self.tree.ask_to_end();
        self.tree.hurry();
        self.tree.wait()
    }
}

/// Reads the available bytes from a ready source. A source at its end is closed.
fn read(source: &mut Option<File>) -> Vec<u8> {
    let mut buffer = vec![0; 16384];
    let got = source.as_mut().and_then(|source| source.read(&mut buffer).ok()).unwrap_or_default();
    if got == 0 {
        *source = None;
    }
    buffer.truncate(got);
    buffer
}

/// The exit status of a tree's first process.
pub(crate) fn exit_of(receipt: &Receipt) -> Option<Exit> {
    receipt.trees().next().and_then(|tree| tree.exit)
}
