//! What is tested, running in a containment of ours. leash only looks on until [`Subject::end`]: the containment's own ladder is
//! slower than any check is patient, and only when the check itself is gone is there no grace at all.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::said::Said;
use super::survivor::Survivor;
use super::{CheckError, Stop, terminal};
use leash_model::clock::{Moment, timeout_until};
use leash_model::limits;
use leash_model::receipt::{Exit, Receipt};
use leash_protocol::frame::{Line, Lines};
use leash_tree::places::Places;
use leash_tree::platform::identity::Held;
use leash_tree::platform::proc::Proc;
use leash_tree::tree::{Spec, Tree, TreeError};

/// How often the members of a tree are counted: the end of a process that is not our child makes no sound.
const LOOK: Duration = Duration::from_millis(10);

/// What the containment's own ladder waits beyond the patience of a check, so that it never acts while somebody looks.
const BEYOND: Duration = Duration::from_secs(10);

/// How a subject is started.
#[derive(Clone, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) env: &'a [(OsString, Option<OsString>)],
    pub(crate) places: &'a Places,
    /// The longest that anything will be waited for.
    pub(crate) patience: Duration,
    /// Whether it speaks on our stderr; else what it says is kept.
    pub(crate) aloud: bool,
    /// Whether its stderr is a terminal, which [`Subject::hang_up`] closes; the command makes it its own.
    pub(crate) terminal: bool,
    pub(crate) stop: &'a Stop,
}

/// The next thing that a subject said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Line(Bytes),
    /// It closed its stdout.
    End,
    /// Nothing, until the deadline.
    Nothing,
}

/// It runs.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    tree: Tree,
    proc: Proc,
    keeper: Option<Held>,
    leader: Option<Held>,
    stdin: Option<File>,
    stdout: Option<File>,
    heard: Lines,
    stderr: Option<Said>,
    /// Our side of its terminal.
    terminal: Option<File>,
    stop: &'a Stop,
}

