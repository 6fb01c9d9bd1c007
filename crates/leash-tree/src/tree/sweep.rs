//! The sweep: the next start of leash ends the processes that a run left behind when leash and keeper were both killed.
//!
//! It touches only processes that are proved to belong to the run: members of its leaf; recorded processes whose boot,
//! start time and pidfs inode still agree; their descendants; and all processes that share a session with one of these.
//! The last is proof too: the keeper and every `setsid` in the tree opened a new session, and the kernel does not reuse
//! a session's number while one member lives. So every process in it came from the tree.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Signal, getpid};

use crate::contain::leaf::Leaf;
use crate::ledger::receipts;
use crate::ledger::store::{LockedRun, Store, is_of_this_boot, is_of_this_place};
use crate::platform::identity::HeldProcess;
use crate::platform::proc::{Proc, Stat};
use crate::tree::contained_tree::left_over;
use leash_model::clock::{Moment, timeout_until};
use leash_model::containment::Containment;
use leash_model::identity::Identity;
use leash_model::receipt::{EndedBy, Fate, How, LeftOver, Reason, Receipt, TreeEnd};
use leash_model::record::Record;
use leash_model::{duration, limits};

/// The result of a sweep.
#[derive(Debug, Default)]
pub struct Swept {
    /// Receipts of the runs that were ended.
    pub receipts: Vec<Receipt>,
    /// Files that could not be written, and why. A sweep goes on after them.
    pub warnings: Vec<String>,
}

/// A run without a living process of leash.
struct AbandonedRun {
    locked_run: LockedRun,
    record: Record,
    /// Its leaf, if it still exists; an error if that can't be known.
    leaf: io::Result<Option<Leaf>>,
    /// The most members seen at once.
    seen: usize,
    how: How,
}

/// Ends the processes that dead runs left, writes their receipts and removes their records. Cheap if there is nothing
/// to do. Without our own /proc leash can prove nothing, and leaves the runs to a leash that can. Each receipt goes to
/// the file that the run itself would have used: only that file shows whether the run already wrote one.
pub fn sweep(stores: &[Store], proc: Option<&Proc>) -> Swept {
    let mut swept = Swept::default();
    let Some(proc) = proc else { return swept };
    let began = Moment::now();
    let mut abandoned = Vec::new();
    for store in stores {
        match seize_all(store, proc, &mut swept.warnings) {
            Ok(found) => abandoned.extend(found),
            Err(error) => swept.warnings.push(format!("cannot read the ledger: {error}")),
        }
    }
    if abandoned.is_empty() {
        return swept;
    }
    end_all(&mut abandoned, proc);
    for run in abandoned {
        let end = SweepEnd { reason: Reason::Swept, by: EndedBy::Sweep, took: Moment::now().since(began) };
        match run.finish(proc, end) {
            Ok((receipt, warning)) => {
                swept.warnings.extend(warning);
                swept.receipts.extend(receipt);
            }
            Err(error) => swept.warnings.push(error),
        }
    }
    swept
}

/// The parts of a receipt that do not depend on the survivors.
struct SweepEnd {
    reason: Reason,
    by: EndedBy,
    took: Duration,
}

/// Ends one run whose keeper is gone, by proof alone. For a supervisor that has other children among those that the
/// keeper left to it.
pub(crate) fn end_run(locked_run: LockedRun, record: Record, proc: &Proc, reason: Reason) -> (Receipt, Option<String>) {
    let began = Moment::now();
    let mut run = [AbandonedRun::new(locked_run, record)];
    end_all(&mut run, proc);
    let [mut run] = run;
    let end = SweepEnd { reason, by: EndedBy::Supervisor, took: Moment::now().since(began) };
    let survivors = run.survivors(proc);
    let receipt = run.receipt(proc, &survivors, end);
    let warning = run.write(&receipt).err().map(|unwritten| unwritten.text);
    // If some processes could not be looked at, the next start of leash looks again.
    if survivors.unseen.is_none() {
        run.locked_run.remove();
    }
    (receipt, warning)
}

/// True if a process of leash looks after a run: its lock is held, and not all of leash's processes in the record are
/// dead. If all of them are dead, the server has taken a copy of the lock.
pub(crate) fn is_attended(store: &Store, record: &Record, proc: &Proc) -> bool {
    store.locked(&record.run) && !has_lost_leash(record, proc)
}

