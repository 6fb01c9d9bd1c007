//! The second witness: a cgroup around all processes that a test starts.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::process::{Handle, Process, Survivors};
use crate::sys::Step;
use crate::turn::Turn;
use crate::wait;

/// A cgroup2 directory around the processes of a test. Dropping it kills the processes in it, except the residents.
#[derive(Debug)]
pub struct Outer {
    dir: PathBuf,
    /// The pid and start time of the processes that were in it before and stay. Empty if we made the directory.
    residents: Vec<(Pid, u64)>,
    is_ours: bool,
}

impl Outer {
    /// Makes one. The error is the reason why there is none.
    pub fn create() -> Result<Self, String> {
        let parent = own_directory(None).ok_or("no cgroup2 is mounted")?;
        Ok(Self { dir: make_below(&parent, "leash-test")?, residents: Vec::new(), is_ours: true })
    }

    /// Uses a cgroup that another program made. The processes that are in it now are its residents.
    pub fn borrow(dir: PathBuf) -> Self {
        let mut outer = Self { dir, residents: Vec::new(), is_ours: false };
        outer.residents = outer.processes().iter().map(|process| (process.pid, process.start)).collect();
        outer
    }

    /// Its path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Gives it to `uid`, as systemd does for a delegated unit.
    pub fn delegate(&self, uid: u32) -> io::Result<()> {
        delegate(&self.dir, uid)
    }

    /// The step that puts a child in it before its exec.
    pub fn join(&self) -> io::Result<Step> {
        join(&self.dir)
    }

    /// True if a living process other than a resident is in it, at any depth.
    pub fn is_populated(&self) -> bool {
        if !self.is_ours {
            return !self.processes().is_empty();
        }
        fs::read_to_string(self.dir.join("cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }

    /// The living processes in it, at any depth, without the residents.
    pub fn processes(&self) -> Vec<Process> {
        directories(&self.dir)
            .iter()
            .filter_map(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok())
            .flat_map(|list| list.lines().map(str::to_owned).collect::<Vec<_>>())
            .filter_map(|line| Process::read(Pid::from_raw(line.parse().ok()?)?))
            .filter(|process| process.is_alive() && !self.residents.contains(&(process.pid, process.start)))
            .collect()
    }

    /// Waits until it only contains `others` and the session keepers that they started.
    pub fn wait_only(&self, others: &[Pid], limit: Duration) -> Result<(), Survivors> {
        let rest = || {
            let mut rest = self.processes();
            let is_spared = |pid: i32| others.iter().any(|other| other.as_raw_nonzero().get() == pid);
            rest.retain(|process| {
                !(others.contains(&process.pid) || is_spared(process.parent) && process.keeps_sessions())
            });
            rest
        };
        let gone = || match others {
            [] => !self.is_populated(),
            _ => rest().is_empty(),
        };
        match wait::within(limit, || gone().then_some(())) {
            Some(()) => Ok(()),
            None => Err(Survivors { seen_by: "the outer cgroup", processes: rest() }),
        }
    }

    /// Kills everything in it, except the residents.
    pub fn kill(&self) {
        if !self.is_populated() {
            return;
        }
        if self.is_ours {
            let _ = fs::write(self.dir.join("cgroup.kill"), "1");
        }
        // `cgroup.kill` of Linux 6.18 does not end a process whose main thread has exited.
        for found in self.processes() {
            if let Some(handle) = Handle::open(found.pid, |now| now.start == found.start) {
                let _ = handle.signal(Signal::KILL);
            }
        }
        if self.wait_only(&[], Duration::from_secs(10)).is_err() {
            crate::note("the outer cgroup could not be emptied");
        }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        self.kill();
        if self.is_ours {
            remove(&self.dir);
        }
    }
}

/// A cgroup with a bound on the number of processes.
#[derive(Debug)]
pub struct PidsBound {
    dir: PathBuf,
    /// Only one cgroup for fork bombs exists at a time, across all test processes.
    _turn: Option<Turn>,
}

impl PidsBound {
    /// Makes one for a fork bomb; the error is the reason why there is none. With the v1 controller it is separate from
    /// `outer`, with cgroup2 it is inside.
    pub fn create(most: u32, outer: Option<&Outer>) -> Result<Self, String> {
        let parent = own_directory(Some("pids"))
            .or_else(|| unified_pids(outer?))
            .ok_or("no cgroup offers the pids controller here")?;
        let _turn = Turn::alone().map_err(|error| format!("no turn for a bomb: {error}"))?;
        // `zoo` checks for this name before it starts such a tree.
        let bound = Self { dir: make_below(&parent, "leash-test-bound")?, _turn: Some(_turn) };
        bound.allow(&most.to_string())?;
        Ok(bound)
    }

    /// Makes one for processes that must work with few processes, separate from every other cgroup. The error is the
    /// reason why there is none.
    pub fn small(most: u64) -> Result<Self, String> {
        let parent = own_directory(Some("pids")).ok_or("no cgroup v1 offers the pids controller here")?;
        let bound = Self { dir: make_below(&parent, "leash-test-few")?, _turn: None };
        bound.allow(&most.to_string())?;
        Ok(bound)
    }

    /// True with cgroup2, where a process is in one cgroup for all controllers.
    pub fn is_unified(&self) -> bool {
        self.dir.join("cgroup.controllers").exists()
    }

    /// Removes the limit.
    pub fn lift(&self) -> Result<(), String> {
        self.allow("max")
    }

    /// Puts a running process in it. The processes that it starts from now on are in it too.
    pub fn take(&self, pid: Pid) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), pid.as_raw_nonzero().to_string())
    }

