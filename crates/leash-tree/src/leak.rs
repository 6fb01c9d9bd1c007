//! For tests: a guard that fails a test if it leaves processes, tasks or descriptors behind, as goleak does for
//! goroutines.
//!
//! ```
//! let guard = leash_tree::leak::guard();
//! let file = std::fs::File::open("/proc/self/stat").unwrap();
//! drop(file);
//! drop(guard); // Fails the test if something is left, once it had two seconds to go.
//! ```
//!
//! The guard compares children, descriptors and the tasks of a given runtime or tracker with those at its creation. It
//! waits for processes and tasks that are about to end. If the test fails already, the guard does nothing: the first
//! failure is the one to report.
//!
//! - It looks at everything in the process, so tests must not run at the same time in one process: use `cargo nextest`,
//!   which gives each a process of its own, or `--test-threads=1`.
//! - Dropping a guard blocks its thread while it waits. On a single-threaded runtime no task can end meanwhile: use
//!   [`Guard::settled`] there.
//! - A daemon (forked twice) is not a descendant any more and is not seen, unless the test is a subreaper.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use std::{fmt, fs};

use thiserror::Error;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::platform::poll;
use crate::platform::proc::Proc;
use leash_model::clock::Moment;

/// The time that a killed child or an aborted task may take to end. Both take milliseconds; the rest is for a machine
/// that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(2);

/// The interval between two looks: no event reports these ends.
const LOOK: Duration = Duration::from_millis(5);

/// A process, descriptor or task that did not exist before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leak {
    /// A process below this one.
    Process {
        /// Its pid.
        pid: i32,
        /// Its command line.
        command: String,
        /// True if it has ended, and its parent has not waited for it.
        zombie: bool,
    },
    /// A descriptor.
    Descriptor {
        /// Its number.
        fd: i32,
        /// Its target: a path, `socket:[..]`, `pipe:[..]`.
        what: String,
    },
    /// Tasks of a runtime.
    Tasks {
        /// The number of additional tasks.
        count: usize,
    },
    /// Tasks of a tracker.
    Tracked {
        /// The number of tasks.
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

/// All leaks of a test.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the test left behind:{}", .0.iter().map(|leak| format!("\n  {leak}")).collect::<String>())]
pub struct Leaks(pub Vec<Leak>);

/// Records the current processes and descriptors, for comparison.
///
/// # Panics
/// If /proc does not belong to our PID namespace: then the guard can see nothing.
pub fn guard() -> Guard {
    let proc = Proc::own().unwrap_or_else(|why| panic!("no leak can be seen here: {why}"));
    // The first runtime of a process opens a pair of sockets for signals, which stay open for good. This is that
    // runtime.
    if let Ok(first) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
        // In the background, because this may be async code, which must not block.
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

/// The same as [`guard`] if the test has a process of its own, as under `cargo nextest`. `None` otherwise: the guard
/// would take other tests' leaks for this test's.
///
/// # Panics
/// As [`guard`].
pub fn guard_alone() -> Option<Guard> {
    let mode = std::env::var_os("NEXTEST_EXECUTION_MODE")?;
    (mode == "process-per-test").then(guard)
}

/// Fails the test if something is left when the guard is dropped.
#[derive(Debug)]
#[must_use = "the guard checks when it is dropped, which is at once if it is not bound to a variable"]
pub struct Guard {
    proc: Proc,
    /// Pid and start time.
    processes: BTreeSet<(i32, u64)>,
    descriptors: BTreeMap<i32, String>,
    /// Runtimes, and the number of tasks that each had.
    runtimes: Vec<(Handle, usize)>,
    trackers: Vec<TaskTracker>,
    ignored: Vec<String>,
    patience: Duration,
    armed: bool,
}

impl Guard {
    /// Also checks the tasks of a runtime: there must not be more than now. This does not include tasks of a
    /// `LocalSet`; use a tracker for those.
    pub fn runtime(mut self, runtime: &Handle) -> Guard {
        self.runtimes.push((runtime.clone(), runtime.metrics().num_alive_tasks()));
        self
    }

    /// Also checks the tasks of a tracker: there must be none.
    pub fn tracker(mut self, tracker: &TaskTracker) -> Guard {
        self.trackers.push(tracker.clone());
        self
    }

    /// Ignores descriptors whose target begins with this text: `/dev/`, `anon_inode:`. An empty text ignores all
    /// descriptors.
    pub fn ignoring(mut self, beginning: impl Into<String>) -> Guard {
        self.ignored.push(beginning.into());
        self
    }

    /// Sets the time that a leak may take to go away.
    pub fn patience(mut self, patience: Duration) -> Guard {
        self.patience = patience;
        self
    }

    /// The current leaks.
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

    /// Waits for processes and tasks that are about to end, and returns the leaks that stay. Blocks.
    pub fn check(mut self) -> Result<(), Leaks> {
        self.armed = false;
        self.wait()
    }

    /// The same as [`Guard::check`] for async code: other tasks can run and end while it waits. If the calling task was
    /// spawned, it counts as one of the runtime's tasks. So make the guard in that task, or expect one task more.
    pub async fn settled(mut self) -> Result<(), Leaks> {
        self.armed = false;
        let give_up = Moment::now() + self.patience;
        loop {
            if let Some(verdict) = self.verdict(give_up) {
                return verdict;
            }
            // Only the timer wakes us.
            tokio::time::sleep_until(tokio::time::Instant::now() + LOOK).await;
        }
    }

    /// The result, or `None` if some leaks may still go away.
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
            poll::pause(LOOK);
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

/// All descendants of this process: pid, start, command line, and true if it has ended.
fn processes(proc: &Proc) -> Vec<(i32, u64, String, bool)> {
    let me = rustix::process::getpid().as_raw_pid();
    let stats = proc.descendants(me).found.into_iter().filter_map(|pid| proc.stat(pid));
    stats.map(|stat| (stat.pid, stat.start, proc.command_line(stat.pid), stat.dead())).collect()
}

/// The open descriptors and their targets.
fn descriptors() -> BTreeMap<i32, String> {
    let own = format!("/proc/{}/fd", rustix::process::getpid().as_raw_pid());
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    let numbers: Vec<i32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let named = numbers.into_iter().filter_map(|fd| {
        let what = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        Some((fd, what.to_string_lossy().into_owned()))
    });
    // The descriptor that we read this with is closed by now. One of another thread does not count.
    named.filter(|(_, what)| *what != own).collect()
}