/// True if supervisor and keeper are both known and both dead.
fn has_lost_leash(record: &Record, proc: &Proc) -> bool {
    let is_dead = |id: Identity| match HeldProcess::find(proc, id.pid) {
        Ok(Some(held)) => !held.id.is(&id) || !held.lives(),
        Ok(None) => true,
        Err(_) => false,
    };
    is_of_this_place(record) && record.supervisor.is_some_and(is_dead) && record.keeper.is_some_and(is_dead)
}

/// Takes every run that no process of leash looks after. A run that can't be read or locked stays for the next start.
fn seize_all(store: &Store, proc: &Proc, warnings: &mut Vec<String>) -> io::Result<Vec<AbandonedRun>> {
    let mut abandoned = Vec::new();
    for found in store.list()? {
        if found.record.as_ref().is_some_and(|record| is_of_this_boot(record) && !is_of_this_place(record)) {
            // It belongs to another PID namespace, in which our pids mean other processes. We can know nothing about
            // it.
            continue;
        }
        let lost = found.record.as_ref().is_some_and(|record| has_lost_leash(record, proc));
        let seized = match store.seize(&found.run) {
            Ok(None) if lost => store.take(&found.run).map(Some),
            seized => seized,
        };
        let read = match seized {
            Ok(None) => continue,
            // Read again: it may have changed before we had the lock.
            Ok(Some(locked_run)) => locked_run.read().map(|record| (locked_run, record)),
            Err(error) => Err(error),
        };
        match read {
            Ok((locked_run, Some(record))) => abandoned.push(AbandonedRun::new(locked_run, record)),
            // Torn, empty, or only a lock: it was written before anything existed, or it names no process that can be
            // known.
            Ok((locked_run, None)) => locked_run.remove(),
            Err(error) => warnings.push(postponed(&found.run, &error)),
        }
    }
    Ok(abandoned)
}

/// The warning about a run that this process could not look at.
fn postponed(run: &str, error: &io::Error) -> String {
    format!("cannot look at run {run}: {error}; the next start of leash tries again")
}

/// The ladder for all of them at once: SIGTERM, grace, SIGKILL until none is left.
fn end_all(abandoned: &mut [AbandonedRun], proc: &Proc) {
    let graces = abandoned.iter().map(|run| run.record.grace_ms);
    let grace = Duration::from_millis(graces.max().unwrap_or_default()).min(limits::SWEEP_GRACE);
    let began = Moment::now();
    signal_all(abandoned, proc, Signal::TERM, How::Term);
    while Moment::now().since(began) < grace && wait_for_one(abandoned, proc) {}
    while Moment::now().since(began) < grace + limits::GIVE_UP && signal_all(abandoned, proc, Signal::KILL, How::Kill) {
        wait_for_one(abandoned, proc);
    }
}

/// Signals every survivor. Returns true if at least one signal could be sent.
fn signal_all(abandoned: &mut [AbandonedRun], proc: &Proc, signal: Signal, how: How) -> bool {
    let mut reached = false;
    for run in abandoned.iter_mut() {
        let survivors = run.survivors(proc);
        if survivors.is_empty() {
            continue;
        }
        run.seen = run.seen.max(survivors.processes.len()).max(1);
        run.how = how;
        if let Some(leaf) = run.leaf().filter(|_| signal == Signal::KILL) {
            for pid in leaf.procs().found.into_iter().filter(|pid| run.spared(proc, *pid)) {
                let _ = leaf.release(pid);
            }
            reached |= leaf.kill().is_ok();
        }
        for survivor in &survivors.processes {
            reached |= survivor.signal(signal) != Err(Errno::PERM);
            if signal == Signal::TERM {
                let _ = survivor.signal(Signal::CONT);
            }
        }
    }
    reached
}

/// Waits until one of the survivors has died, at most a moment. Returns true if there are survivors.
fn wait_for_one(abandoned: &[AbandonedRun], proc: &Proc) -> bool {
    let all: Vec<RunSurvivors> = abandoned.iter().map(|run| run.survivors(proc)).collect();
    if all.iter().all(RunSurvivors::is_empty) {
        return false;
    }
    let survivors = all.iter().flat_map(|survivors| &survivors.processes);
    let mut fds: Vec<PollFd<'_>> =
        survivors.map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
    let now = Moment::now();
    let _ = rustix::event::poll(&mut fds, Some(&timeout_until(now + limits::SWEEP_ROUND, now)));
    true
}

