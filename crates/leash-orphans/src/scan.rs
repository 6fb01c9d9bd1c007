//! One scan of the machine: `stat` and arguments of every process. For relevant processes (servers and their trees,
//! their ancestors, hosts, and children of process 1) it also reads the standard descriptors and a few environment
//! variables.
//!
//! A scan disturbs no process: it reads no byte from a pipe, stops no process and starts none. It opens a pipe only
//! for the moment in which it asks the kernel whether the other end exists. A scan records data that it can't read as
//! unreadable and never guesses it.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::facts::{Channel, DescriptorKind, Evidence, Facts, OtherEnd, Process, UnreadReason};
use crate::knowledge::Knowledge;
use crate::knowledge::identify::{self, Matcher};
use leash_tree::platform::identity::pid_namespace;
use leash_tree::platform::proc::{self, Proc};
use leash_tree::tree::spec;

mod channel;
mod holders;
pub mod resources;
mod served;
mod stat;
mod unix_diag;
mod unrelated;

use channel::Pipe;
use holders::{Candidate, HolderSearch, SearchedEnd};
use stat::PidReading;
pub(crate) use stat::now;
use unrelated::ProcEntry;
pub use unrelated::UnrelatedProcesses;

/// Scans once. Processes in `also` are read as closely as servers.
pub fn scan(proc: &Proc, knowledge: &Knowledge, also: &[i32]) -> Facts {
    Scan::new(proc, knowledge, None).run(also).facts
}

/// Scans again: a process that an earlier scan found to be unrelated is read only if it is near a server.
pub fn scan_again(proc: &Proc, knowledge: &Knowledge, unrelated: &mut UnrelatedProcesses) -> Facts {
    unrelated.begin(knowledge);
    let scan = Scan::new(proc, knowledge, Some(unrelated)).run(&[]);
    let Scan { facts, classifications, kernel, judged, around, .. } = scan;
    let far = |process: &Process| !judged.contains(&process.id.pid) && !around.contains(&process.id.pid);
    let both = facts.processes.iter().zip(&classifications);
    let found = both.filter(|(process, classification)| {
        classification.class.is_unrelated() && far(process) && !facts.is_reaper(process.id.pid)
    });
    unrelated.end(&facts, found.filter_map(|(process, classification)| Some((process, classification.node?))), kernel);
    facts
}

/// The first classification of a process.
#[derive(Clone, Copy, Debug)]
struct Classification {
    class: ProcessClass,
    /// Read only if the process may be remembered.
    node: Option<ProcEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessClass {
    Server,
    Host,
    /// Neither a server nor a host.
    Other,
    /// Neither, and probably not near one: its arguments are not kept, or an earlier scan read them.
    Unrelated,
}

impl ProcessClass {
    fn is_unrelated(self) -> bool {
        matches!(self, ProcessClass::Other | ProcessClass::Unrelated)
    }
}

/// True if no process is hidden. A PID namespace hides the processes outside of it, and `hidepid` hides the processes
/// of other users, of which process 1 is always one.
fn is_whole(facts: &Facts) -> bool {
    /// `PROC_PID_INIT_INO` of linux/proc_ns.h: the initial PID namespace, which has all processes.
    const FIRST_NAMESPACE: u64 = 0xefff_fffc;
    pid_namespace() == FIRST_NAMESPACE && facts.process(1).is_some()
}

struct Scan<'a> {
    proc: &'a Proc,
    knowledge: &'a Knowledge,
    matcher: Matcher<'a>,
    unrelated: Option<&'a UnrelatedProcesses>,
    facts: Facts,
    /// One entry for each of `facts.processes`.
    classifications: Vec<Classification>,
    /// Kernel threads, if they are to be remembered.
    kernel: Vec<(i32, ProcEntry)>,
    /// Servers and all their descendants, and the processes in `also`.
    judged: HashSet<i32>,
    /// Their ancestors, hosts, and children of a reaper.
    around: HashSet<i32>,
}

impl<'a> Scan<'a> {
    fn new(proc: &'a Proc, knowledge: &'a Knowledge, unrelated: Option<&'a UnrelatedProcesses>) -> Scan<'a> {
        Scan {
            proc,
            knowledge,
            matcher: Matcher::new(knowledge),
            unrelated,
            facts: Facts {
                now: stat::now(),
                hertz: rustix::param::clock_ticks_per_second().max(1),
                uid: rustix::process::geteuid().as_raw(),
                ..Facts::default()
            },
            classifications: Vec::new(),
            kernel: Vec::new(),
            judged: HashSet::new(),
            around: HashSet::new(),
        }
    }

    fn run(mut self, also: &[i32]) -> Scan<'a> {
        let mut numbers = self.proc.numbers().found;
        numbers.sort_unstable();
        self.facts.processes.reserve_exact(numbers.len());
        self.classifications.reserve_exact(numbers.len());
        for pid in numbers {
            self.record(pid);
        }
        self.facts.whole = is_whole(&self.facts);
        // Each round reads at least one process again, and no process twice, so the loop ends.
        loop {
            self.choose(also);
            if !self.read_again(|scan, process| scan.is_relevant(process.id.pid) || scan.lost_parent(process)) {
                break;
            }
        }
        self.read_details();
        self.find_holders();
        // Every holder needs a name, so read remembered holders again.
        let holders: HashSet<i32> = self.judged_channels().flat_map(Channel::holders).map(|id| id.pid).collect();
        self.read_again(|_, process| holders.contains(&process.id.pid));
        self
    }

