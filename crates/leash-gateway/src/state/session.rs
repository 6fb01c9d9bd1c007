//! A running client session: the driver of [`leash_model::client_session`].

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::{any::Any, future::Future, time::Duration};

use tokio::sync::Notify;

use super::gateway::{Gateway, SessionSlot};
use super::{backend::SessionHolding, known_client::KnownClient, server::Server};
use crate::connection::{ClientConnection, ConnectionUser, Principal};
use crate::respond::{self, Answer};
use crate::timers::{Timed, Timer};
use crate::{budget::BudgetClient, call::Call, config::OwnerPolicy, notified::wait_until};
use leash_model::client_session::{Effect, Event, SessionLife, State};
use leash_model::clock::{self, Moment};
use leash_model::receipt::{Reason, Receipt};
use leash_model::{duration, id, identity::Identity, limits};
use leash_tree::owner::peer::{Holders, UnknownReason};
use leash_tree::{owner::peer::watch::WatchId, platform::identity::HeldProcess, platform::proc::Proc};
use leash_upstream::keeper::{Headers, ResumeFacts};
use leash_upstream::notice::Notice;

/// A client session.
pub(crate) struct ClientSession {
    /// leash's own id for it, in the ledger and in receipts.
    pub(crate) id: Rc<str>,
    pub(crate) server: Rc<Server>,
    /// The principal that opened it; no other may use it.
    pub(crate) principal: Principal,
    /// The client that it is counted for.
    pub(crate) client: BudgetClient,
    pub(crate) started_ms: u64,
    /// The client as listings and receipts show it.
    pub(crate) known_client: KnownClient,
    /// The requests that the client has sent.
    pub(crate) calls: Cell<u64>,
    timer: RefCell<Option<Timer>>,
    gateway: Weak<Gateway>,
    slot: RefCell<Option<Rc<SessionSlot>>>,
    /// The id that the client presents; leash's own id until the server gives another.
    token: RefCell<Rc<str>>,
    life: RefCell<SessionLife>,
    holding: OnceCell<Box<dyn SessionHolding>>,
    owners: RefCell<Vec<WatchedOwner>>,
    /// The client's connection that it was used on last.
    connection: RefCell<Option<Rc<ClientConnection>>>,
    /// The number of running searches for owners; `searched` is notified when one ends.
    searches: Cell<u32>,
    searched: Notify,
    /// True if the client closed the last connection before leash found a process at its other end.
    missed: Cell<bool>,
    /// Connections whose process could not be found while another process of the client was alive.
    doubtful: RefCell<Vec<Rc<ClientConnection>>>,
    /// Connections whose owners were remembered, until a search confirms them.
    unconfirmed: RefCell<Vec<Rc<ClientConnection>>>,
    /// True once its start was counted and reported.
    announced: Cell<bool>,
    over: Notify,
    /// The receipt, once its end has written or received it.
    receipt: OnceCell<Box<Receipt>>,
}

/// A living client process of a session.
struct WatchedOwner {
    identity: Identity,
    watch: WatchId,
    /// True if the process has begun a newer session at the same server.
    moved_on: bool,
}

/// The parts of a new session.
pub(crate) struct SessionStart {
    pub(crate) id: Rc<str>,
    pub(crate) token: Rc<str>,
    pub(crate) principal: Principal,
    pub(crate) client: BudgetClient,
    pub(crate) known_client: KnownClient,
    pub(crate) started_ms: u64,
    pub(crate) life: SessionLife,
}

impl ClientSession {
    /// Begins a session for a client's `initialize`, if there is room for one.
    pub(crate) fn open(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call) -> Result<Rc<ClientSession>, Answer> {
        let session = ClientSession::begin(gateway, server, call)?;
        session.announce(gateway);
        Ok(session)
    }

