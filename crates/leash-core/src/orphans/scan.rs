//! One look at the machine: every process by its `stat` and its arguments, and of those that matter (servers and their trees, what
//! is above them, hosts, and what has been left to process 1) the standard descriptors and a few environment variables.
//!
//! Nothing is disturbed: no byte is read from a pipe, nobody is stopped, and a pipe is opened only for the moment in which the kernel is
//! asked whether its other end exists. Nothing is started. What may not be read is said, and nothing is guessed in its place.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;

use super::facts::{Channel, Facts, Kind, OtherEnd, Process, Why};
use super::holders::{End, Search, Seen};
use super::identify::Matcher;
use super::knowledge::Knowledge;
use super::unix_diag;
use crate::tree::identity::{Identity, pid_namespace};
use crate::tree::proc::{Proc, read_small};
use crate::tree::spec;

mod channel;
mod served;
mod stat;

use channel::Pipe;

/// Looks once. `also` are processes that are looked at as closely as servers, whatever they are.
pub fn scan(proc: &Proc, knowledge: &Knowledge, also: &[i32]) -> Facts {
    let mut facts = Facts {
        now: stat::now(),
        hertz: rustix::param::clock_ticks_per_second().max(1),
        uid: rustix::process::geteuid().as_raw(),
        ..Facts::default()
    };
    facts.processes = proc.numbers().into_iter().filter_map(stat::read).collect();
    facts.processes.sort_unstable_by_key(|process| process.id.pid);
    facts.whole = is_whole(&facts);
    let mut look = Look::new(proc, facts, knowledge, also);
    look.closely();
    look.at_ends();
    look.facts
}

/// Whether nobody is hidden: in a PID namespace those outside are, and where /proc is mounted with `hidepid` those of others, of whom
/// the first process is always one.
fn is_whole(facts: &Facts) -> bool {
    /// `PROC_PID_INIT_INO` of linux/proc_ns.h: the namespace that has all processes.
    const FIRST_NAMESPACE: u64 = 0xefff_fffc;
    pid_namespace() == FIRST_NAMESPACE && facts.process(1).is_some()
}

struct Look<'a> {
    proc: &'a Proc,
    knowledge: &'a Knowledge,
    facts: Facts,
    /// Servers and everything below them, and who is looked at on request.
    judged: HashSet<i32>,
    /// Who is above them, hosts, and who was left to a reaper.
    around: HashSet<i32>,
}

impl<'a> Look<'a> {
    fn new(proc: &'a Proc, facts: Facts, knowledge: &'a Knowledge, also: &[i32]) -> Look<'a> {
        let matcher = Matcher::new(knowledge);
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        let mut judged: HashSet<i32> = also.iter().copied().collect();
        let mut around = HashSet::new();
        for process in &facts.processes {
            let pid = process.id.pid;
            children.entry(process.ppid).or_default().push(pid);
            if matcher.server(&process.argv).is_some() {
                judged.insert(pid);
            } else if process.ppid <= 1
                || matcher.host(&process.comm, &process.argv).is_some()
                || facts.process(process.ppid).is_some_and(|parent| parent.ppid <= 1 && parent.session == parent.id.pid)
            {
                around.insert(pid);
            }
        }
        let recorded = knowledge.leashed.iter().flat_map(|leashed| &leashed.processes);
        judged.extend(recorded.filter_map(|id| facts.same(id)).map(|process| process.id.pid));
        let mut open: Vec<i32> = judged.iter().copied().collect();
        while let Some(pid) = open.pop() {
            let below = children.get(&pid).into_iter().flatten().copied();
            open.extend(below.filter(|child| judged.insert(*child)).collect::<Vec<_>>());
        }
        for process in judged.iter().filter_map(|pid| facts.process(*pid)) {
            around.extend(facts.ancestors(process).map(|above| above.id.pid));
        }
        Look { proc, knowledge, facts, judged, around }
    }

    /// Reads the standard descriptors and the marks of those that matter.
    fn closely(&mut self) {
        let variables: HashSet<&str> = self.knowledge.variables().collect();
        for process in &mut self.facts.processes {
            let pid = process.id.pid;
            if self.judged.contains(&pid) || self.around.contains(&pid) {
                let standard = channel::standard(pid);
                process.stdin.kind = standard.stdin;
                process.stdout.kind = standard.stdout;
                process.terminal_gone = standard.terminal_gone;
                process.marks = marks(pid, &variables);
                process.swap = swap(pid);
            }
        }
        // What left a tree may have kept the channels, or the mark of leash.
        let shared: HashSet<u64> = self.judged_channels().filter_map(Channel::inode).collect();
        let joins = |process: &&Process| {
            process.stdin.inode().is_some_and(|inode| shared.contains(&inode)) || process.marks.contains_key(spec::MARK)
        };
        let joined: Vec<i32> = self
            .facts
            .processes
            .iter()
            .filter(|process| {
                self.around.contains(&process.id.pid)
                    && self.facts.process(process.ppid).is_none_or(|parent| !self.judged.contains(&parent.id.pid))
            })
            .filter(joins)
            .map(|process| process.id.pid)
            .collect();
        self.judged.extend(joined);
    }

    fn judged_channels(&self) -> impl Iterator<Item = &Channel> {
        let judged = self.facts.processes.iter().filter(|process| self.judged.contains(&process.id.pid));
        judged.flat_map(|process| [&process.stdin, &process.stdout])
    }

    /// Finds out who has the other ends.
    fn at_ends(&mut self) {
        let has_socket = self.judged_channels().any(|channel| matches!(channel.kind, Kind::Socket { .. }));
        let pairs = if has_socket { unix_diag::pairs().ok() } else { None };
        let mut open: Vec<(usize, [Ask; 2])> = Vec::new();
        for (at, process) in self.facts.processes.iter_mut().enumerate() {
            if !self.judged.contains(&process.id.pid) {
                continue;
            }
            let stdin = ask(process.id.pid, process.stdin.kind, Pipe::Stdin, pairs.as_ref());
            // The writing end is opened only once nobody speaks to the server any more.
            let alone = matches!(stdin, Ask::Known(OtherEnd::Gone));
            let pipe = if alone { Pipe::StdoutAlone } else { Pipe::Stdout };
            let stdout = ask(process.id.pid, process.stdout.kind, pipe, pairs.as_ref());
            open.push((at, [stdin, stdout]));
        }
        let wanted = open.iter().flat_map(|(_, asks)| asks).filter_map(|ask| match ask {
            Ask::Holders(end) => Some(*end),
            Ask::Known(_) => None,
        });
        let wanted: HashSet<End> = wanted.collect();
        let mut search = Search::new(self.proc, wanted.into_iter(), &self.judged);
        let seen = |process: &Process| Seen { id: process.id };
        let near = self.facts.processes.iter().filter(|process| self.around.contains(&process.id.pid));
        let above = open.iter().flat_map(|(at, _)| self.facts.ancestors(&self.facts.processes[*at]));
        search.run(above.map(seen).chain(near.map(seen)), self.facts.processes.iter().map(seen));
        let answers: Vec<(usize, [OtherEnd; 2])> =
            open.into_iter().map(|(at, asks)| (at, asks.map(|ask| ask.answer(&search)))).collect();
        let unread = std::mem::take(&mut search.unread);
        for (at, [stdin, stdout]) in answers {
            self.facts.processes[at].stdin.other_end = stdin;
            self.facts.processes[at].stdout.other_end = stdout;
        }
        self.facts.unread = unread;
        // Whoever has a host is in use; the others may be, by those who are connected to them.
        let is_lost = |channel: &Channel| match &channel.other_end {
            OtherEnd::Gone => true,
            OtherEnd::Held { by, .. } => by.iter().all(|holder| self.judged.contains(&holder.pid)),
            OtherEnd::NotVisible(_) | OtherEnd::None => false,
        };
        if self.facts.processes.iter().any(|process| is_lost(&process.stdin)) {
            self.facts.served = served::served(self.judged.iter().copied());
        }
    }
}