/// A receipt that could not be written.
struct Unwritten {
    text: String,
    /// This process lacks descriptors; the next one may have some.
    for_now: bool,
}

/// The survivors of a run, as far as they can be seen.
struct RunSurvivors {
    processes: Vec<HeldProcess>,
    /// The leaf has members.
    populated: bool,
    /// The reason why there may be more survivors.
    unseen: Option<io::Error>,
}

impl RunSurvivors {
    fn is_empty(&self) -> bool {
        self.processes.is_empty() && !self.populated
    }
}

impl AbandonedRun {
    fn new(locked_run: LockedRun, record: Record) -> AbandonedRun {
        let leaf = match record.leaf.as_deref().filter(|_| is_of_this_place(&record)) {
            None => Ok(None),
            Some(dir) if is_leaf_of(dir, &record.run) => Leaf::find(dir),
            // Another process wrote this path, so the cgroup may belong to any program.
            Some(dir) => Err(io::Error::other(format!("{} is not a cgroup of leash", dir.display()))),
        };
        AbandonedRun { locked_run, record, leaf, seen: 0, how: How::Exited }
    }

    fn leaf(&self) -> Option<&Leaf> {
        self.leaf.as_ref().ok().and_then(Option::as_ref)
    }

    /// All living processes that are proved to belong to the run.
    fn survivors(&self, proc: &Proc) -> RunSurvivors {
        let populated = self.leaf().is_some_and(Leaf::populated);
        let mut survivors = RunSurvivors { processes: Vec::new(), populated, unseen: None };
        if !is_of_this_place(&self.record) {
            return survivors;
        }
        if let Err(error) = &self.leaf {
            survivors.unseen = Some(copy(error));
        }
        if let Err(error) = self.find_survivors(proc, &mut survivors.processes) {
            survivors.unseen = Some(error);
        }
        survivors
    }

    /// Adds the survivors that can be opened. The error says why others can't.
    fn find_survivors(&self, proc: &Proc, found: &mut Vec<HeldProcess>) -> io::Result<()> {
        let mut unseen = Ok(());
        let mut proved = Vec::new();
        for id in self.record.members.iter().chain(&self.record.leader) {
            match HeldProcess::find(proc, id.pid) {
                Ok(held) => proved.extend(held.filter(|held| held.id.is(id) && held.lives())),
                Err(errno) => unseen = Err(errno.into()),
            }
        }
        let in_leaf: HashSet<i32> = self.leaf().into_iter().flat_map(|leaf| leaf.procs().found).collect();
        if proved.is_empty() && in_leaf.is_empty() {
            return unseen;
        }
        let all = proc.try_all()?;
        // A seed counts if it lives both before and after the scan: then no other process had its number in between.
        let seeds = proved.iter().filter(|held| held.lives()).map(|held| &held.stat);
        let family = closure(&all, seeds, &in_leaf);
        drop(proved);
        for stat in family {
            match HeldProcess::find(proc, stat.pid) {
                Ok(held) => found.extend(
                    held.filter(|held| held.id.start == stat.start && held.lives() && !self.spared(proc, stat.pid)),
                ),
                Err(errno) => unseen = Err(errno.into()),
            }
        }
        unseen
    }

    fn spared(&self, proc: &Proc, pid: i32) -> bool {
        let leads = self.record.leader.is_some_and(|leader| leader.pid == pid);
        !self.record.spare.is_empty() && !leads && proc.names(pid).iter().any(|name| self.record.spare.contains(name))
    }

