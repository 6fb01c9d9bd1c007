//! Sessions as the ledger knows them: who is alive, and how to end them from outside.

#[cfg(feature = "http")]
pub mod job;
#[cfg(feature = "http")]
pub mod machine;

mod held;

pub use held::{Session, SessionEnd};

use std::os::fd::AsFd as _;
#[cfg(feature = "http")]
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::clock::{Moment, timeout_until};
#[cfg(feature = "http")]
use crate::ledger::book::{Book, Listed};
use crate::ledger::receipt::{self, Receipt};
use crate::ledger::record::Record;
use crate::ledger::store::Store;
use crate::ledger::sweep;
use crate::limits;
use crate::tree::contain::leaf::Leaf;
use crate::tree::identity::{Held, Identity};
use crate::tree::linux;
use crate::tree::proc::{Proc, Stat};
use crate::tree::warden::{END_SIGNAL, END_VALUE};

/// A run that somebody looks after, or should.
#[derive(Debug)]
pub struct Live {
    /// What the ledger says.
    pub record: Record,
    /// Whether leash or its keeper is alive; otherwise the next start of leash ends it.
    pub attended: bool,
    /// The tree as it is now; empty where /proc is not ours.
    pub members: Vec<Member>,
}

/// A process of a tree, as it is now.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its `stat`.
    pub stat: Stat,
    /// Its command line.
    pub command: String,
    /// Its memory: proportional where that may be read, else its private pages.
    pub memory_bytes: u64,
}

impl Live {
    /// Memory of all members together.
    pub fn memory_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.memory_bytes).sum()
    }
}

/// Every run in the ledger of this boot.
pub fn list(store: &Store, proc: Option<&Proc>) -> std::io::Result<Vec<Live>> {
    let mut runs = Vec::new();
    for found in store.list()? {
        let Some(record) = found.record.filter(Record::of_this_place) else { continue };
        let members = proc.map(|proc| members(&record, proc)).unwrap_or_default();
        runs.push(Live { attended: store.locked(&record.run), record, members });
    }
    runs.sort_by_key(|run| run.record.started_ms);
    Ok(runs)
}

/// Who is in a tree now: the keeper's descendants, the leaf's members, and recorded members that are still the same.
fn members(record: &Record, proc: &Proc) -> Vec<Member> {
    let keeper = record.keeper.filter(|keeper| keeper.alive(proc));
    let mut pids: Vec<i32> = keeper.map(|keeper| proc.descendants(keeper.pid)).unwrap_or_default();
    pids.extend(
        record.leaf.as_deref().and_then(|dir| Leaf::open(dir).ok()).map(|leaf| leaf.procs()).unwrap_or_default(),
    );
    pids.extend(record.members.iter().filter(|id| id.alive(proc)).map(|id| id.pid));
    let mut seen = std::collections::HashSet::new();
    let ours = |stat: &Stat| stat.comm == "keeper" && keeper.is_some_and(|keeper| is_ours(proc, stat.pid, keeper.pid));
    let living = pids
        .into_iter()
        .filter(|pid| seen.insert(*pid))
        .filter_map(|pid| proc.stat(pid))
        .filter(|stat| !stat.dead() && !ours(stat));
    living
        .map(|stat| Member {
            command: proc.command_line(stat.pid),
            memory_bytes: proc.proportional_bytes(stat.pid),
            stat,
        })
        .collect()
}

/// The two processes of leash inside a sealed namespace are forks of the keeper: same program, same arguments.
fn is_ours(proc: &Proc, pid: i32, keeper: i32) -> bool {
    proc.argv(pid) == proc.argv(keeper)
}

/// What became of a request to end runs.
#[derive(Debug, Default)]
pub struct Ended {
    /// Receipts, one per run that ended.
    pub receipts: Vec<Receipt>,
    /// Runs that did not end in time, with the reason.
    pub unfinished: Vec<(String, String)>,
    /// What else people should know.
    pub warnings: Vec<String>,
}

