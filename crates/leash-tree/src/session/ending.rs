//! Ends sessions from outside, however their members were started. It tells all members at the same time, waits for
//! all, and looks at the session again until it has no member left.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::alive;
use crate::ledger::book::{Book, Entry};
use crate::ledger::receipts;
use crate::ledger::store::Store;
use crate::places::Places;
use crate::platform::identity::HeldProcess;
use crate::platform::proc::Proc;
use crate::platform::{linux, poll};
use crate::tree::driver::{END_SIGNAL, END_VALUE, FORCE_VALUE, PRESSURE_VALUE};
use crate::tree::sweep;
use leash_model::alive::{MemberKind, SessionMember};
use leash_model::clock::{Moment, timeout_until};
use leash_model::limits;
use leash_model::receipt::Receipt;
use leash_model::record::Phase;

/// The pause between two checks of a lock. The death of a process ends the pause early.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The session or member that a user wants to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A session with all its members.
    Session(String),
    /// One member, by its run.
    Run(String),
}

impl Target {
    /// The id of the session or run.
    pub fn id(&self) -> &str {
        let (Target::Session(id) | Target::Run(id)) = self;
        id
    }

    /// True if it includes this member.
    pub fn means(&self, member: &SessionMember) -> bool {
        match self {
            Target::Session(session) => member.session == *session,
            Target::Run(run) => member.run == *run,
        }
    }
}

/// The order that members get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndOrder {
    /// End.
    Ask,
    /// End without grace.
    Force,
    /// End if the tree may be stopped when memory is short.
    Pressure,
}

/// A member that did not end, or whose end is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The session.
    pub session: String,
    /// The member.
    pub run: String,
    /// The reason, for people.
    pub why: String,
}

impl Unfinished {
    /// A session of which leash does not know whether anything is left.
    pub fn whole(session: &str, why: impl Into<String>) -> Unfinished {
        Unfinished { session: session.to_owned(), run: session.to_owned(), why: why.into() }
    }
}

/// The result of a request to end sessions.
#[derive(Debug, Default)]
pub struct EndReport {
    /// Receipts, one per member that ended and had held something, in the order in which the members had joined.
    pub receipts: Vec<Receipt>,
    /// Members that did not end in time, or left no receipt.
    pub unfinished: Vec<Unfinished>,
    /// Other messages for people.
    pub warnings: Vec<String>,
}

/// Ends upstream sessions whose process and keeper are gone, from their books on disk. Returns the receipts, and warnings.
pub type SweepUpstreams = fn(&Places) -> (Vec<Receipt>, Vec<String>);

/// A running request to end sessions.
#[derive(Debug)]
pub struct Ending<'a> {
    places: &'a Places,
    proc: &'a Proc,
    sweep_upstreams: SweepUpstreams,
    targets: Vec<Target>,
    order: EndOrder,
    /// Members that were told to end and waited for. A member that is still there would not end if it were told again.
    dealt_with: HashSet<String>,
    ended: EndReport,
}

