//! The decisions of a keeper, as a pure machine: no clock, no socket, no file.
//!
//! ```text
//!     the process lives                      the process was killed
//!  ┌───────────────────────────┐ process  ┌────────────────────────┐
//!  │ Waiting ───Ending────┐    │   gone   │ Killed                 │ book is ours, no takeover possible
//!  │   │ owner gone,      v    ├─────────>│   │ book is ours,      ├────────────────────────────────> Ending
//!  │   │ blind      ProcessEnds│          │   │ takeover possible  │
//!  │   v                  ^    │          │   v                    │ deadline, blind, cannot accept
//!  │ OwnerLost ───Ending──┘    │          │ Offering ─┐ a gateway  ├────────────────────────────────> Ending
//!  └───┬──────────────────┬────┘          │        ^──┘ asks       │
//!      │ deadline         │ Done          └───────────┬────────────┘
//!      v                  v                           v the book is another gateway's
//!    Ending              Done                        Done
//! ```
//!
//! A gateway that is gone in `ProcessEnds` was told to stop: that leads to `Ending` at once. `Ending` and `Done` are
//! final: the driver ends the sessions, or leaves the book as it is, and exits.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::value::RawValue;

use super::{HeldSession, KeeperMessage, KeeperOrders, add_end};
use leash_model::receipt::{Reason, UpstreamEnd};
use leash_model::{clock::Moment, limits};

/// Everything that the keeper was told. Sessions stay unparsed: there may be ten thousand, and most are never read.
#[derive(Debug, Default)]
pub(super) struct HeldSessions {
    pub(super) sessions: HashMap<Box<str>, Box<RawValue>>,
    /// The ends of earlier sessions, for the receipt of a connection.
    pub(super) ended: Vec<UpstreamEnd>,
}

impl HeldSessions {
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.ended.is_empty()
    }

    /// Parses the sessions. Another version of leash wrote a session that cannot be read; the book has it.
    pub(super) fn read(&self) -> BTreeMap<&str, HeldSession> {
        let sessions = self.sessions.iter();
        sessions.filter_map(|(key, session)| Some((&**key, serde_json::from_str(session.get()).ok()?))).collect()
    }

    /// True if a session has the facts that another gateway needs to resume it.
    fn can_resume(&self) -> bool {
        self.read().values().any(|session| session.resume_facts.is_some())
    }
}

/// The state of a keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The process works, and its owners live.
    Waiting,
    /// An owner is gone. A process that is not stopped says before the deadline that it ends its sessions.
    OwnerLost {
        /// The reason.
        reason: Reason,
        /// The deadline.
        until: Moment,
    },
    /// The process ends its sessions itself. Only its death matters now.
    ProcessEnds,
    /// The process was killed. The cover says whether the book still belongs to it.
    Killed,
    /// A new gateway may take the sessions over.
    Offering {
        /// The deadline.
        until: Moment,
    },
    /// The keeper ends everything that it holds.
    Ending,
    /// Nothing is left to do.
    Done,
}

/// The events of a keeper.
#[derive(Debug)]
pub(super) enum Event {
    /// The process sent a message.
    Message(KeeperMessage),
    /// The process is gone.
    ProcessGone,
    /// An owner is gone.
    OwnerGone(Reason),
    /// The kernel does not allow any poll, so the keeper sees neither owners nor gateways.
    Blind,
    /// Time has passed.
    Tick,
    /// The cover was read.
    Cover {
        /// True if the book still belongs to the process that started this keeper, or cannot be read. False if another
        /// gateway has taken it over, or if the process was killed before it had made an older book its own.
        is_ours: bool,
    },
    /// A process connected to the handover socket.
    Asked,
    /// The connection could not be accepted, because no descriptor is free.
    CannotAccept,
}

/// The actions that the driver has to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Free descriptors for what follows. Comes once.
    MakeRoom,
    /// Read the book's cover; the result is [`Event::Cover`].
    ReadCover,
    /// Accept the connection, send everything and wait for its end; the result is [`Event::Cover`] or
    /// [`Event::CannotAccept`].
    HandOver,
    /// End all sessions, write the receipts, and exit.
    End(Reason),
    /// Exit.
    Exit,
}

/// A keeper: its state and what it holds.
#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    held: HeldSessions,
    /// The time for which it waits for a new gateway, if one may come.
    takeover: Option<Duration>,
    /// It is the keeper of a gateway. A gateway that stops leaves the rest of its sessions to its keeper.
    is_gateway: bool,
}

