//! A message that was sent, and its unanswered requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio_util::sync::CancellationToken;

use crate::message::{HostMessage, MessageKind, PendingRequest};
use crate::response::RequestFailure;
use leash_model::limits;
use leash_protocol::envelope::IdKey;

/// A message that was sent.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) message: HostMessage,
    /// The generation of the session in which it was sent.
    pub(crate) generation: u64,
    /// leash itself sent it. The host does not get the response.
    pub(crate) silent: bool,
    unanswered: RefCell<Vec<PendingRequest>>,
    /// It counts as in flight.
    counted: Cell<bool>,
    /// The host cancelled it by a notification that went upstream. No response is expected.
    cancelled_by_host: CancellationToken,
    /// The exchange is to be dropped.
    dropped: CancellationToken,
    /// All its requests are answered.
    answered: CancellationToken,
}

impl Exchange {
    /// Begins the exchange of a message of the host.
    pub(crate) fn begin(message: HostMessage, generation: u64) -> Rc<Exchange> {
        Rc::new(Exchange::new(message, generation, false))
    }

    /// Begins the exchange of a message that leash itself sends.
    pub(crate) fn silent(message: HostMessage, generation: u64) -> Rc<Exchange> {
        Rc::new(Exchange::new(message, generation, true))
    }

    fn new(message: HostMessage, generation: u64, silent: bool) -> Exchange {
        let answered = CancellationToken::new();
        if message.requests.is_empty() {
            answered.cancel();
        }
        Exchange {
            unanswered: RefCell::new(message.requests.clone()),
            message,
            generation,
            silent,
            counted: Cell::new(!silent),
            cancelled_by_host: CancellationToken::new(),
            dropped: CancellationToken::new(),
            answered,
        }
    }

    /// True if it is an `initialize`.
    pub(crate) fn is_initialize(&self) -> bool {
        self.message.kind == MessageKind::Initialize
    }

    /// True if this request is unanswered.
    pub(crate) fn awaits(&self, key: &IdKey) -> bool {
        self.unanswered.borrow().iter().any(|request| request.key == *key)
    }

    /// Records that this request was answered, and returns it.
    pub(crate) fn answer(&self, key: &IdKey) -> Option<PendingRequest> {
        let mut unanswered = self.unanswered.borrow_mut();
        let place = unanswered.iter().position(|request| request.key == *key)?;
        let request = unanswered.remove(place);
        if unanswered.is_empty() {
            self.answered.cancel();
        }
        Some(request)
    }

    /// True if no request is unanswered.
    pub(crate) fn is_answered(&self) -> bool {
        self.unanswered.borrow().is_empty()
    }

    /// Drops the exchange because the host cancelled it. The upstream sees that its connection is closed.
    pub(crate) fn drop_now(&self) {
        self.unanswered.borrow_mut().clear();
        self.dropped.cancel();
    }

    /// Records that the host cancelled it. The notification that follows tells the upstream.
    pub(crate) fn cancel(&self) {
        if self.unanswered.borrow().len() == 1 && !self.is_initialize() {
            self.cancelled_by_host.cancel();
        }
    }

    /// True if the host cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled_by_host.is_cancelled()
    }

    /// Waits until the exchange is dropped, or until the host has cancelled it and a moment has passed: some servers
    /// still respond, right after the cancel.
    pub(crate) async fn given_up(&self) {
        let cancelled = async {
            self.cancelled_by_host.cancelled().await;
            tokio::time::sleep_until(tokio::time::Instant::now() + limits::AFTER_ANSWER).await;
        };
        tokio::select! {
            biased;
            () = self.dropped.cancelled() => {}
            () = cancelled => {}
        }
    }

    /// Takes the unanswered requests out.
    pub(crate) fn take_unanswered(&self) -> Vec<PendingRequest> {
        self.unanswered.take()
    }

    /// Stops counting it as in flight. Returns true if it was counted until now.
    pub(crate) fn stop_counting(&self) -> bool {
        self.counted.replace(false)
    }

    /// Waits until all its requests are answered.
    pub(crate) async fn answered(&self) {
        self.answered.cancelled().await;
    }
}

/// The end of an exchange.
#[derive(Debug)]
pub(crate) enum ExchangeOutcome {
    /// All requests were answered, or the host does not wait for a response.
    Done,
    /// The upstream will not answer the remaining requests.
    Failed(RequestFailure),
    /// The upstream had lost the session before it handled the message.
    SessionLost(RequestFailure),
}
