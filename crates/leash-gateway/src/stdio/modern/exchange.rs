//! Requests of several clients on one pipe; pure.
//!
//! Every request gets a number of its own, which is its id and its progress token towards the server. On the way back
//! leash restores the client's own id and token, byte for byte: in responses, in progress, in the messages of a
//! subscription (which carry the id of the request that opened it), and where the server itself ends a subscription.
//!
//! A message that names no request goes to the request in flight that began last: there is no other address, and all
//! clients of one pipe are the same principal.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use bytes::Bytes;
use hyper::{HeaderMap, StatusCode};
use serde_json::value::RawValue;

use crate::stdio::exit::UnansweredError;
use crate::{stdio::log::NextMessage, stdio::waiting_task::WaitingTask, stdio::window::TimerTurns};
use leash_protocol::envelope::{Envelope, EnvelopeKind, IdKey, Message, Splice, cancelled_body, codes, error_body};
use leash_protocol::header_copies::HeaderCopies;

/// A request's number on the pipe.
pub(super) type Number = u64;

/// The requests in flight on one pipe.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    open: BTreeMap<Number, OpenRequest>,
    last: Number,
    /// Bytes that wait for connections.
    unread: usize,
    /// The arguments that the server's tools want repeated as headers.
    header_copies: HeaderCopies,
}

/// A request and the messages that came for it.
#[derive(Debug)]
struct OpenRequest {
    /// The client's id and progress token, as it wrote them.
    id: Box<RawValue>,
    token: Option<Box<RawValue>>,
    /// True if it asks for the server's tools.
    lists_tools: bool,
    messages: VecDeque<Bytes>,
    /// The HTTP status of its answer, once there is one.
    answered: Option<StatusCode>,
    /// True if another message came before the answer.
    mixed: bool,
    /// True if the server was told that the request is cancelled.
    cancelled: bool,
    /// True if its connection was cut because it was too slow.
    cut: bool,
    /// True if its connection took a message since [`Exchanges::start_observing`].
    moved: bool,
    turns: TimerTurns,
    waiting_task: WaitingTask,
}

/// The form of the answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ModernAnswer {
    /// Not decided yet.
    Wait,
    /// By one body.
    Whole(StatusCode, Bytes),
    /// By a stream: another message comes before the answer, or the answer is late.
    Stream,
}

impl Exchanges {
    /// Begins a request; returns its number, and its line with the number as id.
    pub(super) fn begin(&mut self, source: &[u8], envelope: &Envelope<'_>) -> Option<(Number, Bytes)> {
        let id = envelope.id?;
        let number = self.last + 1;
        let mut line = Splice::new(source);
        line.replace(id, number.to_string());
        let token = envelope.progress_token();
        if let Some(token) = token {
            line.replace(token, number.to_string());
        }
        self.last = number;
        let exchange = OpenRequest {
            id: id.to_owned(),
            token: token.map(ToOwned::to_owned),
            lists_tools: envelope.method.as_deref() == Some("tools/list"),
            messages: VecDeque::new(),
            answered: None,
            mixed: false,
            cancelled: false,
            cut: false,
            moved: false,
            turns: TimerTurns::default(),
            waiting_task: WaitingTask::default(),
        };
        self.open.insert(number, exchange);
        Some((number, line.finish().into()))
    }

    /// Checks that the headers of a call agree with its arguments, as far as the server's tools are known.
    pub(super) fn check(&self, envelope: &Envelope<'_>, headers: &HeaderMap) -> Result<(), String> {
        self.header_copies.check(envelope, headers)
    }

