//! The upstream sessions that leash must end. A session is in the ledger and in the keeper's memory before the host
//! learns of it, and its end is recorded exactly once.

use std::{collections::BTreeMap, io, os::fd::OwnedFd, time::Duration};

use hyper::Uri;

use crate::machine::SessionNumber;
use crate::notices::Notices;
use leash_model::owner::Owner;
use leash_model::receipt::{EndedBy, Reason, Receipt, UpstreamEnd};
use leash_tree::ledger::book::{Book, Entry};
use leash_tree::ledger::receipts;
use leash_tree::places::Places;
use leash_upstream::delete::{DeleteResult, DeleteTarget, shown};
use leash_upstream::keeper::connection_facts::ConnectionFacts;
use leash_upstream::keeper::{HeldSession, KeeperMessage, KeeperOrders, KeeperProcess, add_end};

/// A session at the upstream that leash must end.
#[derive(Clone, Debug)]
pub(crate) enum UpstreamSession {
    /// A session with an id, which needs a DELETE.
    WithId(DeleteTarget),
    /// A session that ends when its stream is closed (HTTP+SSE).
    Stream(Uri),
}

impl UpstreamSession {
    fn end(&self, how: &DeleteResult) -> UpstreamEnd {
        match self {
            UpstreamSession::WithId(delete_target) => how.receipt(&delete_target.url, &delete_target.session_id),
            UpstreamSession::Stream(url) => how.receipt(url, ""),
        }
    }
}

/// Holds the upstream sessions until their end is recorded, and the ends of earlier sessions.
#[derive(Debug)]
pub(crate) struct UpstreamSessions {
    facts: ConnectionFacts,
    places: Places,
    book: Book,
    /// The owners that the keeper watches, too.
    owners: Vec<(Owner, OwnedFd)>,
    keeper: Option<KeeperProcess>,
    /// A message to the keeper was lost, so the keeper must get everything again.
    stale: bool,
    /// The number of the newest session.
    newest: SessionNumber,
    held: BTreeMap<SessionNumber, UpstreamSession>,
    /// The session in use.
    current: Option<SessionNumber>,
    /// The end of the session in use. The keeper learns of it only by the receipt.
    last_end: Option<UpstreamEnd>,
    /// The ledger has an entry for the session.
    entered: bool,
    ends: Vec<UpstreamEnd>,
}

impl UpstreamSessions {
    pub(crate) fn new(
        facts: ConnectionFacts,
        places: Places,
        book: Book,
        owners: Vec<(Owner, OwnedFd)>,
    ) -> UpstreamSessions {
        UpstreamSessions {
            facts,
            places,
            book,
            owners,
            keeper: None,
            stale: false,
            newest: 0,
            held: BTreeMap::new(),
            current: None,
            last_end: None,
            entered: false,
            ends: Vec::new(),
        }
    }

    /// Starts a keeper if there is none. The error is only a warning for the user: without a keeper, the ledger still
    /// has the session.
    pub(crate) fn prepare(&mut self) -> io::Result<()> {
        if self.keeper.as_mut().is_some_and(|keeper| !keeper.is_gone()) {
            return Ok(());
        }
        self.keeper = None;
        let (owners, descriptors): (Vec<Owner>, Vec<&OwnedFd>) =
            self.owners.iter().map(|(owner, descriptor)| (owner.clone(), descriptor)).unzip();
        let orders = KeeperOrders {
            runtime_dir: self.places.runtime_dir.clone(),
            book: self.book.run().to_owned(),
            receipts: self.places.receipts.clone(),
            connection_facts: Some(self.facts.clone()),
            owners,
            cover: None,
            takeover_ms: None,
        };
        self.keeper = Some(KeeperProcess::start(&self.places.program, &orders, self.book.lock(), &descriptors, None)?);
        self.stale = true;
        self.tell(&[])
    }

    /// Starts another keeper if the child process that ended was the keeper.
    pub(crate) fn restart_keeper(&mut self) -> io::Result<()> {
        if self.keeper.is_some() { self.prepare() } else { Ok(()) }
    }

