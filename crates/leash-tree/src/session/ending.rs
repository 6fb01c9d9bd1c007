//! Ending sessions from outside, whoever started their members: all are told at the same time, all are waited for, and the session
//! is looked at again until nobody is left in it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::joined::{Joined, Target, joined};
use crate::ledger::book::{Book, Entry, Listed};
use crate::ledger::receipts;
use crate::ledger::store::Store;
use crate::places::Places;
use crate::platform::identity::Held;
use crate::platform::linux;
use crate::platform::poll;
use crate::platform::proc::Proc;
use crate::tree::sweep;
use crate::tree::warden::{END_SIGNAL, END_VALUE, FORCE_VALUE};
use leash_model::clock::{Moment, timeout_until};
use leash_model::identity::Identity;
use leash_model::limits;
use leash_model::receipt::Receipt;
use leash_model::record::Record;

/// How long is waited between two looks at a lock; the death of a process wakes earlier.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A member that did not end, or of which it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The session.
    pub session: String,
    /// The member.
    pub run: String,
    /// Why, for people.
    pub why: String,
}

/// What became of a request to end sessions.
#[derive(Debug, Default)]
pub struct Ended {
    /// Receipts, one per member that ended and had held something, in the order in which they had joined.
    pub receipts: Vec<Receipt>,
    /// Members that did not end in time, or left no receipt.
    pub unfinished: Vec<Unfinished>,
    /// What else people should know.
    pub warnings: Vec<String>,
}

/// Ends upstream sessions whose process and keeper are gone, from their books on disk. Returns the receipts, and warnings.
pub type SweepUpstreams = fn(&Places) -> (Vec<Receipt>, Vec<String>);

/// An end that is under way.
#[derive(Debug)]
pub struct Ending<'a> {
    places: &'a Places,
    proc: &'a Proc,
    sweep_upstreams: SweepUpstreams,
    targets: Vec<Target>,
    /// No grace.
    force: bool,
    /// Members that were told and waited for. One that is still there would not go if it were told again.
    dealt_with: HashSet<String>,
    ended: Ended,
}

