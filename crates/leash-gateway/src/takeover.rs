//! A gateway in the place of a killed one: it takes the sessions over from that one's keeper, and their clients notice nothing.
//!
//! It takes the book, with all that is open in it, and in one step (`Book::own`): before it the dead gateway's keeper ends what is open
//! when this process dies, and after it this one's own keeper, which was told everything before.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use super::gateway::Gateway;
use super::guard;
use super::keeping;
use crate::config::Settings;
use leash_tree::ledger::book::{Book, BookError, Cover, Entry, Listed};
use leash_tree::places::Places;
use leash_tree::platform::identity::{self, boot_id};
use leash_tree::platform::proc::Proc;
use leash_upstream::keeper::handover;
use leash_upstream::keeper::handover::Given;
use leash_upstream::keeper::{Lien, process};
use leash_upstream::notice::Notice;
use leash_upstream::sweep;

/// What was taken over.
pub(crate) struct Inherited {
    open: Vec<Entry>,
    liens: HashMap<Box<str>, Lien>,
    /// The dead gateway's keeper waits until this is dropped.
    keeper: UnixStream,
}

/// The book of a killed gateway that listened here, and what its keeper knows; `None` where there is none, or not any more.
pub(crate) fn ask(settings: &Settings, places: &Places, address: SocketAddr) -> Option<(Book, Inherited)> {
    if !keeping::takes_over(settings) {
        return None;
    }
    let proc = Proc::own().ok()?;
    let books = Book::list(&places.runtime_dir).ok()?;
    books.iter().rev().filter(|book| is_predecessor(book, places, address, &proc)).find_map(|book| {
        let Given { keeper, lock, liens } = handover::ask(&book.door(&places.runtime_dir)).ok()?;
        let told = liens.iter().map(|(key, lien)| (&**key, lien));
        let unwritten = |open: &[Entry]| process::unwritten(told, open, &book.cover.receipts);
        let (adopted, open) = Book::adopt(places, &book.cover, lock, unwritten).ok()?;
        Some((adopted, Inherited { open, liens, keeper }))
    })
}

/// Whether a book is that of a dead gateway at this address, whose keeper lives, and whose receipts go where ours go.
fn is_predecessor(book: &Listed, places: &Places, address: SocketAddr, proc: &Proc) -> bool {
    let Cover { boot, process, command, listen, receipts, .. } = &book.cover;
    let is_dead = process.is_some_and(|process| !identity::is_alive(process, proc));
    let is_alike = command == "serve" && *listen == Some(address) && *receipts == places.receipts;
    book.attended && *boot == boot_id() && is_dead && is_alike
}

/// Goes on with every session that can go on, and ends the others.
pub(crate) fn go_on(gateway: &Rc<Gateway>, inherited: Inherited) -> Result<(), BookError> {
    let Inherited { open, mut liens, keeper } = inherited;
    let told = if open.is_empty() { sweep::Told::new() } else { sweep::told_in([&*gateway.places.receipts]) };
    let (mut taken, mut rest) = (0, Vec::new());
    for entry in open {
        let lien = liens.remove(&*entry.session);
        // A keeper that was stopped for a while may know less than the book; and what has a receipt is over.
        let is_latest = |lien: &Lien| lien.entry(&entry.session).as_ref() == Some(&entry);
        let goes_on = lien.as_ref().filter(|lien| is_latest(lien) && !sweep::has_ended(&told, &entry));
        if goes_on.is_some_and(|lien| guard::resume(gateway, &entry, lien)) {
            taken += 1;
            continue;
        }
        let known = lien.as_ref().and_then(Lien::known);
        if let Some(lien) = lien {
            gateway.keeping.hold_refused(&entry.session, lien.staying(None));
        }
        rest.push((entry, known));
    }
    gateway.book.own()?;
    drop(keeper);
    gateway.tell(|| Notice::TakenOver(taken));
    super::sweep::rest(gateway, rest, told);
    Ok(())
}