    /// The same, if the server decides whether there will be a session at all. The session is not reported before it
    /// ends or is [announced](ClientSession::announce); it may also be [discarded](ClientSession::discard).
    pub(crate) fn begin(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call) -> Result<Rc<ClientSession>, Answer> {
        let slot = gateway.admit(server, call.client)?;
        let id: Rc<str> = server.job.as_ref().map_or_else(id::random, |job| job.next_session()).into();
        // The id that a client presents must be hard to guess, and the id of a job is no secret.
        let token: Rc<str> = if server.job.is_some() { id::random().into() } else { Rc::clone(&id) };
        let (principal, client, started_ms) = (call.principal, call.client, clock::unix_ms());
        let life = SessionLife::begin(Moment::on_runtime());
        let known_client = KnownClient::at(Some(call.peer));
        known_client.introduced(&gateway.book, &call.body);
        let start = SessionStart { id, token, principal, client, known_client, started_ms, life };
        let session = ClientSession::make(gateway, server, slot, start);
        session.used_by(call);
        session.apply(Event::Tick);
        Ok(session)
    }

    /// Continues a session that a killed gateway had open for this client, if there is room for it. Writes and reports
    /// nothing.
    pub(crate) fn resume(gateway: &Rc<Gateway>, server: &Rc<Server>, start: SessionStart) -> Option<Rc<ClientSession>> {
        let slot = gateway.admit(server, start.client).ok()?;
        let session = ClientSession::make(gateway, server, slot, start);
        session.announced.set(true);
        gateway.metrics.session_opened(&server.bucket);
        Some(session)
    }

    /// Restores the owners that the killed gateway knew.
    pub(crate) fn resume_owners(self: &Rc<Self>, resume_facts: &ResumeFacts) {
        if resume_facts.unknown_client {
            self.apply(Event::OwnerUnknown);
        }
        let (proc, mut dead) = (Proc::own(), Vec::from_iter(resume_facts.lost));
        for identity in &resume_facts.owners {
            match proc.as_ref().map(|proc| HeldProcess::open_same(proc, *identity)) {
                Ok(Some(process)) => self.owned_by(&process),
                Ok(None) => dead.push(identity.pid),
                Err(_) => self.apply(Event::OwnerUnknown),
            }
        }
        // The dead owners come after the living ones: a dead owner ends the session only if it was the last one.
        dead.into_iter().for_each(|pid| self.lost(pid));
        self.apply(Event::Tick);
    }

    /// Notes a client process that exited before leash could watch it.
    fn lost(self: &Rc<Self>, pid: i32) {
        self.apply(Event::OwnerFound);
        self.apply(Event::OwnerGone(pid));
    }

    /// The state that another gateway needs to continue the session; `None` until `initialize` is answered and once it
    /// is ending.
    pub(crate) fn resume_facts(&self) -> Option<ResumeFacts> {
        if !self.is_live() || self.server.job.is_some() {
            return None;
        }
        let life = self.life.borrow();
        let born = life.born().since(Moment::from_boot(Duration::ZERO));
        Some(ResumeFacts {
            token: self.token().to_string(),
            credentials: Headers::default(),
            uid: self.principal.uid,
            origin: self.client.origin,
            owners: self.owners.borrow().iter().map(|owner| owner.identity).collect(),
            lost: life.lost(),
            unknown_client: life.unknown_client(),
            client: Some(self.known_client.get()),
            born_ms: duration::as_ms(born),
            revival: None,
        })
    }

    fn make(gateway: &Rc<Gateway>, server: &Rc<Server>, slot: SessionSlot, start: SessionStart) -> Rc<ClientSession> {
        let session = Rc::new(ClientSession {
            id: start.id,
            server: Rc::clone(server),
            principal: start.principal,
            client: start.client,
            started_ms: start.started_ms,
            known_client: start.known_client,
            calls: Cell::new(0),
            timer: RefCell::default(),
            gateway: Rc::downgrade(gateway),
            slot: RefCell::new(Some(Rc::new(slot))),
            token: RefCell::new(Rc::clone(&start.token)),
            life: RefCell::new(start.life),
            holding: OnceCell::new(),
            owners: RefCell::default(),
            connection: RefCell::default(),
            searches: Cell::new(0),
            searched: Notify::new(),
            missed: Cell::new(false),
            doubtful: RefCell::default(),
            unconfirmed: RefCell::default(),
            announced: Cell::new(false),
            over: Notify::new(),
            receipt: OnceCell::new(),
        });
        server.sessions.borrow_mut().insert(start.token, Rc::clone(&session));
        session
    }