impl<'a> Ending<'a> {
    /// The end of all that the targets mean; nobody is told yet.
    pub fn new(
        places: &'a Places,
        proc: &'a Proc,
        targets: Vec<Target>,
        force: bool,
        sweep_upstreams: SweepUpstreams,
    ) -> Ending<'a> {
        Ending { places, proc, sweep_upstreams, targets, force, dealt_with: HashSet::new(), ended: Ended::default() }
    }

    /// Ends everybody who is there now, except those that somebody else is to end; whether there was anybody.
    pub fn round(&mut self, except: &dyn Fn(&Joined) -> bool) -> io::Result<bool> {
        let store = Store::look(&self.places.runtime_dir).map_err(io::Error::other)?;
        let mut members = joined(&self.places.runtime_dir, store.as_ref())?;
        members.retain(|member| self.wants(member) && !self.dealt_with.contains(member.run()) && !except(member));
        if members.is_empty() {
            return Ok(false);
        }
        // Told to all first, so that they end at the same time.
        members.iter().for_each(|member| self.ask(member));
        let asked = Moment::now();
        let mut late: HashMap<String, String> = HashMap::new();
        for member in &members {
            if let Err(why) = self.wait(store.as_ref(), member, asked) {
                late.insert(member.run().to_owned(), why);
            }
        }
        // What nobody looked after.
        let swept = store.as_ref().map(|store| sweep::sweep(store, Some(self.proc))).unwrap_or_default();
        self.ended.warnings.extend(swept.warnings);
        let mut read = Read::default();
        for member in members {
            // What the sweep saw itself comes before what it read.
            let found = swept.receipts.iter().find(|receipt| receipt.run == member.run()).cloned();
            match found.or_else(|| read.receipt(&member)) {
                Some(receipt) => self.ended.receipts.push(receipt),
                None => self.note_missing(&member, late.remove(member.run())),
            }
            self.dealt_with.insert(member.run().to_owned());
        }
        Ok(true)
    }

    /// Goes on until nobody is left, whoever joins meanwhile. What came of all of it.
    pub fn rest(mut self) -> io::Result<Ended> {
        self.all_rounds(&|_| false)?;
        self.end_open()?;
        Ok(self.ended)
    }

    /// The same of members alone, except those that somebody else is to end: what is open at HTTP servers is left to those who hold it.
    pub fn members(mut self, except: &dyn Fn(&Joined) -> bool) -> io::Result<Ended> {
        self.all_rounds(except)?;
        Ok(self.ended)
    }

    fn all_rounds(&mut self, except: &dyn Fn(&Joined) -> bool) -> io::Result<()> {
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

    fn wants(&self, member: &Joined) -> bool {
        self.targets.iter().any(|target| target.means(member))
    }

    fn note_newcomers(&mut self, except: &dyn Fn(&Joined) -> bool) -> io::Result<()> {
        let store = Store::look(&self.places.runtime_dir).map_err(io::Error::other)?;
        for member in joined(&self.places.runtime_dir, store.as_ref())? {
            if self.wants(&member) && !self.dealt_with.contains(member.run()) && !except(&member) {
                self.give_up(&member, "others join as fast as they are ended");
            }
        }
        Ok(())
    }

    /// Upstream sessions whose process is gone, keeper and all, are ended from here; those of a living gateway are its own.
    fn end_open(&mut self) -> io::Result<()> {
        let books = Book::list(&self.places.runtime_dir)?;
        let wanted =
            |session: &str| self.targets.iter().any(|target| matches!(target, Target::Session(id) if id == session));
        let open = books.iter().flat_map(|book| book.open.iter().map(move |entry| (book, entry)));
        let open: Vec<(&Listed, &Entry)> = open.filter(|(book, entry)| wanted(book.session_of(entry))).collect();
        let abandoned = |book: &Listed| !book.attended && book.session().is_some_and(wanted);
        if open.iter().any(|(book, _)| !book.attended) || books.iter().any(abandoned) {
            let (receipts, warnings) = (self.sweep_upstreams)(self.places);
            self.ended.warnings.extend(warnings);
            let is_open = |receipt: &Receipt| open.iter().any(|(_, entry)| is_end_of(receipt, entry));
            self.ended.receipts.extend(receipts.into_iter().filter(is_open));
        }
        for (book, entry) in open.into_iter().filter(|(book, _)| book.attended && book.session().is_none()) {
            let pid = book.cover.process.map(|process| format!(" (pid {})", process.pid)).unwrap_or_default();
            let why = format!("`leash {}`{pid} holds it, and ends it with its client", book.cover.command);
            let (session, run) = (book.session_of(entry).to_owned(), entry.session.clone());
            self.ended.unfinished.push(Unfinished { session, run, why });
        }
        Ok(())
    }

    /// Nothing was written of this one.
    fn note_missing(&mut self, member: &Joined, late: Option<String>) {
        match (member, late) {
            (_, Some(why)) => self.give_up(member, &why),
            // It was told before it had anything, and so there was nothing to write about.
            (Joined::Run(record), None) if record.leader.is_none() => {}
            // What it has left open is ended when all others are.
            (Joined::Connection(book), None) if book.open.is_empty() || !book.attended => {}
            (_, None) => self.give_up(member, "it ended, but no receipt was written"),
        }
    }

    fn give_up(&mut self, member: &Joined, why: &str) {
        let (session, run, why) = (member.session().to_owned(), member.run().to_owned(), why.to_owned());
        self.ended.unfinished.push(Unfinished { session, run, why });
    }

    fn ask(&self, member: &Joined) {
        let value = if self.force { FORCE_VALUE } else { END_VALUE };
        for attendant in attendants(member, self.proc) {
            // A stopped leash must be able to hear it.
            let _ = attendant.signal(Signal::CONT);
            let _ = linux::queue(attendant.as_fd(), END_SIGNAL, value);
        }
    }

    /// Waits until nobody looks after the member any more, which is after its receipt was written.
    fn wait(&self, store: Option<&Store>, member: &Joined, asked: Moment) -> Result<(), String> {
        let mut give_up = asked + patience(member);
        let mut may_kill = self.force;
        // The lock says it, however young the member is; the processes only tell when to look again.
        while self.is_attended(store, member) {
            let now = Moment::now();
            let attendants = attendants(member, self.proc);
            // A server may stop them again and again: whatever it does, it can't keep them from being killed.
            let is_stopped = now >= asked + limits::KEEPER_ANSWER && all_stopped(&attendants, self.proc);
            if may_kill && (is_stopped || now >= give_up) {
                self.kill_attendants(member, &attendants);
                may_kill = is_stopped;
                give_up = give_up.max(now + limits::KEEPER_SLACK);
                continue;
            }
            if now >= give_up {
                return Err("it did not end in time".to_owned());
            }
            let mut fds: Vec<PollFd<'_>> =
                attendants.iter().map(|held| PollFd::from_borrowed_fd(held.as_fd(), PollFlags::IN)).collect();
            // A young run may not have written its keeper yet, and a keeper may go on when its process is gone.
            let next = (now + LOOK_AGAIN).min(give_up);
            let _ = rustix::event::poll(&mut fds, Some(&timeout_until(next, now)));
        }
        Ok(())
    }

    /// Kills the processes of leash that look after a run, so that the sweep which follows can end it. The record lies where the
    /// server can write to it: a process is leash's only if it holds the run's lock open, too.
    fn kill_attendants(&self, member: &Joined, attendants: &[Held]) {
        if !matches!(member, Joined::Run(_)) {
            return;
        }
        let Ok(Some(store)) = Store::look(&self.places.runtime_dir) else { return };
        let is_ours = |held: &&Held| store.is_lock_open_in(member.run(), held.id.pid);
        let ours: Vec<&Held> = attendants.iter().filter(is_ours).collect();
        self.record_members(&store, member.run(), &ours);
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

    /// Writes down who is below the processes of leash. A stopped keeper can't, and with its death descent is lost.
    fn record_members(&self, store: &Store, run: &str, ours: &[&Held]) {
        let Ok(entry) = store.take(run) else { return };
        let Ok(Some(mut record)) = entry.read() else { return };
        let mut family: Vec<i32> = ours.iter().map(|attendant| attendant.id.pid).collect();
        let below: Vec<i32> = family.iter().flat_map(|pid| self.proc.descendants(*pid).found).collect();
        family.extend(&below);
        for pid in below.iter().filter(|pid| !ours.iter().any(|attendant| attendant.id.pid == **pid)) {
            // The number may have changed hands since the walk: the process that has it now must still be of the family.
            let held = Held::open(self.proc, *pid).filter(|held| family.contains(&held.stat.ppid));
            record.members.extend(held.map(|held| held.id).filter(|id| !record.members.contains(id)));
        }
        record.members.truncate(limits::RECORDED_MEMBERS);
        // On a full disk, the sweep ends what was recorded before.
        let _ = entry.write(&record);
    }

    fn is_attended(&self, store: Option<&Store>, member: &Joined) -> bool {
        match member {
            Joined::Run(record) => store.is_some_and(|store| sweep::is_attended(store, record, self.proc)),
            Joined::Connection(book) => Book::is_attended(&self.places.runtime_dir, &book.cover.run),
        }
    }
}

/// Whether there are any, and each of them is stopped, by a signal or by a tracer.
fn all_stopped(attendants: &[Held], proc: &Proc) -> bool {
    let is_stopped = |held: &Held| proc.stat(held.id.pid).is_some_and(|stat| stat.is_stopped());
    !attendants.is_empty() && attendants.iter().all(is_stopped)
}

/// How long a member may take to end.
fn patience(member: &Joined) -> Duration {
    match member {
        Joined::Run(record) => {
            Duration::from_millis(record.grace_ms).saturating_mul(2) + limits::GIVE_UP + limits::KEEPER_SLACK
        }
        Joined::Connection(_) => limits::DELETE_GIVE_UP + limits::KEEPER_SLACK,
    }
}

/// The processes of leash that look after a member, as far as they are still the recorded ones.
fn attendants(member: &Joined, proc: &Proc) -> Vec<Held> {
    let ids: Vec<Identity> = match member {
        Joined::Run(record) => of_run(record),
        Joined::Connection(book) => of_book(book),
    };
    ids.into_iter().filter_map(|id| Held::open_same(proc, id)).filter(|held| !held.stat.dead()).collect()
}

fn of_run(record: &Record) -> Vec<Identity> {
    record.supervisor.into_iter().chain(record.keeper).collect()
}
fn of_book(book: &Listed) -> Vec<Identity> {
    book.cover.process.into_iter().collect()
}

/// Receipt files that were read, each once.
#[derive(Default)]
struct Read {
    files: HashMap<PathBuf, Vec<Receipt>>,
}

impl Read {
    /// The newest receipt of a member. Where that writes its receipts may not be where we would.
    fn receipt(&mut self, member: &Joined) -> Option<Receipt> {
        let path = match member {
            Joined::Run(record) => &record.receipts,
            Joined::Connection(book) => &book.cover.receipts,
        };
        let known = self
            .files
            .entry(path.clone())
            .or_insert_with(|| receipts::read(path).map(|(receipts, _)| receipts).unwrap_or_default());
        known.iter().rev().find(|receipt| is_of(receipt, member)).cloned()
    }
}

/// A sweep writes down what was open, and not who had opened it.
fn is_end_of(receipt: &Receipt, entry: &Entry) -> bool {
    (&receipt.session, receipt.started_ms) == (&entry.session, entry.started_ms)
}

fn is_of(receipt: &Receipt, member: &Joined) -> bool {
    match member {
        // Before covers named a session, a connection's receipt had an id that its book did not know.
        Joined::Connection(book) if book.cover.member.is_none() => receipt.session == member.session(),
        _ => receipt.run == member.run(),
    }
}

#[cfg(test)]
mod tests;
