//! The life of a tree of the modern era, and the search for a server's era, as pure machines: no clock, no process.
//!
//! ```text
//!            RequestBegan / RequestEnded
//!              ┌───┐
//!              v   │     End, ServerExited, Tick after the idle time
//!             Serving ──────────────────────────────────────────────> Ended
//! ```

use std::time::Duration;

use leash_model::{clock::Moment, receipt::Reason};

/// The state of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It takes requests.
    Serving {
        /// The number of requests that clients have not read to their end.
        open: usize,
        /// The time since which no request has been open; it means nothing while one is.
        quiet_since: Moment,
    },
    /// It takes no more requests, and its processes are being ended.
    Ended(Reason),
}

/// An event of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A request was sent to the server.
    RequestBegan,
    /// Its client has read the answer, or left.
    RequestEnded,
    /// The server exited by itself, or closed its input or output.
    ServerExited,
    /// leash ends it.
    End(Reason),
    /// Time has passed.
    Tick,
}

impl State {
    /// A tree that was just started.
    pub(super) fn new(now: Moment) -> State {
        State::Serving { open: 0, quiet_since: now }
    }

    /// Applies an event. Returns the reason if its end begins now.
    pub(super) fn apply(&mut self, event: Event, now: Moment, idle: Option<Duration>) -> Option<Reason> {
        use Event::{End, RequestBegan, RequestEnded, ServerExited, Tick};
        let is_idle = self.deadline(idle).is_some_and(|deadline| now >= deadline);
        let reason = match (&mut *self, event) {
            (State::Serving { open, .. }, RequestBegan) => {
                *open += 1;
                return None;
            }
            (State::Serving { open, quiet_since }, RequestEnded) => {
                *open = open.saturating_sub(1);
                *quiet_since = now;
                return None;
            }
            (State::Serving { .. }, Tick) if is_idle => Reason::Idle,
            (State::Serving { .. }, Tick) => return None,
            (State::Serving { .. }, ServerExited) => Reason::ServerExited,
            (State::Serving { .. }, End(reason)) => reason,
            // The first reason stays. The requests that are still open were answered when the end began.
            (State::Ended(_), RequestBegan | RequestEnded | ServerExited | End(_) | Tick) => return None,
        };
        *self = State::Ended(reason.clone());
        Some(reason)
    }

    /// The time at which it is idle for too long; `None` while a request is open.
    pub(super) fn deadline(&self, idle: Option<Duration>) -> Option<Moment> {
        match self {
            State::Serving { open: 0, quiet_since } => idle.map(|idle| *quiet_since + idle),
            State::Serving { .. } | State::Ended(_) => None,
        }
    }

    /// The time for which no request has been open; `None` while one is.
    pub(super) fn quiet(&self, now: Moment) -> Option<Duration> {
        match self {
            State::Serving { open: 0, quiet_since } => Some(now.since(*quiet_since)),
            State::Serving { .. } | State::Ended(_) => None,
        }
    }

    /// True if leash ended it; false if it serves, or exited by itself.
    pub(super) fn was_ended(&self) -> bool {
        matches!(self, State::Ended(reason) if *reason != Reason::ServerExited)
    }
}

/// The number of unanswered questions after which leash takes a server for a legacy one. Some legacy servers stay silent or
/// exit, and a failed start looks the same, so leash concludes only from the second time.
const SILENCES: u8 = 2;

/// The knowledge of leash about a server's era.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KnownEra {
    /// Nothing.
    #[default]
    Unknown,
    /// So many questions were not answered.
    Silent(u8),
    /// It answers requests of the modern era.
    Modern,
    /// It only supports the handshake. Stays so until the server is replaced.
    LegacyOnly,
}

/// The answer to the question of a server's era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EraAnswer {
    /// An answer of the modern era.
    Modern,
    /// Another answer.
    Legacy,
    /// None in time, or the server exited.
    None,
}

impl KnownEra {
    /// The knowledge after an answer. Certain knowledge stays: another principal's tree may have found it meanwhile.
    pub(super) fn after(self, answer: EraAnswer) -> KnownEra {
        match (self, answer) {
            (KnownEra::Modern | KnownEra::LegacyOnly, _) => self,
            (KnownEra::Unknown | KnownEra::Silent(_), EraAnswer::Modern) => KnownEra::Modern,
            (KnownEra::Unknown | KnownEra::Silent(_), EraAnswer::Legacy) => KnownEra::LegacyOnly,
            (KnownEra::Unknown, EraAnswer::None) => KnownEra::Silent(1),
            (KnownEra::Silent(count), EraAnswer::None) if count + 1 >= SILENCES => KnownEra::LegacyOnly,
            (KnownEra::Silent(count), EraAnswer::None) => KnownEra::Silent(count + 1),
        }
    }

