//! One scan of the machine: `stat` and arguments of every process. For relevant processes (servers and their trees,
//! their ancestors, hosts, and children of process 1) it also reads the standard descriptors and a few environment
//! variables.
//!
//! A scan disturbs no process: it reads no byte from a pipe, stops no process and starts none. It opens a pipe only
//! for the moment in which it asks the kernel whether the other end exists. What can't be read is recorded as
//! unreadable, never guessed.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::facts::{Channel, DescriptorKind, Evidence, Facts, OtherEnd, Process, UnreadReason};
use crate::knowledge::Knowledge;
use crate::knowledge::identify::{self, Matcher};
use leash_tree::platform::identity::pid_namespace;
use leash_tree::platform::proc::{self, Proc};
use leash_tree::tree::spec;

pub mod belongings;
mod channel;
mod holders;
mod served;
mod stat;
mod strangers;
mod unix_diag;

use channel::Pipe;
use holders::{Candidate, End, HolderSearch};
use stat::Who;
pub(crate) use stat::now;
use strangers::ProcEntry;
pub use strangers::Strangers;

/// Scans once. Processes in `also` are read as closely as servers.
pub fn scan(proc: &Proc, knowledge: &Knowledge, also: &[i32]) -> Facts {
    Look::new(proc, knowledge, None).run(also).facts
}

/// Scans again: a process that an earlier scan found to be unrelated is read only if it is near a server.
pub fn scan_again(proc: &Proc, knowledge: &Knowledge, strangers: &mut Strangers) -> Facts {
    strangers.begin(knowledge);
    let look = Look::new(proc, knowledge, Some(strangers)).run(&[]);
    let Look { facts, glances, kernel, judged, around, .. } = look;
    let far = |process: &Process| !judged.contains(&process.id.pid) && !around.contains(&process.id.pid);
    let both = facts.processes.iter().zip(&glances);
    let nobody =
        both.filter(|(process, glance)| glance.is.is_nobody() && far(process) && !facts.is_reaper(process.id.pid));
    strangers.end(&facts, nobody.filter_map(|(process, glance)| Some((process, glance.node?))), kernel);
    facts
}

/// The first classification of a process.
#[derive(Clone, Copy, Debug)]
struct Glance {
    is: Is,
    /// Read only if the process may be remembered.
    node: Option<ProcEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Server,
    Host,
    /// Neither a server nor a host.
    Nobody,
    /// Neither, and probably not near one: its arguments are not kept, or an earlier scan read them.
    Stranger,
}

impl Is {
    fn is_nobody(self) -> bool {
        matches!(self, Is::Nobody | Is::Stranger)
    }
}

/// True if no process is hidden. A PID namespace hides the processes outside of it, and `hidepid` hides the processes
/// of other users, of which process 1 is always one.
fn is_whole(facts: &Facts) -> bool {
    /// `PROC_PID_INIT_INO` of linux/proc_ns.h: the initial PID namespace, which has all processes.
    const FIRST_NAMESPACE: u64 = 0xefff_fffc;
    pid_namespace() == FIRST_NAMESPACE && facts.process(1).is_some()
}

struct Look<'a> {
    proc: &'a Proc,
    knowledge: &'a Knowledge,
    matcher: Matcher<'a>,
    strangers: Option<&'a Strangers>,
    facts: Facts,
    /// One entry for each of `facts.processes`.
    glances: Vec<Glance>,
    /// Kernel threads, if they are to be remembered.
    kernel: Vec<(i32, ProcEntry)>,
    /// Servers and all their descendants, and the processes in `also`.
    judged: HashSet<i32>,
    /// Their ancestors, hosts, and children of a reaper.
    around: HashSet<i32>,
}

impl<'a> Look<'a> {
    fn new(proc: &'a Proc, knowledge: &'a Knowledge, strangers: Option<&'a Strangers>) -> Look<'a> {
        Look {
            proc,
            knowledge,
            matcher: Matcher::new(knowledge),
            strangers,
            facts: Facts {
                now: stat::now(),
                hertz: rustix::param::clock_ticks_per_second().max(1),
                uid: rustix::process::geteuid().as_raw(),
                ..Facts::default()
            },
            glances: Vec::new(),
            kernel: Vec::new(),
            judged: HashSet::new(),
            around: HashSet::new(),
        }
    }

    fn run(mut self, also: &[i32]) -> Look<'a> {
        let mut numbers = self.proc.numbers().found;
        numbers.sort_unstable();
        self.facts.processes.reserve_exact(numbers.len());
        self.glances.reserve_exact(numbers.len());
        for pid in numbers {
            self.glance(pid);
        }
        self.facts.whole = is_whole(&self.facts);
        // Each round reads at least one process again, and no process twice, so the loop ends.
        loop {
            self.choose(also);
            if !self.read_again(|look, process| look.matters(process.id.pid) || look.lost_parent(process)) {
                break;
            }
        }
        self.closely();
        self.at_ends();
        // Every holder needs a name, so read remembered holders again.
        let holders: HashSet<i32> = self.judged_channels().flat_map(Channel::holders).map(|id| id.pid).collect();
        self.read_again(|_, process| holders.contains(&process.id.pid));
        self
    }

