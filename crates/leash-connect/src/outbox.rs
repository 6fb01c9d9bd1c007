//! What waits to be sent upstream: in which order it goes, and how much of it at once. Pure: it is told what happened, and asked
//! what may be sent.
//!
//! Lines go in the order in which the host wrote them, one after the other: the next one may go when the body of a request was
//! handed to its connection, when a notification or a response was accepted, when `initialize` was answered. Requests wait
//! while too many are unanswered; cancellations and responses pass them then, because those may be what the others wait for.

use std::collections::VecDeque;

use super::parcel::{Parcel, What};
use leash_model::limits;
use leash_protocol::envelope::IdKey;

/// The queue towards the upstream.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// By their number.
    waiting: VecDeque<Parcel>,
    bytes: usize,
    /// The parcel that has to get through before the next one may go.
    door: Option<u64>,
    /// A session is being opened anew; nothing goes until it is.
    suspended: bool,
    /// Requests that were sent and are not answered.
    in_flight: usize,
    /// Subscriptions that are open; they are not counted as in flight, because they may stay for ever.
    listening: usize,
}

impl Outbox {
    /// Adds the newest line.
    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.bytes += parcel.line.len();
        self.waiting.push_back(parcel);
    }

    /// Takes back what was sent in vain; it goes again, before everything younger.
    pub(crate) fn give_back(&mut self, mut parcel: Parcel) {
        parcel.repeated = true;
        self.bytes += parcel.line.len();
        let place = self.waiting.partition_point(|waiting| waiting.number < parcel.number);
        self.waiting.insert(place, parcel);
    }

    /// Whether the host may write more.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes < limits::OUTBOX_BYTES && self.waiting.len() < limits::OUTBOX_LINES
    }

    /// Whether everything was sent, and got through.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.door.is_none()
    }

    /// Whether nothing waits, though the last one may still be on its way.
    pub(crate) fn is_sent(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Requests that were sent and are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether one more subscription is one too many.
    pub(crate) fn is_deaf(&self) -> bool {
        self.listening >= limits::LISTENS
    }

    /// What may be sent now. The caller says [`Outbox::through`] when the next one may go, and [`Outbox::done`] at its end.
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

    /// A parcel got so far that the next one may go. Says it as often as it likes.
    pub(crate) fn through(&mut self, number: u64) {
        if self.door == Some(number) {
            self.door = None;
        }
    }

    /// A parcel needs no more attention: it was answered, given up, or given back.
    pub(crate) fn done(&mut self, number: u64, what: &What) {
        self.through(number);
        match what {
            What::Listen => self.listening = self.listening.saturating_sub(1),
            What::Initialize | What::Request => self.in_flight = self.in_flight.saturating_sub(1),
            What::Initialized | What::Cancel(_) | What::Response | What::Notice => {}
        }
    }

    /// Takes a request back that was not sent yet.
    pub(crate) fn withdraw(&mut self, key: &IdKey) -> bool {
        let is_it = |parcel: &Parcel| matches!(&parcel.asks[..], [ask] if ask.key == *key);
        let Some(place) = self.waiting.iter().position(is_it) else { return false };
        if let Some(parcel) = self.waiting.remove(place) {
            self.bytes -= parcel.line.len();
        }
        true
    }

    /// Nothing goes until [`Outbox::resume`].
    pub(crate) fn suspend(&mut self) {
        self.suspended = true;
    }

    /// Everything goes again.
    pub(crate) fn resume(&mut self) {
        self.suspended = false;
    }

    /// Gives up everything that was not sent.
    pub(crate) fn clear(&mut self) -> Vec<Parcel> {
        self.bytes = 0;
        self.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests;
