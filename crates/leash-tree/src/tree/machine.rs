//! The ending ladder, as a pure machine: no clock, no process, no descriptor.
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

/// Where a tree is on the ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The server works; nobody has asked for an end.
    Running,
    /// The server has seen the end of its stdin and may finish by itself.
    Closing {
        /// Why it ends.
        why: Reason,
        /// When SIGTERM follows.
        until: Moment,
    },
    /// Every member was sent SIGTERM.
    Terminating {
        /// Why it ends.
        why: Reason,
        /// When SIGKILL follows.
        until: Moment,
    },
    /// The containment kills; only the proof is awaited.
    Killing {
        /// Why it ends.
        why: Reason,
    },
    /// Nothing is left.
    Over {
        /// Why it ended.
        why: Reason,
        /// The step that did it.
        how: How,
    },
}

/// What can happen to a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The tree must end. `stdin_over` says whether the server can see the end of its stdin: then it gets the first grace.
    End {
        /// Why.
        why: Reason,
        /// Whether stdin is at its end.
        stdin_over: bool,
    },
    /// A further request while already ending: next step at once.
    Nudge,
    /// No more grace: the end was asked for by somebody who will not ask again.
    Hurry(Reason),
    /// The leader is gone, other members are not.
    LeaderExited,
    /// No member is left.
    Gone,
    /// Time has passed.
    Tick,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send SIGTERM to every member.
    Term,
    /// Kill by the containment until nothing is left.
    Kill,
}

impl State {
    /// When [`Event::Tick`] is due.
    pub fn deadline(&self) -> Option<Moment> {
        match self {
            State::Closing { until, .. } | State::Terminating { until, .. } => Some(*until),
            State::Running | State::Killing { .. } | State::Over { .. } => None,
        }
    }

    /// Whether an end has begun.
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
            // Nobody has asked yet: a nudge has nothing to speed up, and no deadline runs.
            (Running, Nudge | Tick) => (Running, None),

            // The leader saw the end of stdin and left; what stays behind will not see more of it.
            (Closing { why, .. }, LeaderExited | Nudge) => term(why, now, grace),
            (Closing { why, until }, Tick) if now >= until => term(why, now, grace),
            (Closing { why, .. }, Gone) => (Over { why, how: How::Eof }, None),
            // Who decides that a tree ends closes its stdin as well, and the keeper may see that first.
            (Closing { why: Reason::StdinClosed, until }, End { why, .. }) if why.is_decision() => {
                (Closing { why, until }, None)
            }
            (Terminating { why: Reason::StdinClosed, until }, End { why, .. }) if why.is_decision() => {
                (Terminating { why, until }, None)
            }
            // Otherwise the first reason stays; a second end is not a nudge, because one loss shows itself in several ways.
            (state @ Closing { .. }, End { .. } | Tick) => (state, None),

            (Terminating { why, .. }, Nudge) => kill(why),
            (Terminating { why, until }, Tick) if now >= until => kill(why),
            (Terminating { why, .. }, Gone) => {
                // A leader that left by itself, with helpers that obeyed: the helpers needed the SIGTERM.
                (Over { why, how: How::Term }, None)
            }
            // Waiting for the rest; the leader is one of them.
            (state @ Terminating { .. }, LeaderExited | End { .. } | Tick) => (state, None),

            (Killing { why }, Gone) => (Over { why, how: How::Kill }, None),
            // Nothing is faster than SIGKILL.
            (state @ Killing { .. }, End { .. } | Nudge | Hurry(_) | LeaderExited | Tick) => (state, None),

            (Running, Hurry(why)) | (Closing { why, .. } | Terminating { why, .. }, Hurry(_)) => kill(why),

            // The end is the end.
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

    /// Plays events at the given milliseconds and compares the effects and the last state's name.
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
    fn a_polite_server_needs_no_signal() {
        check(GRACE, &[(0, end(true)), (5, Event::Gone)], &[], "Over { why: StdinClosed, how: Eof }");
    }

    #[test]
    fn the_whole_ladder() {
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
    fn the_first_reason_stays() {
        let second = Event::End { why: Reason::MaxAge, stdin_over: false };
        check(GRACE, &[(0, end(true)), (1, second)], &[], "Closing { why: StdinClosed");
    }

    #[test]
    fn a_decision_is_a_better_reason_than_the_stdin_that_was_closed_for_it() {
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
        /// Whatever happens, once an end was asked for and two graces have passed, the containment was told to kill, or
        /// nothing was left before.
        #[test]
        fn an_end_always_ends(history in proptest::collection::vec((0u64..500, any_event()), 0..20), grace_ms in 0u64..3000) {
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
