//! A server's tree that one principal's requests share.

use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::{cell::RefCell, future::poll_fn, time::Duration};

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::exchange::{Exchanges, ModernAnswer, Number};
use super::machine::{Event, State};
use crate::response_memory::{MemoryAccount, QueuedBytes};
use crate::stdio::child::{self, ServerProcess, StartedTree};
use crate::stdio::exit::UnansweredError;
use crate::stdio::output::{self, Burst, MessageSink};
use crate::stdio::window::{self, Window, WindowedPipe};
use crate::stdio::{events::Feed, input::InputClosed, log::NextMessage, shared_trees};
use crate::{connection::Principal, metrics::Counters, state::gateway::Gateway, state::server::Server};
use leash_model::{clock::Moment, id, limits, receipt::Reason, start_failure::StartFailure};
use leash_protocol::envelope::{Envelope, Message};
use leash_upstream::{notice::Notice, origin::Origin};

/// The longest pause between two checks of the idle timeout: a reload may have made it shorter.
const LOOK: Duration = Duration::from_secs(60);

/// A running server of the modern era, or of an era that is not known yet.
pub(in crate::stdio) struct ModernTree {
    this: Weak<ModernTree>,
    gateway: Weak<Gateway>,
    server: Weak<Server>,
    name: Rc<str>,
    principal: Principal,
    counters: Rc<Counters>,
    child: ServerProcess,
    /// The account that its messages are charged to until they are in sockets.
    account: MemoryAccount,
    exchanges: RefCell<Exchanges>,
    state: RefCell<State>,
    changed: Notify,
    window: Window,
    garbage: Burst,
}

impl ModernTree {
    /// Starts a server for a principal.
    pub(super) async fn start(
        gateway: &Rc<Gateway>,
        server: &Rc<Server>,
        (principal, origin): (Principal, Origin),
    ) -> Result<Rc<ModernTree>, StartFailure> {
        let session = id::random();
        let StartedTree { tree: watched, input, output, stderr } = child::start(gateway, server, &session).await?;
        let tree = Rc::new_cyclic(|this| ModernTree {
            this: Weak::clone(this),
            gateway: Rc::downgrade(gateway),
            server: Rc::downgrade(server),
            name: Rc::clone(&server.name),
            principal,
            counters: gateway.metrics.of(&server.bucket),
            child: ServerProcess::new((input, stderr), gateway.tasks.clone(), server.stop.signal()),
            account: gateway.memory.account(origin),
            exchanges: RefCell::default(),
            state: RefCell::new(State::new(Moment::on_runtime())),
            changed: Notify::new(),
            window: Window::default(),
            garbage: Burst::default(),
        });
        gateway.tell(|| Notice::Opened { session, server: server.name.to_string(), client: None });
        let reading = Rc::clone(&tree);
        let reader = gateway.tasks.spawn_local(async move {
            output::read(output, &*reading).await;
            reading.child.output_ended();
            reading.apply(Event::ServerExited);
        });
        let _ = tree.child.reader.set(reader.abort_handle());
        let (attended, server) = (Rc::clone(&tree), Rc::clone(server));
        gateway.tasks.spawn_local(async move {
            let gone = || attended.apply(Event::ServerExited);
            let receipt = attended.child.watch_until_over(watched, (&server, &attended.counters), gone).await;
            attended.apply(Event::ServerExited);
            if let (Some(gateway), Some(receipt)) = (attended.gateway.upgrade(), &receipt) {
                gateway.tell(|| Notice::Ended(Box::new(receipt.clone())));
            }
            attended.child.is_over(receipt);
        });
        Ok(tree)
    }

    /// Ends the tree when no request was open for the idle timeout. Returns when it is over, for any reason.
    pub(super) async fn live(self: Rc<Self>) {
        loop {
            self.apply(Event::Tick);
            let changed = self.changed.notified();
            let deadline = self.state.borrow().deadline(self.idle());
            let start_observing = deadline.map_or(LOOK, |deadline| deadline.since(Moment::on_runtime()).min(LOOK));
            tokio::select! {
                _ = self.child.over() => return,
                // A request ended, so there may be a deadline now.
                () = changed, if deadline.is_none() => {}
                () = sleep_until(Instant::now() + start_observing), if self.usable() => {}
            }
        }
    }

