//! What is held upstream: in the book before the host learns of it, in the keeper's memory, and let go of exactly once.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use hyper::Uri;

use super::super::delete::{Deleted, Ticket, shown};
use super::keeper::{Keeper, Lien, Orders, Word};
use super::terms::Terms;
use crate::ledger::book::{Book, Entry};
use crate::ledger::receipt::{EndedBy, Reason, Receipt, UpstreamEnd};
use crate::limits;
use crate::owner::Owner;
use crate::tree::Places;

/// Something at the upstream that must be ended.
#[derive(Clone, Debug)]
pub(super) enum Claim {
    /// A session with an id: DELETE.
    Session(Ticket),
    /// A session that is its connection: closing that is all.
    Stream(Uri),
}

impl Claim {
    /// The session's id, where it has one.
    pub(super) fn id(&self) -> Option<&str> {
        match self {
            Claim::Session(ticket) => Some(&ticket.session_id),
            Claim::Stream(_) => None,
        }
    }
}

/// Holds at most one claim at a time, and knows what became of the earlier ones.
#[derive(Debug)]
pub(super) struct Lease {
    terms: Terms,
    places: Places,
    book: Book,
    /// The owners that a keeper watches too.
    owners: Vec<(Owner, OwnedFd)>,
    keeper: Option<Keeper>,
    claim: Option<Claim>,
    /// The book names a session.
    entered: bool,
    ends: Vec<UpstreamEnd>,
}

impl Lease {
    pub(super) fn new(terms: Terms, places: Places, book: Book, owners: Vec<(Owner, OwnedFd)>) -> Lease {
        Lease { terms, places, book, owners, keeper: None, claim: None, entered: false, ends: Vec::new() }
    }

    /// Sees to it that there is a keeper, before there is something to keep. The error is for people: without a keeper the
    /// book remains.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        if self.keeper.as_mut().is_some_and(|keeper| !keeper.is_gone()) {
            return Ok(());
        }
        self.keeper = None;
        let (owners, descriptors): (Vec<Owner>, Vec<&OwnedFd>) =
            self.owners.iter().map(|(owner, descriptor)| (owner.clone(), descriptor)).unzip();
        let orders = Orders {
            terms: self.terms.clone(),
            runtime_dir: self.places.runtime_dir.clone(),
            book: self.book.run().to_owned(),
            owners,
        };
        let keeper = Keeper::start(&self.places.program, &orders, self.book.lock(), &descriptors)?;
        keeper.tell(&Word::Hold(self.lien()))?;
        self.keeper = Some(keeper);
        Ok(())
    }

    /// A child died: if it was the keeper, there is another one now.
    pub(super) fn look_after_keeper(&mut self) -> io::Result<()> {
        if self.keeper.is_some() { self.prepare() } else { Ok(()) }
    }

    /// From now on this is held, and not what was before: that is returned, for its end is the caller's business. The error says
    /// what could not be written; the claim is held all the same.
    pub(super) fn hold(&mut self, claim: Option<Claim>) -> (Option<Claim>, io::Result<()>) {
        let before = std::mem::replace(&mut self.claim, claim);
        let written = self.enter();
        (before, written.and(self.tell_keeper()))
    }

    /// The version of the session is known now.
    pub(super) fn agreed(&mut self, agreed: &str) -> io::Result<()> {
        match &mut self.claim {
            Some(Claim::Session(ticket)) if ticket.version.as_deref() != Some(agreed) => {
                ticket.version = Some(agreed.to_owned());
            }
            _ => return Ok(()),
        }
        self.enter().and(self.tell_keeper())
    }

    /// leash's own id of the session, and the server's name.
    pub(super) fn names(&self) -> (String, String) {
        (self.terms.session.clone(), self.terms.name.clone())
    }

    /// What is held.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// What was held is over already: the upstream forgot it, or closed it.
    pub(super) fn lost(&mut self, how: &Deleted) -> io::Result<()> {
        match self.claim.take() {
            Some(claim) => self.note(&claim, how),
            None => return Ok(()),
        }
        self.leave().and(self.tell_keeper())
    }

    /// What became of a claim that was replaced.
    pub(super) fn note(&mut self, claim: &Claim, how: &Deleted) {
        if self.ends.len() == limits::ENDS_NAMED {
            // The first and the newest ones are told.
            self.ends.remove(1);
        }
        self.ends.push(match claim {
            Claim::Session(ticket) => how.receipt(&ticket.url, &ticket.session_id),
            Claim::Stream(url) => how.receipt(url, ""),
        });
    }

    /// The end has begun, and is in our hands.
    pub(super) fn ending(&self) {
        if let Some(keeper) = &self.keeper {
            // If it can't hear, it is stuck or dead: then it does nothing either.
            let _ = keeper.tell(&Word::Ending);
        }
    }

    /// The receipt of the end, with what became of what was held last. The keeper and the book still know of that: if we die
    /// before the receipt is written, they see to it.
    pub(super) fn receipt(&mut self, reason: Reason, took: Duration, last: Option<&Deleted>) -> Receipt {
        if let Some((claim, how)) = self.claim.clone().zip(last) {
            self.note(&claim, how);
        }
        self.terms.receipt(reason, EndedBy::Gateway, took, self.ends.clone())
    }

    /// All is ended and written down.
    pub(super) fn close(&mut self) -> io::Result<()> {
        let written = self.leave();
        self.book.close();
        if let Some(keeper) = self.keeper.take() {
            keeper.dismiss();
        }
        written
    }

    fn lien(&self) -> Option<Lien> {
        self.claim.as_ref().map(|claim| match claim {
            Claim::Session(ticket) => Lien::of(ticket),
            Claim::Stream(url) => Lien::stream(url),
        })
    }

    fn tell_keeper(&self) -> io::Result<()> {
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.tell(&Word::Hold(self.lien())))
    }

    /// Writes the claim into the book; one that ends by itself is not worth a line.
    fn enter(&mut self) -> io::Result<()> {
        let Some(Claim::Session(ticket)) = &self.claim else { return self.leave() };
        let entry = Entry {
            session: self.terms.session.clone(),
            server: self.terms.name.clone(),
            url: shown(&ticket.url),
            id: ticket.session_id.clone(),
            version: ticket.version.clone(),
            shown: self.terms.shown.clone(),
            started_ms: self.terms.started_ms,
        };
        if std::mem::replace(&mut self.entered, true) { self.book.change(&entry) } else { self.book.open(&entry) }
    }

    fn leave(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.entered) { self.book.over(&self.terms.session) } else { Ok(()) }
    }
}
