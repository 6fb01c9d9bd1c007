//! Other processes, as `/proc` shows them, and the one safe way to signal them.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::wait;

/// The state of a process at one moment, as `/proc` shows it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its pid.
    pub pid: Pid,
    /// The pid of its parent.
    pub parent: i32,
    /// The letter of its state, as in `ps`.
    pub state: char,
    /// The kernel's name for it.
    pub name: String,
    /// Its start time, in ticks after boot.
    pub start: u64,
    /// The id of a living thread, if the main thread has exited.
    thread: Option<i32>,
}

impl Process {
    /// Reads `/proc/PID/stat`. `None` if there is no such process. If the main thread has exited and the process has
    /// not, the state is that of another thread.
    pub fn read(pid: Pid) -> Option<Self> {
        let mut process = Self::parse(pid, &format!("/proc/{}", pid.as_raw_nonzero()))?;
        if !process.is_alive()
            && let Some((thread, state)) = living_thread(pid)
        {
            process.state = state;
            process.thread = Some(thread);
        }
        Some(process)
    }

    fn parse(pid: Pid, dir: &str) -> Option<Self> {
        let stat = fs::read_to_string(format!("{dir}/stat")).ok()?;
        // The name may contain any character, parentheses too.
        let (head, tail) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            state: fields.first()?.chars().next()?,
            name,
            start: fields.get(19)?.parse().ok()?,
            thread: None,
        })
    }

    /// False for zombies: they hold nothing but their pid, so they are no survivors.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// True if it is the keeper of a `leash connect` or `leash serve`.
    pub fn keeps_sessions(&self) -> bool {
        self.command_line().split(' ').any(|word| word == "mcp-undertaker")
    }

    /// The `/proc` directory that shows its memory and descriptors: that of another thread if the main thread has
    /// exited.
    pub(crate) fn dir(&self) -> String {
        let pid = self.pid.as_raw_nonzero();
        self.thread.map_or_else(|| format!("/proc/{pid}"), |thread| format!("/proc/{pid}/task/{thread}"))
    }

    /// Its arguments, with a space between them.
    pub fn command_line(&self) -> String {
        let path = format!("{}/cmdline", self.dir());
        let bytes = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (child of {}, {}) {}: {}",
            self.pid.as_raw_nonzero(),
            self.parent,
            self.state,
            self.name,
            self.command_line()
        )
    }
}

/// A thread of a process that has not exited, and its state.
fn living_thread(pid: Pid) -> Option<(i32, char)> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    let threads = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut states = threads.filter_map(|thread| {
        let dir = format!("/proc/{}/task/{thread}", pid.as_raw_nonzero());
        Some((thread, Process::parse(pid, &dir)?.state))
    });
    states.find(|(_, state)| !matches!(state, 'Z' | 'X'))
}

/// Processes that should be dead.
#[derive(Debug)]
pub struct Survivors {
    /// The witness that noticed them.
    pub seen_by: &'static str,
    /// The processes that could be listed. Empty if they died while being listed.
    pub processes: Vec<Process>,
}

impl fmt::Display for Survivors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} survivors by {}", self.processes.len(), self.seen_by)?;
        // For a fork bomb a few are enough to identify it.
        self.processes.iter().take(12).try_for_each(|process| write!(f, "\n    {process}"))
    }
}

/// The pids of all processes.
pub fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw).collect()
}

/// The living children of `pid`.
pub fn children(pid: Pid) -> Vec<Process> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        return Vec::new();
    };
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|word| Process::read(Pid::from_raw(word.parse().ok()?)?))
                .collect::<Vec<_>>()
        })
        .filter(Process::is_alive)
        .collect()
}

/// A process, held by a pidfd so that it cannot be confused with another one.
#[derive(Debug)]
pub struct Handle {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Handle {
    /// Opens a pidfd of `pid`, and checks with `is_it` that the pid had not been reused before.
    pub fn open(pid: Pid, is_it: impl FnOnce(&Process) -> bool) -> Option<Self> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let process = Process::read(pid)?;
        is_it(&process).then_some(Self { pid, pidfd })
    }

    /// Its pid, which may belong to another process as soon as this one was reaped.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends `signal`. Does nothing if the process has exited.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Waits until it has exited. Returns false after `limit`.
    pub fn wait_gone(&self, limit: Duration) -> bool {
        wait::ready(&self.pidfd, PollFlags::IN, limit)
    }

    /// True if it has not exited.
    pub fn is_alive(&self) -> bool {
        !self.wait_gone(Duration::ZERO)
    }
}
