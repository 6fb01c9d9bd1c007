//! Reads the two small files that a scan needs of every process, and the environment of some. The kernel takes 8 us for
//! each of the small files, which is most of a scan's cost.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::unrelated::ProcEntry;
use crate::facts::Process;
use leash_tree::platform::proc::{self, is_dead};

/// `PF_KTHREAD` of linux/sched.h: a kernel thread.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The longest command line that is read; the words that identify a server are at its beginning.
const ARGUMENTS: usize = 64 * 1024;

/// The current time in clock ticks since boot, the same clock as process start times.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let hertz = rustix::param::clock_ticks_per_second().max(1);
    now.tv_sec.unsigned_abs() * hertz + now.tv_nsec.unsigned_abs() * hertz / 1_000_000_000
}

/// The result of reading a PID.
#[expect(
    clippy::large_enum_variant,
    reason = "the value is moved out at once, and an allocation for each process costs more"
)]
pub(super) enum PidReading {
    Process(Process),
    /// A kernel thread; it stays one.
    KernelThread,
    /// No process, or a dead one.
    NoProcess,
}

/// The /proc entry of a process.
pub(super) fn node(pid: i32) -> Option<ProcEntry> {
    let stat = rustix::fs::stat(format!("/proc/{pid}")).ok()?;
    Some(ProcEntry { inode: stat.st_ino, made: (stat.st_mtime, stat.st_mtime_nsec as u32) })
}

/// Reads a process without its arguments.
pub(super) fn read(pid: i32) -> PidReading {
    let mut space = [MaybeUninit::uninit(); 1024];
    let Ok(file) = open(pid, "stat") else { return PidReading::NoProcess };
    let Ok((text, _)) = rustix::io::read(&file, &mut space) else { return PidReading::NoProcess };
    match parse(text) {
        PidReading::Process(process) => {
            let owner = match process.state {
                // When the first thread has exited, its files belong to root; read the owner from another thread.
                'Z' => rustix::fs::stat(format!("{}/stat", process.proc_dir())),
                // The owner of the file is the effective user of the process, or root if the process is not dumpable.
                _ => rustix::fs::fstat(&file),
            };
            owner.map_or(PidReading::NoProcess, |owner| PidReading::Process(Process { uid: owner.st_uid, ..process }))
        }
        other => other,
    }
}

/// The arguments of a process; empty when they can't be read.
pub(super) fn arguments(pid: i32) -> Vec<String> {
    let Ok(file) = open(pid, "cmdline") else { return Vec::new() };
    let mut space = [MaybeUninit::uninit(); 4096];
    let Ok((first, _)) = rustix::io::read(&file, &mut space) else { return Vec::new() };
    if first.len() < 4096 {
        return proc::words(first);
    }
    let mut all = first.to_vec();
    while all.len() < ARGUMENTS {
        match rustix::io::read(&file, &mut space) {
            Ok((more, _)) if !more.is_empty() => all.extend_from_slice(more),
            Ok(_) | Err(_) => break,
        }
    }
    proc::words(&all)
}

/// Some variables of a process's environment; `None` when it can't be read.
pub(super) fn environment(dir: &str, variables: &HashSet<&str>) -> Option<BTreeMap<String, String>> {
    let environ = fs::read(format!("{dir}/environ")).ok()?;
    let pair = |entry: &[u8]| {
        let entry = std::str::from_utf8(entry).ok()?;
        let (name, value) = entry.split_once('=')?;
        variables.contains(name).then(|| (name.to_owned(), value.to_owned()))
    };
    Some(environ.split(|&byte| byte == 0).filter_map(pair).collect())
}

/// Bytes in swap.
pub(super) fn swap(pid: i32) -> u64 {
    let kib = proc::numbers_of_line::<u64>(&format!("/proc/{pid}/status"), "VmSwap:");
    kib.first().map_or(0, |kib| kib * 1024)
}