impl<'a> Ending<'a> {
    /// Prepares the end of all that the targets name. It tells no member yet.
    pub fn new(
        places: &'a Places,
        proc: &'a Proc,
        targets: Vec<Target>,
        force: bool,
        sweep_upstreams: SweepUpstreams,
    ) -> Ending<'a> {
        let order = if force { EndOrder::Force } else { EndOrder::Ask };
        let (dealt_with, ended) = (HashSet::new(), EndReport::default());
        Ending { places, proc, sweep_upstreams, targets, order, dealt_with, ended }
    }

    /// Prepares the end of one idle run because memory is short. Its keeper refuses if a request waits in its stdin, or if
    /// it may not be stopped; then the run is among the unfinished.
    pub fn under_pressure(places: &'a Places, proc: &'a Proc, run: String) -> Ending<'a> {
        let ending = Ending::new(places, proc, vec![Target::Run(run)], false, |_| Default::default());
        Ending { order: EndOrder::Pressure, ..ending }
    }

    /// Ends all current members, except those that another process ends. Returns true if there were any.
    pub fn round(&mut self, except: &dyn Fn(&SessionMember) -> bool) -> io::Result<bool> {
        let members = self.current(except)?;
        if members.is_empty() {
            return Ok(false);
        }
        // Tell all members first, so that they end at the same time.
        members.iter().for_each(|member| self.ask(member));
        let asked = Moment::now();
        let mut late: HashMap<String, String> = HashMap::new();
        for member in &members {
            if let Err(why) = self.wait(member, asked) {
                late.insert(member.run.clone(), why);
            }
        }
        // End the members without a living process of leash.
        let stores = Store::look_all(self.places).map_err(io::Error::other)?;
        let swept = sweep::sweep(&stores, Some(self.proc));
        self.ended.warnings.extend(swept.warnings);
        let mut read = ReceiptFiles::default();
        for member in members {
            // A receipt that the sweep has just made comes before one in a file.
            let found = swept.receipts.iter().find(|receipt| receipt.run == member.run).cloned();
            match found.or_else(|| read.receipt(&member)) {
                Some(receipt) => self.ended.receipts.push(receipt),
                None => self.note_missing(&member, late.remove(&member.run)),
            }
            self.dealt_with.insert(member.run);
        }
        Ok(true)
    }

    /// The result of the rounds so far.
    pub fn report(self) -> EndReport {
        self.ended
    }

    /// Goes on until no member is left, also of those that join during the end. Returns the result of all rounds.
    pub fn rest(mut self) -> io::Result<EndReport> {
        self.all_rounds(&|_| false)?;
        self.end_open()?;
        Ok(self.ended)
    }

    /// The same as [`Ending::rest`] for members only, except those that another process ends. The holders of sessions
    /// at HTTP servers end those.
    pub fn members(mut self, except: &dyn Fn(&SessionMember) -> bool) -> io::Result<EndReport> {
        self.all_rounds(except)?;
        Ok(self.ended)
    }

    fn all_rounds(&mut self, except: &dyn Fn(&SessionMember) -> bool) -> io::Result<()> {
        let mut rounds = 0;
        while self.round(except)? {
            rounds += 1;
            if rounds == limits::END_ROUNDS {
                self.note_newcomers(except)?;
                break;
            }
        }
        Ok(())
    }

    /// The members that leash has to tell now.
    fn current(&self, except: &dyn Fn(&SessionMember) -> bool) -> io::Result<Vec<SessionMember>> {
        let wanted = |member: &SessionMember| {
            !member.is_upstream()
                && self.targets.iter().any(|target| target.means(member))
                && !self.dealt_with.contains(&member.run)
                && !except(member)
        };
        let mut members = alive::members(self.places)?;
        members.retain(wanted);
        Ok(members)
    }

    fn note_newcomers(&mut self, except: &dyn Fn(&SessionMember) -> bool) -> io::Result<()> {
        for member in self.current(except)? {
            self.give_up(&member, "new members join as fast as leash ends them");
        }
        Ok(())
    }

    /// Ends upstream sessions whose process and keeper are both gone. A living gateway ends its own.
    fn end_open(&mut self) -> io::Result<()> {
        let is_wanted = |member: &SessionMember| {
            self.targets.iter().any(|target| matches!(target, Target::Session(id) if *id == member.session))
        };
        let mut open = alive::open(self.places)?;
        open.retain(is_wanted);
        if open.iter().any(|member| member.abandoned) {
            let (receipts, warnings) = (self.sweep_upstreams)(self.places);
            self.ended.warnings.extend(warnings);
            let was_open =
                |receipt: &Receipt| open.iter().filter_map(SessionMember::open).any(|entry| is_end_of(receipt, entry));
            self.ended.receipts.extend(receipts.into_iter().filter(was_open));
        }
        for member in open.iter().filter(|member| member.is_upstream() && !member.abandoned) {
            let pid = member.attendants.first().map(|process| format!(" (pid {})", process.pid)).unwrap_or_default();
            self.give_up(member, &format!("`leash serve`{pid} holds it, and ends it with its client"));
        }
        Ok(())
    }

    /// Handles a member without a receipt.
    fn note_missing(&mut self, member: &SessionMember, late: Option<String>) {
        match (&member.kind, late) {
            (_, Some(why)) => self.give_up(member, &why),
            // It was told before its server ran, so there was no receipt to write.
            (MemberKind::Tree { record, .. }, None) if record.leader.is_none() => {}
            // The sessions that it left open are ended after all members.
            (MemberKind::Connection { open }, None) if open.is_none() || member.abandoned => {}
            (_, None) => self.give_up(member, "it ended, but no receipt was written"),
        }
    }

    fn give_up(&mut self, member: &SessionMember, why: &str) {
        let (session, run, why) = (member.session.clone(), member.run.clone(), why.to_owned());
        self.ended.unfinished.push(Unfinished { session, run, why });
    }

    fn ask(&self, member: &SessionMember) {
        let value = match self.order {
            EndOrder::Ask => END_VALUE,
            EndOrder::Force => FORCE_VALUE,
            EndOrder::Pressure => PRESSURE_VALUE,
        };
        for attendant in attendants(member, self.proc) {
            // A stopped process of leash must run to receive the signal.
            let _ = attendant.signal(Signal::CONT);
            if !is_shared(member, &attendant) {
                let _ = linux::queue(attendant.as_fd(), END_SIGNAL, value);
            }
        }
    }

    /// Waits until no process of leash looks after the member any more. Its receipt is written before that.
    fn wait(&self, member: &SessionMember, asked: Moment) -> Result<(), String> {
        let store = Store::look(&member.runtime_dir).ok().flatten();
        let mut give_up = asked + patience(member);
        let mut may_kill = self.order == EndOrder::Force;
        // The lock decides, however new the member is. The processes only say when to check again.
        loop {
            // A member that was told during its start records its keeper later.
            let latest = latest(store.as_ref(), member);
            let member = latest.as_ref().unwrap_or(member);
            if !self.is_attended(store.as_ref(), member) {
                return Ok(());
            }
            let now = Moment::now();
            if self.order == EndOrder::Pressure
                && now >= asked + limits::KEEPER_ANSWER
                && member.phase() != Phase::Ending
            {
                return Err("it is in use".to_owned());
            }
            let attendants = attendants(member, self.proc);
            // A server may stop them again and again, but it can't prevent that they are killed.
            let is_stopped = now >= asked + limits::KEEPER_ANSWER && all_stopped(&attendants, self.proc);
            if may_kill && (is_stopped || now >= give_up) {
                self.kill_attendants(store.as_ref(), member, &attendants);
                may_kill = is_stopped;
                give_up = give_up.max(now + limits::KEEPER_SLACK);
                continue;
            }
            if now >= give_up {
                return Err("it did not end in time".to_owned());
            }
            let mut fds: Vec<PollFd<'_>> =
                attendants.iter().map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
            // A new run may not have recorded its keeper yet, and a keeper may go on after its process is gone.
            let next = (now + LOOK_AGAIN).min(give_up);
            let _ = rustix::event::poll(&mut fds, Some(&timeout_until(next, now)));
        }
    }

    /// Kills the processes of leash that look after a run, so that the sweep that follows can end it. The server can
    /// write to the record. So a process counts as leash's only if it also holds the run's lock open.
    fn kill_attendants(&self, store: Option<&Store>, member: &SessionMember, attendants: &[HeldProcess]) {
        let (MemberKind::Tree { .. }, Some(store)) = (&member.kind, store) else { return };
        let is_stopped = |held: &HeldProcess| self.proc.stat(held.id.pid).is_some_and(|stat| stat.is_stopped());
        let is_ours = |held: &&HeldProcess| {
            // With a shared supervisor all of its trees end. If it is stopped, it can look after none of them anyway.
            store.is_lock_open_in(&member.run, held.id.pid) && (!is_shared(member, held) || is_stopped(held))
        };
        let ours: Vec<&HeldProcess> = attendants.iter().filter(is_ours).collect();
        self.record_members(store, &member.run, &ours);
        for attendant in ours {
            let _ = attendant.signal(Signal::KILL);
        }
        let now = Moment::now();
        for attendant in attendants {
            // A killed process needs a moment to exit.
            let mut fds = [PollFd::from_borrowed_fd(attendant.as_fd(), PollFlags::IN)];
            let _ = poll::poll(&mut fds, Some(&timeout_until(now + LOOK_AGAIN, now)));
        }
    }

    /// Records the processes below the processes of leash. A stopped keeper can't do that, and with its death their
    /// descent is lost.
    fn record_members(&self, store: &Store, run: &str, ours: &[&HeldProcess]) {
        let Ok(entry) = store.take(run) else { return };
        let Ok(Some(mut record)) = entry.read() else { return };
        let mut family: Vec<i32> = ours.iter().map(|attendant| attendant.id.pid).collect();
        let below: Vec<i32> = family.iter().flat_map(|pid| self.proc.descendants(*pid).found).collect();
        family.extend(&below);
        for pid in below.iter().filter(|pid| !ours.iter().any(|attendant| attendant.id.pid == **pid)) {
            // Another process may have got the number since the walk. The process that has it now must still have a
            // parent in the tree.
            let held = HeldProcess::open(self.proc, *pid).filter(|held| family.contains(&held.stat.ppid));
            record.members.extend(held.map(|held| held.id).filter(|id| !record.members.contains(id)));
        }
        record.members.truncate(limits::RECORDED_MEMBERS);
        // If the disk is full, the sweep ends the members that were recorded before.
        let _ = entry.write(&record);
    }

    fn is_attended(&self, store: Option<&Store>, member: &SessionMember) -> bool {
        match &member.kind {
            MemberKind::Tree { record, .. } => store.is_some_and(|store| sweep::is_attended(store, record, self.proc)),
            MemberKind::Connection { .. } => Book::is_attended(&member.runtime_dir, &member.run),
            // Its gateway ends it.
            MemberKind::Upstream { .. } => false,
        }
    }
}

