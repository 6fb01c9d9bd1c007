//! A session's server: its process, and the switch between its one pipe and the session's streams.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::child::{ServerProcess, StartedTree};
use super::output::{self, Burst, MessageSink};
use super::switch::{CannotBegin, NewRequest, Switch};
use super::window::{self, Window, WindowedPipe};
use super::{exit::UnansweredError, log::GET, reader::StreamReader, stderr::ServerStderr};
use crate::keep_alive::{PingAction, Pings};
use crate::state::backend::{Release, SessionHolding};
use crate::state::{gateway::Gateway, session::ClientSession, stop::StopSignal};
use crate::{metrics::Counters, response_memory::MemoryAccount};
use leash_model::clock::Moment;
use leash_model::limits;
use leash_model::receipt::{Reason, Receipt};
use leash_protocol::envelope::{Envelope, EnvelopeKind, IdKey, Message, cancelled_body};
use leash_protocol::era;
use leash_upstream::keeper::HeldSession;

/// A server with the session that it is for.
pub(crate) struct Bridge {
    session: Weak<ClientSession>,
    gateway: Weak<Gateway>,
    server: Rc<str>,
    counters: Rc<Counters>,
    pub(super) child: ServerProcess,
    /// The account that its messages are charged to until they are in sockets.
    account: MemoryAccount,
    pub(super) switch: RefCell<Switch>,
    /// The id of the `initialize` request until it is answered.
    opening: RefCell<Option<IdKey>>,
    /// The protocol version that client and server agreed on.
    version: OnceCell<Box<str>>,
    /// Notified when a connection took a message or left.
    taken: Notify,
    /// The reason that the bridge delivers no more messages. Once it is set, every request was answered.
    closed: OnceCell<Reason>,
    window: Window,
    garbage: Burst,
    losses: Burst,
    pub(super) pings: Pings,
    /// The time of the server's last message.
    spoke: Cell<Moment>,
}

/// The parts of a new bridge.
pub(super) struct BridgeParts {
    pub(super) session: Weak<ClientSession>,
    pub(super) gateway: Weak<Gateway>,
    pub(super) server: Rc<str>,
    pub(super) counters: Rc<Counters>,
    pub(super) account: MemoryAccount,
    /// Its stdin and its stderr.
    pub(super) pipes: (Sender, ServerStderr),
    pub(super) tasks: TaskTracker,
    pub(super) stop: StopSignal,
    /// The number of bytes of its streams to keep.
    pub(super) replay: usize,
    /// The id of the `initialize` that comes first.
    pub(super) opening: Option<IdKey>,
}

impl SessionHolding for Rc<Bridge> {
    fn release<'a>(&'a self, _: &'a Rc<Gateway>, session: &'a ClientSession, reason: Reason) -> Release<'a> {
        // The keeper of the tree writes the receipt.
        self.child.is_for(session.known_client.get());
        Box::pin(async move { self.end(&reason).await })
    }

    /// A tree has a keeper of its own.
    fn held_session(&self, _: &ClientSession) -> Option<HeldSession> {
        None
    }
}

impl Bridge {
    /// Creates the bridge to a server that was started for a session.
    pub(super) fn start(
        gateway: &Rc<Gateway>,
        session: &Rc<ClientSession>,
        started: StartedTree,
        opening: IdKey,
    ) -> Rc<Bridge> {
        let StartedTree { tree, input, output, stderr } = started;
        let bridge = Bridge::new(BridgeParts {
            session: Rc::downgrade(session),
            gateway: Rc::downgrade(gateway),
            server: Rc::clone(&session.server.name),
            counters: gateway.metrics.of(&session.server.bucket),
            account: gateway.memory.account(session.client.origin),
            pipes: (input, stderr),
            tasks: gateway.tasks.clone(),
            stop: session.server.stop.signal(),
            replay: session.server.settings().policy.replay,
            opening: Some(opening),
        });
        bridge.read(output, &gateway.tasks);
        session.known_client.list(&gateway.book, tree.run());
        let (attended, server) = (Rc::clone(&bridge), Rc::clone(&session.server));
        gateway.tasks.spawn_local(async move {
            let receipt =
                attended.child.watch_until_over(tree, (&server, &attended.counters), || attended.server_gone()).await;
            attended.server_gone();
            attended.child.is_over(receipt);
        });
        bridge
    }

    pub(super) fn new(parts: BridgeParts) -> Rc<Bridge> {
        Rc::new(Bridge {
            session: parts.session,
            gateway: parts.gateway,
            server: parts.server,
            counters: parts.counters,
            child: ServerProcess::new(parts.pipes, parts.tasks, parts.stop),
            account: parts.account,
            switch: RefCell::new(Switch::new(parts.replay)),
            opening: RefCell::new(parts.opening),
            version: OnceCell::new(),
            taken: Notify::new(),
            closed: OnceCell::new(),
            window: Window::default(),
            garbage: Burst::default(),
            losses: Burst::default(),
            pings: Pings::default(),
            spoke: Cell::new(Moment::on_runtime()),
        })
    }

