//! The connection's shared state: the session, the queue, and the unanswered requests. A function borrows it for its
//! own length, never across an `.await`.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use bytes::Bytes;
use hyper::Uri;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::exchange::Exchange;
use super::lease::Lease;
use super::outbox::Outbox;
use super::parcel::{Parcel, What};
use super::pipe::Voice;
use super::wire::Wire;
use super::{carry, open};
use leash_model::limits;
use leash_protocol::envelope::{IdKey, Kind, Message, codes, error_body};
use leash_protocol::era::Era;
use leash_protocol::frame::Line;
use leash_protocol::header_copies::HeaderCopies;
use leash_upstream::address::Upstream;
use leash_upstream::client::Client;
use leash_upstream::notice::Notice;

/// The transport of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Not known yet.
    Unknown,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05, with the address for POST while the stream is open.
    Old(Option<Uri>),
}

/// The state of a revival: leash opens a lost session again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reviving {
    No,
    /// A revival is under way. leash sends nothing until it is done.
    Now,
    /// A revival failed. leash tries again after a pause.
    Later,
}

/// A legacy session, from the response to `initialize` on.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    /// The id that the upstream gave, if it gave one.
    pub(super) id: Option<String>,
    /// The agreed protocol version.
    pub(super) version: Option<String>,
}

/// The state that changes while a connection lives.
#[derive(Debug)]
pub(super) struct State {
    pub(super) mode: Mode,
    /// The address for POST: the URL, or the address to which it redirected `initialize`.
    pub(super) endpoint: Uri,
    pub(super) session: Option<Session>,
    /// The number of sessions opened so far. Exchanges of an earlier session are out of date.
    pub(super) generation: u64,
    /// The host's `initialize`, to open the session again.
    pub(super) initialize: Option<Parcel>,
    /// The host's `notifications/initialized`.
    pub(super) initialized: Option<Bytes>,
    pub(super) outbox: Outbox,
    pub(super) exchanges: Vec<Rc<Exchange>>,
    pub(super) header_copies: HeaderCopies,
    /// The modern protocol version of the last message that named one.
    pub(super) spoken: Option<String>,
    /// The state of a revival.
    pub(super) reviving: Reviving,
    /// Stops the listener for the server's own messages.
    pub(super) listening: Option<CancellationToken>,
    /// The number of listeners. A listener that was told to stop may still count.
    pub(super) listeners: usize,
    /// The number of lines of the host so far.
    lines: u64,
}

/// The kinds of warnings that leash gives only once, until the operation works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Complaint {
    Unreachable,
    Refused,
    Garbage,
    Ledger,
    Keeper,
    HeaderCopies,
    NotJson,
}

/// One connection.
pub(super) struct Link {
    pub(super) upstream: Upstream,
    pub(super) revives: bool,
    pub(super) wire: Wire,
    /// The client for DELETE.
    pub(super) client: Client,
    pub(super) voice: Voice,
    pub(super) state: RefCell<State>,
    pub(super) lease: RefCell<Lease>,
    pub(super) tasks: TaskTracker,
    /// Stops all exchanges with the upstream.
    pub(super) stop: CancellationToken,
    /// Wakes the driver: a line may be sent, or the connection may be over.
    pub(super) wake: Notify,
    /// Wakes a revival that pauses: a request needs the session now.
    pub(super) retry: Notify,
    /// Stops the wait for the response to `initialize`.
    pub(super) last_call: CancellationToken,
    /// Notified when a listener stops.
    pub(super) deaf: Notify,
    /// The upstream has responded at least once.
    pub(super) reached: Cell<bool>,
    /// The session is lost, and leash will not open it again.
    pub(super) over: Cell<bool>,
    complaints: RefCell<HashSet<Complaint>>,
    tell: Box<dyn Fn(Notice)>,
}

/// The parts from which a link is created.
pub(super) struct Parts {
    pub(super) upstream: Upstream,
    pub(super) mode: Mode,
    pub(super) revives: bool,
    pub(super) voice: Voice,
    pub(super) lease: Lease,
    pub(super) tell: Box<dyn Fn(Notice)>,
}

