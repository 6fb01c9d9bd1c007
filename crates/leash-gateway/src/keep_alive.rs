//! Decides when leash pings a listening client, and what its silence means. Pure.

use crate::config::KeepAlive;

/// The facts about a client when the next ping is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Pings in a row that the client did not answer.
    pub(crate) unanswered: u32,
    /// The client has answered a ping before, in this session.
    pub(crate) answers: bool,
    /// leash knows a living process of the client.
    pub(crate) owned: bool,
}

/// The action when a ping is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
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
pub(crate) fn due(keep_alive: KeepAlive, most: u32, known: Known) -> Due {
    let silent = known.unanswered >= most.max(1);
    match keep_alive {
        KeepAlive::Never => Due::Nothing,
        KeepAlive::Every(_) if silent => Due::EndSession,
        // A living process proves more than a response to a ping.
        KeepAlive::Auto if known.owned => Due::Nothing,
        KeepAlive::Auto if silent && known.answers => Due::CloseStream,
        // The client does not support pings, so leash sends no more.
        KeepAlive::Auto if silent => Due::Nothing,
        KeepAlive::Auto | KeepAlive::Every(_) => Due::Ask,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check(keep_alive: KeepAlive, (unanswered, answers, owned): (u32, bool, bool), expected: Due) {
        let known = Known { unanswered, answers, owned };
        assert_eq!(due(keep_alive, 3, known), expected, "{keep_alive:?} {known:?}");
    }

    #[test]
    fn by_default_silence_closes_the_stream_of_a_client_that_answers_pings() {
        let auto = KeepAlive::Auto;
        check(auto, (0, false, false), Due::Ask);
        check(auto, (2, true, false), Due::Ask);
        check(auto, (3, true, false), Due::CloseStream);
        check(auto, (3, false, false), Due::Nothing);
        for unanswered in [0, 3] {
            check(auto, (unanswered, true, true), Due::Nothing);
        }
    }

    #[test]
    fn configured_pings_end_the_session_of_a_silent_client() {
        let every = KeepAlive::Every(Duration::from_secs(1));
        for (answers, owned) in [(false, false), (true, false), (false, true), (true, true)] {
            check(every, (2, answers, owned), Due::Ask);
            check(every, (3, answers, owned), Due::EndSession);
            check(KeepAlive::Never, (3, answers, owned), Due::Nothing);
        }
    }
}