    /// Counts the session and reports its start.
    pub(crate) fn announce(&self, gateway: &Gateway) {
        if !self.announced.replace(true) {
            gateway.metrics.session_opened(&self.server.bucket);
            let (session, server) = (self.id.to_string(), self.server.name.to_string());
            gateway.tell(|| Notice::Opened { session, server, client: Some(self.known_client.get()) });
        }
    }

    /// Removes a session that the server did not open, as if it had never existed. It must hold nothing.
    pub(crate) fn discard(self: &Rc<Self>) {
        let Some(gateway) = self.gateway.upgrade().filter(|_| self.usable()) else { return };
        let (now, times) = (Moment::on_runtime(), self.server.times());
        // Brings the machine to its end, but without the usual effects.
        for event in [Event::End(Reason::NotInitialized), Event::Released] {
            self.life.borrow_mut().apply(event, now, &times);
        }
        self.forget(&gateway);
        drop(self.slot.take());
        self.over.notify_waiters();
    }

    /// Its slot, for a task that may outlast it.
    pub(crate) fn slot(&self) -> Option<Rc<SessionSlot>> {
        self.slot.borrow().clone()
    }

    /// The id that the client presents.
    pub(crate) fn token(&self) -> Rc<str> {
        Rc::clone(&self.token.borrow())
    }

    /// Its holding, once it has one.
    pub(crate) fn holding(&self) -> Option<&dyn SessionHolding> {
        self.holding.get().map(|holding| &**holding)
    }

    /// Its holding, if it is of this kind.
    pub(crate) fn holding_as<H: SessionHolding>(&self) -> Option<&H> {
        (self.holding()? as &dyn Any).downcast_ref()
    }

    /// True if the call comes from the principal that opened it: the same credential and, on this machine, the same
    /// user.
    pub(crate) fn is_of(&self, call: &Call) -> bool {
        self.principal == call.principal
    }

    /// True if requests may use it.
    pub(crate) fn usable(&self) -> bool {
        self.life.borrow().usable()
    }

    /// True if `initialize` was answered and its end has not begun.
    pub(crate) fn is_live(&self) -> bool {
        *self.life.borrow().state() == State::Live
    }

    /// The time since its last request; `None` while one is in flight, and before `initialize` is answered.
    pub(crate) fn idle(&self, now: Moment) -> Option<Duration> {
        self.life.borrow().idle(now)
    }

    /// Gives the session its holding. If the session ended meanwhile, releases the holding at once and returns false.
    pub(crate) fn hold(self: &Rc<Self>, holding: impl SessionHolding) -> bool {
        if self.holding.set(Box::new(holding)).is_err() {
            debug_assert!(false, "a session holds one thing");
            return false;
        }
        self.apply(Event::Held);
        self.usable()
    }

    /// Sets the id that the server gave the session, which the client will present.
    pub(crate) fn rename(self: &Rc<Self>, token: &str) {
        let token: Rc<str> = token.into();
        let before = self.token.replace(Rc::clone(&token));
        let mut sessions = self.server.sessions.borrow_mut();
        if sessions.remove(&before).is_some() {
            sessions.insert(token, Rc::clone(self));
        }
    }

    /// Notes that the server accepted `initialize`.
    pub(crate) fn opened(self: &Rc<Self>) {
        self.apply(Event::Opened);
    }

    /// Counts a request in flight until the guard is dropped.
    pub(crate) fn began(self: &Rc<Self>) -> InFlight {
        self.apply(Event::RequestBegan);
        InFlight { session: Rc::clone(self), end: Some(Event::RequestEnded) }
    }

    /// Counts requests of the client.
    pub(crate) fn called(&self, requests: u64) {
        self.calls.update(|calls| calls + requests);
        self.server.called.update(|calls| calls + requests);
    }