impl Machine {
    pub(super) fn new(orders: &KeeperOrders) -> Machine {
        let (held, takeover) = (HeldSessions::default(), orders.takeover_ms.map(Duration::from_millis));
        Machine { state: State::Waiting, held, takeover, is_gateway: orders.connection_facts.is_none() }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn held(&self) -> &HeldSessions {
        &self.held
    }

    /// True while messages of the process count.
    pub(super) fn listens(&self) -> bool {
        matches!(self.state, State::Waiting | State::OwnerLost { .. } | State::ProcessEnds)
    }

    /// The time at which [`Event::Tick`] is due.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match self.state {
            State::OwnerLost { until, .. } | State::Offering { until } => Some(until),
            State::Waiting | State::ProcessEnds | State::Killed | State::Ending | State::Done => None,
        }
    }

    /// Applies one event.
    pub(super) fn apply(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        use Event::{Asked, Blind, CannotAccept, Cover, OwnerGone, ProcessGone, Tick};
        use State::{Done, Ending, Killed, Offering, OwnerLost, ProcessEnds, Waiting};
        let (next, effects) = match (std::mem::replace(&mut self.state, Done), event) {
            (state @ (Waiting | OwnerLost { .. } | ProcessEnds), Event::Message(message)) => {
                self.take_message(state, message)
            }
            // The gateway was told to stop and left the rest to its keeper.
            (ProcessEnds, ProcessGone) if self.is_gateway => {
                (Ending, vec![Effect::MakeRoom, Effect::End(Reason::Shutdown)])
            }
            // Even if an owner is gone too: the keeper acts because the process died.
            (Waiting | OwnerLost { .. } | ProcessEnds, ProcessGone) => {
                (Killed, vec![Effect::MakeRoom, Effect::ReadCover])
            }
            (Waiting, OwnerGone(reason)) => (OwnerLost { reason, until: now + limits::KEEPER_ANSWER }, vec![]),
            (Waiting, Blind) => (OwnerLost { reason: Reason::Starved, until: now + limits::KEEPER_ANSWER }, vec![]),
            (OwnerLost { reason, until }, Tick) if now >= until => {
                (Ending, vec![Effect::MakeRoom, Effect::End(reason)])
            }
            // The first loss counts. A process that ends its sessions itself needs no owner.
            (state @ (OwnerLost { .. } | ProcessEnds), OwnerGone(_) | Blind) => (state, vec![]),
            // No deadline has passed.
            (state @ (Waiting | OwnerLost { .. } | ProcessEnds), Tick) => (state, vec![]),

            // Another gateway ends these sessions.
            (Killed | Offering { .. }, Cover { is_ours: false }) => (Done, vec![Effect::Exit]),
            (Killed, Cover { is_ours: true }) => match self.takeover.filter(|_| self.held.can_resume()) {
                Some(time) => (Offering { until: now + time }, vec![]),
                None => killed(),
            },
            (state @ Offering { .. }, Asked) => (state, vec![Effect::HandOver]),
            // A gateway that asked has died before it took the book over, or none has asked yet.
            (Offering { until }, Cover { is_ours: true } | Tick) if now < until => (Offering { until }, vec![]),
            (Offering { .. }, Cover { is_ours: true } | Tick | Blind | CannotAccept) => killed(),

            // The cover is read, and the handover socket is used, only after the death of the process.
            (state @ (Waiting | OwnerLost { .. } | ProcessEnds), Cover { .. } | Asked | CannotAccept) => {
                (state, vec![])
            }
            // The process is dead: its owners and the rest of its messages do not matter.
            (state @ (Killed | Offering { .. }), Event::Message(_) | ProcessGone | OwnerGone(_)) => (state, vec![]),
            // The cover decides first.
            (Killed, Blind | Tick | Asked | CannotAccept) => (Killed, vec![]),
            // Both are final. Once an end has begun, nothing is handed over.
            (state @ (Ending | Done), _) => (state, vec![]),
        };
        self.state = next;
        effects
    }

    /// Takes a message of the living process.
    fn take_message(&mut self, state: State, message: KeeperMessage) -> (State, Vec<Effect>) {
        match message {
            KeeperMessage::Hold(key, session) => drop(self.held.sessions.insert(key, session)),
            KeeperMessage::Ended(key, end) => {
                self.held.sessions.remove(&key);
                if let Some(end) = end {
                    add_end(&mut self.held.ended, *end);
                }
            }
            KeeperMessage::Anew => self.held = HeldSessions::default(),
            KeeperMessage::Ending => return (State::ProcessEnds, vec![]),
            KeeperMessage::Done => return (State::Done, vec![Effect::Exit]),
        }
        (state, vec![])
    }
}

/// The end of the sessions of a killed process.
fn killed() -> (State, Vec<Effect>) {
    (State::Ending, vec![Effect::End(Reason::SupervisorKilled)])
}

#[cfg(test)]
mod tests;
