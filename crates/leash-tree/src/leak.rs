//! For tests: a guard that fails a test which leaves processes, tasks or descriptors behind, as goleak does for goroutines.
//!
//! ```
//! let guard = leash_tree::leak::guard();
//! let file = std::fs::File::open("/proc/self/stat").unwrap();
//! drop(file);
//! drop(guard); // Fails the test if something is left, once it had two seconds to go.
//! ```
//!
//! Children, descriptors and the tasks of a given runtime or tracker are compared with what there was when the guard was made.
//! What is on its way out is waited for. A test that fails already is left alone: what it leaves is not the news.
//!
//! - Everything in the process is looked at, so tests must not run side by side in one process: use `cargo nextest`, which gives each
//!   a process of its own, or `--test-threads=1`.
//! - A guard that is dropped blocks its thread while it waits. In async code on a runtime of one thread nothing can end
//!   meanwhile: use [`Guard::settled`] there.
//! - A daemon (forked twice) is nobody's child any more and is not seen, unless the test is a subreaper.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::time::Duration;

use rustix::time::Timespec;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::platform::proc::Proc;
use leash_model::clock::Moment;

/// How long something may take to go: a child that was killed, a task that was aborted. Both take milliseconds; the rest is for
/// a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often to look meanwhile: none of it makes a sound.
const LOOK: Duration = Duration::from_millis(5);

/// Something that was not there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leak {
    /// A process below this one.
    Process {
        /// Its pid.
        pid: i32,
        /// Its command line.
        command: String,
        /// Whether it has ended, and nobody has waited for it.
        zombie: bool,
    },
    /// A descriptor.
    Descriptor {
        /// Its number.
        fd: i32,
        /// What it is: a path, `socket:[..]`, `pipe:[..]`.
        what: String,
    },
    /// Tasks of a runtime.
    Tasks {
        /// How many more than before.
        count: usize,
    },
    /// Tasks of a tracker.
    Tracked {
        /// How many.
        count: usize,
    },
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leak::Process { pid, command, zombie: false } => write!(f, "process {pid} lives: {command}"),
            Leak::Process { pid, command, zombie: true } => write!(f, "process {pid} was not waited for: {command}"),
            Leak::Descriptor { fd, what } => write!(f, "descriptor {fd} is open: {what}"),
            Leak::Tasks { count } => write!(f, "{count} tasks of a runtime are alive"),
            Leak::Tracked { count } => write!(f, "{count} tasks of a tracker are alive"),
        }
    }
}

/// All that was left.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the test left behind:{}", .0.iter().map(|leak| format!("\n  {leak}")).collect::<String>())]
pub struct Leaks(pub Vec<Leak>);

/// Looks at what there is, for comparison.
///
/// # Panics
/// When /proc is not this process's own: then nothing can be known.
pub fn guard() -> Guard {
    let proc = Proc::own().unwrap_or_else(|why| panic!("no leak can be seen here: {why}"));
    // The first runtime of a process opens a pair of sockets for signals, which stay for good. This is that runtime.
    if let Ok(first) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
        // In the background, because this may be async code, which must not wait.
        first.shutdown_background();
    }
    Guard {
        processes: processes(&proc).into_iter().map(|(pid, start, ..)| (pid, start)).collect(),
        descriptors: descriptors(),
        proc,
        runtimes: Vec::new(),
        trackers: Vec::new(),
        ignored: Vec::new(),
        patience: PATIENCE,
        armed: true,
    }
}

/// The same where the test has a process of its own, which is what `cargo nextest` gives it; else `None`: what others leave would be
/// taken for its own.
///
/// # Panics
/// As [`guard`].
pub fn guard_alone() -> Option<Guard> {
    let mode = std::env::var_os("NEXTEST_EXECUTION_MODE")?;
    (mode == "process-per-test").then(guard)
}

/// Fails the test when it is dropped and something is left.
#[derive(Debug)]
#[must_use = "it looks when it is dropped, which is at once if nobody holds it"]
pub struct Guard {
    proc: Proc,
    /// Pid and start time.
    processes: BTreeSet<(i32, u64)>,
    descriptors: BTreeMap<i32, String>,
    /// Runtimes, and the tasks that they had.
    runtimes: Vec<(Handle, usize)>,
    trackers: Vec<TaskTracker>,
    ignored: Vec<String>,
    patience: Duration,
    armed: bool,
}