/// A tree as its record says now; `None` if it has no record, or is not a tree.
fn latest(store: Option<&Store>, member: &SessionMember) -> Option<SessionMember> {
    let MemberKind::Tree { .. } = member.kind else { return None };
    let record = store?.read(&member.run).ok().flatten()?;
    Some(SessionMember::of_record(record, &member.runtime_dir))
}

/// True if there are any, and a signal or a tracer has stopped each of them.
fn all_stopped(attendants: &[HeldProcess], proc: &Proc) -> bool {
    let is_stopped = |held: &HeldProcess| proc.stat(held.id.pid).is_some_and(|stat| stat.is_stopped());
    !attendants.is_empty() && attendants.iter().all(is_stopped)
}

/// The longest time that a member may take to end.
fn patience(member: &SessionMember) -> Duration {
    match &member.kind {
        MemberKind::Tree { record, .. } => {
            Duration::from_millis(record.grace_ms).saturating_mul(2) + limits::GIVE_UP + limits::KEEPER_SLACK
        }
        MemberKind::Connection { .. } | MemberKind::Upstream { .. } => limits::DELETE_GIVE_UP + limits::KEEPER_SLACK,
    }
}

/// True if a process of leash looks after other members, too.
fn is_shared(member: &SessionMember, attendant: &HeldProcess) -> bool {
    let MemberKind::Tree { record, .. } = &member.kind else { return false };
    record.shared && record.supervisor.is_some_and(|supervisor| attendant.id.is(&supervisor))
}

/// The processes of leash that look after a member, if they are still the recorded ones.
fn attendants(member: &SessionMember, proc: &Proc) -> Vec<HeldProcess> {
    let held = member.attendants.iter().filter_map(|id| HeldProcess::open_same(proc, *id));
    held.filter(|held| !held.stat.dead()).collect()
}

/// Receipt files, each read once.
#[derive(Default)]
struct ReceiptFiles {
    files: HashMap<PathBuf, Vec<Receipt>>,
}

impl ReceiptFiles {
    /// The newest receipt of a member. The member may write its receipts to another file than we do.
    fn receipt(&mut self, member: &SessionMember) -> Option<Receipt> {
        let path = &member.receipts;
        let known = self
            .files
            .entry(path.clone())
            .or_insert_with(|| receipts::read(path).map(|(receipts, _)| receipts).unwrap_or_default());
        known.iter().rev().find(|receipt| receipt.run == member.run).cloned()
    }
}

/// True if a receipt is about an open entry. A sweep records the entry, but not the process that had opened it.
fn is_end_of(receipt: &Receipt, entry: &Entry) -> bool {
    (&receipt.session, receipt.started_ms) == (&entry.session, entry.started_ms)
}

#[cfg(test)]
mod tests;
