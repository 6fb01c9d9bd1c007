//! The ending ladder, as a pure state machine: no clock, no process, no descriptor.
//!
//! ```text
//!            End, stdin at its end                 grace over, nudge,
//!  Running ------------------------> Closing ----------------------------.
//!     |                                 |          leader exited          |
//!     | End, stdin held open;           | gone                            v
//!     | leader exited, others stay      |                            Terminating (SIGTERM to all)
//!     |---------------------------------|-------------------------------> |
//!     |                                 |                    grace over,  |
//!     | gone                            v          gone      nudge        v
//!     '-----------------------------> Over <-------------- Killing (SIGKILL by the containment)
//! ```
//!
//! A grace of zero, and `Hurry` from any state, go straight to `Killing`.

use std::time::Duration;

use leash_model::clock::Moment;
use leash_model::receipt::{How, Reason};

/// The state of a tree on the ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The server works; no end was requested.
    Running,
    /// The server sees the end of its stdin and may finish by itself.
    Closing {
        /// The reason for the end.
        why: Reason,
        /// The time at which SIGTERM follows.
        until: Moment,
    },
    /// Every member has been sent SIGTERM.
    Terminating {
        /// The reason for the end.
        why: Reason,
        /// The time at which SIGKILL follows.
        until: Moment,
    },
    /// The containment kills. The keeper waits only for the proof that nothing is left.
    Killing {
        /// The reason for the end.
        why: Reason,
    },
    /// Nothing is left.
    Over {
        /// The reason for the end.
        why: Reason,
        /// The step that did it.
        how: How,
    },
}

/// The events of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The tree must end. If `stdin_over` is true, the server can see the end of its stdin and gets the first grace.
    End {
        /// The reason.
        why: Reason,
        /// True if stdin is at its end.
        stdin_over: bool,
    },
    /// A further request while the tree is already ending: take the next step at once.
    Nudge,
    /// No more grace: the process that asked for the end will not ask again.
    Hurry(Reason),
    /// The leader is gone, but other members are not.
    LeaderExited,
    /// No member is left.
    Gone,
    /// Time has passed.
    Tick,
}

/// The action that the driver has to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send SIGTERM to every member.
    Term,
    /// Kill by the containment until nothing is left.
    Kill,
}

impl State {
    /// The time at which [`Event::Tick`] is due.
    pub fn deadline(&self) -> Option<Moment> {
        match self {
            State::Closing { until, .. } | State::Terminating { until, .. } => Some(*until),
            State::Running | State::Killing { .. } | State::Over { .. } => None,
        }
    }

    /// True if an end has begun.
    pub fn ending(&self) -> bool {
        !matches!(self, State::Running)
    }

    /// Applies one event.
    pub fn apply(self, event: Event, now: Moment, grace: Duration) -> (State, Option<Effect>) {
        use Event::{End, Gone, Hurry, LeaderExited, Nudge, Tick};
        use State::{Closing, Killing, Over, Running, Terminating};
        match (self, event) {
            (Running, End { why, .. }) if grace.is_zero() => kill(why),
            (Running, End { why, stdin_over: true }) => (Closing { why, until: now + grace }, None),
            (Running, End { why, stdin_over: false }) => term(why, now, grace),
            (Running, LeaderExited) => term(Reason::ServerExited, now, grace),
            (Running, Gone) => (Over { why: Reason::ServerExited, how: How::Exited }, None),
            // No end was requested yet: a nudge has nothing to speed up, and no deadline runs.
            (Running, Nudge | Tick) => (Running, None),

            // The leader saw the end of stdin and exited. The other members will not see more of stdin.
            (Closing { why, .. }, LeaderExited | Nudge) => term(why, now, grace),
            (Closing { why, until }, Tick) if now >= until => term(why, now, grace),
            (Closing { why, .. }, Gone) => (Over { why, how: How::Eof }, None),
            // A program that decides to end a tree also closes its stdin, and the keeper may see the closed stdin
            // first.
            (Closing { why: Reason::StdinClosed, until }, End { why, .. }) if why.is_decision() => {
                (Closing { why, until }, None)
            }
            (Terminating { why: Reason::StdinClosed, until }, End { why, .. }) if why.is_decision() => {
                (Terminating { why, until }, None)
            }
            // Otherwise the first reason stays. A second end is not a nudge, because one lost owner can cause several
            // events.
            (state @ Closing { .. }, End { .. } | Tick) => (state, None),

            (Terminating { why, .. }, Nudge) => kill(why),
            (Terminating { why, until }, Tick) if now >= until => kill(why),
            (Terminating { why, .. }, Gone) => {
                // The leader exited by itself, and its helpers obeyed. The helpers needed the SIGTERM.
                (Over { why, how: How::Term }, None)
            }
            // The keeper waits for the rest; the leader is one of the members.
            (state @ Terminating { .. }, LeaderExited | End { .. } | Tick) => (state, None),

            (Killing { why }, Gone) => (Over { why, how: How::Kill }, None),
            // Nothing is faster than SIGKILL.
            (state @ Killing { .. }, End { .. } | Nudge | Hurry(_) | LeaderExited | Tick) => (state, None),

            (Running, Hurry(why)) | (Closing { why, .. } | Terminating { why, .. }, Hurry(_)) => kill(why),

            // No event changes a tree that is over.
            (state @ Over { .. }, _) => (state, None),
        }
    }
}

fn term(why: Reason, now: Moment, grace: Duration) -> (State, Option<Effect>) {
    if grace.is_zero() {
        return kill(why);
    }
    (State::Terminating { why, until: now + grace }, Some(Effect::Term))
}