    /// The reason why an empty list of survivors does not prove that nothing is left. `None` if it does: after a
    /// reboot, and for a PID namespace, which died with its keeper. Otherwise leash lost the descent with the keeper,
    /// and a process can leave a cgroup.
    fn doubt(&self) -> Option<&'static str> {
        if !is_of_this_boot(&self.record) {
            let forged = "its record names another boot, but was written in this one";
            return (!self.locked_run.is_from_before_boot()).then_some(forged);
        }
        match self.record.containment {
            Some(Containment::Sealed) => None,
            Some(Containment::Leaf | Containment::Unit) => Some(
                "all recorded processes and cgroup members are gone; processes that had left the cgroup are unknown",
            ),
            _ => Some("all recorded processes are gone; processes started since the last look at the tree are unknown"),
        }
    }

    /// Writes the receipt and removes the record. Writes none if the file already has one and no process was found.
    /// Returns an error if this process could not look at the run: the record then stays for the next start.
    fn finish(mut self, proc: &Proc, end: SweepEnd) -> Result<(Option<Receipt>, Option<String>), String> {
        let survivors = self.survivors(proc);
        if let Some(error) = &survivors.unseen {
            return Err(postponed(&self.record.run, error));
        }
        let own = self.receipt(proc, &survivors, end);
        let _turn = self.locked_run.wait_for_turn();
        if !self.locked_run.is_there() {
            // Another sweep has ended the run and written the receipt.
            return Ok((None, None));
        }
        let path = &self.record.receipts;
        let is_told = receipts::read(path).is_ok_and(|(known, _)| known.iter().any(|known| known.run == own.run));
        if is_told && self.seen == 0 && survivors.is_empty() {
            self.locked_run.remove();
            return Ok((None, None));
        }
        // The keeper may have written its receipt into the record. For the fate of the tree, what we saw counts.
        let receipt = match self.record.over.take() {
            Some(over) if over.run == own.run && self.seen == 0 => Receipt { holdings: own.holdings, ..over },
            _ => own,
        };
        let written = self.write(&receipt);
        if !written.as_ref().is_err_and(|unwritten| unwritten.for_now) {
            self.locked_run.remove();
        }
        Ok((Some(receipt), written.err().map(|unwritten| unwritten.text)))
    }

    /// Writes the receipt, and first a copy into the record: a sweep that finds it there makes no second one.
    fn write(&mut self, receipt: &Receipt) -> Result<(), Unwritten> {
        self.record.over = Some(receipt.clone());
        // If the disk is full, the write of the receipt itself reports it.
        let _ = self.locked_run.write(&self.record);
        let path = &self.record.receipts;
        receipts::append(path, receipt).map_err(|error| Unwritten {
            text: format!("cannot write {}: {error}", path.display()),
            for_now: receipts::is_shortage(&error),
        })
    }

    fn receipt(&self, proc: &Proc, survivors: &RunSurvivors, end: SweepEnd) -> Receipt {
        let mut left: Vec<LeftOver> = survivors.processes.iter().map(|held| why_left(proc, held)).collect();
        let unseen = survivors.unseen.as_ref().map(|error| format!("its processes can't be listed: {error}"));
        let doubt = || self.doubt().filter(|_| left.is_empty()).map(str::to_owned);
        if let Some(why) = unseen.or_else(doubt) {
            left.push(LeftOver { pid: 0, name: String::new(), why });
        }
        let tree = TreeEnd {
            fate: if left.is_empty() && !survivors.populated { Fate::Gone } else { Fate::Left },
            members: self.seen,
            left,
            ..self.record.tree_end(self.how)
        };
        if let Some(leaf) = self.leaf().filter(|_| !survivors.populated) {
            leaf.remove();
        }
        let took_ms = duration::as_ms(end.took);
        self.record.receipt(end.reason, end.by, took_ms, tree)
    }
}

/// True if a cgroup has the name that leash gives to the leaf of a run.
fn is_leaf_of(dir: &Path, run: &str) -> bool {
    dir.ends_with(format!("leash-{run}")) || dir.ends_with(format!("leash-{run}.scope/tree"))
}

fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

fn why_left(proc: &Proc, held: &HeldProcess) -> LeftOver {
    let denied = held.signal(Signal::KILL) == Err(Errno::PERM);
    left_over(proc, held.id.pid, if denied { "it belongs to another user (EPERM)" } else { "it did not exit in time" })
}

