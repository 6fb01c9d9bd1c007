//! The facts that one scan found, and the evidence that a judge takes from them. They are plain values, so a test can
//! describe any machine.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

mod evidence;

pub use evidence::{Evidence, StdioStream};
use leash_model::identity::Identity;
use leash_model::launch::{LaunchedProgram, Launcher, program_name};

/// The result of one scan.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Every visible process that is not dead, by PID, without kernel threads.
    pub processes: Vec<Process>,
    /// Processes whose descriptors could not be read: each of them may hold any pipe or socket.
    pub unread: Vec<UnreadProcess>,
    /// TCP connections that servers have accepted; read only where a server has lost its stdin.
    pub served: Vec<AcceptedConnection>,
    /// Clock ticks since boot, to compute ages.
    pub now: u64,
    /// Ticks in a second.
    pub hertz: u64,
    /// The user id of the process that scanned.
    pub uid: u32,
    /// True if no other process can exist: the scan covered the whole machine, and /proc hides no process from the
    /// scanner.
    pub whole: bool,
}

/// A process whose descriptors could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadProcess {
    /// The process.
    pub id: Identity,
    /// The reason.
    pub why: UnreadReason,
}

/// A TCP connection that a server has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedConnection {
    /// The process that holds the server's end.
    pub by: i32,
    /// The local port.
    pub port: u16,
    /// Servers, and members of their trees, that hold the other end. Empty: another process holds it, perhaps on
    /// another machine.
    pub clients: Vec<i32>,
}

/// The reason why something could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnreadReason {
    /// It belongs to another user, or it forbids reading (not dumpable).
    NotPermitted,
    /// The kernel gives no information about sockets of this kind (no `unix_diag`, or another network namespace).
    NoSocketAnswer,
    /// A holder exists, but no visible process has it: the holder belongs to another user or another PID namespace, or
    /// the descriptor is inside a message that was not received yet.
    Unseen,
    /// The machine was out of descriptors or memory.
    Exhausted,
}

/// A process as the scan saw it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its PID and start time.
    pub id: Identity,
    /// Its parent.
    pub ppid: i32,
    /// Its session.
    pub session: i32,
    /// Its controlling terminal, 0 for none.
    pub tty: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its short name.
    pub comm: String,
    /// Its arguments; they may be missing for processes that are known to be unrelated.
    pub argv: Vec<String>,
    /// Its working directory; read only for processes that may be a declared server.
    pub cwd: Option<String>,
    /// The environment variables that declared commands name, and PATH; read for the same processes. `None`: not read,
    /// or not readable.
    pub variables: Option<BTreeMap<String, String>>,
    /// The environment variables that show which client started it. Only known names are read, never others.
    pub marks: BTreeMap<String, String>,
    /// The state letter.
    pub state: char,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Memory in swap, in bytes; read for servers and hosts only.
    pub swap: u64,
    /// The source of its stdin; read for servers, hosts and their trees only.
    pub stdin: Channel,
    /// The destination of its stdout; read for the same processes.
    pub stdout: Channel,
    /// True if one of its standard descriptors is a terminal that was closed.
    pub terminal_gone: bool,
}

/// One standard descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The kind of file behind it.
    pub kind: DescriptorKind,
    /// The holders of the other end.
    pub other_end: OtherEnd,
}

/// The kind of file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DescriptorKind {
    /// It was not read.
    NotAsked,
    /// It could not be read.
    Unread,
    /// The descriptor is closed.
    Closed,
    /// A pipe.
    Pipe {
        /// Its inode number.
        inode: u64,
    },
    /// A UNIX socket, mostly one of a pair.
    Socket {
        /// The inode number of this end.
        inode: u64,
    },
    /// The null device.
    Null,
    /// A terminal.
    Tty,
    /// A file or a device: it has no other end.
    File,
}

/// The holders of the other end of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    /// The kernel says that the other end is closed.
    Gone,
    /// These processes hold it.
    Held {
        /// The holders; never empty.
        by: Vec<Identity>,
        /// True if every readable process was searched, so the list is complete among them.
        all: bool,
    },
    /// The holders can't be determined.
    NotVisible(UnreadReason),
    /// This kind of file has no other end.
    None,
}

