//! Pings to a client that listens: legacy only, and never seen by the server.

use std::cell::Cell;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::keep_alive::Known;
use leash_protocol::envelope::{Envelope, Kind};

/// What the ids of pings begin with. A server's own ids do not look like this, and with the session's id in it none can.
const PREFIX: &str = "\"leash-ping-";

/// Pings of one session.
#[derive(Debug, Default)]
pub(super) struct Pings {
    sent: Cell<u64>,
    /// In a row.
    unanswered: Cell<u32>,
    /// The client has answered a ping before.
    answers: Cell<bool>,
}

impl Pings {
    /// The facts about the client that `keep_alive` needs.
    pub(super) fn known(&self, owned: bool) -> Known {
        Known { unanswered: self.unanswered.get(), answers: self.answers.get(), owned }
    }

    /// The next ping.
    pub(super) fn next(&self, session: &str) -> Bytes {
        self.unanswered.set(self.unanswered.get() + 1);
        self.sent.set(self.sent.get() + 1);
        format!(r#"{{"jsonrpc":"2.0","id":{PREFIX}{session}-{}","method":"ping"}}"#, self.sent.get()).into()
    }

    /// Somebody new listens.
    pub(super) fn begin(&self) {
        self.unanswered.set(0);
    }

    /// Whether this answers a ping; then the client is there.
    pub(super) fn is_answer(&self, envelope: &Envelope<'_>) -> bool {
        let answer = envelope.kind == Kind::Response && envelope.id.is_some_and(|id| id.get().starts_with(PREFIX));
        if answer {
            self.unanswered.set(0);
            self.answers.set(true);
        }
        answer
    }
}

/// A batch without its answers to pings, if something else is in it.
pub(super) fn without_answers(batch: &Bytes, is_answer: impl Fn(usize) -> bool) -> Option<Bytes> {
    let elements: Vec<&RawValue> = serde_json::from_slice(batch).ok()?;
    let others = elements.iter().enumerate().filter(|(at, _)| !is_answer(*at));
    let others: Vec<&str> = others.map(|(_, element)| element.get()).collect();
    (!others.is_empty()).then(|| format!("[{}]", others.join(",")).into())
}
