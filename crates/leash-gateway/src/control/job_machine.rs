//! The life of one session of the control API, a *job*, as a pure machine: no clock, no socket, no task.
//!
//! ```text
//!             Started                  any end             Released
//! Starting ───────────────> Live ─────────────────> Ending ─────────> Ended
//!    └───────────────── any end ──────────────────────^ │
//!                                      End with force   └─> Effect::Hurry, once
//! ```
//!
//! Every end meets in [`State::Ending`] and yields [`Effect::End`] exactly once: whoever comes later, for whatever reason,
//! waits for the same end and gets the same receipt.

use std::time::Duration;

use leash_model::clock::Moment;
use leash_model::receipt::Reason;

/// The times a job lives by. Without any of them it lives until somebody ends it, or its owner is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms {
    /// It ends when its lease was not renewed for so long, whatever is in flight: the one who promised to renew it is gone.
    pub(super) ttl: Option<Duration>,
    /// It ends when it was not used for so long. A call in flight is a use, and so is somebody who listens.
    pub(super) idle: Option<Duration>,
    /// It ends at this age, whatever is in flight.
    pub(super) max_age: Option<Duration>,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its servers are being started.
    Starting,
    /// All of them run.
    Live,
    /// Everything of it is being ended.
    Ending {
        /// Why.
        reason: Reason,
        /// Without grace.
        force: bool,
    },
    /// Nothing is left of it, or what is left is in its receipt.
    Ended(Reason),
}

/// Something happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// All of its servers run.
    Started,
    /// Its lease was renewed, with another time if there is one.
    Renewed(Option<Duration>),
    /// Somebody uses it.
    UseBegan,
    /// And does not any more.
    UseEnded,
    /// What it lives for is gone.
    OwnerLost(Reason),
    /// Time has passed.
    Tick,
    /// Somebody wants it to end.
    End {
        /// Why.
        reason: Reason,
        /// Without grace.
        force: bool,
    },
    /// Everything it held is let go.
    Released,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    Nothing,
    /// End everything of it at the same time, then report [`Event::Released`].
    End {
        /// Why.
        reason: Reason,
        /// Without grace.
        force: bool,
    },
    /// It is being ended, and the grace is over: kill what is left.
    Hurry,
}

/// A job's state and what decides over its end.
#[derive(Clone, Debug)]
pub(super) struct Life {
    state: State,
    terms: Terms,
    born: Moment,
    /// When the lease ends, once it has begun.
    lease_until: Option<Moment>,
    /// Since when nobody has used it.
    quiet_since: Moment,
    uses: u32,
}

impl Life {
    /// A job whose servers are about to be started. Its lease begins when they run: nobody can renew it before.
    pub(super) fn begin(now: Moment, terms: Terms) -> Life {
        Life { state: State::Starting, terms, born: now, lease_until: None, quiet_since: now, uses: 0 }
    }

    /// Where it stands.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// The times it lives by now.
    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Whether it can be used, or will be.
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.state, State::Starting | State::Live)
    }

    /// When its lease ends, if it has one.
    pub(super) fn lease_until(&self) -> Option<Moment> {
        self.lease_until.filter(|_| self.is_alive())
    }

    /// For how long nobody has used it.
    pub(super) fn idle_for(&self, now: Moment) -> Duration {
        if self.uses > 0 { Duration::ZERO } else { now.since(self.quiet_since) }
    }

    /// Applies what happened.
    pub(super) fn apply(&mut self, event: Event, now: Moment) -> Effect {
        // What is over is over: a renewal that comes too late is not one, whether or not the timer has fired by then.
        if let Some(effect) = self.expired_before(&event, now) {
            return effect;
        }
        self.count(&event, now);
        match (&self.state, event) {
            (State::Starting | State::Live, Event::End { reason, force }) => return self.end(reason, force),
            (State::Starting | State::Live, Event::OwnerLost(reason)) => return self.end(reason, false),
            (State::Starting, Event::Started) => {
                self.state = State::Live;
                self.lease_until = self.terms.ttl.map(|ttl| now + ttl);
                self.quiet_since = now;
            }
            // The lease of a job that is still starting begins with the new time.
            (State::Starting, Event::Renewed(ttl)) => self.terms.ttl = ttl.or(self.terms.ttl),
            (State::Live, Event::Renewed(ttl)) => {
                self.terms.ttl = ttl.or(self.terms.ttl);
                self.lease_until = self.terms.ttl.map(|ttl| now + ttl);
            }
            // It starts once.
            (State::Live, Event::Started) => {}
            // Nothing is being let go.
            (State::Starting | State::Live, Event::Released) => {}
            (State::Starting | State::Live, Event::UseBegan | Event::UseEnded | Event::Tick) => {}
            (State::Ending { reason, force: false }, Event::End { force: true, .. }) => {
                // For the first reason, all the same.
                self.state = State::Ending { reason: reason.clone(), force: true };
                return Effect::Hurry;
            }
            (State::Ending { reason, .. }, Event::Released) => self.state = State::Ended(reason.clone()),
            // It ends once. Calls that are being cut end now, a start may still report, a timer may still fire.
            (State::Ending { .. }, _) => {}
            (State::Ended(_), _) => {}
        }
        self.expired(now).unwrap_or(Effect::Nothing)
    }

    /// The end that was due before a renewal came.
    fn expired_before(&mut self, event: &Event, now: Moment) -> Option<Effect> {
        let renewed = matches!(event, Event::Renewed(_));
        if renewed { self.expired(now) } else { None }
    }

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

    /// When it ends if nothing else happens, and why.
    pub(super) fn deadline(&self) -> Option<(Moment, Reason)> {
        if !self.is_alive() {
            return None;
        }
        let age = self.terms.max_age.map(|age| (self.born + age, Reason::MaxAge));
        let lease = self.lease_until.map(|until| (until, Reason::LeaseExpired));
        let unused = self.state == State::Live && self.uses == 0;
        let idle = self.terms.idle.filter(|_| unused).map(|idle| (self.quiet_since + idle, Reason::Idle));
        [lease, idle, age].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
