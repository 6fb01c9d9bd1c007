//! The few facts that leash reads from /proc, and only from a /proc of its own PID namespace.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::io::Errno;

/// Proof that /proc belongs to our PID namespace. Every function that turns a number in /proc into a process needs it.
/// With another namespace's /proc mounted the numbers mean other processes, and leash would signal those.
#[derive(Clone, Copy, Debug)]
pub struct Proc(());

/// The fields of `/proc/PID/stat` that leash needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process.
    pub pid: i32,
    /// Its short name, at most 15 bytes.
    pub comm: String,
    /// `R`, `S`, `D`, `Z`, `T`...
    pub state: char,
    /// Its parent.
    pub ppid: i32,
    /// Its process group.
    pub pgrp: i32,
    /// Its session.
    pub session: i32,
    /// Its number of threads, a dead main thread included.
    pub threads: u32,
    /// Its start in clock ticks since boot.
    pub start: u64,
    /// Its resident memory in bytes, with pages that it shares with other processes.
    pub resident_bytes: u64,
}

/// A list of processes. Entries that could not be read may hide further processes, so an empty list proves something
/// only if it is complete.
#[derive(Clone, Debug)]
pub struct ProcessList<T> {
    /// The processes that were found.
    pub found: Vec<T>,
    /// True if every process was found.
    pub complete: bool,
}

impl<T> ProcessList<T> {
    /// A complete list without entries.
    pub(crate) fn none() -> ProcessList<T> {
        ProcessList { found: Vec::new(), complete: true }
    }

    /// True if it is proved that there is no process.
    pub fn proves_none(&self) -> bool {
        self.complete && self.found.is_empty()
    }
}

impl Stat {
    /// True if the process has ended; a zombie only waits for its parent. A dead main thread alone does not make a dead
    /// process: `Z` is the state of that thread, and the other threads go on.
    pub fn dead(&self) -> bool {
        is_dead(self.state, self.threads.into())
    }

    /// True if a signal or a tracer has stopped it: it does nothing until another process lets it go on.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Reads a `stat` line. The name may contain any characters, spaces and parentheses too; the last `)` ends it.
    fn parse(text: &str) -> Option<Stat> {
        let (pid, rest) = text.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let ppid = fields.next()?.parse().ok()?;
        let pgrp = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // tty_nr is field 7, num_threads field 20, starttime field 22, rss field 24.
        let threads = fields.nth(13)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        // Only for people, so a process without it is still a process.
        let resident: u64 = fields.nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
        let resident_bytes = resident.saturating_mul(rustix::param::page_size() as u64);
        let (pid, comm) = (pid.parse().ok()?, comm.to_owned());
        Some(Stat { pid, comm, state, ppid, pgrp, session, threads, start, resident_bytes })
    }
}

impl Proc {
    /// Checks that /proc is there and belongs to our PID namespace. The error says what is wrong with it.
    pub fn own() -> Result<Proc, String> {
        let me = rustix::process::getpid().as_raw_pid();
        let link = fs::read_link("/proc/self").map_err(|error| format!("/proc is not readable: {error}"))?;
        if link != Path::new(&me.to_string()) {
            return Err(format!("/proc belongs to another PID namespace: it calls us {}, we are {me}", link.display()));
        }
        // Numbers can be equal by chance. The /proc of another namespace shows one more level of our pid.
        let levels = numbers_of_line::<i32>("/proc/self/status", "NSpid:").len();
        if levels > 1 {
            return Err(format!("/proc belongs to another PID namespace: it sees {levels} levels of our pid"));
        }
        Ok(Proc(()))
    }

    /// The `stat` of a process; `None` when there is no such process, or when it can't be read.
    pub fn stat(&self, pid: i32) -> Option<Stat> {
        self.try_stat(pid).ok().flatten()
    }

