//! What is held upstream: in the book before the host learns of it, in the keeper's memory, and let go of exactly once.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use hyper::Uri;

use leash_model::owner::Owner;
use leash_model::receipt::{EndedBy, Reason, Receipt, UpstreamEnd};
use leash_tree::ledger::book::{Book, Entry};
use leash_tree::places::Places;
use leash_upstream::delete::{Deleted, Ticket, shown};
use leash_upstream::keeper::terms::Terms;
use leash_upstream::keeper::{Keeper, Lien, Orders, Word, name_end};

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

    fn end(&self, how: &Deleted) -> UpstreamEnd {
        match self {
            Claim::Session(ticket) => how.receipt(&ticket.url, &ticket.session_id),
            Claim::Stream(url) => how.receipt(url, ""),
        }
    }
}

/// A claim and its number, by which the keeper knows it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    number: u64,
    pub(super) claim: Claim,
}

/// Holds one claim at a time and those that it replaced until their DELETE is answered, and knows how the earlier ones ended.
#[derive(Debug)]
pub(super) struct Lease {
    terms: Terms,
    places: Places,
    book: Book,
    /// The owners that a keeper watches too.
    owners: Vec<(Owner, OwnedFd)>,
    keeper: Option<Keeper>,
    /// A message to the keeper was lost: it is told everything again.
    stale: bool,
    claim: Option<Held>,
    /// Claims whose end is under way.
    leaving: Vec<Held>,
    /// How many claims there were.
    claims: u64,
    /// The book names a session.
    entered: bool,
    ends: Vec<UpstreamEnd>,
}

impl Lease {
    pub(super) fn new(terms: Terms, places: Places, book: Book, owners: Vec<(Owner, OwnedFd)>) -> Lease {
        Lease {
            terms,
            places,
            book,
            owners,
            keeper: None,
            stale: false,
            claim: None,
            leaving: Vec::new(),
            claims: 0,
            entered: false,
            ends: Vec::new(),
        }
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
            runtime_dir: self.places.runtime_dir.clone(),
            book: self.book.run().to_owned(),
            receipts: self.places.receipts.clone(),
            terms: Some(self.terms.clone()),
            owners,
            cover: None,
            takeover_ms: None,
        };
        self.keeper = Some(Keeper::start(&self.places.program, &orders, self.book.lock(), &descriptors, None)?);
        self.stale = true;
        self.tell(&[])
    }

    /// A child died: if it was the keeper, there is another one now.
    pub(super) fn look_after_keeper(&mut self) -> io::Result<()> {
        if self.keeper.is_some() { self.prepare() } else { Ok(()) }
    }

    /// From now on this is held, and not what was before: that is returned, and its end is the caller's business. The error says
    /// what could not be written; the claim is held all the same.
    pub(super) fn hold(&mut self, claim: Option<Claim>) -> (Option<Held>, io::Result<()>) {
        let claim = claim.map(|claim| self.number(claim));
        let before = std::mem::replace(&mut self.claim, claim);
        self.leaving.extend(before.clone());
        let written = self.enter();
        (before, written.and(self.tell_of_claim()))
    }

    /// A session that was opened in vain is held until its end, which is the caller's business.
    pub(super) fn hold_until_ended(&mut self, claim: Claim) -> (Held, io::Result<()>) {
        let held = self.number(claim);
        self.leaving.push(held.clone());
        let word = self.word(&held);
        (held, word.and_then(|word| self.tell(&[word])))
    }

    fn number(&mut self, claim: Claim) -> Held {
        self.claims += 1;
        Held { number: self.claims, claim }
    }

    /// The version of the session is known now.
    pub(super) fn agreed(&mut self, agreed: &str) -> io::Result<()> {
        match &mut self.claim {
            Some(Held { claim: Claim::Session(ticket), .. }) if ticket.version.as_deref() != Some(agreed) => {
                ticket.version = Some(agreed.to_owned());
            }
            _ => return Ok(()),
        }
        self.enter().and(self.tell_of_claim())
    }

    /// leash's own id of the session, and the server's name.
    pub(super) fn names(&self) -> (String, String) {
        (self.terms.session.clone(), self.terms.name.clone())
    }

    /// What is held.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref().map(|held| &held.claim)
    }

    /// What was held is over already: the upstream forgot it, or closed it.
    pub(super) fn lost(&mut self, how: &Deleted) -> io::Result<()> {
        match self.claim.take() {
            Some(held) => self.leave().and(self.ended(&held, how)),
            None => Ok(()),
        }
    }

    /// A claim that is not held any more has ended. Where that was cut short the keeper is not told, and goes on when we are gone.
    pub(super) fn ended(&mut self, held: &Held, how: &Deleted) -> io::Result<()> {
        let end = held.claim.end(how);
        name_end(&mut self.ends, end.clone());
        if how.cut_short {
            return Ok(());
        }
        self.leaving.retain(|leaving| leaving.number != held.number);
        self.tell(&[Word::Ended(key(held.number), Some(Box::new(end)))])
    }

    /// The end has begun, and is in our hands.
    pub(super) fn ending(&self) {
        if let Some(keeper) = &self.keeper {
            // If it can't hear, it is stuck or dead: then it does nothing either.
            let _ = keeper.tell(&Word::Ending);
        }
    }

    /// The receipt of the end, with what became of the claim that was held last. The keeper and the book still know that one: if we
    /// die before the receipt is written, they see to it.
    pub(super) fn receipt(&mut self, reason: Reason, took: Duration, last: Option<&Deleted>) -> Receipt {
        if let Some((held, how)) = self.claim.as_ref().zip(last) {
            name_end(&mut self.ends, held.claim.end(how));
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

    fn word(&self, held: &Held) -> io::Result<Word> {
        let (name, started_ms) = (&self.terms.name, self.terms.started_ms);
        let lien = match &held.claim {
            Claim::Session(ticket) => Lien::of(name, started_ms, ticket),
            Claim::Stream(url) => Lien::stream(name, started_ms, url),
        };
        Word::hold(&key(held.number), &lien)
    }

    fn tell_of_claim(&mut self) -> io::Result<()> {
        let word = self.claim.as_ref().map(|held| self.word(held)).transpose()?;
        self.tell(word.as_slice())
    }

    /// Tells the keeper. If a message was lost, because the keeper was stopped for instance, it is told everything again.
    fn tell(&mut self, words: &[Word]) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let told = if self.stale {
            self.everything().and_then(|words| words.iter().try_for_each(|word| keeper.tell(word)))
        } else {
            words.iter().try_for_each(|word| keeper.tell(word))
        };
        self.stale = told.is_err();
        told
    }

    fn everything(&self) -> io::Result<Vec<Word>> {
        let ended = self.ends.iter().map(|end| Ok(Word::Ended(key(0), Some(Box::new(end.clone())))));
        let held = self.leaving.iter().chain(&self.claim).map(|held| self.word(held));
        std::iter::once(Ok(Word::Anew)).chain(ended).chain(held).collect()
    }

    /// Writes the claim into the book; one that ends by itself is not worth a line.
    fn enter(&mut self) -> io::Result<()> {
        let Some(Held { claim: Claim::Session(ticket), .. }) = &self.claim else { return self.leave() };
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

/// Keys sort as the claims were made.
fn key(number: u64) -> Box<str> {
    format!("{number:020}").into()
}
