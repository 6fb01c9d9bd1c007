//! The life of one HTTP session, as a pure machine: no clock, no socket, no task.
//!
//! ```text
//!            Opened                    any end            Released
//! Opening ───────────────> Live ─────────────────> Ending ─────────> Ended
//!    └──────────────── any end ──────────────────────^ │               │
//!                                      Held (too late) └───────────────┴─> Effect::Release: let go of it at once
//! ```
//!
//! Every end meets in [`State::Ending`], so none of them can forget what the session holds.

use std::time::Duration;

use crate::clock::Moment;
use crate::owner::Role;
use crate::receipt::Reason;

/// The times a session lives by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// From the end of the last request to the end of a session whose client is not known as a process.
    pub idle: Option<Duration>,
    /// The longest it may live, calls in flight or not.
    pub max_age: Option<Duration>,
    /// From the death of the last client process to the end.
    pub linger: Duration,
    /// How long the server may take to answer `initialize`.
    pub init_timeout: Duration,
}

/// Where a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// `initialize` is on its way; nobody has answered.
    Opening,
    /// It is used.
    Live,
    /// What it holds is being let go.
    Ending(Reason),
    /// Nothing is left to let go.
    Ended(Reason),
}

/// Something happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session holds something from now on: a tree was started, an upstream session was named.
    Held,
    /// The server answered `initialize`.
    Opened,
    /// A request came in.
    RequestBegan,
    /// It is answered, or its connection is gone.
    RequestEnded,
    /// A stream for the server's own messages was opened.
    ListenBegan,
    /// It is closed, or a write to it failed.
    ListenEnded,
    /// A client process was found.
    OwnerFound,
    /// A client process ended.
    OwnerGone(i32),
    /// A client was met whose process can't be known.
    OwnerUnknown,
    /// Time has passed.
    Tick,
    /// Somebody or something wants it to end.
    End(Reason),
    /// Everything it held is let go.
    Released,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// Let go of everything the session holds, then report [`Event::Released`].
    End(Reason),
    /// The session ended before it held this: let go of it now.
    Release(Reason),
}

/// A session's state and what decides over its end.
#[derive(Clone, Debug)]
pub struct Life {
    state: State,
    born: Moment,
    /// Since when nothing has been in flight.
    quiet_since: Moment,
    in_flight: u32,
    listening: u32,
    /// Client processes that are alive.
    owners: u32,
    /// The last of them to go, and when.
    lost: Option<(i32, Moment)>,
    /// Somebody used it whose process is not known.
    strangers: bool,
}

impl Life {
    /// A session whose `initialize` has just arrived.
    pub fn begin(now: Moment) -> Life {
        Life {
            state: State::Opening,
            born: now,
            quiet_since: now,
            in_flight: 0,
            listening: 0,
            owners: 0,
            lost: None,
            strangers: false,
        }
    }

    /// A session that a killed gateway had open, in the hands of the next one. Nothing is in flight, and its clients are not known yet.
    pub fn resume(born: Moment, now: Moment) -> Life {
        Life { state: State::Live, born, ..Life::begin(now) }
    }

    /// When it began.
    pub fn born(&self) -> Moment {
        self.born
    }

    /// Client processes that are alive.
    pub fn owners(&self) -> u32 {
        self.owners
    }

    /// The client process that was the last one to go, if none is left.
    pub fn lost(&self) -> Option<i32> {
        self.lost.map(|(pid, _)| pid)
    }

    /// Whether a client has used it whose process is not known.
    pub fn strangers(&self) -> bool {
        self.strangers
    }

    /// Where it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether requests may use it.
    pub fn usable(&self) -> bool {
        matches!(self.state, State::Opening | State::Live)
    }

    /// Whether a client process was ever found.
    pub fn had_owner(&self) -> bool {
        self.owners > 0 || self.lost.is_some()
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Applies what happened.
    pub fn apply(&mut self, event: Event, now: Moment, terms: &Terms) -> Effect {
        self.count(&event, now);
        match (&self.state, event) {
            (State::Opening, Event::Opened) => self.state = State::Live,
            (State::Opening | State::Live, Event::End(reason)) => return self.end(reason),
            // Every change may have brought a deadline to its end: a process that was the last one, a tick.
            (State::Opening | State::Live, _) => {
                if let Some((at, reason)) = self.deadline(terms)
                    && at <= now
                {
                    return self.end(reason);
                }
            }
            (State::Ending(reason), Event::Released) => self.state = State::Ended(reason.clone()),
            // The tree or the upstream session of an `initialize` that nobody waits for any more.
            (State::Ending(reason) | State::Ended(reason), Event::Held) => return Effect::Release(reason.clone()),
            // It ends once, for the first reason.
            (State::Ending(_), _) => {}
            (State::Ended(_), _) => {}
        }
        Effect::Nothing
    }

    fn end(&mut self, reason: Reason) -> Effect {
        self.state = State::Ending(reason.clone());
        Effect::End(reason)
    }

    fn count(&mut self, event: &Event, now: Moment) {
        let was_busy = self.busy();
        match event {
            Event::RequestBegan => self.in_flight += 1,
            Event::RequestEnded => self.in_flight = self.in_flight.saturating_sub(1),
            Event::ListenBegan => self.listening += 1,
            Event::ListenEnded => self.listening = self.listening.saturating_sub(1),
            Event::OwnerFound => (self.owners, self.lost) = (self.owners + 1, None),
            Event::OwnerGone(pid) => {
                self.owners = self.owners.saturating_sub(1);
                self.lost = (self.owners == 0).then_some((*pid, now));
            }
            Event::OwnerUnknown => self.strangers = true,
            Event::Held | Event::Opened | Event::Tick | Event::End(_) | Event::Released => {}
        }
        if was_busy || self.busy() || matches!(event, Event::Opened) {
            self.quiet_since = now;
        }
    }

    fn busy(&self) -> bool {
        self.in_flight > 0 || self.listening > 0
    }

    /// When it ends if nothing else happens, and why.
    pub fn deadline(&self, terms: &Terms) -> Option<(Moment, Reason)> {
        let age = terms.max_age.map(|age| (self.born + age, Reason::MaxAge));
        let own = match &self.state {
            State::Opening => Some((self.born + terms.init_timeout, Reason::NotInitialized)),
            State::Live => self.neglect(terms),
            State::Ending(_) | State::Ended(_) => return None,
        };
        [age, own].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// When it ends because nobody wants it any more.
    fn neglect(&self, terms: &Terms) -> Option<(Moment, Reason)> {
        match self.lost {
            // A living client decides for itself.
            _ if self.owners > 0 => None,
            // All of its clients were processes, and they are gone: whatever is in flight, nobody reads the answer.
            Some((pid, at)) if !self.strangers => {
                Some((at + terms.linger, Reason::OwnerGone { pid, role: Role::Client }))
            }
            _ if self.busy() => None,
            _ => terms.idle.map(|idle| (self.quiet_since + idle, Reason::Idle)),
        }
    }
}

#[cfg(test)]
mod tests;