impl Link {
    pub(super) fn new(parts: Parts) -> Rc<Link> {
        let Parts { upstream, mode, revives, voice, lease, tell } = parts;
        Rc::new(Link {
            state: RefCell::new(State {
                mode,
                endpoint: upstream.url.clone(),
                session: None,
                generation: 0,
                initialize: None,
                initialized: None,
                outbox: Outbox::default(),
                exchanges: Vec::new(),
                header_copies: HeaderCopies::default(),
                spoken: None,
                reviving: Reviving::No,
                listening: None,
                listeners: 0,
                lines: 0,
            }),
            upstream,
            revives,
            wire: Wire::new(),
            client: Client::new(),
            voice,
            lease: RefCell::new(lease),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            wake: Notify::new(),
            retry: Notify::new(),
            last_call: CancellationToken::new(),
            deaf: Notify::new(),
            reached: Cell::new(false),
            over: Cell::new(false),
            complaints: RefCell::default(),
            tell,
        })
    }

    /// Sends a notice to the user.
    pub(super) fn tell(&self, notice: Notice) {
        (self.tell)(notice);
    }

    /// Warns the user, unless leash gave the same kind of warning before and the operation has not worked since.
    pub(super) fn complain(&self, complaint: Complaint, text: impl FnOnce() -> String) {
        if self.complaints.borrow_mut().insert(complaint) {
            self.tell(Notice::Warning(text()));
        }
    }

    /// Records that the upstream responded. The next failure causes a new warning.
    pub(super) fn works(&self) {
        self.reached.set(true);
        let mut complaints = self.complaints.borrow_mut();
        complaints.remove(&Complaint::Unreachable);
        complaints.remove(&Complaint::Refused);
    }

    /// Runs a task until the connection ends.
    pub(super) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn_local(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Handles a line of the host. Returns a response if leash answers the line itself.
    pub(super) fn hear(&self, line: Line) -> Option<Vec<u8>> {
        let line = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => return None,
            Line::Whole(line) => line,
            Line::TooLong { length } => {
                let text = format!("a line of {length} bytes was not sent: the limit is {} bytes", limits::LINE);
                self.tell(Notice::Warning(text.clone()));
                return Some(error_body(None, codes::INVALID_REQUEST, &text, None));
            }
        };
        let mut state = self.state.borrow_mut();
        let number = state.lines;
        state.lines += 1;
        let parcel = match Parcel::read(number, line) {
            Ok(parcel) => parcel,
            Err(fault) => {
                drop(state);
                self.complain(Complaint::NotJson, || {
                    "the host wrote a line that is not JSON; leash did not send it".to_owned()
                });
                return Some(error_body(None, fault.code(), &format!("Parse error: {fault}"), None));
            }
        };
        match &parcel.what {
            What::Cancel(key) if self.takes_back(&mut state, key) => None,
            What::Listen if state.outbox.is_deaf() => {
                let id = parcel.asks.first().map(|ask| &*ask.id);
                Some(error_body(id, codes::SERVER, "too many subscriptions are open; cancel one", None))
            }
            What::Request if let Some(refused) = refusal(&state, &parcel) => Some(refused),
            _ => {
                state.outbox.push(parcel);
                None
            }
        }
    }

    /// Cancels a request. Returns true if the upstream needs no notification: the request was not sent yet, or it is a
    /// modern request, which ends with its connection.
    fn takes_back(&self, state: &mut State, key: &IdKey) -> bool {
        if state.outbox.withdraw(key) {
            return true;
        }
        let found = state.exchanges.iter().find(|exchange| exchange.awaits(key));
        match found {
            Some(exchange) if exchange.era == Era::Modern => {
                exchange.cancel();
                true
            }
            Some(exchange) => {
                exchange.cancelled_by_host();
                // The host no longer waits for it. Servers that never answer cancelled requests must not use up the
                // limit.
                if exchange.what != What::Initialize && exchange.leave() {
                    state.outbox.done(exchange.number, &exchange.what);
                }
                false
            }
            // The request was answered meanwhile. A modern upstream does not need the notification.
            None => state.session.is_none() && state.spoken.is_some(),
        }
    }