    /// Begins to read the server's output.
    pub(super) fn read(self: &Rc<Self>, output: Receiver, tasks: &TaskTracker) {
        let bridge = Rc::clone(self);
        let reader = tasks.spawn_local(async move {
            output::read(output, &*bridge).await;
            bridge.child.output_ended();
            bridge.server_gone();
        });
        let _ = self.child.reader.set(reader.abort_handle());
    }

    /// Ends the server: answers all requests in flight, ends the tree, and returns its receipt.
    async fn end(&self, reason: &Reason) -> Option<Receipt> {
        let name = &self.server;
        let error = match reason {
            Reason::ServerExited => {
                self.child.ask_to_end(reason);
                self.child.exit_error(name).await
            }
            Reason::NotInitialized => {
                format!("the server `{name}` did not answer `initialize` in time; `initTimeout` sets the time").into()
            }
            other => {
                let why = other.describe();
                format!("the session ended before the server `{name}` answered: {why}; begin a new session").into()
            }
        };
        self.close(reason, &error);
        self.child.ask_to_end(reason);
        self.child.over().await
    }

    /// The error for a request that the server did not get because it exited.
    pub(super) async fn exit_error(&self) -> UnansweredError {
        self.child.exit_error(&self.server).await
    }

    /// Ends the session because the server exited by itself.
    fn server_gone(&self) {
        match self.session.upgrade() {
            // The end of the session answers the requests.
            Some(session) => session.end(Reason::ServerExited),
            None => self.close(&Reason::ServerExited, &self.child.exited(&self.server)),
        }
    }

    /// Answers all requests in flight and ends all streams.
    fn close(&self, reason: &Reason, error: &UnansweredError) {
        if self.closed.set(reason.clone()).is_ok() {
            self.switch.borrow_mut().close(error);
            self.drained();
        }
    }

    /// The time since the server's last message; `None` while it has a request to answer, also one whose client may come
    /// back for the answer.
    pub(super) fn idle(&self, now: Moment) -> Option<Duration> {
        (self.switch.borrow().in_flight() == 0).then(|| now.since(self.spoke.get()))
    }

    fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// The reason that leash answered `initialize`; `None` if the server answered it.
    pub(super) fn never_opened(&self) -> Option<&Reason> {
        self.closed.get().filter(|_| self.opening.borrow().is_some())
    }

    /// The version that client and server agreed on, or the default version if they did not agree on one.
    pub(super) fn version(&self) -> &str {
        self.version.get().map_or(era::DEFAULT_LEGACY, |version| version)
    }

    /// True if the client's version understands an event without a message. With its id a client can resume before the
    /// first message.
    pub(super) fn primes(&self) -> bool {
        self.version() >= era::LATEST_LEGACY
    }

    /// Sends a message with requests to the server. Returns the reader of their answers.
    pub(super) fn ask(self: &Rc<Self>, requests: &[NewRequest], line: Bytes) -> Result<StreamReader, NotSent> {
        if self.is_closed() {
            return Err(NotSent::Closed);
        }
        let stream = self.switch.borrow_mut().begin(requests).map_err(NotSent::NotNow)?;
        let reader = StreamReader::first_of(self, stream);
        if self.child.input.give(line).is_err() {
            self.switch.borrow_mut().take_back(stream);
            self.server_gone();
            return Err(NotSent::Closed);
        }
        // The length of the window depends on the version, which is known once `initialize` is answered.
        if self.opening.borrow().is_none() {
            window::watch(self);
        }
        Ok(reader)
    }

    /// Sends a message without requests to the server; returns when it is in the pipe.
    pub(super) async fn tell(&self, line: Bytes) -> Result<(), NotSent> {
        let input = &self.child.input;
        let told = async {
            input.room().await?;
            let number = input.give(line)?;
            input.written(number).await
        };
        told.await.map_err(|_| NotSent::Closed)
    }