    fn allow(&self, most: &str) -> Result<(), String> {
        fs::write(self.dir.join("pids.max"), most).map_err(|error| format!("pids.max: {error}"))
    }

    /// Gives it to `uid`, if the outer cgroup was given to that user too.
    pub fn delegate(&self, uid: u32) -> io::Result<()> {
        delegate(&self.dir, uid)
    }

    /// The step that puts a child in it before its exec.
    pub fn join(&self) -> io::Result<Step> {
        join(&self.dir)
    }
}

impl Drop for PidsBound {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// The outer cgroup, if it and its parent can pass the pids controller on to their children.
fn unified_pids(outer: &Outer) -> Option<PathBuf> {
    for dir in [outer.dir.parent()?, &outer.dir] {
        fs::write(dir.join("cgroup.subtree_control"), "+pids").ok()?;
    }
    Some(outer.dir.clone())
}

/// The directory of the cgroup that this process is in: of a v1 hierarchy, or of cgroup2.
fn own_directory(controller: Option<&str>) -> Option<PathBuf> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = cgroups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = match controller {
            Some(wanted) => controllers.split(',').any(|name| name == wanted),
            None => controllers.is_empty(),
        };
        is_it.then_some(path.trim_start_matches('/'))
    })?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let is_it = match controller {
            Some(wanted) => kind == "cgroup" && options.split(',').any(|name| name == wanted),
            None => kind == "cgroup2",
        };
        is_it.then(|| left.split(' ').nth(4)).flatten()
    })?;
    let dir = Path::new(mount).join(path);
    dir.is_dir().then_some(dir)
}

fn delegate(dir: &Path, uid: u32) -> io::Result<()> {
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        // v1 has only some of these files.
        match std::os::unix::fs::chown(dir.join(file), Some(uid), Some(uid)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn make_below(parent: &Path, stem: &str) -> Result<PathBuf, String> {
    let dir = parent.join(crate::unique(stem));
    fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(dir)
}

fn join(dir: &Path) -> io::Result<Step> {
    let procs = fs::OpenOptions::new().write(true).open(dir.join("cgroup.procs"))?;
    Ok(Step::JoinCgroup(OwnedFd::from(procs)))
}

/// `dir` and everything below, the deepest last.
fn directories(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(dir) = found.get(next) {
        let below = fs::read_dir(dir).into_iter().flatten();
        let below: Vec<PathBuf> = below
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        found.extend(below);
        next += 1;
    }
    found
}

fn remove(dir: &Path) {
    if !dir.exists() {
        return;
    }
    // A process that just died can keep its cgroup busy for a moment.
    let gone = wait::within(Duration::from_secs(5), || {
        for dir in directories(dir).iter().rev() {
            let _ = fs::remove_dir(dir);
        }
        (!dir.exists()).then_some(())
    });
    if gone.is_none() {
        crate::note(&format!("cannot remove `{}`", dir.display()));
    }
}