/// All processes that are proved to belong to the run: the seeds, the members of the leaf, and all processes that
/// belong to one of them by descent or by session.
fn closure<'a>(all: &[Stat], seeds: impl Iterator<Item = &'a Stat>, in_leaf: &HashSet<i32>) -> Vec<Stat> {
    let me = getpid().as_raw_pid();
    let own_session = all.iter().find(|stat| stat.pid == me).map_or(0, |stat| stat.session);
    let seeds: HashSet<(i32, u64)> = seeds.map(|stat| (stat.pid, stat.start)).collect();
    let seeded = all.iter().filter(|stat| seeds.contains(&(stat.pid, stat.start))).map(|stat| stat.pid);
    let mut family: HashSet<i32> = seeded.chain(in_leaf.iter().copied()).collect();
    loop {
        let sessions: HashSet<i32> = all
            .iter()
            .filter(|stat| family.contains(&stat.pid))
            .map(|stat| stat.session)
            .filter(|session| *session > 1 && *session != own_session)
            .collect();
        let before = family.len();
        let joins = |stat: &&Stat| family.contains(&stat.ppid) || sessions.contains(&stat.session);
        let joined: Vec<i32> = all.iter().filter(joins).map(|stat| stat.pid).collect();
        family.extend(joined);
        if family.len() == before {
            break;
        }
    }
    family.remove(&me);
    all.iter().filter(|stat| family.contains(&stat.pid)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::identity::{boot_id, pid_namespace};

    fn process(pid: i32, ppid: i32, session: i32) -> Stat {
        Stat {
            pid,
            comm: String::new(),
            state: 'S',
            ppid,
            pgrp: session,
            session,
            threads: 1,
            start: 0,
            resident_bytes: 0,
        }
    }

    fn check(all: &[Stat], seeds: &[i32], leaf: &[i32], family: &[i32]) {
        let seeds: Vec<&Stat> = all.iter().filter(|stat| seeds.contains(&stat.pid)).collect();
        let mut found: Vec<i32> =
            closure(all, seeds.into_iter(), &leaf.iter().copied().collect()).iter().map(|stat| stat.pid).collect();
        found.sort_unstable();
        assert_eq!(found, family);
    }

    #[test]
    fn family_is_descent_session_and_leaf() {
        let all = [
            process(100, 1, 90),    // a recorded helper
            process(101, 100, 90),  // its child
            process(102, 101, 102), // which opened a session
            process(103, 1, 102),   // whose member was reparented
            process(104, 1, 90),    // in the keeper's session, but never recorded
            process(200, 1, 200),   // not of the run
            process(201, 200, 200),
            process(300, 1, 300), // in the leaf only
        ];
        check(&all, &[100], &[], &[100, 101, 102, 103, 104]);
        check(&all, &[100], &[300], &[100, 101, 102, 103, 104, 300]);
        check(&all, &[], &[], &[]);
    }

    /// Found by the chaos test: one sweep had the lock of a run, and the other found both processes of leash dead and
    /// took the run too.
    #[test]
    fn two_sweeps_of_one_run_write_one_receipt() {
        let dir = testkit::Scratch::new();
        let (store, proc) = (Store::open(&dir).unwrap(), Proc::own().unwrap());
        let record: Record = serde_json::from_value(serde_json::json!({
            "version": 1, "boot": boot_id(), "pid_namespace": pid_namespace(), "run": "r1", "session": "s", "name": "files",
            "command": [], "owners": [], "phase": "running", "supervisor": null, "keeper": null, "leader": null, "members": [],
            "memory_bytes": 0, "containment": "reaper", "leaf": null, "grace_ms": 0, "started_ms": 1,
            "receipts": dir.join("receipts.jsonl"),
        }))
        .unwrap();
        // Both at the same time: one after the other, the second would find the receipt in any case.
        for round in 1..=100 {
            drop(store.create(&record).unwrap());
            let entries = [store.seize("r1").unwrap().expect("no process has the lock"), store.take("r1").unwrap()];
            let start = std::sync::Barrier::new(entries.len());
            std::thread::scope(|scope| {
                for locked_run in entries {
                    scope.spawn(|| {
                        let end = SweepEnd { reason: Reason::Swept, by: EndedBy::Sweep, took: Duration::ZERO };
                        let run = AbandonedRun::new(locked_run, record.clone());
                        start.wait();
                        run.finish(&proc, end).unwrap();
                    });
                }
            });
            assert_eq!(receipts::read(&record.receipts).unwrap().0.len(), 1, "round {round}");
            std::fs::remove_file(&record.receipts).unwrap();
        }
        assert!(store.list().unwrap().is_empty());
    }

    #[test]
    fn a_leaf_has_the_name_of_its_run() {
        for (dir, is_leaf) in [
            ("/sys/fs/cgroup/a/leash-r1", true),
            ("/sys/fs/cgroup/user.slice/leash-r1.scope/tree", true),
            ("/sys/fs/cgroup/user.slice", false),
            ("/sys/fs/cgroup/leash-r2", false),
            ("/sys/fs/cgroup/leash-r1/x", false),
        ] {
            assert_eq!(is_leaf_of(Path::new(dir), "r1"), is_leaf, "{dir}");
        }
    }
}