    /// Notes that the client cancelled a request. If the server does not answer it, leash does, after a timeout.
    pub(super) fn cancelled(self: &Rc<Self>, key: IdKey, tasks: &TaskTracker) {
        let Some(stream) = self.switch.borrow_mut().cancel(&key) else { return };
        let bridge = Rc::clone(self);
        tasks.spawn_local(async move {
            let deadline = tokio::time::Instant::now() + limits::CANCELLED;
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                _ = bridge.child.over() => {}
            }
            bridge.switch.borrow_mut().give_up(&key, stream);
        });
    }

    /// Requests that were not answered yet.
    pub(super) fn in_flight(&self) -> usize {
        self.switch.borrow().in_flight()
    }

    /// Cancels all requests in flight: tells the server, and answers the clients. The exception is `initialize`, which
    /// cannot be cancelled. Returns the number of requests.
    pub(super) fn abort(&self) -> usize {
        let opening = self.opening.borrow().clone();
        let aborted = self.switch.borrow_mut().abort(opening.as_ref());
        for key in &aborted {
            // If the input is closed, the server is ending, and there is nothing left to cancel.
            let _ = self.child.input.give(cancelled_body(key.as_str(), "aborted").into());
        }
        self.drained();
        aborted.len()
    }

    fn opening_answered(&self, envelope: &Envelope<'_>) {
        let session = self.session.upgrade();
        if envelope.error.is_some() {
            if let Some(session) = session {
                session.end(Reason::NotInitialized);
            }
            return;
        }
        if let Some(version) = envelope.result_protocol_version() {
            let _ = self.version.set(version.into());
        }
        if let Some(session) = session {
            session.opened();
        }
    }

    /// True if this answers the `initialize` that opened the session.
    fn is_opening(&self, message: &Message<'_>) -> bool {
        let Message::One(envelope) = message else { return false };
        let mut opening = self.opening.borrow_mut();
        let answers = opening.is_some() && envelope.kind == EnvelopeKind::Response && envelope.key() == *opening;
        if answers {
            *opening = None;
        }
        answers
    }

    /// Notes that a connection took a message or left, so that the server may continue.
    pub(super) fn drained(&self) {
        self.count();
        self.taken.notify_waiters();
    }

    /// Updates the account with the bytes that are queued now.
    fn count(&self) {
        let queued = self.switch.borrow().log.queued();
        self.account.queue(queued);
    }

    /// Pings the client that listens. Returns false if its stream is to be closed, because it left too many pings
    /// unanswered.
    pub(super) fn ping(&self) -> bool {
        let Some(session) = self.session.upgrade() else { return true };
        match self.pings.due(&session.server.settings().policy, session.is_owned()) {
            PingAction::Ask => drop(self.switch.borrow_mut().log.push(GET, self.pings.next(&session.id).into())),
            PingAction::Nothing => {}
            PingAction::CloseStream => return false,
            PingAction::EndSession => session.end(Reason::ClientSilent),
        }
        true
    }

    /// Counts bytes that leash sent to the client.
    pub(super) fn sent(&self, bytes: usize) {
        self.counters.sent(bytes);
    }
}

impl WindowedPipe for Bridge {
    fn window(&self) -> &Window {
        &self.window
    }

    fn child(&self) -> &ServerProcess {
        &self.child
    }

    /// A client that does not understand an id without a message gains only the keep-alive from a stream, so its window
    /// is longer.
    fn length(&self) -> Duration {
        if self.primes() { limits::FIRST_MESSAGE } else { limits::SSE_KEEP_ALIVE }
    }

    fn turn(&self) -> bool {
        self.switch.borrow_mut().turn()
    }
}

impl MessageSink for Bridge {
    fn message(&self, line: Bytes, message: &Message<'_>) {
        if self.is_closed() {
            return;
        }
        self.spoke.set(Moment::on_runtime());
        let opening = self.is_opening(message);
        let lost = {
            let mut switch = self.switch.borrow_mut();
            let large = line.len() > limits::UNREAD_STREAMS && self.account.is_strained();
            if !(large && switch.refuse_to_keep(message)) {
                switch.deliver(line, message);
            }
            switch.log.take_lost()
        };
        self.count();
        if lost > 0
            && self.losses.begins()
            && let Some(gateway) = self.gateway.upgrade()
        {
            gateway.warn(format!("`{}` sends more than its client reads; dropped the oldest messages", self.server));
        }
        if opening && let Message::One(envelope) = message {
            self.opening_answered(envelope);
        }
    }

    fn garbage(&self, what: &str) {
        if let Some(gateway) = self.gateway.upgrade() {
            output::garbage(&gateway, &self.server, (&self.counters, &self.garbage), what);
        }
    }

    fn is_full(&self, begun: usize) -> bool {
        let many = || self.switch.borrow().log.queued().unread > limits::UNREAD_STREAMS;
        !self.is_closed() && (many() || self.account.is_full(begun))
    }

    fn account(&self) -> &MemoryAccount {
        &self.account
    }

    /// Cuts a connection that takes nothing for a while: it can resume, and the other connections must not wait for it.
    async fn room(&self, begun: usize) {
        self.child.held_up.set(true);
        self.switch.borrow_mut().log.start_observing();
        let wait = || async {
            loop {
                let (taken, lowered) = (self.taken.notified(), self.account.lowered());
                if !self.is_full(begun) {
                    return;
                }
                tokio::select! {
                    () = taken => {}
                    () = lowered => {}
                }
            }
        };
        while tokio::time::timeout(limits::STALLED, wait()).await.is_err() {
            let mut switch = self.switch.borrow_mut();
            switch.cut_stalled();
            switch.log.start_observing();
        }
        self.child.held_up.set(false);
    }
}

/// The reason that a request does not reach the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotSent {
    /// The requests in flight do not allow it.
    NotNow(CannotBegin),
    /// The server is gone.
    Closed,
}

#[cfg(test)]
mod tests;