    /// Adds a session and returns its number.
    pub(crate) fn add(&mut self, session: UpstreamSession) -> SessionNumber {
        self.newest += 1;
        self.held.insert(self.newest, session);
        self.newest
    }

    /// Makes a session the one in use. If there is a write error, leash uses the session anyway.
    pub(crate) fn hold(&mut self, session: Option<SessionNumber>) -> io::Result<()> {
        self.current = session;
        let written = self.enter();
        written.and(self.tell_of(session))
    }

    /// Tells the keeper of a session that the host will not use.
    pub(crate) fn hold_until_ended(&mut self, session: SessionNumber) -> io::Result<()> {
        self.tell_of(Some(session))
    }

    /// Records the agreed protocol version of the session in use.
    pub(crate) fn agreed(&mut self, version: &str) -> io::Result<()> {
        let Some(number) = self.current else { return Ok(()) };
        match self.held.get_mut(&number) {
            Some(UpstreamSession::WithId(delete_target)) if delete_target.version.as_deref() != Some(version) => {
                delete_target.version = Some(version.to_owned());
            }
            _ => return Ok(()),
        }
        self.enter().and(self.tell_of(Some(number)))
    }

    /// Replaces what is known about a session: the program has sent a request with other headers.
    pub(crate) fn renew(&mut self, session: SessionNumber, target: DeleteTarget) -> io::Result<()> {
        let Some(UpstreamSession::WithId(known)) = self.held.get_mut(&session) else { return Ok(()) };
        let is_written = known.version == target.version;
        *known = target;
        let written = if is_written || self.current != Some(session) { Ok(()) } else { self.enter() };
        written.and(self.tell_of(Some(session)))
    }

    /// Everything that the DELETE of a session needs. `None` if the session needs no DELETE.
    pub(crate) fn delete_target(&self, session: SessionNumber) -> Option<DeleteTarget> {
        match self.held.get(&session)? {
            UpstreamSession::WithId(delete_target) => Some(delete_target.clone()),
            UpstreamSession::Stream(_) => None,
        }
    }

    /// leash's own id for the session, and the server's name.
    pub(crate) fn names(&self) -> (String, String) {
        (self.facts.session.clone(), self.facts.name.clone())
    }

    /// Records that the upstream has already lost or closed a session.
    pub(crate) fn gone(&mut self, session: SessionNumber, how: &DeleteResult) -> io::Result<()> {
        let left = if self.current.take_if(|current| *current == session).is_some() { self.leave() } else { Ok(()) };
        left.and(self.ended(session, how))
    }

    /// Records the end of a session. If the DELETE was cut short, the keeper is not told and ends the session when this
    /// process exits. The keeper and the ledger keep the session in use until the receipt is written: if this process
    /// dies before that, the keeper or the next start ends the session.
    pub(crate) fn ended(&mut self, session: SessionNumber, how: &DeleteResult) -> io::Result<()> {
        let Some(end) = self.held.get(&session).map(|held| held.end(how)) else { return Ok(()) };
        if how.cut_short {
            return Ok(());
        }
        if self.current == Some(session) {
            self.last_end = Some(end);
            return Ok(());
        }
        add_end(&mut self.ends, end.clone());
        self.tell_end(session, end)
    }

    fn tell_end(&mut self, session: SessionNumber, end: UpstreamEnd) -> io::Result<()> {
        self.held.remove(&session);
        self.tell(&[KeeperMessage::Ended(key(session), Some(Box::new(end)))])
    }

    /// Tells the keeper that this process has begun to end the session itself.
    pub(crate) fn ending(&self) {
        if let Some(keeper) = &self.keeper {
            // A keeper that cannot read the message is stuck or dead, so it does nothing.
            let _ = keeper.tell(&KeeperMessage::Ending);
        }
    }