    /// True if leash knows for certain.
    pub(super) fn is_certain(self) -> bool {
        matches!(self, KnownEra::Modern | KnownEra::LegacyOnly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Option<Duration> = Some(Duration::from_secs(60));

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(1000 + seconds))
    }

    /// Plays events at these seconds; the result is the reason and the second of the end.
    fn check(idle: Option<Duration>, events: &[(u64, Event)], expected: Option<(Reason, u64)>) {
        let mut state = State::new(at(0));
        let mut ended = None;
        for (second, event) in events {
            if let Some(reason) = state.apply(event.clone(), at(*second), idle) {
                assert!(ended.is_none(), "it ends once: {events:?}");
                ended = Some((reason, *second));
            }
        }
        assert_eq!(ended, expected, "{events:?}");
        assert_eq!(matches!(state, State::Ended(_)), expected.is_some());
    }

    #[test]
    fn tree_ends_when_it_was_quiet_for_the_idle_time() {
        use Event::*;
        check(IDLE, &[(59, Tick)], None);
        check(IDLE, &[(60, Tick), (61, Tick)], Some((Reason::Idle, 60)));
        check(None, &[(9999, Tick)], None);
        check(IDLE, &[(10, RequestBegan), (500, Tick), (501, RequestEnded), (560, Tick)], None);
        check(IDLE, &[(10, RequestBegan), (501, RequestEnded), (561, Tick)], Some((Reason::Idle, 561)));
        let two = [(1, RequestBegan), (2, RequestBegan), (3, RequestEnded), (500, Tick)];
        check(IDLE, &two, None);
    }

    #[test]
    fn tree_is_quiet_while_no_request_is_open() {
        let mut state = State::new(at(0));
        for (second, event, quiet) in [
            (5, Event::Tick, Some(5)),
            (6, Event::RequestBegan, None),
            (7, Event::RequestBegan, None),
            (8, Event::RequestEnded, None),
            (9, Event::RequestEnded, Some(0)),
            (20, Event::Tick, Some(11)),
            (21, Event::End(Reason::MemoryPressure), None),
        ] {
            state.apply(event.clone(), at(second), None);
            assert_eq!(state.quiet(at(second)), quiet.map(Duration::from_secs), "{event:?} at {second}");
        }
    }

    #[test]
    fn first_reason_stays() {
        use Event::*;
        check(IDLE, &[(1, End(Reason::Shutdown)), (2, ServerExited)], Some((Reason::Shutdown, 1)));
        check(IDLE, &[(1, ServerExited), (2, End(Reason::Shutdown)), (99, Tick)], Some((Reason::ServerExited, 1)));
        check(
            IDLE,
            &[(1, RequestBegan), (2, ServerExited), (3, RequestEnded), (99, Tick)],
            Some((Reason::ServerExited, 2)),
        );
        for (event, was_ended) in [(ServerExited, false), (End(Reason::Idle), true)] {
            let mut state = State::new(at(0));
            state.apply(event, at(1), IDLE);
            assert_eq!(state.was_ended(), was_ended);
        }
    }

    #[test]
    fn era_is_concluded_from_an_answer_or_from_two_silences() {
        use EraAnswer::*;
        for (answers, expected) in [
            (&[][..], KnownEra::Unknown),
            (&[Modern], KnownEra::Modern),
            (&[Legacy], KnownEra::LegacyOnly),
            (&[None], KnownEra::Silent(1)),
            (&[None, None], KnownEra::LegacyOnly),
            (&[None, Modern], KnownEra::Modern),
            (&[None, Legacy], KnownEra::LegacyOnly),
            (&[Modern, Legacy, None, None], KnownEra::Modern),
            (&[Legacy, Modern], KnownEra::LegacyOnly),
        ] {
            let known = answers.iter().fold(KnownEra::default(), |known, answer| known.after(*answer));
            assert_eq!(known, expected, "{answers:?}");
            assert_eq!(known.is_certain(), matches!(expected, KnownEra::Modern | KnownEra::LegacyOnly));
        }
    }
}
