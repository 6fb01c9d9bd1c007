//! The life of one HTTP session, as a pure state machine: no clock, no socket, no task.
//!
//! ```text
//!            Opened                    any end            Released
//! Opening ───────────────> Live ─────────────────> Ending ─────────> Ended
//!    └──────────────── any end ──────────────────────^ │               │
//!                                      Held (too late) └───────────────┴─> Effect::Release: release it at once
//! ```
//!
//! Every end goes through [`State::Ending`], so each of them releases what the session holds.

use std::time::Duration;

use crate::{clock::Moment, owner::Role, receipt::Reason};

/// The time limits of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTimes {
    /// From the end of the last request to the end of a session whose client process is unknown, or has begun a newer
    /// session and has no connection of this one.
    pub idle: Option<Duration>,
    /// From the last request and the last connection to the end of a session whose client process lives.
    pub abandoned: Option<Duration>,
    /// The longest it may live, even with requests in flight.
    pub max_age: Option<Duration>,
    /// From the death of the last client process to the end.
    pub linger: Duration,
    /// The longest time that the server may take to answer `initialize`.
    pub init_timeout: Duration,
}

/// The state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// `initialize` was forwarded; the server has not answered.
    Opening,
    /// Clients use it.
    Live,
    /// The driver releases what it holds.
    Ending(Reason),
    /// The driver has released everything.
    Ended(Reason),
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session holds something from now on: a tree was started, or an upstream named its session.
    Held,
    /// The server answered `initialize`.
    Opened,
    /// A request came in.
    RequestBegan,
    /// A request is answered, or its connection is gone.
    RequestEnded,
    /// A stream for the server's own messages was opened.
    ListenBegan,
    /// Such a stream is closed, or a write to it failed.
    ListenEnded,
    /// A client process was found.
    OwnerFound,
    /// A client process ended.
    OwnerGone(i32),
    /// A client used it whose process can't be known.
    OwnerUnknown,
    /// True if all client processes that live have begun newer sessions at the same server.
    OwnersMovedOn(bool),
    /// A connection of its client was used for it, and for no other session since.
    ConnectionBegan,
    /// Such a connection is closed, or was used for another session.
    ConnectionEnded,
    /// Time has passed.
    Tick,
    /// The gateway or a client asks for its end.
    End(Reason),
    /// The driver has released everything that it held.
    Released,
}

/// The action that the driver has to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// Release everything that the session holds, then report [`Event::Released`].
    End(Reason),
    /// The session ended before it held this: release it now.
    Release(Reason),
}

/// A session's state, and the facts that decide when it ends.
#[derive(Clone, Debug)]
pub struct SessionLife {
    state: State,
    born: Moment,
    /// The time since which no request has been in flight.
    quiet_since: Moment,
    /// The time at which the last request began or ended.
    requested: Moment,
    in_flight: u32,
    listening: u32,
    /// Client processes that are alive.
    owners: u32,
    /// The last of them that ended, and when.
    lost: Option<(i32, Moment)>,
    /// True if a client used it whose process is not known.
    unknown_client: bool,
    /// True if all living client processes have begun newer sessions.
    moved_on: bool,
    /// Open connections that were used for it last.
    connections: u32,
    /// The time since which there has been no such connection.
    unconnected_since: Moment,
}

impl SessionLife {
    /// A session whose `initialize` has just arrived.
    pub fn begin(now: Moment) -> SessionLife {
        SessionLife {
            state: State::Opening,
            born: now,
            quiet_since: now,
            requested: now,
            in_flight: 0,
            listening: 0,
            owners: 0,
            lost: None,
            unknown_client: false,
            moved_on: false,
            connections: 0,
            unconnected_since: now,
        }
    }

    /// A session that a killed gateway had open and the next gateway takes over. No request is in flight, and its
    /// clients are not known yet.
    pub fn resume(born: Moment, now: Moment) -> SessionLife {
        SessionLife { state: State::Live, born, ..SessionLife::begin(now) }
    }

    /// The time at which it began.
    pub fn born(&self) -> Moment {
        self.born
    }

    /// Client processes that are alive.
    pub fn owners(&self) -> u32 {
        self.owners
    }