    /// The id of its run.
    pub(in crate::stdio) fn run(&self) -> Option<Rc<str>> {
        self.child.run()
    }

    /// The time since which no request has been open; `None` while one is.
    pub(in crate::stdio) fn quiet(&self, now: Moment) -> Option<Duration> {
        self.state.borrow().quiet(now)
    }

    /// Returns when it is over.
    pub(in crate::stdio) async fn over(&self) {
        self.child.gone().await;
    }

    /// Begins its end, for this reason.
    pub(in crate::stdio) fn end(&self, reason: &Reason) {
        self.apply(Event::End(reason.clone()));
    }

    /// The idle timeout, as it is configured now.
    fn idle(&self) -> Option<Duration> {
        self.server.upgrade().and_then(|server| server.settings().policy.idle)
    }

    /// Applies an event and performs its effect. The only place where the tree's state changes.
    fn apply(&self, event: Event) {
        let begins = self.state.borrow_mut().apply(event, Moment::on_runtime(), self.idle());
        if let Some(reason) = begins {
            self.begin_end(&reason);
        }
    }

    /// Refuses new requests, and answers those in flight.
    fn begin_end(&self, reason: &Reason) {
        if let Some(server) = self.server.upgrade() {
            shared_trees(&server).modern.forget(self.principal, self);
        }
        self.child.ask_to_end(reason);
        match (self.this.upgrade(), reason) {
            (Some(tree), Reason::ServerExited) => {
                self.child.tasks.spawn_local(async move {
                    let error = tree.child.exit_error(&tree.name).await;
                    tree.close(&error);
                });
            }
            _ => {
                let (name, why) = (&self.name, reason.describe());
                self.close(&format!("the server `{name}` was ended before it answered: {why}; try again").into());
            }
        }
    }

    /// Answers all requests in flight.
    fn close(&self, error: &UnansweredError) {
        self.exchanges.borrow_mut().close(error);
        self.changed.notify_waiters();
    }

    /// True if requests may use it.
    pub(super) fn usable(&self) -> bool {
        matches!(*self.state.borrow(), State::Serving { .. })
    }

    /// True if leash ended it; false if it exited by itself.
    pub(super) fn was_ended(&self) -> bool {
        self.state.borrow().was_ended()
    }

    /// The error for a request that it did not get because it exited.
    pub(super) async fn exit_error(&self) -> UnansweredError {
        self.child.exit_error(&self.name).await
    }

    /// Checks that the headers of a call agree with its arguments. The server cannot check this: it sees no headers.
    pub(super) fn check(&self, headers: &HeaderMap, envelope: &Envelope<'_>) -> Result<(), String> {
        self.exchanges.borrow().check(envelope, headers)
    }

    /// Sends a request to the server.
    pub(super) async fn ask(
        self: &Rc<Self>,
        source: &[u8],
        envelope: &Envelope<'_>,
    ) -> Result<ModernRequest, InputClosed> {
        self.child.input.room().await?;
        if !self.usable() {
            return Err(InputClosed);
        }
        let (number, line) = self.exchanges.borrow_mut().begin(source, envelope).ok_or(InputClosed)?;
        self.apply(Event::RequestBegan);
        let exchange = ModernRequest { tree: Rc::clone(self), number };
        if self.child.input.give(line).is_err() {
            self.apply(Event::ServerExited);
        }
        window::watch(self);
        Ok(exchange)
    }

    /// Passes on a client's cancellation of a request.
    pub(super) fn cancelled(&self, source: &[u8], envelope: &Envelope<'_>) {
        let line = self.exchanges.borrow_mut().cancel(source, envelope);
        if let Some(line) = line {
            // If the input is closed, the server is ending, and there is nothing left to cancel.
            let _ = self.child.input.give(line);
        }
    }

    /// Requests that were not answered yet.
    pub(super) fn in_flight(&self) -> usize {
        self.exchanges.borrow().in_flight()
    }

    /// Cancels all requests in flight; returns their number.
    pub(super) fn abort(&self) -> usize {
        let lines = self.exchanges.borrow_mut().abort();
        let aborted = lines.len();
        for line in lines {
            let _ = self.child.input.give(line);
        }
        self.taken();
        aborted
    }

