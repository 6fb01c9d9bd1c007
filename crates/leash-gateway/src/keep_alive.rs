//! The pings to a client that listens: when leash sends them, and what the client's silence means.

use std::cell::Cell;

use crate::config::{KeepAlive, SessionPolicy};
use leash_protocol::envelope::{Envelope, EnvelopeKind};

/// The prefix of ping ids, as JSON. After it comes the session's id, which makes a collision with a server's own ids
/// impossible.
const PREFIX: &str = "\"leash-ping-";

/// The pings of one session.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    sent: Cell<u64>,
    /// The number of unanswered pings in a row.
    unanswered: Cell<u32>,
    /// The client has answered a ping.
    answers: Cell<bool>,
    /// One of the session's streams sends the pings.
    pub(crate) has_timer: Cell<bool>,
}

impl Pings {
    /// The action when a ping is due. `owned`: leash knows a living process of the client.
    pub(crate) fn due(&self, policy: &SessionPolicy, owned: bool) -> PingAction {
        let facts = PingFacts { unanswered: self.unanswered.get(), answers: self.answers.get(), owned };
        due(policy.keep_alive, policy.keep_alive_failures, facts)
    }

    /// Returns the next ping and counts it as unanswered.
    pub(crate) fn next(&self, session: &str) -> String {
        self.unanswered.set(self.unanswered.get() + 1);
        self.sent.set(self.sent.get() + 1);
        format!(r#"{{"jsonrpc":"2.0","id":{PREFIX}{session}-{}","method":"ping"}}"#, self.sent.get())
    }

    /// Records that the client has shown that it is alive.
    pub(crate) fn client_is_alive(&self) {
        self.unanswered.set(0);
    }

    /// Records that the client answered a ping.
    pub(crate) fn answered(&self) {
        self.client_is_alive();
        self.answers.set(true);
    }
}

/// True if an envelope answers one of leash's own pings.
pub(crate) fn answers_ping(envelope: &Envelope<'_>) -> bool {
    envelope.kind == EnvelopeKind::Response && envelope.id.is_some_and(|id| id.get().starts_with(PREFIX))
}

/// The facts about a client when the next ping is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PingFacts {
    /// Pings in a row that the client did not answer.
    unanswered: u32,
    /// The client has answered a ping before, in this session.
    answers: bool,
    /// leash knows a living process of the client.
    owned: bool,
}

/// The action when a ping is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PingAction {
    /// Send a ping.
    Ask,
    /// Do nothing.
    Nothing,
    /// Close the stream. A living client opens it again. Otherwise the session's idle time begins.
    CloseStream,
    /// End the session.
    EndSession,
}

/// Decides the action. By default, silence counts only if the client has answered a ping before, and it only closes the
/// stream.
fn due(keep_alive: KeepAlive, most: u32, facts: PingFacts) -> PingAction {
    let silent = facts.unanswered >= most.max(1);
    match keep_alive {
        KeepAlive::Never => PingAction::Nothing,
        KeepAlive::Every(_) if silent => PingAction::EndSession,
        // A living process proves more than a response to a ping.
        KeepAlive::Auto if facts.owned => PingAction::Nothing,
        KeepAlive::Auto if silent && facts.answers => PingAction::CloseStream,
        // The client does not support pings, so leash sends no more.
        KeepAlive::Auto if silent => PingAction::Nothing,
        KeepAlive::Auto | KeepAlive::Every(_) => PingAction::Ask,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check(keep_alive: KeepAlive, (unanswered, answers, owned): (u32, bool, bool), expected: PingAction) {
        let facts = PingFacts { unanswered, answers, owned };
        assert_eq!(due(keep_alive, 3, facts), expected, "{keep_alive:?} {facts:?}");
    }

    #[test]
    fn by_default_silence_closes_the_stream_of_a_client_that_answers_pings() {
        let auto = KeepAlive::Auto;
        check(auto, (0, false, false), PingAction::Ask);
        check(auto, (2, true, false), PingAction::Ask);
        check(auto, (3, true, false), PingAction::CloseStream);
        check(auto, (3, false, false), PingAction::Nothing);
        for unanswered in [0, 3] {
            check(auto, (unanswered, true, true), PingAction::Nothing);
        }
    }

    #[test]
    fn configured_pings_end_the_session_of_a_silent_client() {
        let every = KeepAlive::Every(Duration::from_secs(1));
        for (answers, owned) in [(false, false), (true, false), (false, true), (true, true)] {
            check(every, (2, answers, owned), PingAction::Ask);
            check(every, (3, answers, owned), PingAction::EndSession);
            check(KeepAlive::Never, (3, answers, owned), PingAction::Nothing);
        }
    }
}