    /// The `stat` of a process; `None` when /proc shows no such process, an error when it can't be read.
    pub(crate) fn try_stat(&self, pid: i32) -> io::Result<Option<Stat>> {
        Ok(none_if_gone(try_read(format!("/proc/{pid}/stat")))?.and_then(|text| Stat::parse(&text)))
    }

    /// Every process that we can see. An error says why /proc can't be listed.
    pub(crate) fn try_all(&self) -> io::Result<Vec<Stat>> {
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match self.try_stat(pid) {
                Ok(stat) => all.extend(stat),
                // `hidepid` hides a process of another user.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// The number of every process that we can see.
    pub fn numbers(&self) -> ProcessList<i32> {
        numbers_in("/proc")
    }

    /// Every process that we can see.
    pub fn all(&self) -> ProcessList<Stat> {
        let numbers = self.numbers();
        let mut all = ProcessList { found: Vec::with_capacity(numbers.found.len()), complete: numbers.complete };
        for pid in numbers.found {
            match self.try_stat(pid) {
                Ok(stat) => all.found.extend(stat),
                Err(_) => all.complete = false,
            }
        }
        all
    }

    /// The direct children of a process, of all its threads. Complete and empty when the process is gone.
    pub fn children(&self, pid: i32) -> ProcessList<i32> {
        let tasks = threads(pid);
        let mut children = ProcessList { found: Vec::new(), complete: tasks.complete };
        let mut listed = false;
        for task in tasks.found {
            match none_if_gone(try_read(format!("/proc/{pid}/task/{task}/children"))) {
                Ok(Some(list)) => {
                    listed = true;
                    children.found.extend(list.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok()));
                }
                Ok(None) => {}
                Err(_) => children.complete = false,
            }
        }
        if !listed && children.complete && self.stat(pid).is_some() {
            // A kernel without CONFIG_PROC_CHILDREN.
            let all = self.all();
            children.complete = all.complete;
            children.found.extend(all.found.into_iter().filter(|stat| stat.ppid == pid).map(|stat| stat.pid));
        }
        children
    }

    /// All descendants of a process, parents before children. Misses a process whose parent dies during the walk,
    /// because it moves up to the subreaper. Callers repeat the walk until no new process appears.
    pub fn descendants(&self, root: i32) -> ProcessList<i32> {
        self.descendants_without(root, &HashSet::new())
    }

    /// The same as [`Proc::descendants`], without some children of the root and all that is below them.
    pub(crate) fn descendants_without(&self, root: i32, left_out: &HashSet<i32>) -> ProcessList<i32> {
        let mut below = self.children(root);
        below.found.retain(|child| !left_out.contains(child));
        let mut seen: HashSet<i32> = below.found.iter().copied().collect();
        let mut next = 0;
        while let Some(&pid) = below.found.get(next) {
            next += 1;
            let children = self.children(pid);
            below.complete &= children.complete;
            below.found.extend(children.found.into_iter().filter(|child| seen.insert(*child)));
        }
        below
    }

    /// The numbers of a process in its PID namespaces, from ours inwards: one for a process of our own namespace.
    pub(crate) fn levels(&self, pid: i32) -> Vec<i32> {
        numbers_of_line(&format!("/proc/{pid}/status"), "NSpid:")
    }

    /// The process that a thread belongs to.
    pub(crate) fn process_of(&self, thread: i32) -> Option<i32> {
        numbers_of_line(&format!("/proc/{thread}/status"), "Tgid:").first().copied()
    }

    /// The effective uid of a process.
    pub(crate) fn user(&self, pid: i32) -> Option<u32> {
        numbers_of_line(&format!("/proc/{pid}/status"), "Uid:").get(1).copied()
    }

    /// The id of a PID namespace of a process: `pid` is its own, `pid_for_children` that of its next children. `None`
    /// if we may not read it.
    pub(crate) fn namespace(&self, process: &Stat, which: &str) -> Option<u64> {
        let dir = directory(process.pid, process.state);
        rustix::fs::stat(format!("{dir}/ns/{which}")).ok().map(|stat| stat.st_ino)
    }

    /// See [`directory`].
    fn directory(&self, pid: i32) -> String {
        directory(pid, self.stat(pid).map_or('S', |stat| stat.state))
    }

    /// The command line, its arguments joined by spaces. If it is empty, the short name in brackets.
    pub fn command_line(&self, pid: i32) -> String {
        let argv = self.argv(pid);
        if argv.is_empty() {
            return self.stat(pid).map(|stat| format!("[{}]", stat.comm)).unwrap_or_default();
        }
        argv.join(" ")
    }

    /// The arguments of a process, as text.
    pub fn argv(&self, pid: i32) -> Vec<String> {
        arguments(&self.directory(pid))
    }

    /// The bytes of resident pages that are not shared, roughly the memory of this process alone. Cheap (one small
    /// read).
    pub fn private_bytes(&self, pid: i32) -> u64 {
        let Some(statm) = read_small(format!("{}/statm", self.directory(pid))) else { return 0 };
        let mut fields = statm.split_ascii_whitespace().skip(1).filter_map(|field| field.parse::<u64>().ok());
        let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        resident.saturating_sub(shared) * rustix::param::page_size() as u64
    }

    /// Proportional memory of a process. Falls back to its private pages if we may not read `smaps_rollup`.
    pub fn proportional_bytes(&self, pid: i32) -> u64 {
        let kib = numbers_of_line::<u64>(&format!("/proc/{pid}/smaps_rollup"), "Pss:").first().copied();
        kib.map_or_else(|| self.private_bytes(pid), |kib| kib * 1024)
    }

    /// Proportional swap of a process; 0 if we may not read it.
    pub fn proportional_swap(&self, pid: i32) -> u64 {
        let kib = numbers_of_line::<u64>(&format!("/proc/{pid}/smaps_rollup"), "SwapPss:");
        kib.first().map_or(0, |kib| kib * 1024)
    }

    /// The names of a process: short name, base name of its program, base name of its first argument.
    pub fn names(&self, pid: i32) -> Vec<String> {
        let base = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let comm = self.stat(pid).map(|stat| stat.comm);
        let exe = fs::read_link(format!("{}/exe", self.directory(pid))).ok().and_then(|path| base(&path));
        let first = self.argv(pid).first().and_then(|arg| base(Path::new(arg)));
        comm.into_iter().chain(exe).chain(first).collect()
    }
}

/// Reads a small text file whole; `None` if it can't be read. /proc files report no length, so the buffer starts at 1
/// KiB.
pub fn read_small(path: impl AsRef<Path>) -> Option<String> {
    try_read(path).ok()
}

pub(crate) fn try_read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(1024);
    // `take`, because a plain file would first be asked for its length and position: two system calls more.
    fs::File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Turns an error that means "the process is gone" into `None`: its file is missing, or it vanished during the read.
fn none_if_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

/// True if the state letter and the number of threads mean that a process is dead. The first thread of a process may
/// exit before the others: then the state is that of a zombie, although the process still runs.
pub fn is_dead(state: char, threads: u64) -> bool {
    matches!(state, 'X' | 'x') || state == 'Z' && threads <= 1
}

/// The directory in which /proc describes a process in this state: its own, or that of a living thread if the main
/// thread is dead. /proc shows no program, arguments, files, memory or namespaces of a dead thread.
pub fn directory(pid: i32, state: char) -> String {
    let process = format!("/proc/{pid}");
    if state != 'Z' {
        return process;
    }
    let lives = |task: &String| {
        let stat = read_small(format!("{task}/stat")).and_then(|text| Stat::parse(&text));
        stat.is_some_and(|stat| !matches!(stat.state, 'Z' | 'X' | 'x'))
    };
    let tasks = numbers_in(&format!("{process}/task")).found.into_iter();
    tasks.map(|task| format!("{process}/task/{task}")).find(lives).unwrap_or(process)
}

/// The arguments of a process that this [`directory`] describes; empty when they can't be read.
pub fn arguments(dir: &str) -> Vec<String> {
    words(&fs::read(format!("{dir}/cmdline")).unwrap_or_default())
}

/// The words of a `cmdline` file, each of which ends with a NUL.
pub fn words(raw: &[u8]) -> Vec<String> {
    let end = raw.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let words = raw[..end].split(|&byte| byte == 0).filter(|_| end > 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The numbers in the line of a file that begins with this name: `Uid:  0  0  0  0`, or `Pss:  12 kB`.
pub fn numbers_of_line<T: std::str::FromStr>(path: &str, name: &str) -> Vec<T> {
    let text = read_small(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// The threads of a process.
fn threads(pid: i32) -> ProcessList<i32> {
    let dir = format!("/proc/{pid}/task");
    // The directory has two links of its own and one for each thread. Most processes have one thread, and counting the
    // links is much cheaper than listing the directory.
    match rustix::fs::stat(&dir) {
        Ok(stat) if stat.st_nlink == 3 => ProcessList { found: vec![pid], complete: true },
        _ => numbers_in(&dir),
    }
}

fn numbers_in(dir: &str) -> ProcessList<i32> {
    let mut numbers = ProcessList::none();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            numbers.complete = is_gone(&error) && dir != "/proc";
            return numbers;
        }
    };
    for entry in entries {
        match entry {
            Ok(entry) => numbers.found.extend(entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())),
            Err(error) => numbers.complete &= is_gone(&error),
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_accepts_any_characters_in_the_name() {
        let stat = Stat::parse("42 (a) R (b c) S 1 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 100").unwrap();
        assert_eq!((stat.pid, stat.comm.as_str(), stat.state, stat.ppid), (42, "a) R (b c", 'S', 1));
        assert_eq!((stat.pgrp, stat.session, stat.threads, stat.start), (40, 39, 1, 777));
        assert_eq!(stat.resident_bytes, 100 * rustix::param::page_size() as u64);
    }

    #[test]
    fn process_with_a_dead_main_thread_is_not_dead() {
        let cases = [('Z', 1, true), ('Z', 0, true), ('X', 1, true), ('X', 2, true), ('Z', 2, false), ('S', 1, false)];
        for (state, threads, dead) in cases {
            let line = format!("42 (x) {state} 1 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 777 1000 100");
            assert_eq!(Stat::parse(&line).unwrap().dead(), dead, "{line}");
        }
    }

    #[test]
    fn a_process_is_read_by_its_pid_unless_its_main_thread_is_dead() {
        assert_eq!(directory(7, 'S'), "/proc/7");
        let me = rustix::process::getpid().as_raw_pid();
        assert!(directory(me, 'Z').starts_with(&format!("/proc/{me}/task/")));
    }

    #[test]
    fn every_thread_is_listed() {
        let (me, other) = (rustix::process::getpid().as_raw_pid(), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let found = threads(me).found;
                other.wait();
                (rustix::thread::gettid().as_raw_pid(), found)
            });
            other.wait();
            let (second, found) = thread.join().unwrap();
            assert!(found.contains(&second) && found.contains(&me), "{second} and {me} are in {found:?}");
        });
    }

    #[test]
    fn unreadable_list_is_not_complete() {
        assert!(numbers_in("/proc/self/task").complete);
        assert!(numbers_in("/proc/self/task/0").proves_none(), "no such thread");
        assert!(!numbers_in("/proc/self/stat").complete, "no directory");
    }

    #[test]
    fn short_stat_lines_are_rejected() {
        for text in ["", "42", "42 (x", "42 (x) S", "42 (x) S 1 2 3"] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }

    #[test]
    fn own_proc_is_accepted_and_readable() {
        let proc = Proc::own().unwrap();
        let me = rustix::process::getpid().as_raw_pid();
        assert_eq!(proc.stat(me).unwrap().pid, me);
        assert!(proc.proportional_bytes(me) > 0);
        assert!(!proc.names(me).is_empty());
    }
}
