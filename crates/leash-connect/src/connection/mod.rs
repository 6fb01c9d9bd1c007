//! The state that all tasks of a connection share: its life, the queue, and the unanswered requests. A function borrows
//! it for its own length, never across an `.await`.

mod headers;
mod host_line;
mod life;
mod responses;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::exchange::Exchange;
use crate::http::HttpClient;
use crate::machine::{ConnectionLife, UpstreamTransport};
use crate::message::{HostMessage, MessageKind};
use crate::notices::Notices;
use crate::outbox::Outbox;
use crate::pipe::HostQueue;
use crate::response::RequestFailure;
use crate::upstream_sessions::UpstreamSessions;
use leash_protocol::header_copies::HeaderCopies;
use leash_upstream::address::UpstreamServer;
use leash_upstream::client::{UpstreamClient, UpstreamError};

/// The messages between the host and the upstream.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) outbox: Outbox,
    pub(crate) exchanges: Vec<Rc<Exchange>>,
    /// The host's `initialize`, to open the session again.
    pub(crate) initialize: Option<HostMessage>,
    /// The host's `notifications/initialized`.
    pub(crate) initialized: Option<Bytes>,
    /// Stops the listener for the server's own messages.
    pub(crate) listener: Option<CancellationToken>,
    /// The number of listeners. A listener that was told to stop may still count.
    pub(crate) listeners: usize,
    header_copies: HeaderCopies,
    /// The modern protocol version of the last message that named one.
    modern_version: Option<String>,
    /// The number of lines of the host so far.
    lines: u64,
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) upstream: UpstreamServer,
    /// The upstream's address, as messages show it.
    shown: String,
    pub(crate) http: HttpClient,
    /// The client for DELETE.
    pub(crate) delete_client: UpstreamClient,
    pub(crate) host: HostQueue,
    pub(crate) notices: Notices,
    pub(crate) traffic: RefCell<Traffic>,
    pub(crate) sessions: RefCell<UpstreamSessions>,
    life: RefCell<ConnectionLife>,
    pub(crate) tasks: TaskTracker,
    /// Stops all exchanges with the upstream.
    pub(crate) stop: CancellationToken,
    /// Stops the wait for the response to `initialize`.
    pub(crate) stop_initialize: CancellationToken,
    /// Wakes the main loop: a message may be sent, a session must be opened again, or the connection is over.
    pub(crate) wake: Notify,
    /// The main loop must start a task that opens the lost session again.
    pub(crate) revival_due: Cell<bool>,
    /// Ends the pause of that task: a message needs the session now.
    pub(crate) end_pause: Notify,
    /// Notified when a listener stops.
    pub(crate) listener_stopped: Notify,
    /// The upstream has responded at least once.
    pub(crate) reached: Cell<bool>,
}

/// The parts from which a connection is created.
pub(crate) struct ConnectionParts {
    pub(crate) upstream: UpstreamServer,
    pub(crate) shown: String,
    pub(crate) transport: UpstreamTransport,
    pub(crate) revives: bool,
    pub(crate) host: HostQueue,
    pub(crate) sessions: UpstreamSessions,
    pub(crate) notices: Notices,
}

impl Connection {
    pub(crate) fn new(parts: ConnectionParts) -> Rc<Connection> {
        let ConnectionParts { upstream, shown, transport, revives, host, sessions, notices } = parts;
        Rc::new(Connection {
            upstream,
            shown,
            http: HttpClient::new(),
            delete_client: UpstreamClient::new(),
            host,
            notices,
            traffic: RefCell::default(),
            sessions: RefCell::new(sessions),
            life: RefCell::new(ConnectionLife::new(transport, revives)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            stop_initialize: CancellationToken::new(),
            wake: Notify::new(),
            revival_due: Cell::new(false),
            end_pause: Notify::new(),
            listener_stopped: Notify::new(),
            reached: Cell::new(false),
        })
    }

    /// Runs a task until the connection ends.
    pub(crate) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn_local(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// The failure of a request to which the upstream did not respond.
    pub(crate) fn unreachable(&self, error: UpstreamError) -> RequestFailure {
        RequestFailure::Http { server: self.shown.clone(), error }
    }

    /// Records that the upstream responded.
    pub(crate) fn works(&self) {
        self.reached.set(true);
        self.notices.upstream_works();
    }

    /// Begins the exchange of the message that may be sent now.
    pub(crate) fn next_exchange(&self) -> Option<Rc<Exchange>> {
        let message = self.traffic.borrow_mut().outbox.take()?;
        Some(self.begin(Exchange::begin(message, self.generation())))
    }

    /// Begins the exchange of a message that leash itself sends.
    pub(crate) fn silent_exchange(&self, message: HostMessage) -> Rc<Exchange> {
        self.begin(Exchange::silent(message, self.generation()))
    }

    fn begin(&self, exchange: Rc<Exchange>) -> Rc<Exchange> {
        self.traffic.borrow_mut().exchanges.push(Rc::clone(&exchange));
        exchange
    }

    /// Records that an exchange is on its way, so that the next message may be sent.
    pub(crate) fn on_its_way(&self, exchange: &Exchange) {
        self.traffic.borrow_mut().outbox.on_its_way(exchange.message.number);
        self.wake.notify_one();
    }

    /// Records that the upstream accepted a message. If it has no requests, the next message may be sent.
    pub(crate) fn accepted(&self, exchange: &Exchange) {
        let message = &exchange.message;
        if message.kind == MessageKind::Initialized && !exchange.silent {
            self.traffic.borrow_mut().initialized = Some(message.line.clone());
        }
        if message.requests.is_empty() {
            self.on_its_way(exchange);
        }
    }

    /// Stops counting an exchange as in flight. Its stream may still be open.
    pub(crate) fn done(&self, exchange: &Exchange) {
        if exchange.stop_counting() {
            self.traffic.borrow_mut().outbox.done(exchange.message.number, &exchange.message.kind);
            self.wake.notify_one();
        }
    }

    /// Forgets an exchange.
    pub(crate) fn forget(&self, exchange: &Rc<Exchange>) {
        self.done(exchange);
        self.traffic.borrow_mut().exchanges.retain(|known| !Rc::ptr_eq(known, exchange));
    }

    /// True if requests are unanswered or unsent. Subscriptions do not count: they end with the host.
    pub(crate) fn is_busy(&self) -> bool {
        let traffic = self.traffic.borrow();
        !traffic.outbox.is_empty() || traffic.outbox.in_flight() > 0
    }
}
