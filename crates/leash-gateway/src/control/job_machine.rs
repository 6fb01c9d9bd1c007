//! The life of one session of the control API, a *job*, as a pure state machine: no clock, no socket, no task.
//!
//! ```text
//!             Started                  any end             Released
//! Starting ───────────────> Live ─────────────────> Ending ─────────> Ended
//!    └───────────────── any end ──────────────────────^ │
//!                                      End with force   └─> Effect::Hurry, once
//! ```
//!
//! Every end goes through [`State::Ending`] and returns [`Effect::End`] exactly once: all later requests to end wait
//! for the same end and get the same receipt.

use std::time::Duration;

use leash_model::{clock::Moment, receipt::Reason};

/// The time limits of a job. Without any of them it lives until a request ends it, or its owner is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobTimes {
    /// It ends if its lease was not renewed for this long, even with requests in flight: the client that should renew
    /// it is gone.
    pub(super) ttl: Option<Duration>,
    /// It ends if it was not used for this long. A request in flight is a use, and so is a connected listener.
    pub(super) idle: Option<Duration>,
    /// It ends at this age, even with requests in flight.
    pub(super) max_age: Option<Duration>,
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its servers are being started.
    Starting,
    /// All of them run.
    Live,
    /// The driver ends everything of it.
    Ending {
        /// The reason.
        reason: Reason,
        /// True to end it without grace.
        force: bool,
    },
    /// Everything of it is gone, or its receipt names what is left.
    Ended(Reason),
}

/// An event of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// All of its servers run.
    Started,
    /// Its lease was renewed, with a new duration if there is one.
    Renewed(Option<Duration>),
    /// A client begins to use it.
    UseBegan,
    /// A client ends its use.
    UseEnded,
    /// Its owner is gone.
    OwnerLost(Reason),
    /// Time has passed.
    Tick,
    /// A client or the gateway asks for its end.
    End {
        /// The reason.
        reason: Reason,
        /// True to end it without grace.
        force: bool,
    },
    /// The driver has released everything that it held.
    Released,
}

/// The action that the driver has to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    Nothing,
    /// End everything of it at the same time, then report [`Event::Released`].
    End {
        /// The reason.
        reason: Reason,
        /// True to end it without grace.
        force: bool,
    },
    /// It is ending, and the grace is over: kill what is left.
    Hurry,
}

/// A job's state, and the facts that decide when it ends.
#[derive(Clone, Debug)]
pub(super) struct JobLife {
    state: State,
    times: JobTimes,
    born: Moment,
    /// The end of the lease, once the lease has begun.
    lease_until: Option<Moment>,
    /// The time since which no client has used it.
    quiet_since: Moment,
    uses: u32,
}

impl JobLife {
    /// A job whose servers are about to be started. Its lease begins when they run, because no client can renew it
    /// before.
    pub(super) fn begin(now: Moment, times: JobTimes) -> JobLife {
        JobLife { state: State::Starting, times, born: now, lease_until: None, quiet_since: now, uses: 0 }
    }

    /// The current state.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// The current time limits.
    pub(super) fn times(&self) -> &JobTimes {
        &self.times
    }

    /// True if it can be used, or will be once it has started.
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.state, State::Starting | State::Live)
    }

    /// The end of its lease, if it has one.
    pub(super) fn lease_until(&self) -> Option<Moment> {
        self.lease_until.filter(|_| self.is_alive())
    }

    /// The time for which no client has used it.
    pub(super) fn idle_for(&self, now: Moment) -> Duration {
        if self.uses > 0 { Duration::ZERO } else { now.since(self.quiet_since) }
    }

    /// Applies one event.
    pub(super) fn apply(&mut self, event: Event, now: Moment) -> Effect {
        // A renewal after the deadline does not count, even if the timer has not fired yet.
        if matches!(event, Event::Renewed(_))
            && let Some(effect) = self.expired(now)
        {
            return effect;
        }
        self.count(&event, now);
        match (&self.state, event) {
            (State::Starting | State::Live, Event::End { reason, force }) => return self.end(reason, force),
            (State::Starting | State::Live, Event::OwnerLost(reason)) => return self.end(reason, false),
            (State::Starting, Event::Started) => {
                self.state = State::Live;
                self.lease_until = self.times.ttl.map(|ttl| now + ttl);
                self.quiet_since = now;
            }
            // The lease of a job that is still starting begins with the new time.
            (State::Starting, Event::Renewed(ttl)) => self.times.ttl = ttl.or(self.times.ttl),
            (State::Live, Event::Renewed(ttl)) => {
                self.times.ttl = ttl.or(self.times.ttl);
                self.lease_until = self.times.ttl.map(|ttl| now + ttl);
            }
            // A job starts only once.
            (State::Live, Event::Started) => {}
            // The driver is not releasing anything.
            (State::Starting | State::Live, Event::Released) => {}
            (State::Starting | State::Live, Event::UseBegan | Event::UseEnded | Event::Tick) => {}
            (State::Ending { reason, force: false }, Event::End { force: true, .. }) => {
                // The first reason stays.
                self.state = State::Ending { reason: reason.clone(), force: true };
                return Effect::Hurry;
            }
            (State::Ending { reason, .. }, Event::Released) => self.state = State::Ended(reason.clone()),
            // It ends only once. Requests that are being cut off end now, a start may still report, a timer may still
            // fire.
            (State::Ending { .. }, _) => {}
            (State::Ended(_), _) => {}
        }
        self.expired(now).unwrap_or(Effect::Nothing)
    }

    /// Ends it if its deadline has passed.
    fn expired(&mut self, now: Moment) -> Option<Effect> {
        let (_, reason) = self.deadline().filter(|(at, _)| *at <= now)?;
        Some(self.end(reason, false))
    }

    fn end(&mut self, reason: Reason, force: bool) -> Effect {
        self.state = State::Ending { reason: reason.clone(), force };
        Effect::End { reason, force }
    }

    fn count(&mut self, event: &Event, now: Moment) {
        match event {
            Event::UseBegan => self.uses += 1,
            Event::UseEnded => self.uses = self.uses.saturating_sub(1),
            _ => return,
        }
        self.quiet_since = now;
    }

    /// The time and reason of its end if no other event happens.
    pub(super) fn deadline(&self) -> Option<(Moment, Reason)> {
        if !self.is_alive() {
            return None;
        }
        let age = self.times.max_age.map(|age| (self.born + age, Reason::MaxAge));
        let lease = self.lease_until.map(|until| (until, Reason::LeaseExpired));
        let unused = self.state == State::Live && self.uses == 0;
        let idle = self.times.idle.filter(|_| unused).map(|idle| (self.quiet_since + idle, Reason::Idle));
        [lease, idle, age].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
