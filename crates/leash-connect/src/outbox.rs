//! The send queue towards the upstream: the order of the lines, and the limits. Pure: the caller reports events and
//! asks which line may be sent.
//!
//! Lines are sent one after the other, in the order in which the host wrote them. The next line may be sent when the
//! body of a request was handed to its connection, when the upstream accepted a notification or a response, or when it
//! answered `initialize`. Requests wait while too many are unanswered. Cancellations and responses then overtake them,
//! because the unanswered requests may depend on them.

use std::collections::VecDeque;

use crate::message::{HostMessage, MessageKind};
use leash_model::limits;
use leash_protocol::envelope::IdKey;

/// The queue towards the upstream.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Sorted by their numbers.
    waiting: VecDeque<HostMessage>,
    bytes: usize,
    /// The number of the message that must be on its way before the next one may be sent.
    sending: Option<u64>,
    /// leash is opening a session anew and sends nothing until then.
    suspended: bool,
    /// The number of requests that were sent and are not answered.
    in_flight: usize,
    /// The number of open subscriptions. They do not count as in flight, because they may stay open forever.
    subscriptions: usize,
}

impl Outbox {
    /// Adds the newest line.
    pub(crate) fn push(&mut self, message: HostMessage) {
        self.bytes += message.line.len();
        self.waiting.push_back(message);
    }

    /// Puts a message back that the upstream did not handle. It is sent again, before all newer messages.
    pub(crate) fn put_back(&mut self, mut message: HostMessage) {
        message.repeated = true;
        self.bytes += message.line.len();
        let place = self.waiting.partition_point(|waiting| waiting.number < message.number);
        self.waiting.insert(place, message);
    }

    /// True if leash may read more lines from the host.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes < limits::OUTBOX_BYTES && self.waiting.len() < limits::OUTBOX_LINES
    }

    /// True if everything was sent and is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sending.is_none()
    }

    /// True if nothing waits. The last message may not have been handed over yet.
    pub(crate) fn is_sent(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of requests that were sent and are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// True if the limit of open subscriptions is reached.
    pub(crate) fn has_all_subscriptions(&self) -> bool {
        self.subscriptions >= limits::SUBSCRIPTIONS
    }

    /// Returns the message that may be sent now. The caller calls [`Outbox::on_its_way`] when the next one may be sent,
    /// and [`Outbox::done`] at the end.
    pub(crate) fn take(&mut self) -> Option<HostMessage> {
        if self.suspended || self.sending.is_some() {
            return None;
        }
        let full = self.in_flight >= limits::IN_FLIGHT;
        let blocked = |message: &HostMessage| full && message.kind.is_request();
        let place = match self.waiting.front() {
            Some(first) if blocked(first) => self.waiting.iter().position(|message| message.kind.is_urgent())?,
            Some(_) => 0,
            None => return None,
        };
        let message = self.waiting.remove(place)?;
        self.bytes -= message.line.len();
        self.sending = Some(message.number);
        match message.kind {
            MessageKind::Subscription => self.subscriptions += 1,
            MessageKind::Initialize | MessageKind::Request => self.in_flight += 1,
            MessageKind::Initialized | MessageKind::Cancel(_) | MessageKind::Response | MessageKind::Notification => {}
        }
        Some(message)
    }

    /// Records that a message is on its way, so that the next one may be sent. Further calls have no effect.
    pub(crate) fn on_its_way(&mut self, number: u64) {
        if self.sending == Some(number) {
            self.sending = None;
        }
    }

    /// Records that a message was answered, given up, or put back.
    pub(crate) fn done(&mut self, number: u64, kind: &MessageKind) {
        self.on_its_way(number);
        match kind {
            MessageKind::Subscription => self.subscriptions = self.subscriptions.saturating_sub(1),
            MessageKind::Initialize | MessageKind::Request => self.in_flight = self.in_flight.saturating_sub(1),
            MessageKind::Initialized | MessageKind::Cancel(_) | MessageKind::Response | MessageKind::Notification => {}
        }
    }

    /// Removes a request that was not sent yet. Returns false if there is none.
    pub(crate) fn withdraw(&mut self, key: &IdKey) -> bool {
        let is_it = |message: &HostMessage| matches!(&message.requests[..], [request] if request.key == *key);
        let Some(place) = self.waiting.iter().position(is_it) else { return false };
        if let Some(message) = self.waiting.remove(place) {
            self.bytes -= message.line.len();
        }
        true
    }

    /// Sends nothing until [`Outbox::resume`].
    pub(crate) fn suspend(&mut self) {
        self.suspended = true;
    }

    /// Sends again after [`Outbox::suspend`].
    pub(crate) fn resume(&mut self) {
        self.suspended = false;
    }

    /// Removes and returns everything that was not sent.
    pub(crate) fn clear(&mut self) -> Vec<HostMessage> {
        self.bytes = 0;
        self.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests;