    /// Sends everything that may be sent now.
    pub(super) fn send_waiting(self: &Rc<Self>) {
        loop {
            let Some(parcel) = self.state.borrow_mut().outbox.take() else { return };
            let exchange = Exchange::begin(parcel, self.state.borrow().generation);
            self.state.borrow_mut().exchanges.push(Rc::clone(&exchange));
            self.spawn(carry::run(Rc::clone(self), exchange));
        }
    }

    /// Records that an exchange is on its way, so that the next line may be sent.
    pub(super) fn through(&self, exchange: &Exchange) {
        self.state.borrow_mut().outbox.through(exchange.number);
        self.wake.notify_one();
    }

    /// Stops counting an exchange as in flight. Its stream may still be open.
    pub(super) fn done(&self, exchange: &Exchange) {
        if exchange.leave() {
            self.state.borrow_mut().outbox.done(exchange.number, &exchange.what);
            self.wake.notify_one();
        }
    }

    /// Forgets an exchange.
    pub(super) fn forget(&self, exchange: &Rc<Exchange>) {
        self.done(exchange);
        self.state.borrow_mut().exchanges.retain(|known| !Rc::ptr_eq(known, exchange));
    }

    /// Finds the exchange that a response belongs to: the one in whose stream it came, or else any.
    fn asked(&self, own: Option<&Rc<Exchange>>, key: &IdKey) -> Option<Rc<Exchange>> {
        let own = own.filter(|exchange| exchange.awaits(key)).cloned();
        own.or_else(|| self.state.borrow().exchanges.iter().find(|exchange| exchange.awaits(key)).cloned())
    }

    /// Records the facts that must be known before the host gets a message. Returns true if the host does not get it.
    pub(super) fn foresee(self: &Rc<Self>, own: Option<&Rc<Exchange>>, message: &Message<'_>) -> bool {
        let Message::One(envelope) = message else { return false };
        let key = envelope.key().filter(|_| envelope.kind == Kind::Response);
        let Some(exchange) = key.and_then(|key| self.asked(own, &key)) else { return false };
        if exchange.what == What::Initialize {
            open::agreed(self, &exchange, envelope);
        }
        exchange.is_silent()
    }

    /// Records the requests that a message answers.
    pub(super) fn settle(&self, own: Option<&Rc<Exchange>>, message: &Message<'_>) {
        for envelope in message.envelopes().iter().filter(|envelope| envelope.kind == Kind::Response) {
            let Some(key) = envelope.key() else { continue };
            let Some(exchange) = self.asked(own, &key) else { continue };
            let Some(ask) = exchange.answered(&key) else { continue };
            if ask.lists_tools {
                let useless = self.state.borrow_mut().header_copies.learn(envelope);
                if useless > 0 {
                    let text = format!(
                        "upstream lists {useless} arguments with an `x-mcp-header` that is not valid; leash does not call their tools"
                    );
                    self.complain(Complaint::HeaderCopies, || text);
                }
            }
            if exchange.is_answered() {
                self.done(&exchange);
            }
        }
    }

    /// True if requests are unanswered or unsent. Subscriptions do not count: they end with the host.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.borrow();
        !state.outbox.is_empty() || state.outbox.in_flight() > 0
    }

    /// Ends the connection because the session is lost, so that the host notices.
    pub(super) fn give_up(&self) {
        self.over.set(true);
        self.wake.notify_one();
    }

    /// Warns if the ledger could not be written. The connection goes on.
    pub(super) fn check_written(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.complain(Complaint::Ledger, || format!("the ledger is not up to date: {error}"));
        }
    }
}

/// Returns the error for a modern call that leash must not make. HTTP clients must not call tools with an invalid
/// `x-mcp-header`, and a host that speaks over a pipe need not know that.
fn refusal(state: &State, parcel: &Parcel) -> Option<Vec<u8>> {
    let ask = parcel.asks.first().filter(|_| parcel.era == Era::Modern)?;
    let tool = state.header_copies.invalid_tool(&parcel.line)?;
    let text = format!("`{tool}` can't be called over HTTP: an `x-mcp-header` in its schema is not valid");
    Some(error_body(Some(&ask.id), codes::INVALID_PARAMS, &text, None))
}