fn kill(why: Reason) -> (State, Option<Effect>) {
    (State::Killing { why }, Some(Effect::Kill))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRACE: Duration = Duration::from_secs(2);

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    fn end(stdin_over: bool) -> Event {
        Event::End { why: Reason::StdinClosed, stdin_over }
    }

    /// Applies the events at the given milliseconds and compares the effects and the last state's name.
    fn check(grace: Duration, history: &[(u64, Event)], effects: &[Effect], last: &str) {
        let mut state = State::Running;
        let mut seen = Vec::new();
        for (ms, event) in history {
            let (next, effect) = state.apply(event.clone(), at(*ms), grace);
            seen.extend(effect);
            state = next;
        }
        assert_eq!(seen, effects, "{history:?}");
        assert!(format!("{state:?}").starts_with(last), "{state:?} is not {last}");
    }

    #[test]
    fn server_that_exits_at_end_of_stdin_gets_no_signal() {
        check(GRACE, &[(0, end(true)), (5, Event::Gone)], &[], "Over { why: StdinClosed, how: Eof }");
    }

    #[test]
    fn deadlines_lead_through_the_whole_ladder() {
        let history = [
            (0, end(true)),
            (1_999, Event::Tick),
            (2_000, Event::Tick),
            (3_999, Event::Tick),
            (4_000, Event::Tick),
            (4_001, Event::Gone),
        ];
        check(GRACE, &history, &[Effect::Term, Effect::Kill], "Over { why: StdinClosed, how: Kill }");
    }

    #[test]
    fn without_an_end_of_stdin_the_first_step_is_sigterm() {
        check(GRACE, &[(0, end(false)), (10, Event::Gone)], &[Effect::Term], "Over { why: StdinClosed, how: Term }");
    }

    #[test]
    fn no_grace_goes_straight_to_kill() {
        for stdin_over in [true, false] {
            check(Duration::ZERO, &[(0, end(stdin_over))], &[Effect::Kill], "Killing");
        }
        check(Duration::ZERO, &[(0, Event::LeaderExited)], &[Effect::Kill], "Killing");
    }

    #[test]
    fn each_nudge_is_one_step() {
        check(GRACE, &[(0, end(true)), (1, Event::Nudge)], &[Effect::Term], "Terminating");
        check(GRACE, &[(0, end(true)), (1, Event::Nudge), (2, Event::Nudge)], &[Effect::Term, Effect::Kill], "Killing");
        check(GRACE, &[(0, Event::Nudge)], &[], "Running");
    }

    #[test]
    fn helpers_of_a_leader_that_left_are_ended() {
        check(
            GRACE,
            &[(0, Event::LeaderExited), (1, Event::Gone)],
            &[Effect::Term],
            "Over { why: ServerExited, how: Term }",
        );
        check(GRACE, &[(0, end(true)), (9, Event::LeaderExited)], &[Effect::Term], "Terminating");
    }

    #[test]
    fn second_reason_does_not_replace_the_first() {
        let second = Event::End { why: Reason::MaxAge, stdin_over: false };
        check(GRACE, &[(0, end(true)), (1, second)], &[], "Closing { why: StdinClosed");
    }

    #[test]
    fn decision_replaces_stdin_closed_as_the_reason() {
        let decided = Event::End { why: Reason::Shutdown, stdin_over: true };
        check(GRACE, &[(0, end(true)), (1, decided.clone())], &[], "Closing { why: Shutdown");
        let history = [(0, end(true)), (1, Event::LeaderExited), (2, decided.clone())];
        check(GRACE, &history, &[Effect::Term], "Terminating { why: Shutdown");
        let history = [(0, decided), (1, end(true)), (2, Event::End { why: Reason::Idle, stdin_over: true })];
        check(GRACE, &history, &[], "Closing { why: Shutdown");
    }

    #[test]
    fn hurry_kills_from_anywhere() {
        let hurry = Event::Hurry(Reason::SupervisorKilled);
        check(GRACE, &[(0, hurry.clone())], &[Effect::Kill], "Killing { why: SupervisorKilled");
        check(GRACE, &[(0, end(true)), (1, hurry.clone())], &[Effect::Kill], "Killing { why: StdinClosed");
        check(GRACE, &[(0, end(false)), (1, hurry)], &[Effect::Term, Effect::Kill], "Killing");
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            any::<bool>().prop_map(end),
            Just(Event::Nudge),
            Just(Event::Hurry(Reason::SupervisorKilled)),
            Just(Event::LeaderExited),
            Just(Event::Gone),
            Just(Event::Tick),
        ]
    }

    proptest! {
        /// Two graces after an end was requested, the containment was told to kill, or nothing was left before. This
        /// holds for every sequence of events.
        #[test]
        fn every_requested_end_reaches_kill_or_over(history in proptest::collection::vec((0u64..500, any_event()), 0..20), grace_ms in 0u64..3000) {
            let grace = Duration::from_millis(grace_ms);
            let (mut state, mut now, mut killed) = (State::Running, 0, false);
            for (step, event) in history {
                now += step;
                let (next, effect) = state.apply(event, at(now), grace);
                killed |= effect == Some(Effect::Kill);
                state = next;
            }
            let (mut state, effect) = state.apply(end(true), at(now), grace);
            killed |= effect == Some(Effect::Kill);
            for _ in 0..2 {
                now += grace_ms;
                let (next, effect) = state.apply(Event::Tick, at(now), grace);
                killed |= effect == Some(Effect::Kill);
                state = next;
            }
            let over = matches!(state, State::Over { .. });
            prop_assert!(over || killed, "{:?}", state);
            prop_assert!(state.deadline().is_none());
        }
    }
}
