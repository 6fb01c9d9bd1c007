//! The few facts leash reads from /proc, and only from a /proc that is its own.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// Proof that /proc belongs to our PID namespace. Everything that turns a number in /proc into a process asks for it:
/// with another namespace's /proc mounted, numbers mean other processes, and a walker would signal strangers.
#[derive(Clone, Copy, Debug)]
pub struct Proc(());

/// What `/proc/PID/stat` says, as far as leash needs it.
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
    /// Start in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// Dead in all but name: a zombie waits for its parent, nothing else.
    pub fn dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Reads a `stat` line. The name may contain anything, spaces and parentheses too; the last `)` ends it.
    fn parse(text: &str) -> Option<Stat> {
        let (pid, rest) = text.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let ppid = fields.next()?.parse().ok()?;
        let pgrp = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // tty_nr is field 7; starttime is field 22.
        let start = fields.nth(15)?.parse().ok()?;
        Some(Stat { pid: pid.parse().ok()?, comm: comm.to_owned(), state, ppid, pgrp, session, start })
    }
}

impl Proc {
    /// Checks that /proc is there and ours. The error says what is wrong with it.
    pub fn own() -> Result<Proc, String> {
        let me = rustix::process::getpid().as_raw_pid();
        let link = fs::read_link("/proc/self").map_err(|error| format!("/proc is not readable: {error}"))?;
        if link != Path::new(&me.to_string()) {
            return Err(format!("/proc belongs to another PID namespace: it calls us {}, we are {me}", link.display()));
        }
        // Numbers can agree by chance; a foreign /proc shows one more level of our pid.
        let status = read_small("/proc/self/status").unwrap_or_default();
        let levels = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))
            .map_or(1, |pids| pids.split_ascii_whitespace().count());
        if levels != 1 {
            return Err(format!("/proc belongs to another PID namespace: it sees {levels} levels of our pid"));
        }
        Ok(Proc(()))
    }

    /// The `stat` of a process, `None` when there is no such process.
    pub fn stat(&self, pid: i32) -> Option<Stat> {
        Stat::parse(&read_small(format!("/proc/{pid}/stat"))?)
    }

    /// The same, and an error when it can't be known whether there is one.
    pub(crate) fn look(&self, pid: i32) -> io::Result<Option<Stat>> {
        let mut text = Vec::with_capacity(1024);
        let read = fs::File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read_to_end(&mut text));
        match read {
            Ok(_) => Ok(Stat::parse(&String::from_utf8_lossy(&text))),
            // ESRCH: it was reaped between open and read.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Every process that can be seen, or why they can't be listed.
    pub(crate) fn everybody(&self) -> io::Result<Vec<Stat>> {
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match self.look(pid) {
                Ok(stat) => all.extend(stat),
                // Hidden by `hidepid`: a process of another user.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// The number of every process that can be seen.
    pub fn numbers(&self) -> Vec<i32> {
        numbers_in("/proc")
    }

    /// Every process that can be seen.
    pub fn all(&self) -> Vec<Stat> {
        self.numbers().into_iter().filter_map(|pid| self.stat(pid)).collect()
    }

    /// The direct children of a process, of all its threads.
    pub fn children(&self, pid: i32) -> Vec<i32> {
        let mut children = Vec::new();
        let mut listed = false;
        for task in numbers_in(&format!("/proc/{pid}/task")) {
            let Some(list) = read_small(format!("/proc/{pid}/task/{task}/children")) else { continue };
            listed = true;
            children.extend(list.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
        if !listed && self.stat(pid).is_some() {
            // A kernel without CONFIG_PROC_CHILDREN.
            children.extend(self.all().into_iter().filter(|stat| stat.ppid == pid).map(|stat| stat.pid));
        }
        children
    }

    /// All descendants of a process, parents before children. Misses a process whose parent dies during the walk (it moves
    /// up to the subreaper): callers repeat until nothing new appears.
    pub fn descendants(&self, root: i32) -> Vec<i32> {
        let mut found = self.children(root);
        let mut seen: HashSet<i32> = found.iter().copied().collect();
        let mut next = 0;
        while let Some(&pid) = found.get(next) {
            next += 1;
            found.extend(self.children(pid).into_iter().filter(|child| seen.insert(*child)));
        }
        found
    }

    /// The command line, its arguments joined by spaces; the short name in brackets when there is none.
    pub fn command_line(&self, pid: i32) -> String {
        let argv = self.argv(pid);
        if argv.is_empty() {
            return self.stat(pid).map(|stat| format!("[{}]", stat.comm)).unwrap_or_default();
        }
        argv.join(" ")
    }

    /// The arguments of a process, as text.
    pub fn argv(&self, pid: i32) -> Vec<String> {
        let Ok(raw) = fs::read(format!("/proc/{pid}/cmdline")) else { return Vec::new() };
        let mut argv: Vec<String> =
            raw.split(|&byte| byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
        while argv.last().is_some_and(String::is_empty) {
            argv.pop();
        }
        argv
    }

    /// Memory that only this process holds, roughly: resident pages that are not shared. Cheap (one small read).
    pub fn private_bytes(&self, pid: i32) -> u64 {
        let Some(statm) = read_small(format!("/proc/{pid}/statm")) else { return 0 };
        let mut fields = statm.split_ascii_whitespace().skip(1).filter_map(|field| field.parse::<u64>().ok());
        let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        resident.saturating_sub(shared) * rustix::param::page_size() as u64
    }

    /// Proportional memory of a process; falls back to its private pages where `smaps_rollup` may not be read.
    pub fn proportional_bytes(&self, pid: i32) -> u64 {
        let rollup = read_small(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let kib = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Pss:"))
            .and_then(|value| value.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
        kib.map_or_else(|| self.private_bytes(pid), |kib| kib * 1024)
    }

    /// The names a process answers to: short name, base name of its program, base name of its first argument.
    pub fn names(&self, pid: i32) -> Vec<String> {
        let base = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let comm = self.stat(pid).map(|stat| stat.comm);
        let exe = fs::read_link(format!("/proc/{pid}/exe")).ok().and_then(|path| base(&path));
        let first = self.argv(pid).first().and_then(|arg| base(Path::new(arg)));
        comm.into_iter().chain(exe).chain(first).collect()
    }
}

/// Reads a small text file whole; `None` when it can't be read. /proc files have no length to reserve by.
pub(crate) fn read_small(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = Vec::with_capacity(1024);
    fs::File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn numbers_in(dir: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = Stat::parse("42 (a) R (b c) S 1 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 100").unwrap();
        assert_eq!((stat.pid, stat.comm.as_str(), stat.state, stat.ppid), (42, "a) R (b c", 'S', 1));
        assert_eq!((stat.pgrp, stat.session, stat.start), (40, 39, 777));
    }

    #[test]
    fn short_lines_are_nobody() {
        for text in ["", "42", "42 (x", "42 (x) S", "42 (x) S 1 2 3"] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }

    #[test]
    fn our_own_proc_is_ours() {
        let proc = Proc::own().unwrap();
        let me = rustix::process::getpid().as_raw_pid();
        assert_eq!(proc.stat(me).unwrap().pid, me);
        assert!(proc.proportional_bytes(me) > 0);
        assert!(!proc.names(me).is_empty());
    }
}
