//! A line of the host that was sent, and what is still awaited for it.

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
    /// The session it was sent in.
    generation: u64,
    /// What is not answered.
    open: RefCell<Vec<Ask>>,
    /// It takes up room among those in flight.
    counted: Cell<bool>,
    /// leash's own: the host is told nothing of it.
    silent: bool,
    /// The host took it back, by a notification that went upstream: no answer is expected.
    taken_back: CancellationToken,
    /// It is no longer of interest: drop it.
    cancel: CancellationToken,
    /// Everything is answered, or taken back.
    settled: CancellationToken,
}

impl Exchange {
    /// A line of the host.
    pub(super) fn begin(parcel: Parcel, generation: u64) -> Rc<Exchange> {
        Rc::new(Exchange::new(parcel, generation, false))
    }

    /// Something that leash sends by itself.
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

    /// Whether the host is told nothing of it.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether it asks this, and was not answered.
    pub(super) fn awaits(&self, key: &IdKey) -> bool {
        self.open.borrow().iter().any(|ask| ask.key == *key)
    }

    /// This was answered.
    pub(super) fn answered(&self, key: &IdKey) -> Option<Ask> {
        let mut open = self.open.borrow_mut();
        let place = open.iter().position(|ask| ask.key == *key)?;
        let ask = open.remove(place);
        if open.is_empty() {
            self.settled.cancel();
        }
        Some(ask)
    }

    /// Whether nothing is left to be answered.
    pub(super) fn is_answered(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// The host wants no answer any more; the upstream will see that its connection is closed.
    pub(super) fn cancel(&self) {
        self.open.borrow_mut().clear();
        self.cancel.cancel();
    }

    /// The host wants no answer any more, and the upstream is told by the notification that follows.
    pub(super) fn cancelled_by_host(&self) {
        if self.open.borrow().len() == 1 && self.what != What::Initialize {
            self.taken_back.cancel();
        }
    }

    /// Whether the host took it back.
    pub(super) fn is_taken_back(&self) -> bool {
        self.taken_back.is_cancelled()
    }

    /// Waits until nothing is expected any more of what the host took back. Some servers answer all the same, at once.
    pub(super) async fn given_up(&self) {
        self.taken_back.cancelled().await;
        tokio::time::sleep_until(tokio::time::Instant::now() + limits::AFTER_ANSWER).await;
    }

    /// Waits until nobody is interested in it any more.
    pub(super) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// The session it was sent in.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// What is unanswered; from now on nothing is.
    pub(super) fn take_open(&self) -> Vec<Ask> {
        self.open.take()
    }

    /// Whether it was still counted until now.
    pub(super) fn leave(&self) -> bool {
        self.counted.replace(false)
    }

    /// It was accepted, and if it asks for nothing, the next line may go.
    pub(super) fn accepted(&self, link: &Link) {
        if self.what == What::Initialized && !self.silent {
            link.state.borrow_mut().initialized = Some(self.parcel.line.clone());
        }
        if self.parcel.asks.is_empty() {
            link.through(self);
        }
    }

    /// Waits until everything is answered, or taken back.
    pub(super) async fn settled(&self) {
        self.settled.cancelled().await;
    }
}

/// How an exchange ended.
pub(super) enum End {
    /// All is well, or nobody waits any more.
    Settled,
    /// What is unanswered never will be.
    Failed(Trouble),
    /// The session was lost before it was dealt with.
    Lost(Trouble),
}