    /// Builds the receipt.
    pub(crate) fn receipt(&mut self, reason: Reason, took: Duration) -> Receipt {
        if let Some(end) = self.last_end.take() {
            add_end(&mut self.ends, end);
        }
        self.facts.receipt(reason, EndedBy::Gateway, took, self.ends.clone())
    }

    /// Leaves the sessions that were cut short to the keeper, which writes the receipt.
    pub(crate) fn leave_to_keeper(&mut self) -> io::Result<()> {
        match self.current.zip(self.last_end.take()) {
            Some((session, end)) => self.tell_end(session, end),
            None => Ok(()),
        }
    }

    /// Writes the receipt, if there is one, closes the ledger and dismisses the keeper. Call when everything is ended.
    /// Returns false if the machine lacks something that the receipt needs: the keeper was not told of an end, so it
    /// takes over when this process exits. Without a keeper, the next start does.
    pub(crate) fn finish(&mut self, receipt: Option<&Receipt>, notices: &Notices) -> bool {
        if let Some(receipt) = receipt {
            let path = &self.places.receipts;
            if let Err(error) = receipts::append_once(path, receipt) {
                notices.warn(format!("cannot write {}: {error}", path.display()));
                if receipts::is_shortage(&error) {
                    return false;
                }
            }
        }
        notices.check_written(self.close());
        true
    }

    fn close(&mut self) -> io::Result<()> {
        let written = self.leave();
        self.book.close();
        if let Some(keeper) = self.keeper.take() {
            keeper.dismiss();
        }
        written
    }

    fn hold_message(&self, number: SessionNumber, session: &UpstreamSession) -> io::Result<KeeperMessage> {
        let (name, started_ms) = (&self.facts.name, self.facts.started_ms);
        let lien = match session {
            UpstreamSession::WithId(delete_target) => HeldSession::of(name, started_ms, delete_target),
            UpstreamSession::Stream(url) => HeldSession::stream(name, started_ms, url),
        };
        KeeperMessage::hold(&key(number), &lien)
    }

    fn tell_of(&mut self, session: Option<SessionNumber>) -> io::Result<()> {
        let held = session.and_then(|number| Some((number, self.held.get(&number)?)));
        let hold_message = held.map(|(number, session)| self.hold_message(number, session)).transpose()?;
        self.tell(hold_message.as_slice())
    }

    /// Sends messages to the keeper. If a message was lost before, for instance because the keeper was stopped, sends
    /// everything again.
    fn tell(&mut self, messages: &[KeeperMessage]) -> io::Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let told = if self.stale {
            self.everything()
                .and_then(|messages| messages.iter().try_for_each(|hold_message| keeper.tell(hold_message)))
        } else {
            messages.iter().try_for_each(|hold_message| keeper.tell(hold_message))
        };
        self.stale = told.is_err();
        told
    }

    fn everything(&self) -> io::Result<Vec<KeeperMessage>> {
        let ended = self.ends.iter().map(|end| Ok(KeeperMessage::Ended(key(0), Some(Box::new(end.clone())))));
        let held = self.held.iter().map(|(number, session)| self.hold_message(*number, session));
        std::iter::once(Ok(KeeperMessage::Anew)).chain(ended).chain(held).collect()
    }

    /// Writes the session in use into the ledger. A session that ends with its stream needs no entry.
    fn enter(&mut self) -> io::Result<()> {
        let Some(delete_target) = self.current.and_then(|number| self.delete_target(number)) else {
            return self.leave();
        };
        let entry = Entry {
            session: self.facts.session.clone(),
            server: self.facts.name.clone(),
            url: shown(&delete_target.url),
            id: delete_target.session_id,
            version: delete_target.version,
            shown: self.facts.shown.clone(),
            started_ms: self.facts.started_ms,
        };
        if std::mem::replace(&mut self.entered, true) { self.book.change(&entry) } else { self.book.open(&entry) }
    }

    fn leave(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.entered) { self.book.over(&self.facts.session) } else { Ok(()) }
    }
}

/// Returns a session's key. Keys sort in the order of the sessions.
fn key(number: SessionNumber) -> Box<str> {
    format!("{number:020}").into()
}
