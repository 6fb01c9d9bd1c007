//! The connection's state: what was said to whom, and what is still awaited. Borrowed for the length of a function, never
//! across an `.await`.

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
use leash_protocol::header_copies::Mirrors;
use leash_upstream::address::Upstream;
use leash_upstream::client::Client;
use leash_upstream::notice::Notice;

/// How the upstream speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Not known yet.
    Unknown,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05: where to POST to, while its stream is open.
    Old(Option<Uri>),
}

/// Whether a lost session is being opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reviving {
    No,
    /// Nothing is sent until it is settled.
    Now,
    /// It failed, and is tried again after a pause.
    Later,
}

/// A legacy session, from the answer to `initialize` on.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    /// As the upstream gave it, if it did.
    pub(super) id: Option<String>,
    /// The version that was agreed upon.
    pub(super) version: Option<String>,
}

/// What changes while a connection lives.
#[derive(Debug)]
pub(super) struct State {
    pub(super) mode: Mode,
    /// Where POSTs go: the URL, or where it redirected `initialize` to.
    pub(super) endpoint: Uri,
    pub(super) session: Option<Session>,
    /// How often a session was opened; what belongs to an earlier one is out of date.
    pub(super) generation: u64,
    /// What the host opened its session with, to open it again.
    pub(super) initialize: Option<Parcel>,
    /// What the host said then.
    pub(super) initialized: Option<Bytes>,
    pub(super) outbox: Outbox,
    pub(super) exchanges: Vec<Rc<Exchange>>,
    pub(super) mirrors: Mirrors,
    /// The modern version that was spoken last.
    pub(super) spoken: Option<String>,
    /// Whether the session is being opened again.
    pub(super) reviving: Reviving,
    /// Who listens to what the server says by itself, to be told to stop.
    pub(super) listening: Option<CancellationToken>,
    /// How many listen; one that was told to stop may still be among them.
    pub(super) listeners: usize,
    /// Lines of the host so far.
    lines: u64,
}

/// Something that people are told once, until it works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Complaint {
    Unreachable,
    Refused,
    Garbage,
    Ledger,
    Keeper,
    Mirrors,
    NotJson,
}

/// One connection.
pub(super) struct Link {
    pub(super) upstream: Upstream,
    pub(super) revives: bool,
    pub(super) wire: Wire,
    /// For DELETE.
    pub(super) client: Client,
    pub(super) voice: Voice,
    pub(super) state: RefCell<State>,
    pub(super) lease: RefCell<Lease>,
    pub(super) tasks: TaskTracker,
    /// Everything that has to do with the upstream stops.
    pub(super) stop: CancellationToken,
    /// Something may be sent now, or there is no reason to wait any more.
    pub(super) wake: Notify,
    /// A lost session is needed now.
    pub(super) retry: Notify,
    /// Not even the beginning of a session is waited for any more.
    pub(super) last_call: CancellationToken,
    /// Somebody does not listen any more.
    pub(super) deaf: Notify,
    /// Somebody answered at least once.
    pub(super) reached: Cell<bool>,
    /// The session is lost and will not be opened again.
    pub(super) over: Cell<bool>,
    complaints: RefCell<HashSet<Complaint>>,
    tell: Box<dyn Fn(Notice)>,
}

