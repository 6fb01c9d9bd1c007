//! The claims: upstream sessions that leash must end. A claim is in the ledger and in the keeper's memory before the
//! host learns of it, and leash ends it exactly once.

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
use leash_upstream::keeper::{HeldSession, Keeper, Message, Orders, name_end};

/// A session at the upstream that leash must end.
#[derive(Clone, Debug)]
pub(super) enum Claim {
    /// A session with an id, which needs a DELETE.
    Session(Ticket),
    /// A session that ends when its connection is closed.
    Stream(Uri),
}

impl Claim {
    /// The session's id, if it has one.
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

/// A claim with the number by which the keeper knows it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    number: u64,
    pub(super) claim: Claim,
}

/// Holds the current claim, the replaced claims until their DELETE is answered, and the ends of earlier claims.
#[derive(Debug)]
pub(super) struct Lease {
    terms: Terms,
    places: Places,
    book: Book,
    /// The owners that the keeper watches, too.
    owners: Vec<(Owner, OwnedFd)>,
    keeper: Option<Keeper>,
    /// A message to the keeper was lost, so the keeper must get everything again.
    stale: bool,
    claim: Option<Held>,
    /// Claims that are ending.
    leaving: Vec<Held>,
    /// The number of claims so far.
    claims: u64,
    /// The ledger has an entry for the session.
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

    /// Starts a keeper if there is none. The error is only a warning for the user: without a keeper, the ledger still
    /// has the session.
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

    /// Starts another keeper if the child process that ended was the keeper.
    pub(super) fn look_after_keeper(&mut self) -> io::Result<()> {
        if self.keeper.is_some() { self.prepare() } else { Ok(()) }
    }

    /// Replaces the current claim. Returns the previous claim, which the caller must end. If there is a write error,
    /// the new claim is held anyway.
    pub(super) fn hold(&mut self, claim: Option<Claim>) -> (Option<Held>, io::Result<()>) {
        let claim = claim.map(|claim| self.number(claim));
        let before = std::mem::replace(&mut self.claim, claim);
        self.leaving.extend(before.clone());
        let written = self.enter();
        (before, written.and(self.tell_of_claim()))
    }

    /// Holds a session that the host does not need any more. The caller must end it.
    pub(super) fn hold_until_ended(&mut self, claim: Claim) -> (Held, io::Result<()>) {
        let held = self.number(claim);
        self.leaving.push(held.clone());
        let message = self.message(&held);
        (held, message.and_then(|message| self.tell(&[message])))
    }

    fn number(&mut self, claim: Claim) -> Held {
        self.claims += 1;
        Held { number: self.claims, claim }
    }

    /// Records the agreed protocol version.
    pub(super) fn agreed(&mut self, agreed: &str) -> io::Result<()> {
        match &mut self.claim {
            Some(Held { claim: Claim::Session(ticket), .. }) if ticket.version.as_deref() != Some(agreed) => {
                ticket.version = Some(agreed.to_owned());
            }
            _ => return Ok(()),
        }
        self.enter().and(self.tell_of_claim())
    }

    /// leash's own id for the session, and the server's name.
    pub(super) fn names(&self) -> (String, String) {
        (self.terms.session.clone(), self.terms.name.clone())
    }

    /// The current claim.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref().map(|held| &held.claim)
    }

    /// Records that the upstream has already lost or closed the current claim.
    pub(super) fn lost(&mut self, how: &Deleted) -> io::Result<()> {
        match self.claim.take() {
            Some(held) => self.leave().and(self.ended(&held, how)),
            None => Ok(()),
        }
    }

    /// Records the end of a claim that is no longer current. If the DELETE was cut short, the keeper is not told and
    /// ends the claim when this process exits.
    pub(super) fn ended(&mut self, held: &Held, how: &Deleted) -> io::Result<()> {
        let end = held.claim.end(how);
        name_end(&mut self.ends, end.clone());
        if how.cut_short {
            return Ok(());
        }
        self.leaving.retain(|leaving| leaving.number != held.number);
        self.tell(&[Message::Ended(key(held.number), Some(Box::new(end)))])
    }

    /// Tells the keeper that this process has begun to end the session itself.
    pub(super) fn ending(&self) {
        if let Some(keeper) = &self.keeper {
            // A keeper that cannot read the message is stuck or dead, so it does nothing.
            let _ = keeper.tell(&Message::Ending);
        }
    }

    /// Builds the receipt, with the end of the last claim. The keeper and the ledger still have that claim: if this
    /// process dies before it writes the receipt, the keeper or the next start ends the claim.
    pub(super) fn receipt(&mut self, reason: Reason, took: Duration, last: Option<&Deleted>) -> Receipt {
        if let Some((held, how)) = self.claim.as_ref().zip(last) {
            name_end(&mut self.ends, held.claim.end(how));
        }
        self.terms.receipt(reason, EndedBy::Gateway, took, self.ends.clone())
    }

    /// Closes the ledger and dismisses the keeper. Call when everything is ended and recorded.
    pub(super) fn close(&mut self) -> io::Result<()> {
        let written = self.leave();
        self.book.close();
        if let Some(keeper) = self.keeper.take() {
            keeper.dismiss();
        }
        written
    }

    fn message(&self, held: &Held) -> io::Result<Message> {
        let (name, started_ms) = (&self.terms.name, self.terms.started_ms);
        let session = match &held.claim {
            Claim::Session(ticket) => HeldSession::of(name, started_ms, ticket),
            Claim::Stream(url) => HeldSession::stream(name, started_ms, url),
        };
        Message::hold(&key(held.number), &session)
    }

    fn tell_of_claim(&mut self) -> io::Result<()> {
        let message = self.claim.as_ref().map(|held| self.message(held)).transpose()?;
        self.tell(message.as_slice())
    }

    /// Sends messages to the keeper. If a message was lost before, for instance because the keeper was stopped, sends
    /// everything again.
    fn tell(&mut self, messages: &[Message]) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let told = if self.stale {
            self.everything().and_then(|messages| messages.iter().try_for_each(|message| keeper.tell(message)))
        } else {
            messages.iter().try_for_each(|message| keeper.tell(message))
        };
        self.stale = told.is_err();
        told
    }

    fn everything(&self) -> io::Result<Vec<Message>> {
        let ended = self.ends.iter().map(|end| Ok(Message::Ended(key(0), Some(Box::new(end.clone())))));
        let held = self.leaving.iter().chain(&self.claim).map(|held| self.message(held));
        std::iter::once(Ok(Message::Anew)).chain(ended).chain(held).collect()
    }

    /// Writes the claim into the ledger. A claim that ends with its connection needs no entry.
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

/// Returns a claim's key. Keys sort in the order of the claims.
fn key(number: u64) -> Box<str> {
    format!("{number:020}").into()
}
