//! A line of the host that was sent, and its unanswered requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::link::Link;
use super::parcel::{Ask, Parcel, What};
use super::reply::Trouble;
use leash_model::limits;
use leash_protocol::envelope::IdKey;
use leash_protocol::era::Era;

/// A line that was sent.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) era: Era,
    parcel: Parcel,
    /// The number of the session in which it was sent.
    generation: u64,
    /// The unanswered requests.
    open: RefCell<Vec<Ask>>,
    /// It counts as in flight.
    counted: Cell<bool>,
    /// leash itself sent it. The host does not get the response.
    silent: bool,
    /// The host cancelled it by a notification that went upstream. No response is expected.
    taken_back: CancellationToken,
    /// The exchange is to be dropped.
    cancel: CancellationToken,
    /// All its requests are answered.
    settled: CancellationToken,
}

impl Exchange {
    /// Begins the exchange of a line of the host.
    pub(super) fn begin(parcel: Parcel, generation: u64) -> Rc<Exchange> {
        Rc::new(Exchange::new(parcel, generation, false))
    }

    /// Begins the exchange of a line that leash itself sends.
    pub(super) fn silent(parcel: Parcel, generation: u64) -> Rc<Exchange> {
        Rc::new(Exchange::new(parcel, generation, true))
    }

    fn new(parcel: Parcel, generation: u64, silent: bool) -> Exchange {
        let settled = CancellationToken::new();
        if parcel.asks.is_empty() {
            settled.cancel();
        }
        Exchange {
            number: parcel.number,
            what: parcel.what.clone(),
            era: parcel.era,
            open: RefCell::new(parcel.asks.clone()),
            parcel,
            generation,
            counted: Cell::new(!silent),
            silent,
            taken_back: CancellationToken::new(),
            cancel: CancellationToken::new(),
            settled,
        }
    }

    pub(super) fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    pub(super) fn line(&self) -> &Bytes {
        &self.parcel.line
    }

    /// True if the host does not get the response.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// True if this request is unanswered.
    pub(super) fn awaits(&self, key: &IdKey) -> bool {
        self.open.borrow().iter().any(|ask| ask.key == *key)
    }

    /// Records that this request was answered, and returns it.
    pub(super) fn answered(&self, key: &IdKey) -> Option<Ask> {
        let mut open = self.open.borrow_mut();
        let place = open.iter().position(|ask| ask.key == *key)?;
        let ask = open.remove(place);
        if open.is_empty() {
            self.settled.cancel();
        }
        Some(ask)
    }

    /// True if no request is unanswered.
    pub(super) fn is_answered(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Drops the exchange because the host cancelled it. The upstream sees that its connection is closed.
    pub(super) fn cancel(&self) {
        self.open.borrow_mut().clear();
        self.cancel.cancel();
    }

    /// Records that the host cancelled it. The notification that follows tells the upstream.
    pub(super) fn cancelled_by_host(&self) {
        if self.open.borrow().len() == 1 && self.what != What::Initialize {
            self.taken_back.cancel();
        }
    }

    /// True if the host cancelled it.
    pub(super) fn is_taken_back(&self) -> bool {
        self.taken_back.is_cancelled()
    }

    /// Waits until the host has cancelled it and a moment has passed. Some servers still respond, right after the
    /// cancel.
    pub(super) async fn given_up(&self) {
        self.taken_back.cancelled().await;
        tokio::time::sleep_until(tokio::time::Instant::now() + limits::AFTER_ANSWER).await;
    }

    /// Waits until `cancel` is called.
    pub(super) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// The number of the session in which it was sent.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes the unanswered requests out.
    pub(super) fn take_open(&self) -> Vec<Ask> {
        self.open.take()
    }

    /// Stops counting it as in flight. Returns true if it was counted until now.
    pub(super) fn leave(&self) -> bool {
        self.counted.replace(false)
    }

    /// Handles that the upstream accepted it. If it has no requests, the next line may be sent.
    pub(super) fn accepted(&self, link: &Link) {
        if self.what == What::Initialized && !self.silent {
            link.state.borrow_mut().initialized = Some(self.parcel.line.clone());
        }
        if self.parcel.asks.is_empty() {
            link.through(self);
        }
    }

    /// Waits until all its requests are answered.
    pub(super) async fn settled(&self) {
        self.settled.cancelled().await;
    }
}

/// The end of an exchange.
pub(super) enum End {
    /// All requests were answered, or the host does not wait for a response.
    Settled,
    /// The upstream will not answer the remaining requests.
    Failed(Trouble),
    /// The upstream had lost the session before it handled the line.
    Lost(Trouble),
}