/// What is known of an end, or who must be looked for.
enum Ask {
    Known(OtherEnd),
    Holders(End),
}

impl Ask {
    fn answer(self, search: &Search<'_>) -> OtherEnd {
        match self {
            Ask::Known(end) => end,
            Ask::Holders(end) => search.answer(end),
        }
    }
}

/// Asks the kernel whether the other end exists.
fn ask(pid: i32, kind: Kind, pipe: Pipe, pairs: Option<&HashMap<u64, u64>>) -> Ask {
    match kind {
        Kind::Pipe { inode } => match pipe.other_end(pid, inode) {
            Some(Ok(true)) => Ask::Known(OtherEnd::Gone),
            Some(Ok(false)) | None => Ask::Holders(pipe.sought(inode)),
            Some(Err(why)) => Ask::Known(OtherEnd::NotVisible(why)),
        },
        Kind::Socket { inode } => match pairs.and_then(|pairs| pairs.get(&inode)) {
            Some(0) => Ask::Known(OtherEnd::Gone),
            Some(peer) => Ask::Holders(End::Socket(*peer)),
            None => Ask::Known(OtherEnd::NotVisible(Why::NoSocketAnswer)),
        },
        Kind::Unread => Ask::Known(OtherEnd::NotVisible(Why::NotPermitted)),
        Kind::NotAsked | Kind::Closed | Kind::Null | Kind::Tty | Kind::File => Ask::Known(OtherEnd::None),
    }
}

/// The known variables in a process's environment. Whatever else is in there is dropped at once.
fn marks(pid: i32, variables: &HashSet<&str>) -> BTreeMap<String, String> {
    let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else { return BTreeMap::new() };
    let pair = |entry: &[u8]| {
        let entry = std::str::from_utf8(entry).ok()?;
        let (name, value) = entry.split_once('=')?;
        variables.contains(name).then(|| (name.to_owned(), value.to_owned()))
    };
    environ.split(|&byte| byte == 0).filter_map(pair).collect()
}

/// Bytes in swap.
fn swap(pid: i32) -> u64 {
    let status = read_small(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().map_or(0, |kib| kib * 1024)
}

impl Process {
    /// A process of which only its number and start are known; for what is filled in later, and for tests.
    pub(super) fn nobody(pid: i32, start: u64) -> Process {
        Process {
            id: Identity { pid, start, inode: None },
            ppid: 0,
            pgrp: pid,
            session: pid,
            tty: 0,
            uid: 0,
            comm: String::new(),
            argv: Vec::new(),
            marks: BTreeMap::new(),
            state: 'S',
            cpu: 0,
            resident: 0,
            swap: 0,
            stdin: Channel::NOT_ASKED,
            stdout: Channel::NOT_ASKED,
            terminal_gone: false,
        }
    }
}

#[cfg(test)]
mod tests;
