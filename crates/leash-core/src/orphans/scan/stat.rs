//! The two small files that are read of every process.

use std::mem::MaybeUninit;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::orphans::facts::Process;

/// `PF_KTHREAD` of linux/sched.h: a thread of the kernel.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The longest command line that is looked at; what tells a server is at its beginning.
const ARGUMENTS: usize = 64 * 1024;

/// Now, in clock ticks since boot: the clock that start times are in.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let hertz = rustix::param::clock_ticks_per_second().max(1);
    now.tv_sec.unsigned_abs() * hertz + now.tv_nsec.unsigned_abs() * hertz / 1_000_000_000
}

/// A process by its number. `None` for one that is gone, dead, or a thread of the kernel.
pub(super) fn read(pid: i32) -> Option<Process> {
    let mut space = [MaybeUninit::uninit(); 1024];
    let file = open(&format!("/proc/{pid}/stat")).ok()?;
    let (text, _) = rustix::io::read(&file, &mut space).ok()?;
    let mut process = parse(text)?;
    // The owner of the file is the process's effective user, or root when it does not let itself be read.
    process.uid = rustix::fs::fstat(&file).ok()?.st_uid;
    process.argv = arguments(pid);
    Some(process)
}

/// Reads a `stat` line. The name may contain anything, spaces and parentheses too; the last `)` ends it.
fn parse(text: &[u8]) -> Option<Process> {
    let text = String::from_utf8_lossy(text);
    let (pid, rest) = text.split_once(" (")?;
    let (comm, rest) = rest.rsplit_once(") ")?;
    // Field 3, the state, is the first; so field N is at N - 3.
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(22).collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let signed = |field: usize| fields.get(field - 3)?.parse::<i32>().ok();
    let state = fields.first()?.chars().next()?;
    if matches!(state, 'Z' | 'X' | 'x') || number(9)? & KERNEL_THREAD != 0 {
        return None;
    }
    let mut process = Process::nobody(pid.parse().ok()?, number(22)?);
    process.comm = comm.to_owned();
    process.state = state;
    process.ppid = signed(4)?;
    process.pgrp = signed(5)?;
    process.session = signed(6)?;
    process.tty = signed(7)?;
    process.cpu = number(14)? + number(15)?;
    process.resident = number(24)? * rustix::param::page_size() as u64;
    Some(process)
}

fn arguments(pid: i32) -> Vec<String> {
    let Ok(file) = open(&format!("/proc/{pid}/cmdline")) else { return Vec::new() };
    let mut space = [MaybeUninit::uninit(); 4096];
    let Ok((first, _)) = rustix::io::read(&file, &mut space) else { return Vec::new() };
    let mut all = first.to_vec();
    let mut full = all.len() == 4096;
    while full && all.len() < ARGUMENTS {
        match rustix::io::read(&file, &mut space) {
            Ok((more, _)) => {
                full = !more.is_empty();
                all.extend_from_slice(more);
            }
            Err(_) => break,
        }
    }
    let end = all.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let words = all[..end].split(|&byte| byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).filter(|_| end > 0).collect()
}

fn open(path: &str) -> Result<std::os::fd::OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "42 (a) R (b c) S 1 40 39 34816 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 100 18446744073709551615";

    #[test]
    fn a_line_is_read() {
        let process = parse(LINE.as_bytes()).unwrap();
        assert_eq!((process.id.pid, process.comm.as_str(), process.ppid, process.tty), (42, "a) R (b c", 1, 34816));
        assert_eq!((process.id.start, process.cpu), (777, 11));
        assert_eq!(process.resident, 100 * rustix::param::page_size() as u64);
    }

    #[test]
    fn the_dead_and_the_kernel_are_nobody() {
        assert!(parse(LINE.replace(") S ", ") Z ").as_bytes()).is_none());
        assert!(parse(LINE.replace("4194560", "2129984").as_bytes()).is_none());
        for text in ["", "42", "42 (x", "42 (x) S 1 2 3"] {
            assert!(parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn we_are_found() {
        let me = rustix::process::getpid().as_raw_pid();
        let process = read(me).unwrap();
        assert_eq!(process.argv, std::env::args().collect::<Vec<_>>());
        assert_eq!(process.uid, rustix::process::geteuid().as_raw());
        assert!(process.id.start <= now());
    }
}
