//! The send queue towards the upstream: the order of the lines, and the limits. Pure: the caller reports events and
//! asks which line may be sent.
//!
//! Lines are sent one after the other, in the order in which the host wrote them. The next line may be sent when the
//! body of a request was handed to its connection, when the upstream accepted a notification or a response, or when it
//! answered `initialize`. Requests wait while too many are unanswered. Cancellations and responses then overtake them,
//! because the unanswered requests may depend on them.

use std::collections::VecDeque;

use super::parcel::{Parcel, What};
use leash_model::limits;
use leash_protocol::envelope::IdKey;

/// The queue towards the upstream.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Sorted by their numbers.
    waiting: VecDeque<Parcel>,
    bytes: usize,
    /// The number of the parcel that must be on its way before the next one may be sent.
    door: Option<u64>,
    /// leash is opening a session anew and sends nothing until then.
    suspended: bool,
    /// The number of requests that were sent and are not answered.
    in_flight: usize,
    /// The number of open subscriptions. They do not count as in flight, because they may stay open forever.
    listening: usize,
}

impl Outbox {
    /// Adds the newest line.
    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.bytes += parcel.line.len();
        self.waiting.push_back(parcel);
    }

    /// Puts a parcel back that the upstream did not handle. It is sent again, before all newer parcels.
    pub(crate) fn give_back(&mut self, mut parcel: Parcel) {
        parcel.repeated = true;
        self.bytes += parcel.line.len();
        let place = self.waiting.partition_point(|waiting| waiting.number < parcel.number);
        self.waiting.insert(place, parcel);
    }

    /// True if leash may read more lines from the host.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes < limits::OUTBOX_BYTES && self.waiting.len() < limits::OUTBOX_LINES
    }

    /// True if everything was sent and is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.door.is_none()
    }

    /// True if nothing waits. The last parcel may not have been handed over yet.
    pub(crate) fn is_sent(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of requests that were sent and are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// True if the limit of open subscriptions is reached.
    pub(crate) fn is_deaf(&self) -> bool {
        self.listening >= limits::LISTENS
    }

    /// Returns the parcel that may be sent now. The caller calls [`Outbox::through`] when the next one may be sent, and
    /// [`Outbox::done`] at the end.
    pub(crate) fn take(&mut self) -> Option<Parcel> {
        if self.suspended || self.door.is_some() {
            return None;
        }
        let full = self.in_flight >= limits::IN_FLIGHT;
        let blocked = |parcel: &Parcel| full && parcel.what.is_request();
        let place = match self.waiting.front() {
            Some(first) if blocked(first) => self.waiting.iter().position(|parcel| parcel.what.is_urgent())?,
            Some(_) => 0,
            None => return None,
        };
        let parcel = self.waiting.remove(place)?;
        self.bytes -= parcel.line.len();
        self.door = Some(parcel.number);
        match parcel.what {
            What::Listen => self.listening += 1,
            What::Initialize | What::Request => self.in_flight += 1,
            What::Initialized | What::Cancel(_) | What::Response | What::Notice => {}
        }
        Some(parcel)
    }

    /// Records that a parcel is on its way, so that the next one may be sent. Further calls have no effect.
    pub(crate) fn through(&mut self, number: u64) {
        if self.door == Some(number) {
            self.door = None;
        }
    }

    /// Records that a parcel was answered, given up, or put back.
    pub(crate) fn done(&mut self, number: u64, what: &What) {
        self.through(number);
        match what {
            What::Listen => self.listening = self.listening.saturating_sub(1),
            What::Initialize | What::Request => self.in_flight = self.in_flight.saturating_sub(1),
            What::Initialized | What::Cancel(_) | What::Response | What::Notice => {}
        }
    }

    /// Removes a request that was not sent yet. Returns false if there is none.
    pub(crate) fn withdraw(&mut self, key: &IdKey) -> bool {
        let is_it = |parcel: &Parcel| matches!(&parcel.asks[..], [ask] if ask.key == *key);
        let Some(place) = self.waiting.iter().position(is_it) else { return false };
        if let Some(parcel) = self.waiting.remove(place) {
            self.bytes -= parcel.line.len();
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
    pub(crate) fn clear(&mut self) -> Vec<Parcel> {
        self.bytes = 0;
        self.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests;