fn open(pid: i32, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::open(format!("/proc/{pid}/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Parses a `stat` line. A malformed line is treated as no process.
fn parse(text: &[u8]) -> PidReading {
    fields(text).unwrap_or(PidReading::NoProcess)
}

/// The command name may contain spaces and parentheses; the last `)` ends it.
fn fields(text: &[u8]) -> Option<PidReading> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let pid = number(text.get(..open)?.strip_suffix(b" ")?)?;
    let comm = text.get(open + 1..close)?;
    let mut rest = text.get(close + 2..)?.split(|byte| byte.is_ascii_whitespace());
    let state = char::from(*rest.next()?.first()?);
    // Fields 4 to 24. Some unused ones may be negative.
    let mut at = [None; 25];
    for field in &mut at[4..] {
        *field = number(rest.next()?);
    }
    if at[9]? & KERNEL_THREAD != 0 {
        return Some(PidReading::KernelThread);
    }
    if is_dead(state, at[20]?) {
        return Some(PidReading::NoProcess);
    }
    let mut process = Process::new(i32::try_from(pid).ok()?, at[22]?);
    process.comm = String::from_utf8_lossy(comm).into_owned();
    process.state = state;
    process.ppid = i32::try_from(at[4]?).ok()?;
    process.session = i32::try_from(at[6]?).ok()?;
    // A terminal number that does not fit is still a terminal.
    process.tty = at[7].and_then(|tty| i32::try_from(tty).ok()).unwrap_or(-1);
    process.resident = at[24]?.saturating_mul(rustix::param::page_size() as u64);
    Some(PidReading::Process(process))
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "42 (a) R (b c) S 1 40 39 34816 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 100 18446744073709551615\n";

    fn parsed(text: &str) -> Option<Process> {
        match parse(text.as_bytes()) {
            PidReading::Process(process) => Some(process),
            PidReading::KernelThread | PidReading::NoProcess => None,
        }
    }

    #[test]
    fn a_stat_line_is_parsed() {
        let process = parsed(LINE).unwrap();
        assert_eq!((process.id.pid, process.comm.as_str(), process.ppid, process.tty), (42, "a) R (b c", 1, 34816));
        assert_eq!((process.id.start, process.session, process.state), (777, 39, 'S'));
        assert_eq!(process.resident, 100 * rustix::param::page_size() as u64);
    }

    #[test]
    fn dead_processes_and_kernel_threads_are_skipped() {
        assert!(matches!(parse(LINE.replace(") S ", ") Z ").as_bytes()), PidReading::NoProcess));
        // The first thread has exited, another one still runs.
        let threads = LINE.replace(") S ", ") Z ").replace(" 20 0 1 0 777", " 20 0 2 0 777");
        assert!(matches!(parse(threads.as_bytes()), PidReading::Process(_)));
        assert!(matches!(parse(LINE.replace("4194560", "2129984").as_bytes()), PidReading::KernelThread));
        for text in ["", "42", "42 (x", "42 (x)", "42 (x) S 1 2 3", ")(", "x (x) S 1 2 3", "42 (x) S 1 2 3\n"] {
            assert!(matches!(parse(text.as_bytes()), PidReading::NoProcess), "{text}");
        }
    }

    #[test]
    fn a_truncated_stat_line_is_parsed_or_skipped() {
        for end in 0..LINE.len() {
            if let Some(process) = parsed(&LINE[..end]) {
                assert_eq!((process.id.start, process.ppid), (777, 1), "cut at {end}");
            }
        }
    }

    #[test]
    fn the_test_process_is_found() {
        let me = rustix::process::getpid().as_raw_pid();
        let PidReading::Process(process) = read(me) else { panic!("the test process was not found") };
        assert_eq!(arguments(me), std::env::args().collect::<Vec<_>>());
        assert_eq!(process.uid, rustix::process::geteuid().as_raw());
        assert!(process.id.start <= now());
        assert_eq!(node(me), node(me));
        assert_ne!(node(me), node(1));
    }
}