    /// Delivers a line of the server; returns false if no request is there for it.
    pub(super) fn deliver(&mut self, line: &[u8], envelope: &Envelope<'_>) -> bool {
        let named = |raw: Option<&RawValue>| raw.and_then(IdKey::of).and_then(|key| key.number());
        match envelope.kind {
            EnvelopeKind::Response => named(envelope.id).is_some_and(|number| self.answer(number, line, envelope)),
            // In this era a server sends no requests, and a client has no way to answer one.
            EnvelopeKind::Request => false,
            EnvelopeKind::Notification => {
                let (progress, ended, subscription) =
                    (envelope.progress_token(), envelope.cancelled(), envelope.subscription());
                let number = named(progress).or(named(ended)).or(named(subscription));
                let number = match number {
                    Some(number) => number,
                    None => match self.open.iter().rev().find(|(_, exchange)| exchange.answered.is_none()) {
                        Some((number, _)) => *number,
                        None => return false,
                    },
                };
                let Some(exchange) = self.open.get(&number) else { return false };
                let mut restored = Splice::new(line);
                if let (Some(theirs), Some(ours)) = (progress, &exchange.token) {
                    restored.replace(theirs, ours.get());
                }
                for theirs in [ended, subscription].into_iter().flatten() {
                    restored.replace(theirs, exchange.id.get());
                }
                let message = restored.finish().into();
                self.push(number, message, true)
            }
        }
    }

    fn answer(&mut self, number: Number, line: &[u8], envelope: &Envelope<'_>) -> bool {
        let Some(exchange) = self.open.get_mut(&number).filter(|exchange| exchange.answered.is_none()) else {
            return false;
        };
        exchange.answered = Some(envelope.error_code().map_or(StatusCode::OK, status_of));
        if exchange.lists_tools {
            // leash ignores errors in a schema: clients see the schema as the server sent it.
            self.header_copies.learn(envelope);
        }
        let mut restored = Splice::new(line);
        for theirs in [envelope.id, envelope.subscription()].into_iter().flatten() {
            restored.replace(theirs, exchange.id.get());
        }
        let message = restored.finish().into();
        self.push(number, message, false)
    }

    fn push(&mut self, number: Number, message: Bytes, mixed: bool) -> bool {
        let Some(exchange) = self.open.get_mut(&number).filter(|exchange| !exchange.cut) else { return false };
        exchange.mixed |= mixed;
        self.unread += message.len();
        exchange.messages.push_back(message);
        exchange.waiting_task.wake();
        true
    }

    /// Returns how a request is answered; if that is not decided yet, its connection is woken on a change.
    pub(super) fn first(&mut self, number: Number, waker: &Waker) -> ModernAnswer {
        let Some(exchange) = self.open.get_mut(&number) else { return ModernAnswer::Stream };
        match exchange.answered {
            _ if exchange.mixed || exchange.cut => ModernAnswer::Stream,
            None if exchange.turns.is_late() => ModernAnswer::Stream,
            Some(status) => {
                let body = exchange.messages.pop_front().unwrap_or_default();
                self.unread -= body.len();
                ModernAnswer::Whole(status, body)
            }
            None => {
                exchange.waiting_task.wait(waker);
                ModernAnswer::Wait
            }
        }
    }

    /// Counts a firing of the window's timer for all requests; returns true if one of them is not late.
    pub(super) fn turn(&mut self) -> bool {
        let mut waiting = false;
        for exchange in self.open.values_mut().filter(|exchange| exchange.answered.is_none()) {
            if exchange.turns.next() {
                exchange.waiting_task.wake();
            }
            waiting |= !exchange.turns.is_late();
        }
        waiting
    }

    /// The next message for a connection.
    pub(super) fn next(&mut self, number: Number, waker: &Waker) -> NextMessage {
        let Some(exchange) = self.open.get_mut(&number).filter(|exchange| !exchange.cut) else {
            return NextMessage::Cut;
        };
        match exchange.messages.pop_front() {
            Some(message) => {
                exchange.moved = true;
                self.unread -= message.len();
                // Streams of this era cannot be resumed, so their events have no ids.
                NextMessage::Message(0, message)
            }
            None if exchange.answered.is_some() => NextMessage::End,
            None => {
                exchange.waiting_task.wait(waker);
                NextMessage::Wait
            }
        }
    }

    /// Removes a request that its connection is done with. If it was not answered, returns the line that cancels it.
    pub(super) fn leave(&mut self, number: Number) -> Option<Bytes> {
        let exchange = self.open.remove(&number)?;
        self.unread -= exchange.unread();
        if exchange.answered.is_some() || exchange.cancelled {
            return None;
        }
        Some(cancelled_body(number, "the client closed its connection").into())
    }