    /// Records the process with this PID, if there is one.
    fn glance(&mut self, pid: i32) {
        // Read the entry before the files: if the PID is reused in between, the next scan sees another entry.
        let node = self.strangers.and_then(|_| stat::node(pid));
        if let (Some(strangers), Some(node)) = (self.strangers, node) {
            if strangers.is_kernel(pid, &node) {
                return self.kernel.push((pid, node));
            }
            if let Some(process) = strangers.find(pid, &node) {
                self.facts.processes.push(process);
                return self.glances.push(Glance { is: Is::Stranger, node: Some(node) });
            }
        }
        match stat::read(pid) {
            Who::Process(mut process) => {
                let mut is = self.meet(&mut process);
                if is == Is::Nobody && !self.was_left(&process) {
                    (process.argv, is) = (Vec::new(), Is::Stranger);
                }
                self.facts.processes.push(process);
                self.glances.push(Glance { is, node });
            }
            Who::Kernel => self.kernel.extend(node.map(|node| (pid, node))),
            Who::Nobody => {}
        }
    }

    /// Reads the arguments of a process and classifies it.
    fn meet(&self, process: &mut Process) -> Is {
        process.argv = match process.state {
            'Z' => proc::arguments(&process.proc_dir()),
            _ => stat::arguments(process.id.pid),
        };
        let known = self.matcher.server(process);
        let known = match known {
            // Directory and environment decide whether the command is the declared one.
            Some(Evidence::Declared { .. } | Evidence::Resembles { .. }) => {
                let dir = process.proc_dir();
                let cwd = fs::read_link(format!("{dir}/cwd")).ok();
                process.cwd = cwd.and_then(|cwd| cwd.into_os_string().into_string().ok());
                process.variables = stat::environment(&dir, &self.knowledge.declared_variables().collect());
                self.matcher.server(process)
            }
            known => known,
        };
        if known.is_some() {
            Is::Server
        } else if identify::client_of(&process.comm, &process.argv).is_some() {
            Is::Host
        } else {
            Is::Nobody
        }
    }