    fn taken(&self) {
        self.count();
        self.changed.notify_waiters();
    }

    /// Updates the account with the bytes that are queued now.
    fn count(&self) {
        let unread = self.exchanges.borrow().unread();
        self.account.queue(QueuedBytes { unread, unclaimed: 0 });
    }
}

impl WindowedPipe for ModernTree {
    fn window(&self) -> &Window {
        &self.window
    }

    fn child(&self) -> &ServerProcess {
        &self.child
    }

    /// Long, because the HTTP status of an error is worth waiting for, and a stream of this era cannot be resumed
    /// anyway.
    fn length(&self) -> Duration {
        limits::SSE_KEEP_ALIVE
    }

    fn turn(&self) -> bool {
        self.exchanges.borrow_mut().turn()
    }
}

impl MessageSink for ModernTree {
    fn message(&self, line: Bytes, message: &Message<'_>) {
        if let Message::One(envelope) = message {
            self.exchanges.borrow_mut().deliver(&line, envelope);
            self.count();
        }
    }

    fn garbage(&self, what: &str) {
        if let Some(gateway) = self.gateway.upgrade() {
            output::garbage(&gateway, &self.name, (&self.counters, &self.garbage), what);
        }
    }

    fn is_full(&self, begun: usize) -> bool {
        let many = || self.exchanges.borrow().unread() > limits::UNREAD_STREAMS;
        self.usable() && (many() || self.account.is_full(begun))
    }

    fn account(&self) -> &MemoryAccount {
        &self.account
    }

    async fn room(&self, begun: usize) {
        self.child.held_up.set(true);
        self.exchanges.borrow_mut().start_observing();
        let wait = || async {
            loop {
                let (changed, lowered) = (self.changed.notified(), self.account.lowered());
                if !self.is_full(begun) {
                    return;
                }
                tokio::select! {
                    () = changed => {}
                    () = lowered => {}
                }
            }
        };
        while timeout(limits::STALLED, wait()).await.is_err() {
            let mut exchanges = self.exchanges.borrow_mut();
            exchanges.cut_stalled();
            exchanges.start_observing();
        }
        self.child.held_up.set(false);
    }
}

/// A request in flight; dropping it before it is answered cancels it.
pub(super) struct ModernRequest {
    tree: Rc<ModernTree>,
    number: Number,
}

impl ModernRequest {
    /// Returns how it is answered.
    pub(super) async fn first(&self) -> ModernAnswer {
        poll_fn(|cx| match self.tree.exchanges.borrow_mut().first(self.number, cx.waker()) {
            ModernAnswer::Wait => Poll::Pending,
            first => Poll::Ready(first),
        })
        .await
    }

    /// The answer in one piece, as it is sent.
    pub(super) fn whole(&self, body: Bytes) -> Bytes {
        self.tree.counters.sent(body.len());
        self.tree.taken();
        self.tree.account.hold(body)
    }

    /// Returns the answer alone, without the messages before it.
    pub(super) async fn answer(mut self) -> Option<Bytes> {
        let mut last = None;
        loop {
            match poll_fn(|cx| self.poll_next(cx)).await {
                NextMessage::Message(_, message) => last = Some(message),
                NextMessage::End => return last,
                NextMessage::Wait | NextMessage::Cut => return None,
            }
        }
    }
}

impl Feed for ModernRequest {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextMessage> {
        let next = self.tree.exchanges.borrow_mut().next(self.number, cx.waker());
        match next {
            NextMessage::Wait => Poll::Pending,
            next => {
                self.tree.taken();
                Poll::Ready(next)
            }
        }
    }

    fn event_id(&self, _number: u64) -> Option<String> {
        None
    }

    fn hold(&self, message: Bytes) -> Bytes {
        self.tree.account.hold(message)
    }

    fn sent(&self, bytes: usize) {
        self.tree.exchanges.borrow_mut().moved(self.number);
        self.tree.counters.sent(bytes);
    }
}

impl Drop for ModernRequest {
    fn drop(&mut self) {
        let cancel = self.tree.exchanges.borrow_mut().leave(self.number);
        if let Some(line) = cancel {
            let _ = self.tree.child.input.give(line);
        }
        self.tree.apply(Event::RequestEnded);
        self.tree.taken();
    }
}