impl Channel {
    /// A channel that was not read.
    pub const NOT_ASKED: Channel = Channel { kind: DescriptorKind::NotAsked, other_end: OtherEnd::None };

    /// The known holders of the other end.
    pub fn holders(&self) -> impl Iterator<Item = &Identity> {
        match &self.other_end {
            OtherEnd::Held { by, .. } => by.as_slice(),
            OtherEnd::Gone | OtherEnd::NotVisible(_) | OtherEnd::None => &[],
        }
        .iter()
    }

    /// The inode number, for channels that have another end.
    pub fn inode(&self) -> Option<u64> {
        match self.kind {
            DescriptorKind::Pipe { inode } | DescriptorKind::Socket { inode } => Some(inode),
            _ => None,
        }
    }
}

impl Process {
    /// The time since its start.
    pub fn age(&self, facts: &Facts) -> Duration {
        ticks(facts.now.saturating_sub(self.id.start), facts.hertz)
    }

    /// Its command line as one line for people, without control characters.
    pub fn command(&self) -> String {
        if self.argv.is_empty() {
            return format!("[{}]", self.comm);
        }
        let line: String = self.argv.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        line
    }

    /// Its program and its script for people: `node host.mjs`.
    pub fn short_command(&self) -> String {
        let first = self.argv.first().and_then(|first| first.split_ascii_whitespace().next());
        let program = first.map_or(self.comm.as_str(), program_name);
        let launch = LaunchedProgram::of(&self.argv);
        match launch.as_ref().map(|launch| (launch.launcher, launch.target.as_str())) {
            Some((Launcher::Interpreter, script)) => format!("{program} {}", program_name(script)),
            Some((Launcher::Module, module)) => format!("{program} -m {module}"),
            Some((Launcher::Runner, package)) => format!("{program} {package}"),
            Some((Launcher::Exec, _)) | None => program.to_owned(),
        }
    }

    /// A process with only a PID and a start time; the caller fills in the rest.
    pub(crate) fn new(pid: i32, start: u64) -> Process {
        Process {
            id: Identity { pid, start, inode: None },
            ppid: 0,
            session: pid,
            tty: 0,
            uid: 0,
            comm: String::new(),
            argv: Vec::new(),
            cwd: None,
            variables: None,
            marks: BTreeMap::new(),
            state: 'S',
            resident: 0,
            swap: 0,
            stdin: Channel::NOT_ASKED,
            stdout: Channel::NOT_ASKED,
            terminal_gone: false,
        }
    }
}

impl Facts {
    /// The process with this PID.
    pub fn process(&self, pid: i32) -> Option<&Process> {
        let at = self.processes.binary_search_by_key(&pid, |process| process.id.pid).ok()?;
        self.processes.get(at)
    }

    /// The process with this PID and start time.
    pub fn same(&self, id: &Identity) -> Option<&Process> {
        self.process(id.pid).filter(|process| process.id.is(id))
    }

    /// True if a process only collects orphans: process 1, a session's systemd, the init of a container.
    pub(crate) fn is_reaper(&self, pid: i32) -> bool {
        // Parent 0 is outside of our PID namespace: `docker exec`, which may well be alive.
        pid == 1 || self.process(pid).is_some_and(|process| is_reaper_name(&process.comm))
    }

    /// The parent of a process, its parent, and so on. A parent is older than its child: a younger process has only
    /// reused the PID.
    pub fn ancestors<'a>(&'a self, process: &'a Process) -> impl Iterator<Item = &'a Process> {
        let older = |child: &'a Process| {
            let parent = self.process(child.ppid)?;
            (parent.id.start <= child.id.start && parent.id.pid != child.id.pid).then_some(parent)
        };
        // A real process tree has no cycle, but PIDs may be reused while /proc is read.
        std::iter::successors(older(process), move |child| older(child)).take(256)
    }
}

/// Converts ticks to a duration.
fn ticks(count: u64, hertz: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(1000) / hertz.max(1))
}

/// True if a program of this name only collects orphans.
pub(crate) fn is_reaper_name(comm: &str) -> bool {
    const REAPERS: [&str; 7] = ["systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan"];
    REAPERS.contains(&comm)
}