    /// Records the process with this PID, if there is one.
    fn record(&mut self, pid: i32) {
        // Read the entry before the files: if the PID is reused in between, the next scan sees another entry.
        let node = self.unrelated.and_then(|_| stat::node(pid));
        if let (Some(unrelated), Some(node)) = (self.unrelated, node) {
            if unrelated.is_kernel(pid, &node) {
                return self.kernel.push((pid, node));
            }
            if let Some(process) = unrelated.find(pid, &node) {
                self.facts.processes.push(process);
                return self.classifications.push(Classification { class: ProcessClass::Unrelated, node: Some(node) });
            }
        }
        match stat::read(pid) {
            PidReading::Process(mut process) => {
                let mut class = self.classify(&mut process);
                if class == ProcessClass::Other && !self.was_left(&process) {
                    (process.argv, class) = (Vec::new(), ProcessClass::Unrelated);
                }
                self.facts.processes.push(process);
                self.classifications.push(Classification { class, node });
            }
            PidReading::KernelThread => self.kernel.extend(node.map(|node| (pid, node))),
            PidReading::NoProcess => {}
        }
    }

    /// Reads the arguments of a process and classifies it.
    fn classify(&self, process: &mut Process) -> ProcessClass {
        process.argv = match process.state {
            'Z' => proc::arguments(&process.proc_dir()),
            _ => stat::arguments(process.id.pid),
        };
        let known = self.matcher.server(process, None);
        let known = match known {
            // Directory and environment decide whether the command is the declared one.
            Some(Evidence::Declared { .. } | Evidence::Resembles { .. }) => {
                let dir = process.proc_dir();
                let cwd = fs::read_link(format!("{dir}/cwd")).ok();
                process.cwd = cwd.and_then(|cwd| cwd.into_os_string().into_string().ok());
                process.variables = stat::environment(&dir, &self.knowledge.declared_variables().collect());
                self.matcher.server(process, None)
            }
            known => known,
        };
        if known.is_some() {
            ProcessClass::Server
        } else if identify::client_of(&process.comm, &process.argv).is_some() {
            ProcessClass::Host
        } else {
            ProcessClass::Other
        }
    }

    /// Reads remembered processes of which more must be known. Returns true if there were any.
    fn read_again(&mut self, wanted: impl Fn(&Scan<'a>, &Process) -> bool) -> bool {
        let both = self.facts.processes.iter().zip(&self.classifications).enumerate();
        let unrelated = both.filter(|(_, (_, classification))| classification.class == ProcessClass::Unrelated);
        let again: Vec<usize> = unrelated.filter(|(_, (process, _))| wanted(self, process)).map(|(at, _)| at).collect();
        // Go backwards, so that the indices of the others stay valid.
        for &at in again.iter().rev() {
            let pid = self.facts.processes[at].id.pid;
            match stat::read(pid) {
                PidReading::Process(mut process) => {
                    self.classifications[at].class = self.classify(&mut process);
                    self.facts.processes[at] = process;
                }
                PidReading::KernelThread | PidReading::NoProcess => {
                    self.facts.processes.remove(at);
                    self.classifications.remove(at);
                }
            }
        }
        !again.is_empty()
    }

    fn is_relevant(&self, pid: i32) -> bool {
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
        for (process, classification) in facts.processes.iter().zip(&self.classifications) {
            let pid = process.id.pid;
            children.entry(process.ppid).or_default().push(pid);
            if classification.class == ProcessClass::Server {
                judged.insert(pid);
            } else if classification.class == ProcessClass::Host || self.was_left(process) {
                around.insert(pid);
            }
        }
        let recorded =
            self.knowledge.leashed.iter().flat_map(|leashed| leashed.attendants.iter().chain(&leashed.processes));
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
    fn read_details(&mut self) {
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
    fn find_holders(&mut self) {
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
        let wanted: HashSet<SearchedEnd> = wanted.collect();
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
    Holders(SearchedEnd),
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
            Some(peer) => EndQuestion::Holders(SearchedEnd::Socket(*peer)),
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