/// Ends runs, waits until they are gone, and returns their receipts.
pub fn end(store: &Store, proc: &Proc, runs: Vec<Record>) -> Ended {
    let mut ended = Ended::default();
    // Told to all first, so that they end at the same time.
    for record in &runs {
        ask(record, proc);
    }
    for record in &runs {
        if let Err(why) = await_end(store, record, proc) {
            ended.unfinished.push((record.run.clone(), why));
        }
    }
    // What nobody looked after.
    let swept = sweep::sweep(store, Some(proc));
    ended.warnings.extend(swept.warnings);
    for record in runs {
        // Where that run writes its receipts may not be where we would.
        let (known, _) = receipt::read(&record.receipts).unwrap_or_default();
        let by_sweep = swept.receipts.iter().find(|receipt| receipt.run == record.run);
        match known.iter().rev().find(|receipt| receipt.run == record.run).or(by_sweep) {
            Some(receipt) => ended.receipts.push(receipt.clone()),
            None if ended.unfinished.iter().any(|(run, _)| *run == record.run) => {}
            None => ended.unfinished.push((record.run, "it ended, but no receipt was written".to_owned())),
        }
    }
    ended
}

/// Ends what a `leash connect` has open: tells it to, waits until it has, and returns the receipt. The error is for people.
#[cfg(feature = "http")]
pub fn end_connection(runtime_dir: &Path, book: &Listed, session: &str, proc: &Proc) -> Result<Receipt, String> {
    let process = book.cover.process.and_then(|id| Held::open_same(proc, id)).filter(|held| !held.stat.dead());
    if let Some(process) = &process {
        let _ = process.signal(Signal::CONT);
        let _ = linux::queue(process.as_fd(), END_SIGNAL, END_VALUE);
    }
    let give_up = Moment::now() + limits::DELETE_GIVE_UP + limits::KEEPER_SLACK;
    let attended = || {
        let books = Book::list(runtime_dir).unwrap_or_default();
        books.iter().any(|known| known.cover.run == book.cover.run && known.attended)
    };
    // Its keeper may go on when the process is gone; the lock tells of both.
    while attended() {
        let now = Moment::now();
        if now >= give_up {
            return Err("it did not end in time".to_owned());
        }
        let mut fds: Vec<PollFd<'_>> =
            process.iter().map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
        let next = (now + Duration::from_millis(50)).min(give_up);
        let _ = rustix::event::poll(&mut fds, Some(&timeout_until(next, now)));
    }
    let (known, _) = receipt::read(&book.cover.receipts).unwrap_or_default();
    let found = known.into_iter().rev().find(|receipt| receipt.session == session);
    found.ok_or_else(|| "it ended, but no receipt was written".to_owned())
}

/// The processes of leash that look after a run, as far as they are still the recorded ones.
fn attendants(record: &Record, proc: &Proc) -> Vec<Held> {
    let ids = record.supervisor.iter().chain(&record.keeper);
    ids.filter_map(|id: &Identity| Held::open_same(proc, *id)).filter(|held| !held.stat.dead()).collect()
}

fn ask(record: &Record, proc: &Proc) {
    for attendant in attendants(record, proc) {
        // A stopped leash must be able to hear it.
        let _ = attendant.signal(Signal::CONT);
        let _ = linux::queue(attendant.as_fd(), END_SIGNAL, END_VALUE);
    }
}

/// Waits until nobody looks after the run any more, which is after its receipt was written.
fn await_end(store: &Store, record: &Record, proc: &Proc) -> Result<(), String> {
    let ladder = Duration::from_millis(record.grace_ms) * 2;
    let give_up = Moment::now() + ladder + limits::GIVE_UP + limits::KEEPER_SLACK;
    loop {
        // The lock says it, however young the record is; the processes only tell when to look again.
        if !store.locked(&record.run) {
            return Ok(());
        }
        let attendants = attendants(record, proc);
        let now = Moment::now();
        if now >= give_up {
            return Err("it did not end in time".to_owned());
        }
        let mut fds: Vec<PollFd<'_>> =
            attendants.iter().map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
        // A young run may not have written its keeper yet; look again soon.
        let _ =
            rustix::event::poll(&mut fds, Some(&timeout_until((now + Duration::from_millis(50)).min(give_up), now)));
    }
}