    /// The last client process that ended, if none is left.
    pub fn lost(&self) -> Option<i32> {
        self.lost.map(|(pid, _)| pid)
    }

    /// True if a client has used it whose process is not known.
    pub fn unknown_client(&self) -> bool {
        self.unknown_client
    }

    /// The current state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// True if requests may use it.
    pub fn usable(&self) -> bool {
        matches!(self.state, State::Opening | State::Live)
    }

    /// True if a client process was ever found.
    pub fn had_owner(&self) -> bool {
        self.owners > 0 || self.lost.is_some()
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The time since its last request; `None` while one is in flight, and unless clients can use it. A stream for the
    /// server's own messages is no request.
    pub fn idle(&self, now: Moment) -> Option<Duration> {
        (self.state == State::Live && self.in_flight == 0).then(|| now.since(self.requested))
    }

    /// Applies one event.
    pub fn apply(&mut self, event: Event, now: Moment, times: &SessionTimes) -> Effect {
        self.count(&event, now);
        match (&self.state, event) {
            (State::Opening, Event::Opened) => self.state = State::Live,
            (State::Opening | State::Live, Event::End(reason)) => return self.end(reason),
            // Any event may pass a deadline: the last process is gone, or time has passed.
            (State::Opening | State::Live, _) => {
                if let Some((at, reason)) = self.deadline(times)
                    && at <= now
                {
                    return self.end(reason);
                }
            }
            (State::Ending(reason), Event::Released) => self.state = State::Ended(reason.clone()),
            // The tree or the upstream session of an `initialize` whose client no longer waits.
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
            Event::OwnerFound => (self.owners, self.lost, self.moved_on) = (self.owners + 1, None, false),
            Event::OwnerGone(pid) => {
                self.owners = self.owners.saturating_sub(1);
                self.lost = (self.owners == 0).then_some((*pid, now));
            }
            Event::OwnerUnknown => self.unknown_client = true,
            Event::OwnersMovedOn(all) => self.moved_on = *all,
            Event::ConnectionBegan => self.connections += 1,
            Event::ConnectionEnded => {
                self.connections = self.connections.saturating_sub(1);
                self.unconnected_since = now;
            }
            Event::Held | Event::Opened | Event::Tick | Event::End(_) | Event::Released => {}
        }
        if matches!(event, Event::RequestBegan | Event::RequestEnded | Event::Opened) {
            self.requested = now;
        }
        if was_busy || self.busy() || matches!(event, Event::Opened) {
            self.quiet_since = now;
        }
    }

    fn busy(&self) -> bool {
        self.in_flight > 0 || self.listening > 0
    }

    /// The time and reason of its end if no other event happens.
    pub fn deadline(&self, times: &SessionTimes) -> Option<(Moment, Reason)> {
        let age = times.max_age.map(|age| (self.born + age, Reason::MaxAge));
        let own = match &self.state {
            State::Opening => Some((self.born + times.init_timeout, Reason::NotInitialized)),
            State::Live => self.unused_deadline(times),
            State::Ending(_) | State::Ended(_) => return None,
        };
        [age, own].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The time and reason of its end if no client uses it any more.
    fn unused_deadline(&self, times: &SessionTimes) -> Option<(Moment, Reason)> {
        match self.lost {
            // A living client process decides by itself, unless it has forgotten the session.
            _ if self.owners > 0 => self.abandoned_deadline(times),
            // All of its clients were known processes, and they are gone: no process reads the responses to requests in
            // flight.
            Some((pid, at)) if !self.unknown_client => {
                Some((at + times.linger, Reason::OwnerGone { pid, role: Role::Client }))
            }
            _ if self.busy() => None,
            _ => times.idle.map(|idle| (self.quiet_since + idle, Reason::Idle)),
        }
    }

    /// The time and reason of its end if its client process lives, but does not use it any more.
    fn abandoned_deadline(&self, times: &SessionTimes) -> Option<(Moment, Reason)> {
        if self.busy() || self.connections > 0 {
            return None;
        }
        let unused = self.quiet_since.max(self.unconnected_since);
        let forgotten = times.idle.filter(|_| self.moved_on);
        [times.abandoned, forgotten].into_iter().flatten().min().map(|time| (unused + time, Reason::Abandoned))
    }
}

#[cfg(test)]
mod tests;
