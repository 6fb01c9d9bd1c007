//! Ends sessions from outside, however their members were started. It tells all members at the same time, waits for
//! all, and looks at the session again until it has no member left.

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
use crate::platform::proc::Proc;
use crate::platform::{linux, poll};
use crate::tree::sweep;
use crate::tree::warden::{END_SIGNAL, END_VALUE, FORCE_VALUE};
use leash_model::clock::{Moment, timeout_until};
use leash_model::identity::Identity;
use leash_model::limits;
use leash_model::receipt::Receipt;
use leash_model::record::Record;

/// The pause between two checks of a lock. The death of a process ends the pause early.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

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

/// The result of a request to end sessions.
#[derive(Debug, Default)]
pub struct Ended {
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
    /// True to end them without grace.
    force: bool,
    /// Members that were told to end and waited for. A member that is still there would not end if it were told again.
    dealt_with: HashSet<String>,
    ended: Ended,
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
        Ending { places, proc, sweep_upstreams, targets, force, dealt_with: HashSet::new(), ended: Ended::default() }
    }

    /// Ends all current members, except those that another process ends. Returns true if there were any.
    pub fn round(&mut self, except: &dyn Fn(&Joined) -> bool) -> io::Result<bool> {
        let mut members = joined(self.places)?;
        members.retain(|member| self.wants(member) && !self.dealt_with.contains(member.run()) && !except(member));
        if members.is_empty() {
            return Ok(false);
        }
        // Tell all members first, so that they end at the same time.
        members.iter().for_each(|member| self.ask(member));
        let asked = Moment::now();
        let mut late: HashMap<String, String> = HashMap::new();
        for member in &members {
            if let Err(why) = self.wait(member, asked) {
                late.insert(member.run().to_owned(), why);
            }
        }
        // End the members without a living process of leash.
        let stores = Store::look_all(self.places).map_err(io::Error::other)?;
        let swept = sweep::sweep(&stores, Some(self.proc));
        self.ended.warnings.extend(swept.warnings);
        let mut read = Read::default();
        for member in members {
            // A receipt that the sweep has just made comes before one in a file.
            let found = swept.receipts.iter().find(|receipt| receipt.run == member.run()).cloned();
            match found.or_else(|| read.receipt(&member)) {
                Some(receipt) => self.ended.receipts.push(receipt),
                None => self.note_missing(&member, late.remove(member.run())),
            }
            self.dealt_with.insert(member.run().to_owned());
        }
        Ok(true)
    }

    /// Goes on until no member is left, also of those that join during the end. Returns the result of all rounds.
    pub fn rest(mut self) -> io::Result<Ended> {
        self.all_rounds(&|_| false)?;
        self.end_open()?;
        Ok(self.ended)
    }

    /// The same as [`Ending::rest`] for members only, except those that another process ends. The holders of sessions
    /// at HTTP servers end those.
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
        for member in joined(self.places)? {
            if self.wants(&member) && !self.dealt_with.contains(member.run()) && !except(&member) {
                self.give_up(&member, "new members join as fast as leash ends them");
            }
        }
        Ok(())
    }

    /// Ends upstream sessions whose process and keeper are both gone. A living gateway ends its own.
    fn end_open(&mut self) -> io::Result<()> {
        let books = Book::list_all(self.places)?;
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
            let why = format!("`leash {}`{pid} holds it, and ends it with its client", book.cover.command.name());
            let (session, run) = (book.session_of(entry).to_owned(), entry.session.clone());
            self.ended.unfinished.push(Unfinished { session, run, why });
        }
        Ok(())
    }

    /// Handles a member without a receipt.
    fn note_missing(&mut self, member: &Joined, late: Option<String>) {
        match (member, late) {
            (_, Some(why)) => self.give_up(member, &why),
            // It was told before its server ran, so there was no receipt to write.
            (Joined::Run(record, _), None) if record.leader.is_none() => {}
            // The sessions that it left open are ended after all members.
            (Joined::Connection(book, _), None) if book.open.is_empty() || !book.attended => {}
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
            // A stopped process of leash must run to receive the signal.
            let _ = attendant.signal(Signal::CONT);
            let _ = linux::queue(attendant.as_fd(), END_SIGNAL, value);
        }
    }

    /// Waits until no process of leash looks after the member any more. Its receipt is written before that.
    fn wait(&self, member: &Joined, asked: Moment) -> Result<(), String> {
        let mut give_up = asked + patience(member);
        let mut may_kill = self.force;
        // The lock decides, however new the member is. The processes only say when to check again.
        while self.is_attended(member) {
            let now = Moment::now();
            let attendants = attendants(member, self.proc);
            // A server may stop them again and again, but it can't prevent that they are killed.
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
            // A new run may not have recorded its keeper yet, and a keeper may go on after its process is gone.
            let next = (now + LOOK_AGAIN).min(give_up);
            let _ = rustix::event::poll(&mut fds, Some(&timeout_until(next, now)));
        }
        Ok(())
    }

    /// Kills the processes of leash that look after a run, so that the sweep that follows can end it. The server can
    /// write to the record. So a process counts as leash's only if it also holds the run's lock open.
    fn kill_attendants(&self, member: &Joined, attendants: &[Held]) {
        let Joined::Run(_, store) = member else { return };
        let is_ours = |held: &&Held| store.is_lock_open_in(member.run(), held.id.pid);
        let ours: Vec<&Held> = attendants.iter().filter(is_ours).collect();
        self.record_members(store, member.run(), &ours);
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
    fn record_members(&self, store: &Store, run: &str, ours: &[&Held]) {
        let Ok(entry) = store.take(run) else { return };
        let Ok(Some(mut record)) = entry.read() else { return };
        let mut family: Vec<i32> = ours.iter().map(|attendant| attendant.id.pid).collect();
        let below: Vec<i32> = family.iter().flat_map(|pid| self.proc.descendants(*pid).found).collect();
        family.extend(&below);
        for pid in below.iter().filter(|pid| !ours.iter().any(|attendant| attendant.id.pid == **pid)) {
            // Another process may have got the number since the walk. The process that has it now must still have a
            // parent in the tree.
            let held = Held::open(self.proc, *pid).filter(|held| family.contains(&held.stat.ppid));
            record.members.extend(held.map(|held| held.id).filter(|id| !record.members.contains(id)));
        }
        record.members.truncate(limits::RECORDED_MEMBERS);
        // If the disk is full, the sweep ends the members that were recorded before.
        let _ = entry.write(&record);
    }

    fn is_attended(&self, member: &Joined) -> bool {
        match member {
            Joined::Run(record, store) => sweep::is_attended(store, record, self.proc),
            Joined::Connection(book, _) => book.is_attended(),
        }
    }
}

