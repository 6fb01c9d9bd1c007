//! Whether a client that listens is asked if it is there, and what its silence means; pure.

use crate::config::KeepAlive;

/// What is known of a client when the next ping is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Pings in a row that it did not answer.
    pub(crate) unanswered: u32,
    /// It has answered a ping before, in this session.
    pub(crate) answers: bool,
    /// A process of it is known to live.
    pub(crate) owned: bool,
}

/// What is done when a ping is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// A ping is sent.
    Ask,
    /// Nothing.
    Nothing,
    /// The stream is closed. A client that lives opens it again; of another one, the idle time begins.
    CloseStream,
    /// The session ends.
    EndSession,
}

/// Decides. By default silence is held against a client only if it has answered before, and it costs the stream alone.
pub(crate) fn due(keep_alive: KeepAlive, most: u32, known: Known) -> Due {
    let silent = known.unanswered >= most.max(1);
    match keep_alive {
        KeepAlive::Never => Due::Nothing,
        KeepAlive::Every(_) if silent => Due::EndSession,
        // Its process says more than any answer.
        KeepAlive::Auto if known.owned => Due::Nothing,
        KeepAlive::Auto if silent && known.answers => Due::CloseStream,
        // It does not speak ping: it is not bothered any more.
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
    fn by_default_silence_costs_the_stream_of_a_client_that_speaks_ping() {
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
    fn who_asks_for_pings_has_silent_clients_ended() {
        let every = KeepAlive::Every(Duration::from_secs(1));
        for (answers, owned) in [(false, false), (true, false), (false, true), (true, true)] {
            check(every, (2, answers, owned), Due::Ask);
            check(every, (3, answers, owned), Due::EndSession);
            check(KeepAlive::Never, (3, answers, owned), Due::Nothing);
        }
    }
}
