//! What one look at the machine saw. Plain values: a test can write down any machine.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use leash_model::identity::Identity;

/// One look at the machine.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Every process that can be seen and is not dead, by pid. Threads of the kernel are left out.
    pub processes: Vec<Process>,
    /// Processes whose descriptors could not be read: each of them may hold anything.
    pub unread: Vec<Unread>,
    /// Who serves others over TCP; looked at only where a server has lost its stdin.
    pub served: Vec<Served>,
    /// Clock ticks since boot, to tell ages.
    pub now: u64,
    /// Ticks in a second.
    pub hertz: u64,
    /// Who looked.
    pub uid: u32,
    /// Nobody can exist who is not among the processes: they are those of the whole machine, and none is hidden from who looked.
    pub whole: bool,
}

/// A process that could not be looked into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// Who it is.
    pub id: Identity,
    /// What is in the way.
    pub why: Why,
}

/// A connection that a server has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The process that has it.
    pub by: i32,
    /// The port on which it came in.
    pub port: u16,
    /// Servers, and what belongs to them, that have the other end. Empty: somebody else has, perhaps on another machine.
    pub clients: Vec<i32>,
}

/// Why something could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It belongs to another user, or does not let itself be read.
    NotPermitted,
    /// Sockets of this kind can't be asked about here (no `unix_diag`, or another network namespace).
    NoSocketAnswer,
    /// Somebody holds it, and nobody who can be seen does: another user, another PID namespace, or it is on its way inside a message.
    Unseen,
    /// The machine was out of descriptors or memory.
    Exhausted,
}

/// A process as it was seen.
#[derive(Clone, Debug)]
pub struct Process {
    /// Who it is.
    pub id: Identity,
    /// Its parent.
    pub ppid: i32,
    /// Its process group.
    pub pgrp: i32,
    /// Its session.
    pub session: i32,
    /// Its controlling terminal, 0 for none.
    pub tty: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its short name.
    pub comm: String,
    /// Its arguments; of those who are known to be nobody they may be missing.
    pub argv: Vec<String>,
    /// Its working directory; read for what may be a declared server only.
    pub cwd: Option<String>,
    /// The environment variables that declared commands name, and PATH; read for the same. `None`: they were not, or could not be.
    pub variables: Option<BTreeMap<String, String>>,
    /// The environment variables that tell where it came from, of those that are known; never the others.
    pub marks: BTreeMap<String, String>,
    /// The letter of its state.
    pub state: char,
    /// Processor time it used, in ticks.
    pub cpu: u64,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Memory in swap, in bytes; read for servers and hosts only.
    pub swap: u64,
    /// Where its stdin comes from; read for servers, hosts and their trees only.
    pub stdin: Channel,
    /// Where its stdout goes to; read for the same.
    pub stdout: Channel,
    /// One of its standard descriptors is a terminal that was closed.
    pub terminal_gone: bool,
}

/// One of the standard descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// What it is.
    pub kind: Kind,
    /// Who has the other end.
    pub other_end: OtherEnd,
}

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Nobody looked.
    NotAsked,
    /// It could not be read.
    Unread,
    /// There is none.
    Closed,
    /// A pipe.
    Pipe {
        /// The kernel's number for it.
        inode: u64,
    },
    /// A UNIX socket, mostly one of a pair.
    Socket {
        /// The kernel's number for this end.
        inode: u64,
    },
    /// The null device.
    Null,
    /// A terminal.
    Tty,
    /// A file or a device: it has no other end.
    File,
}

/// Who has the other end of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    /// The kernel says that nobody has.
    Gone,
    /// These have.
    Held {
        /// Who, never nobody.
        by: Vec<Identity>,
        /// Every process that could be read was looked at, so there is nobody else among them.
        all: bool,
    },
    /// It can't be told.
    NotVisible(Why),
    /// Such a thing has no other end.
    None,
}

impl Channel {
    /// A channel that nobody looked at.
    pub const NOT_ASKED: Channel = Channel { kind: Kind::NotAsked, other_end: OtherEnd::None };

    /// Those who are known to have the other end.
    pub fn holders(&self) -> impl Iterator<Item = &Identity> {
        match &self.other_end {
            OtherEnd::Held { by, .. } => by.as_slice(),
            OtherEnd::Gone | OtherEnd::NotVisible(_) | OtherEnd::None => &[],
        }
        .iter()
    }

    /// The kernel's number, for what has another end.
    pub fn inode(&self) -> Option<u64> {
        match self.kind {
            Kind::Pipe { inode } | Kind::Socket { inode } => Some(inode),
            _ => None,
        }
    }
}

impl Process {
    /// How long it has been running.
    pub fn age(&self, facts: &Facts) -> Duration {
        ticks(facts.now.saturating_sub(self.id.start), facts.hertz)
    }

    /// Its command line, for people: one line, and not a whole page.
    pub fn command(&self) -> String {
        if self.argv.is_empty() {
            return format!("[{}]", self.comm);
        }
        let line: String = self.argv.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        line
    }
}

impl Facts {
    /// The process with this number.
    pub fn process(&self, pid: i32) -> Option<&Process> {
        let at = self.processes.binary_search_by_key(&pid, |process| process.id.pid).ok()?;
        self.processes.get(at)
    }

    /// Exactly this process.
    pub fn same(&self, id: &Identity) -> Option<&Process> {
        self.process(id.pid).filter(|process| process.id.is(id))
    }

    /// The parent of a process, its parent, and so on. A parent is older than its child: a younger one has only taken the number.
    pub fn ancestors<'a>(&'a self, process: &'a Process) -> impl Iterator<Item = &'a Process> {
        let older = |child: &'a Process| {
            let parent = self.process(child.ppid)?;
            (parent.id.start <= child.id.start && parent.id.pid != child.id.pid).then_some(parent)
        };
        // A loop can't be in a real /proc, but while it is read, numbers may be reused.
        std::iter::successors(older(process), move |child| older(child)).take(256)
    }
}

/// Ticks as a time.
pub(super) fn ticks(count: u64, hertz: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(1000) / hertz.max(1))
}