/// True if there are any, and a signal or a tracer has stopped each of them.
fn all_stopped(attendants: &[Held], proc: &Proc) -> bool {
    let is_stopped = |held: &Held| proc.stat(held.id.pid).is_some_and(|stat| stat.is_stopped());
    !attendants.is_empty() && attendants.iter().all(is_stopped)
}

/// The longest time that a member may take to end.
fn patience(member: &Joined) -> Duration {
    match member {
        Joined::Run(record, _) => {
            Duration::from_millis(record.grace_ms).saturating_mul(2) + limits::GIVE_UP + limits::KEEPER_SLACK
        }
        Joined::Connection(..) => limits::DELETE_GIVE_UP + limits::KEEPER_SLACK,
    }
}

/// The processes of leash that look after a member, if they are still the recorded ones.
fn attendants(member: &Joined, proc: &Proc) -> Vec<Held> {
    let ids: Vec<Identity> = match member {
        Joined::Run(record, _) => of_run(record),
        Joined::Connection(book, _) => of_book(book),
    };
    ids.into_iter().filter_map(|id| Held::open_same(proc, id)).filter(|held| !held.stat.dead()).collect()
}

fn of_run(record: &Record) -> Vec<Identity> {
    record.supervisor.into_iter().chain(record.keeper).collect()
}
fn of_book(book: &Listed) -> Vec<Identity> {
    book.cover.process.into_iter().collect()
}

/// Receipt files, each read once.
#[derive(Default)]
struct Read {
    files: HashMap<PathBuf, Vec<Receipt>>,
}

impl Read {
    /// The newest receipt of a member. The member may write its receipts to another file than we do.
    fn receipt(&mut self, member: &Joined) -> Option<Receipt> {
        let path = match member {
            Joined::Run(record, _) => &record.receipts,
            Joined::Connection(book, _) => &book.cover.receipts,
        };
        let known = self
            .files
            .entry(path.clone())
            .or_insert_with(|| receipts::read(path).map(|(receipts, _)| receipts).unwrap_or_default());
        known.iter().rev().find(|receipt| is_of(receipt, member)).cloned()
    }
}

/// True if a receipt is about an open entry. A sweep records the entry, but not the process that had opened it.
fn is_end_of(receipt: &Receipt, entry: &Entry) -> bool {
    (&receipt.session, receipt.started_ms) == (&entry.session, entry.started_ms)
}

fn is_of(receipt: &Receipt, member: &Joined) -> bool {
    receipt.run == member.run()
}

#[cfg(test)]
mod tests;