    /// Reads remembered processes of which more must be known. Returns true if there were any.
    fn read_again(&mut self, wanted: impl Fn(&Look<'a>, &Process) -> bool) -> bool {
        let both = self.facts.processes.iter().zip(&self.glances).enumerate();
        let strange = both.filter(|(_, (_, glance))| glance.is == Is::Stranger);
        let again: Vec<usize> = strange.filter(|(_, (process, _))| wanted(self, process)).map(|(at, _)| at).collect();
        // Go backwards, so that the indices of the others stay valid.
        for &at in again.iter().rev() {
            let pid = self.facts.processes[at].id.pid;
            match stat::read(pid) {
                Who::Process(mut process) => {
                    self.glances[at].is = self.meet(&mut process);
                    self.facts.processes[at] = process;
                }
                Who::Kernel | Who::Nobody => {
                    self.facts.processes.remove(at);
                    self.glances.remove(at);
                }
            }
        }
        !again.is_empty()
    }

    fn matters(&self, pid: i32) -> bool {
        self.judged.contains(&pid) || self.around.contains(&pid)
    }

    /// A process that loses its parent gets another one. Only in this way does a remembered process move in the tree.
    fn lost_parent(&self, process: &Process) -> bool {
        self.facts.process(process.ppid).is_none_or(|parent| parent.id.start > process.id.start)
    }

    /// True if its parent is process 1 or the reaper of a user's session.
    fn was_left(&self, process: &Process) -> bool {
        let leads = |parent: &Process| parent.ppid <= 1 && parent.session == parent.id.pid;
        process.ppid <= 1 || self.facts.process(process.ppid).is_some_and(leads)
    }

    /// Finds the processes to judge, and those around them.
    fn choose(&mut self, also: &[i32]) {
        let facts = &self.facts;
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        let mut judged: HashSet<i32> = also.iter().copied().collect();
        let mut around = HashSet::new();
        for (process, glance) in facts.processes.iter().zip(&self.glances) {
            let pid = process.id.pid;
            children.entry(process.ppid).or_default().push(pid);
            if glance.is == Is::Server {
                judged.insert(pid);
            } else if glance.is == Is::Host || self.was_left(process) {
                around.insert(pid);
            }
        }
        let recorded = self.knowledge.leashed.iter().flat_map(|leashed| &leashed.processes);
        judged.extend(recorded.filter_map(|id| facts.same(id)).map(|process| process.id.pid));
        let mut open: Vec<i32> = judged.iter().copied().collect();
        while let Some(pid) = open.pop() {
            let below = children.get(&pid).into_iter().flatten().copied();
            open.extend(below.filter(|child| judged.insert(*child)).collect::<Vec<_>>());
        }
        for process in judged.iter().filter_map(|pid| facts.process(*pid)) {
            around.extend(facts.ancestors(process).map(|above| above.id.pid));
        }
        (self.judged, self.around) = (judged, around);
    }

    /// Reads the standard descriptors and the marks of relevant processes.
    fn closely(&mut self) {
        let variables: HashSet<&str> = Knowledge::variables().collect();
        for process in &mut self.facts.processes {
            let pid = process.id.pid;
            if self.judged.contains(&pid) || self.around.contains(&pid) {
                let dir = process.proc_dir();
                let standard = channel::standard(&dir);
                process.stdin.kind = standard.stdin;
                process.stdout.kind = standard.stdout;
                process.terminal_gone = standard.terminal_gone;
                process.marks = stat::environment(&dir, &variables).unwrap_or_default();
                process.swap = stat::swap(pid);
            }
        }
        // A process that has left a tree may have kept its channels, or the mark of leash.
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

    /// Finds the holders of the other ends.
    fn at_ends(&mut self) {
        let has_socket = self.judged_channels().any(|channel| matches!(channel.kind, DescriptorKind::Socket { .. }));
        let pairs = if has_socket { unix_diag::pairs().ok() } else { None };
        let mut open: Vec<(usize, [EndQuestion; 2])> = Vec::new();
        for (at, process) in self.facts.processes.iter_mut().enumerate() {
            if !self.judged.contains(&process.id.pid) {
                continue;
            }
            let dir = process.proc_dir();
            let stdin = ask(&dir, process.stdin.kind, Pipe::Stdin, pairs.as_ref());
            // Open the writing end only if the other end of stdin is closed, because then no host uses the server.
            let alone = matches!(stdin, EndQuestion::Known(OtherEnd::Gone));
            let pipe = if alone { Pipe::StdoutAlone } else { Pipe::Stdout };
            let stdout = ask(&dir, process.stdout.kind, pipe, pairs.as_ref());
            open.push((at, [stdin, stdout]));
        }
        let wanted = open.iter().flat_map(|(_, asks)| asks).filter_map(|ask| match ask {
            EndQuestion::Holders(end) => Some(*end),
            EndQuestion::Known(_) => None,
        });
        let wanted: HashSet<End> = wanted.collect();
        let mut search = HolderSearch::new(self.proc, wanted.into_iter(), &self.judged);
        let seen = |process: &Process| Candidate { id: process.id, state: process.state };
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
        // A server with a host is in use; any other server may be in use by TCP clients.
        let is_lost = |channel: &Channel| match &channel.other_end {
            OtherEnd::Gone => true,
            OtherEnd::Held { by, .. } => by.iter().all(|holder| self.judged.contains(&holder.pid)),
            OtherEnd::NotVisible(_) | OtherEnd::None => false,
        };
        if self.facts.processes.iter().any(|process| is_lost(&process.stdin)) {
            let judged = self.facts.processes.iter().filter(|process| self.judged.contains(&process.id.pid));
            self.facts.served = served::served(judged.map(|process| (process.id.pid, process.proc_dir())));
        }
    }
}

/// The known state of an end, or the end whose holders must be searched.
enum EndQuestion {
    Known(OtherEnd),
    Holders(End),
}

impl EndQuestion {
    fn answer(self, search: &HolderSearch<'_>) -> OtherEnd {
        match self {
            EndQuestion::Known(end) => end,
            EndQuestion::Holders(end) => search.answer(end),
        }
    }
}

/// Asks the kernel whether the other end exists.
fn ask(dir: &str, kind: DescriptorKind, pipe: Pipe, pairs: Option<&HashMap<u64, u64>>) -> EndQuestion {
    match kind {
        DescriptorKind::Pipe { inode } => match pipe.other_end(dir, inode) {
            Some(Ok(true)) => EndQuestion::Known(OtherEnd::Gone),
            Some(Ok(false)) | None => EndQuestion::Holders(pipe.sought(inode)),
            Some(Err(why)) => EndQuestion::Known(OtherEnd::NotVisible(why)),
        },
        DescriptorKind::Socket { inode } => match pairs.and_then(|pairs| pairs.get(&inode)) {
            Some(0) => EndQuestion::Known(OtherEnd::Gone),
            Some(peer) => EndQuestion::Holders(End::Socket(*peer)),
            None => EndQuestion::Known(OtherEnd::NotVisible(UnreadReason::NoSocketAnswer)),
        },
        DescriptorKind::Unread => EndQuestion::Known(OtherEnd::NotVisible(UnreadReason::NotPermitted)),
        DescriptorKind::NotAsked
        | DescriptorKind::Closed
        | DescriptorKind::Null
        | DescriptorKind::Tty
        | DescriptorKind::File => EndQuestion::Known(OtherEnd::None),
    }
}

impl Process {
    /// The directory in /proc from which it is read.
    fn proc_dir(&self) -> String {
        proc::directory(self.id.pid, self.state)
    }
}

#[cfg(test)]
mod tests;