impl Guard {
    /// Also the tasks of a runtime: there must not be more than now. Tasks of a `LocalSet` are not among them; a tracker knows those.
    pub fn runtime(mut self, runtime: &Handle) -> Guard {
        self.runtimes.push((runtime.clone(), runtime.metrics().num_alive_tasks()));
        self
    }

    /// Also the tasks of a tracker: there must be none.
    pub fn tracker(mut self, tracker: &TaskTracker) -> Guard {
        self.trackers.push(tracker.clone());
        self
    }

    /// Not the descriptors that lead to something whose name begins so: `/dev/`, `anon_inode:`; with an empty text, none at all.
    pub fn ignoring(mut self, beginning: impl Into<String>) -> Guard {
        self.ignored.push(beginning.into());
        self
    }

    /// How long something may take to go.
    pub fn patience(mut self, patience: Duration) -> Guard {
        self.patience = patience;
        self
    }

    /// What is left now.
    pub fn leaks(&self) -> Vec<Leak> {
        let mut leaks = Vec::new();
        for (pid, start, command, zombie) in processes(&self.proc) {
            if !self.processes.contains(&(pid, start)) {
                leaks.push(Leak::Process { pid, command, zombie });
            }
        }
        for (fd, what) in descriptors() {
            let ignored = self.ignored.iter().any(|beginning| what.starts_with(beginning));
            if self.descriptors.get(&fd) != Some(&what) && !ignored {
                leaks.push(Leak::Descriptor { fd, what });
            }
        }
        for (runtime, before) in &self.runtimes {
            let count = runtime.metrics().num_alive_tasks().saturating_sub(*before);
            leaks.extend((count > 0).then_some(Leak::Tasks { count }));
        }
        for tracker in &self.trackers {
            leaks.extend((!tracker.is_empty()).then(|| Leak::Tracked { count: tracker.len() }));
        }
        leaks
    }

    /// Waits for what is on its way out, and says what stays; blocks.
    pub fn check(mut self) -> Result<(), Leaks> {
        self.armed = false;
        self.wait()
    }

    /// The same for async code: others can go on, and end, while it waits. The task that calls it is one of the runtime's, if it
    /// was spawned: then the guard was made in it, or before it with the count of one more.
    pub async fn settled(mut self) -> Result<(), Leaks> {
        self.armed = false;
        let give_up = Moment::now() + self.patience;
        loop {
            if let Some(verdict) = self.verdict(give_up) {
                return verdict;
            }
            // Nothing wakes us but time.
            tokio::time::sleep_until(tokio::time::Instant::now() + LOOK).await;
        }
    }

    /// What is to be said now, unless there is something that may go yet.
    fn verdict(&self, give_up: Moment) -> Option<Result<(), Leaks>> {
        let leaks = self.leaks();
        if leaks.is_empty() {
            return Some(Ok(()));
        }
        (Moment::now() >= give_up).then_some(Err(Leaks(leaks)))
    }

    fn wait(&self) -> Result<(), Leaks> {
        let give_up = Moment::now() + self.patience;
        loop {
            if let Some(verdict) = self.verdict(give_up) {
                return verdict;
            }
            let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
            let _ = rustix::event::poll(&mut [], Some(&pause));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.armed || std::thread::panicking() {
            return;
        }
        if let Err(leaks) = self.wait() {
            panic!("{leaks}");
        }
    }
}

/// Everybody below this process: pid, start, command line, and whether it has ended.
fn processes(proc: &Proc) -> Vec<(i32, u64, String, bool)> {
    let me = rustix::process::getpid().as_raw_pid();
    let stats = proc.descendants(me).found.into_iter().filter_map(|pid| proc.stat(pid));
    stats.map(|stat| (stat.pid, stat.start, proc.command_line(stat.pid), stat.dead())).collect()
}

/// The open descriptors, and what they are.
fn descriptors() -> BTreeMap<i32, String> {
    let own = format!("/proc/{}/fd", rustix::process::getpid().as_raw_pid());
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    let numbers: Vec<i32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let named = numbers.into_iter().filter_map(|fd| {
        let what = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        Some((fd, what.to_string_lossy().into_owned()))
    });
    // The one that we read this with is closed by now; another thread's is not ours to count.
    named.filter(|(_, what)| *what != own).collect()
}
