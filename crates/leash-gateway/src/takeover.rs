//! Takes the sessions of a killed gateway over from its keeper. The clients notice nothing.
//!
//! The new gateway takes the book, with all open sessions in it, in one step (`Book::own`). If the new gateway dies
//! before that step, the dead gateway's keeper ends the sessions. After it, the new gateway's keeper does, which was
//! told everything before the step.

use std::{collections::HashMap, net::SocketAddr, os::unix::net::UnixStream, rc::Rc};

use crate::{config::Settings, guard, state::gateway::Gateway, state::keeper_link};
use leash_tree::ledger::book::{Book, BookCommand, BookError, Cover, Entry, Listed};
use leash_tree::platform::identity::{self, boot_id};
use leash_tree::{places::Places, platform::proc::Proc};
use leash_upstream::keeper::handover::{self, Handover};
use leash_upstream::keeper::{HeldSession, process};
use leash_upstream::{notice::Notice, sweep};

/// The sessions that were taken over.
pub(crate) struct InheritedSessions {
    open: Vec<Entry>,
    sessions: HashMap<Box<str>, HeldSession>,
    /// The dead gateway's keeper waits until this is dropped.
    keeper: UnixStream,
}

/// Returns the book of a killed gateway that listened at this address, and the sessions from its keeper. `None` if
/// there is no such gateway, or its keeper is gone.
pub(crate) fn ask(settings: &Settings, places: &Places, address: SocketAddr) -> Option<(Book, InheritedSessions)> {
    if !keeper_link::takes_over(settings) {
        return None;
    }
    let proc = Proc::own().ok()?;
    let books = Book::list(&places.runtime_dir).ok()?;
    books.iter().rev().filter(|book| is_predecessor(book, places, address, &proc)).find_map(|book| {
        let Handover { keeper, lock, sessions } = handover::take_over(&book.handover_socket()).ok()?;
        let told = sessions.iter().map(|(key, held)| (&**key, held));
        let unwritten = |open: &[Entry]| process::unwritten(told, open, &book.cover.receipts);
        let (adopted, open) = Book::adopt(places, &book.cover, lock, unwritten).ok()?;
        Some((adopted, InheritedSessions { open, sessions, keeper }))
    })
}

/// True if a book belongs to a dead gateway at this address with a living keeper and the same file for receipts.
fn is_predecessor(book: &Listed, places: &Places, address: SocketAddr, proc: &Proc) -> bool {
    let Cover { boot, process, command, receipts, .. } = &book.cover;
    let is_dead = process.is_some_and(|process| !identity::is_alive(process, proc));
    let is_alike = *command == (BookCommand::Serve { listen: Some(address) }) && *receipts == places.receipts;
    book.attended && *boot == boot_id() && is_dead && is_alike
}

/// Resumes every session that can be resumed, and ends the others.
pub(crate) fn resume_sessions(gateway: &Rc<Gateway>, inherited: InheritedSessions) -> Result<(), BookError> {
    let InheritedSessions { open, mut sessions, keeper } = inherited;
    let receipted =
        if open.is_empty() { sweep::Receipted::new() } else { sweep::receipted_in([&*gateway.places.receipts]) };
    let (mut taken, mut remaining) = (0, Vec::new());
    for entry in open {
        let held = sessions.remove(&*entry.session);
        // A keeper that was stopped for a while may know less than the book. A session with a receipt is over.
        let is_latest = |held: &HeldSession| held.entry(&entry.session).as_ref() == Some(&entry);
        let goes_on = held.as_ref().filter(|held| is_latest(held) && !sweep::has_ended(&receipted, &entry));
        if goes_on.is_some_and(|held| guard::resume(gateway, &entry, held)) {
            taken += 1;
            continue;
        }
        let access = held.as_ref().and_then(HeldSession::access);
        if let Some(held) = held {
            gateway.keeper_link.hold_refused(&entry.session, held.resumable(None));
        }
        remaining.push((entry, access));
    }
    gateway.book.own()?;
    drop(keeper);
    gateway.tell(|| Notice::TakenOver(taken));
    super::sweep::end_remaining(gateway, remaining, receipted);
    Ok(())
}
