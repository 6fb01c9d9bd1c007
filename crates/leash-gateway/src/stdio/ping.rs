//! Pings to a client that listens: legacy only. The server never sees them.

use std::cell::Cell;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::keep_alive::Known;
use leash_protocol::envelope::{Envelope, EnvelopeKind};

/// The prefix of ping ids. After it comes the session's id, which makes a collision with a server's own ids impossible.
const PREFIX: &str = "\"leash-ping-";

/// The pings of one session.
#[derive(Debug, Default)]
pub(super) struct Pings {
    sent: Cell<u64>,
    /// The number of unanswered pings in a row.
    unanswered: Cell<u32>,
    /// True once the client has answered a ping.
    answers: Cell<bool>,
}

impl Pings {
    /// The facts about the client that its answers show.
    pub(super) fn known(&self, owned: bool) -> Known {
        Known { unanswered: self.unanswered.get(), answers: self.answers.get(), owned }
    }

    /// Returns the next ping message and counts it as unanswered.
    pub(super) fn next(&self, session: &str) -> Bytes {
        self.unanswered.set(self.unanswered.get() + 1);
        self.sent.set(self.sent.get() + 1);
        format!(r#"{{"jsonrpc":"2.0","id":{PREFIX}{session}-{}","method":"ping"}}"#, self.sent.get()).into()
    }

    /// Resets the count of unanswered pings: the client has just shown that it is alive.
    pub(super) fn begin(&self) {
        self.unanswered.set(0);
    }

    /// True if the message answers a ping. Then the client is alive.
    pub(super) fn is_answer(&self, envelope: &Envelope<'_>) -> bool {
        let answer =
            envelope.kind == EnvelopeKind::Response && envelope.id.is_some_and(|id| id.get().starts_with(PREFIX));
        if answer {
            self.unanswered.set(0);
            self.answers.set(true);
        }
        answer
    }
}

/// A batch without its answers to pings; `None` if nothing else is in it.
pub(super) fn without_answers(batch: &Bytes, is_answer: impl Fn(usize) -> bool) -> Option<Bytes> {
    let elements: Vec<&RawValue> = serde_json::from_slice(batch).ok()?;
    let others = elements.iter().enumerate().filter(|(at, _)| !is_answer(*at));
    let others: Vec<&str> = others.map(|(_, element)| element.get()).collect();
    (!others.is_empty()).then(|| format!("[{}]", others.join(",")).into())
}