/// What a connection is made of.
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
                mirrors: Mirrors::default(),
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

    /// Tells people something.
    pub(super) fn tell(&self, notice: Notice) {
        (self.tell)(notice);
    }

    /// Complains, unless it was said before and nothing has worked since.
    pub(super) fn complain(&self, complaint: Complaint, text: impl FnOnce() -> String) {
        if self.complaints.borrow_mut().insert(complaint) {
            self.tell(Notice::Warning(text()));
        }
    }

    /// The upstream answered: the next trouble is news again.
    pub(super) fn works(&self) {
        self.reached.set(true);
        let mut complaints = self.complaints.borrow_mut();
        complaints.remove(&Complaint::Unreachable);
        complaints.remove(&Complaint::Refused);
    }

    /// Runs something until the connection ends.
    pub(super) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn_local(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// A line of the host. What it is answered by leash itself, if it is.
    pub(super) fn hear(&self, line: Line) -> Option<Vec<u8>> {
        let line = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => return None,
            Line::Whole(line) => line,
            Line::TooLong { length } => {
                let text = format!("a line of {length} bytes was not sent: more than {} are too many", limits::LINE);
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
                    "the host writes lines that are not JSON; they are not sent".to_owned()
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

    /// Takes a request back without a word to the upstream, where that is how it is done: one that was not sent yet, or a modern
    /// one, which ends with its connection.
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
                // Nobody waits for it any more, and servers that never answer it must not use up all the room.
                if exchange.what != What::Initialize && exchange.leave() {
                    state.outbox.done(exchange.number, &exchange.what);
                }
                false
            }
            // It was answered meanwhile. A modern upstream has no use for such a notification.
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

    /// The next line may go.
    pub(super) fn through(&self, exchange: &Exchange) {
        self.state.borrow_mut().outbox.through(exchange.number);
        self.wake.notify_one();
    }

    /// An exchange takes up no room any more; it may still be listened to.
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

    /// Who awaits an answer: the exchange in whose stream it came, or else any.
    fn asked(&self, own: Option<&Rc<Exchange>>, key: &IdKey) -> Option<Rc<Exchange>> {
        let own = own.filter(|exchange| exchange.awaits(key)).cloned();
        own.or_else(|| self.state.borrow().exchanges.iter().find(|exchange| exchange.awaits(key)).cloned())
    }

    /// Takes notice of what must be known before the host is told; whether the host is not told at all.
    pub(super) fn foresee(self: &Rc<Self>, own: Option<&Rc<Exchange>>, message: &Message<'_>) -> bool {
        let Message::One(envelope) = message else { return false };
        let key = envelope.key().filter(|_| envelope.kind == Kind::Response);
        let Some(exchange) = key.and_then(|key| self.asked(own, &key)) else { return false };
        if exchange.what == What::Initialize {
            open::agreed(self, &exchange, envelope);
        }
        exchange.is_silent()
    }

    /// Takes notice of what a message answers.
    pub(super) fn settle(&self, own: Option<&Rc<Exchange>>, message: &Message<'_>) {
        for envelope in message.envelopes().iter().filter(|envelope| envelope.kind == Kind::Response) {
            let Some(key) = envelope.key() else { continue };
            let Some(exchange) = self.asked(own, &key) else { continue };
            let Some(ask) = exchange.answered(&key) else { continue };
            if ask.lists_tools {
                let useless = self.state.borrow_mut().mirrors.learn(envelope);
                if useless > 0 {
                    let text = format!(
                        "upstream lists {useless} arguments with an `x-mcp-header` that is not valid; their tools are not called"
                    );
                    self.complain(Complaint::Mirrors, || text);
                }
            }
            if exchange.is_answered() {
                self.done(&exchange);
            }
        }
    }

    /// Whether requests are unanswered or unsent. Subscriptions do not count: they are over with the host.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.borrow();
        !state.outbox.is_empty() || state.outbox.in_flight() > 0
    }

    /// The session is over, and the host must notice.
    pub(super) fn give_up(&self) {
        self.over.set(true);
        self.wake.notify_one();
    }

    /// What could not be written to the ledger is told, and changes nothing.
    pub(super) fn check_written(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.complain(Complaint::Ledger, || format!("the ledger is not up to date: {error}"));
        }
    }
}

/// Why a modern call is not made. HTTP clients must not call such tools; a host that speaks over a pipe need not know that.
fn refusal(state: &State, parcel: &Parcel) -> Option<Vec<u8>> {
    let ask = parcel.asks.first().filter(|_| parcel.era == Era::Modern)?;
    let tool = state.mirrors.invalid_tool(&parcel.line)?;
    let text = format!("`{tool}` can't be called over HTTP: an `x-mcp-header` in its schema is not valid");
    Some(error_body(Some(&ask.id), codes::INVALID_PARAMS, &text, None))
}