    /// The number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.life.borrow().in_flight() as usize
    }

    /// Counts a listener until the guard is dropped.
    pub(crate) fn listens(self: &Rc<Self>) -> InFlight {
        self.apply(Event::ListenBegan);
        InFlight { session: Rc::clone(self), end: Some(Event::ListenEnded) }
    }

    /// Begins its end; does nothing if it has begun already.
    pub(crate) fn end(self: &Rc<Self>, reason: Reason) {
        self.apply(Event::End(reason));
    }

    /// Returns when its holding is released.
    pub(crate) async fn over(&self) {
        wait_until(&self.over, || matches!(self.life.borrow().state(), State::Ended(_))).await;
    }

    /// The receipt of its end.
    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        self.receipt.get().map(|receipt| &**receipt)
    }

    /// Checks its deadlines; called when its timer fires.
    pub(crate) fn tick(self: &Rc<Self>) {
        self.apply(Event::Tick);
    }

    /// Applies an event and performs its effect. The only place where a session's state changes.
    fn apply(self: &Rc<Self>, event: Event) {
        let Some(gateway) = self.gateway.upgrade() else { return };
        let (now, times, known) = (Moment::on_runtime(), self.server.times(), self.known());
        let (effect, deadline) = {
            let mut life = self.life.borrow_mut();
            let effect = life.apply(event, now, &times);
            (effect, life.deadline(&times))
        };
        if let Some((at, _)) = deadline {
            gateway.timers.arm(self, at, now);
        }
        if known != self.known() {
            gateway.keeper_link.changed(self);
        }
        match effect {
            Effect::Nothing => {}
            Effect::End(reason) => self.begin_end(&gateway, reason),
            Effect::Release(reason) => {
                let (session, occupied) = (Rc::clone(self), self.server.occupy());
                gateway.tasks.spawn_local(async move {
                    session.release_holding(reason).await;
                    drop(occupied);
                });
            }
        }
    }

    /// The part of its state that the gateway's keeper must know.
    fn known(&self) -> (bool, u32, Option<i32>, bool) {
        let life = self.life.borrow();
        (*life.state() == State::Live, life.owners(), life.lost(), life.unknown_client())
    }

    /// Begins the end: its token answers 404 from now on.
    fn begin_end(self: &Rc<Self>, gateway: &Rc<Gateway>, reason: Reason) {
        self.announce(gateway);
        self.forget(gateway);
        gateway.metrics.session_ending(&self.server.bucket);
        let (session, server) = (self.id.to_string(), self.server.name.to_string());
        let client = Some(self.known_client.get());
        gateway.tell(|| Notice::Ending { session, server, client, why: reason.clone() });
        // Checked here and not in the task: a holding that comes before the task's first step is released by
        // `Effect::Release`, and must not be released twice.
        let holds = self.holding.get().is_some();
        let (session, gateway) = (Rc::clone(self), Rc::clone(gateway));
        gateway.clone().tasks.spawn_local(async move {
            if holds {
                session.release_holding(reason.clone()).await;
            }
            session.apply(Event::Released);
            drop(session.slot.take());
            gateway.metrics.session_ended(&session.server.bucket, &reason);
            session.over.notify_waiters();
        });
    }

    /// Removes it from the timers, the server's sessions and the watchers.
    fn forget(&self, gateway: &Gateway) {
        gateway.timers.disarm(self);
        self.server.sessions.borrow_mut().remove(&*self.token());
        for owner in self.owners.take() {
            self.server.left_by_process(&owner.identity, self);
            gateway.watchers.unwatch(owner.watch);
        }
    }

    /// Releases its holding; returns when that is done, or has failed.
    async fn release_holding(self: &Rc<Self>, reason: Reason) {
        let Some(gateway) = self.gateway.upgrade() else { return };
        let Some(holding) = self.holding() else { return };
        let receipt = holding.release(&gateway, self, reason).await;
        self.known_client.unlist(&gateway.book);
        if let Some(receipt) = receipt {
            gateway.tell(|| Notice::Ended(Box::new(receipt.clone())));
            let _ = self.receipt.set(Box::new(receipt));
        }
    }

    /// Searches for the process that sent a call, if it is not known.
    pub(crate) fn used_by(self: &Rc<Self>, call: &Call) {
        if self.server.settings().policy.owner == OwnerPolicy::Traffic {
            return self.apply(Event::OwnerUnknown);
        }
        let Some(connection) = &call.local else { return self.apply(Event::OwnerUnknown) };
        if connection.is_known_to(self) {
            return;
        }
        // The client closed the connection before leash asked the kernel: that says nothing about the client's process.
        if connection.socket().is_none() {
            return self.missed.set(true);
        }
        *self.connection.borrow_mut() = Some(Rc::clone(connection));
        if !self.takes_remembered_owners(connection) {
            self.find_owners();
        }
    }

    /// Takes the owners that a search for another session found on the same connection, if they still hold it. Returns
    /// false if there must be a search at once.
    fn takes_remembered_owners(self: &Rc<Self>, connection: &Rc<ClientConnection>) -> bool {
        let Some(gateway) = self.gateway.upgrade() else { return false };
        let remembered = gateway.resolver.borrow().as_ref().and_then(|all| connection.remembered_owners(all));
        let Some(processes) = remembered else { return false };
        processes.iter().for_each(|process| self.owned_by(process));
        self.confirm_later(&gateway, connection);
        true
    }

    /// Searches once more after a pause: a process that inherited the connection since the last search is not among the
    /// remembered owners.
    fn confirm_later(self: &Rc<Self>, gateway: &Gateway, connection: &Rc<ClientConnection>) {
        let mut unconfirmed = self.unconfirmed.borrow_mut();
        if unconfirmed.iter().any(|known| Rc::ptr_eq(known, connection)) {
            return;
        }
        unconfirmed.push(Rc::clone(connection));
        if unconfirmed.len() > 1 {
            // The task of the first one searches for all of them.
            return;
        }
        let session = Rc::downgrade(self);
        gateway.tasks.spawn_local(async move {
            tokio::time::sleep_until(tokio::time::Instant::now() + limits::PEER_CONFIRM).await;
            if let Some(session) = session.upgrade().filter(|session| session.usable()) {
                session.unconfirmed.take().into_iter().for_each(|connection| session.find_owners_of(connection));
            }
        });
    }

    /// Searches for the processes at the other end of the last connection, and of the doubtful ones.
    fn find_owners(self: &Rc<Self>) {
        let (doubtful, last) = (self.doubtful.take(), self.connection.borrow().clone());
        doubtful.into_iter().chain(last).for_each(|connection| self.find_owners_of(connection));
    }

    fn find_owners_of(self: &Rc<Self>, connection: Rc<ClientConnection>) {
        let (Some(gateway), Some(socket)) = (self.gateway.upgrade(), connection.socket()) else { return };
        let (peer, local) = (connection.peer, connection.local);
        let found = gateway.resolver.borrow().as_ref().map(|all| all.owners_of(peer, local, socket));
        let (session, Some(found)) = (Rc::downgrade(self), found) else { return };
        self.searches.update(|searches| searches + 1);
        gateway.tasks.spawn_local(async move {
            let found = found.await;
            let Some(session) = session.upgrade() else { return };
            session.missed.set(matches!(found, Holders::None));
            match found {
                Holders::Known(holders) => {
                    connection.is_held_by(&holders);
                    holders.iter().for_each(|holder| session.owned_by(&holder.process));
                }
                // The client closed the connection before its process was found: that says nothing about the process.
                Holders::None => {}
                Holders::Unknown(UnknownReason::OutOfDescriptors) => session.search_later(),
                Holders::Unknown(_) => session.doubt(connection),
            }
            session.searches.update(|searches| searches - 1);
            session.searched.notify_waiters();
        });
    }

    /// Handles a connection whose process was not found. The process may be exiting, which takes long on a busy
    /// machine. So while another process of the client is known to live, the search is repeated only after that one has
    /// exited.
    fn doubt(self: &Rc<Self>, connection: Rc<ClientConnection>) {
        let may_wait = self.is_owned() && self.doubtful.borrow().len() < limits::DOUBTFUL_CONNECTIONS;
        if may_wait {
            return self.doubtful.borrow_mut().push(connection);
        }
        self.apply(Event::OwnerUnknown);
    }

    /// Returns when the client's process is found, or when the search takes too long. A client that exits earlier
    /// leaves no trace, so the answer to its `initialize` waits for this as well. Returns false if the client has
    /// closed its connection instead of waiting: then it cannot learn the session's id.
    pub(crate) async fn identified(&self) -> bool {
        let identified = wait_until(&self.searched, || self.searches.get() == 0 || !self.usable());
        // If no search is running, there is nothing to wait for.
        if self.searches.get() > 0 {
            let _ = tokio::time::timeout(limits::PEER_SEARCH, identified).await;
        }
        !self.missed.get()
    }

    /// Adds a process that uses the session as an owner, and watches it.
    fn owned_by(self: &Rc<Self>, process: &HeldProcess) {
        let Some(gateway) = self.gateway.upgrade().filter(|_| self.usable()) else { return };
        let identity = process.id;
        self.known_client.found(&gateway.book, identity.pid);
        if self.owners.borrow().iter().any(|known| known.identity.is(&identity)) {
            return;
        }
        let session = Rc::downgrade(self);
        let gone = move || {
            if let Some(session) = session.upgrade() {
                session.owners.borrow_mut().retain(|known| !known.identity.is(&identity));
                session.server.left_by_process(&identity, &session);
                session.apply(Event::OwnerGone(identity.pid));
                session.check_owners();
                // A child may have inherited the connection.
                if session.owners.borrow().is_empty() {
                    session.find_owners();
                }
            }
        };
        match gateway.watchers.watch(process, gone) {
            Ok(watch) => {
                self.owners.borrow_mut().push(WatchedOwner { identity, watch, moved_on: false });
                self.apply(Event::OwnerFound);
                if let Some(older) = self.server.used_by_process(identity, self) {
                    older.is_left_by(&identity);
                }
            }
            Err(_) => self.search_later(),
        }
    }

    /// True if it began later. Sessions of the same millisecond have some order, too.
    pub(crate) fn is_newer_than(&self, other: &ClientSession) -> bool {
        (self.started_ms, &self.id) > (other.started_ms, &other.id)
    }

    /// Notes that a client process has begun a newer session at the same server.
    fn is_left_by(self: &Rc<Self>, process: &Identity) {
        let mut owners = self.owners.borrow_mut();
        owners.iter_mut().filter(|owner| owner.identity.is(process)).for_each(|owner| owner.moved_on = true);
        drop(owners);
        self.check_owners();
    }

    /// Notes whether all living client processes have begun newer sessions.
    fn check_owners(self: &Rc<Self>) {
        let all = self.owners.borrow().iter().all(|owner| owner.moved_on);
        self.apply(Event::OwnersMovedOn(all));
    }

    /// Called if no descriptor was free to search for the client, or to watch it. If another process was found before,
    /// its exit must not count as the exit of the last one, so the client counts as unknown. Otherwise leash searches
    /// again later.
    fn search_later(self: &Rc<Self>) {
        let Some(gateway) = self.gateway.upgrade() else { return };
        if self.life.borrow().had_owner() {
            return self.apply(Event::OwnerUnknown);
        }
        let session = Rc::downgrade(self);
        gateway.tasks.spawn_local(async move {
            tokio::time::sleep_until(tokio::time::Instant::now() + limits::PEER_RETRY).await;
            if let Some(session) = session.upgrade().filter(|session| session.usable() && !session.is_owned()) {
                session.find_owners();
            }
        });
    }

    /// True if a process of its client is known to live.
    pub(crate) fn is_owned(&self) -> bool {
        !self.owners.borrow().is_empty()
    }

    /// Runs a task that must continue when the client's connection is gone.
    pub(crate) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        if let Some(gateway) = self.gateway.upgrade() {
            gateway.tasks.spawn_local(task);
        }
    }
}

impl ConnectionUser for ClientSession {
    fn connection_began(self: Rc<Self>) {
        self.apply(Event::ConnectionBegan);
    }

    fn connection_ended(self: Rc<Self>) {
        self.apply(Event::ConnectionEnded);
    }
}

impl Timed for ClientSession {
    fn timer(&self) -> &RefCell<Option<Timer>> {
        &self.timer
    }
}

/// A request or a listener of a session; dropping it ends it.
pub(crate) struct InFlight {
    pub(crate) session: Rc<ClientSession>,
    end: Option<Event>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(event) = self.end.take() {
            self.session.apply(event);
        }
    }
}

/// The session that a call names, if its caller may use it. The answer for another principal's session is the same as
/// for an unknown one.
pub(crate) fn find(server: &Server, token: &str, call: &Call) -> Result<Rc<ClientSession>, Answer> {
    let session = server.session(token).filter(|session| session.usable());
    let session = session.filter(|session| session.is_of(call));
    let session = session.ok_or_else(respond::no_session)?;
    session.used_by(call);
    Ok(session)
}