    /// The line of a client's own cancellation with the number as id, if it is clear which request it means.
    pub(super) fn cancel(&mut self, source: &[u8], envelope: &Envelope<'_>) -> Option<Bytes> {
        let theirs = envelope.cancelled()?;
        let key = IdKey::of(theirs)?;
        let mut meant = self.open.iter_mut().filter(|(_, exchange)| IdKey::of(&exchange.id).as_ref() == Some(&key));
        // Two clients may have a request of this id. leash cannot tell which is meant; each client can close its
        // connection.
        let ((number, exchange), None) = (meant.next()?, meant.next()) else { return None };
        if exchange.answered.is_some() || std::mem::replace(&mut exchange.cancelled, true) {
            return None;
        }
        Some(Splice::new(source).replace(theirs, number.to_string()).finish().into())
    }

    /// Requests that were not answered yet.
    pub(super) fn in_flight(&self) -> usize {
        self.open.values().filter(|exchange| exchange.answered.is_none()).count()
    }

    /// Answers all requests in flight in the server's place; returns the lines that cancel them.
    pub(super) fn abort(&mut self) -> Vec<Bytes> {
        let waiting = self.open.iter_mut().filter(|(_, exchange)| exchange.answered.is_none());
        let line = |(number, exchange): (&Number, &mut OpenRequest)| {
            exchange.cancelled = true;
            cancelled_body(number, "aborted").into()
        };
        let lines = waiting.map(line).collect();
        self.close(&"aborted".into());
        lines
    }

    /// Answers all requests in flight in the server's place.
    pub(super) fn close(&mut self, error: &UnansweredError) {
        let waiting = self.open.iter().filter(|(_, exchange)| exchange.answered.is_none());
        let waiting: Vec<_> = waiting.map(|(number, exchange)| (*number, exchange.id.clone())).collect();
        for (number, id) in waiting {
            if let Some(exchange) = self.open.get_mut(&number) {
                exchange.answered = Some(StatusCode::OK);
            }
            self.push(number, error_body(Some(&id), codes::SERVER, &error.message, error.data.clone()).into(), false);
        }
    }

    /// Bytes that wait for connections.
    pub(super) fn unread(&self) -> usize {
        self.unread
    }

    /// Notes that a connection took a message.
    pub(super) fn moved(&mut self, number: Number) {
        if let Some(exchange) = self.open.get_mut(&number) {
            exchange.moved = true;
        }
    }

    /// Starts an observation period for [`Exchanges::cut_stalled`].
    pub(super) fn start_observing(&mut self) {
        self.open.values_mut().for_each(|exchange| exchange.moved = false);
    }

    /// Cuts the connections that had messages to take and took none since [`Exchanges::start_observing`].
    pub(super) fn cut_stalled(&mut self) {
        for exchange in self.open.values_mut().filter(|exchange| !exchange.moved && !exchange.messages.is_empty()) {
            self.unread -= exchange.unread();
            exchange.messages.clear();
            exchange.cut = true;
            exchange.waiting_task.wake();
        }
    }
}

impl OpenRequest {
    fn unread(&self) -> usize {
        self.messages.iter().map(Bytes::len).sum()
    }
}

/// The HTTP status of an answer that is an error.
fn status_of(code: i64) -> StatusCode {
    match code {
        codes::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        codes::HEADER_MISMATCH | codes::MISSING_CAPABILITY | codes::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The HTTP status of an answer.
pub(in super::super) fn status(answer: &[u8]) -> StatusCode {
    match Message::read(answer) {
        Ok(Message::One(envelope)) => envelope.error_code().map_or(StatusCode::OK, status_of),
        _ => StatusCode::OK,
    }
}

/// True if an answer to `server/discover` shows that the server is of the modern era.
pub(super) fn is_modern(answer: &[u8]) -> bool {
    let Ok(Message::One(envelope)) = Message::read(answer) else { return false };
    // Any other error may come from a server that does not know the method.
    let modern = [codes::HEADER_MISMATCH, codes::MISSING_CAPABILITY, codes::UNSUPPORTED_VERSION];
    match envelope.error_code() {
        Some(code) => modern.contains(&code),
        None => envelope.error.is_none() && envelope.result.is_some(),
    }
}

#[cfg(test)]
mod tests;