impl<'a> Subject<'a> {
    pub(crate) fn start(start: &Start<'a>) -> Result<Subject<'a>, CheckError> {
        start.stop.check()?;
        let proc = Proc::own().map_err(CheckError::Proc)?;
        let name = start.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let mut spec =
            Spec::new(start.command.iter().cloned()).label("check", &name).grace(start.patience + BEYOND).patient();
        for (key, value) in start.env {
            spec = spec.env(key, value.clone());
        }
        let terminal = if start.terminal { Some(terminal::open()?) } else { None };
        let (terminal, seat) = terminal.map(|(ours, theirs)| (File::from(ours), theirs)).unzip();
        let (stderr, pipe) = if start.aloud || start.terminal {
            (None, None)
        } else {
            Said::listen().map(|(said, pipe)| (Some(said), Some(pipe)))?
        };
        let given: Option<OwnedFd> = pipe.or(seat);
        let started = match given {
            None => Tree::start(spec, start.places),
            Some(fd) => Tree::start_speaking_to(spec, start.places, fd),
        };
        let mut tree = started.map_err(|source| CheckError::Start { name, source })?;
        let keeper = tree.keeper(&proc);
        let leader = tree.leader().and_then(|pid| Held::open(&proc, pid));
        let file = |fd: OwnedFd| File::from(fd);
        let stdin = tree.take_stdin().map(|pipe| file(pipe.into()));
        // Nobody else writes there, and one that does not read may not hold us up.
        stdin.as_ref().map_or(Ok(()), |stdin| rustix::io::ioctl_fionbio(stdin, true)).map_err(std::io::Error::from)?;
        let stdout = tree.take_stdout().map(|pipe| file(pipe.into()));
        let (heard, stop) = (Lines::new(limits::LINE), start.stop);
        Ok(Subject { tree, proc, keeper, leader, stdin, stdout, heard, stderr, terminal, stop })
    }

    /// Writes a line, as far as there is room for it by the deadline. What becomes of one that does not read is seen elsewhere.
    pub(crate) fn say(&mut self, line: &str, deadline: Moment) {
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

    /// Waits for room in its stdin; whether it is worth trying.
    fn wait_room(&self, deadline: Moment) -> bool {
        let now = Moment::now();
        if now >= deadline || self.stop.asked().is_some() {
            return false;
        }
        let mut fds: Vec<PollFd<'_>> = self.stdin.iter().map(|stdin| PollFd::new(stdin, PollFlags::OUT)).collect();
        fds.extend(self.stop.as_fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted or failed poll is a wake without news.
        let _ = rustix::event::poll(&mut fds, Some(&timeout_until(deadline, now)));
        true
    }

    /// The next line. What is there at the deadline is still heard, and what comes without an end is not waited for.
    pub(crate) fn hear(&mut self, deadline: Moment) -> Heard {
        let mut late = false;
        loop {
            match self.heard.next_line() {
                Some(Line::Whole(line)) => return Heard::Line(line),
                // No answer is that long.
                Some(Line::TooLong { .. }) => continue,
                None => {}
            }
            if self.stdout.is_none() {
                return Heard::End;
            }
            if late || self.stop.asked().is_some() {
                return Heard::Nothing;
            }
            late = Moment::now() >= deadline;
            self.listen(deadline, None);
        }
    }

    /// Closes its stdin.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Lets go of both pipes at once, as a process does that is killed.
    pub(crate) fn let_go(&mut self) {
        self.stdin = None;
        self.stdout = None;
    }

    /// Closes its terminal: the kernel sends SIGHUP to whoever sits there.
    pub(crate) fn hang_up(&mut self) {
        self.terminal = None;
    }

    /// Waits until it has read all that was said to it.
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
            // Gone already is as good.
            let _ = leader.signal(signal);
        }
    }

    /// Whether its first process runs.
    pub(crate) fn lives(&self) -> bool {
        self.leader.as_ref().is_some_and(Held::lives)
    }

    /// Waits until its first process has ended; whether it has.
    pub(crate) fn wait_leader(&mut self, deadline: Moment) -> bool {
        while self.lives() {
            if Moment::now() >= deadline || self.stop.asked().is_some() {
                return false;
            }
            let fd = self.leader.as_ref().and_then(|leader| leader.as_fd().try_clone_to_owned().ok());
            self.listen(deadline, fd.as_ref().map(AsFd::as_fd));
            self.heard = Lines::new(limits::LINE);
        }
        true
    }

    /// Waits until nothing of it is left; what is left at the deadline.
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

    /// A moment, or until it says something.
    pub(crate) fn pause(&mut self, deadline: Moment) {
        self.listen(deadline.min(Moment::now() + LOOK), None);
        self.heard = Lines::new(limits::LINE);
    }

    /// All of its processes that live.
    pub(crate) fn members(&self) -> Vec<Survivor> {
        let Some(keeper) = self.keeper.as_ref().filter(|keeper| keeper.lives()) else { return Vec::new() };
        Survivor::look(&self.proc, &self.proc.descendants(keeper.id.pid).found)
    }

    /// Waits for output, for `other` to become readable, for a wish to stop, or for the deadline. What is heard is kept.
    fn listen(&mut self, deadline: Moment, other: Option<BorrowedFd<'_>>) {
        // What is shown in a terminal is read, because it would fill up; it is nothing that anybody answers.
        // What says more than is asked for has to wait.
        let stdout = self.stdout.as_ref().filter(|_| self.heard.len() <= limits::LINE);
        let sources = [stdout, self.terminal.as_ref()];
        let mut fds: Vec<PollFd<'_>> = sources.iter().flatten().map(|file| PollFd::new(file, PollFlags::IN)).collect();
        let others = [other, self.stop.as_fd()];
        fds.extend(others.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted or failed poll is a wake without news.
        let _ = rustix::event::poll(&mut fds, Some(&timeout_until(deadline, Moment::now())));
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let [speaks, shows] = sources.map(|file| file.is_some() && ready.next().unwrap_or_default());
        drop(fds);
        if shows {
            read(&mut self.terminal);
        }
        if speaks {
            self.heard.push(&read(&mut self.stdout));
        }
    }

    /// The end of what it said on stderr.
    pub(crate) fn last_words(&self) -> String {
        self.stderr.as_ref().map(Said::last_words).unwrap_or_default()
    }

    /// Ends whatever is left of it, at once.
    pub(crate) fn end(mut self) -> Result<Receipt, TreeError> {
        self.let_go();
        self.tree.ask_to_end();
        self.tree.hurry();
        self.tree.wait()
    }
}

/// What can be read, from a source that is ready. One that is at its end is closed.
fn read(source: &mut Option<File>) -> Vec<u8> {
    let mut buffer = vec![0; 16384];
    let got = source.as_mut().and_then(|source| source.read(&mut buffer).ok()).unwrap_or_default();
    if got == 0 {
        *source = None;
    }
    buffer.truncate(got);
    buffer
}

/// How the first process of a tree ended.
pub(crate) fn exit_of(receipt: &Receipt) -> Option<Exit> {
    receipt.trees().next().and_then(|tree| tree.exit)
}
