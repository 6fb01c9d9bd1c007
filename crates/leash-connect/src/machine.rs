//! The life of a connection, as a pure state machine: no clock, no socket, no task. `connection/life.rs` is its driver.
//!
//! ```text
//!          HandshakeAnswered        SessionLost              RevivalFailed (HTTP+SSE, no stream is open)
//! Opening ──────────────────> Live ────────────> Reviving ──────────────────────────────────────────> Paused
//!    │                         │ ^─── Revived ─────┘ │ ^──────────── PauseOver, SessionLost ────────────┘ │
//!    │                         │ ^── RevivalFailed ──┘                                                    │
//!    │                         │ ^────────────────── PauseOver (the host has opened a stream) ────────────┤
//!    └─────────────────────────┴───────────── End ────────────────────────────────────────────────────────┘
//!                                              │
//!                                              v                    Drained
//!    a late InitializeAccepted: Delete ──── Ending ──────────────────────────────> Ended, LeftToKeeper
//! ```
//!
//! A host of the 2026-07-28 era has no handshake and no session, so its connection stays in [`State::Opening`] until
//! the end. A lost session without a handshake cannot be opened again. With `--no-revive`, `SessionLost` leads to
//! `Ending`.
//!
//! leash DELETEs every upstream session that it learns of, unless the upstream says that the session is gone: the
//! session in use when it is replaced or when the connection ends, and a session that no caller waits for at once.

use hyper::Uri;

use leash_model::receipt::Reason;

/// The number of an upstream session among all upstream sessions of a connection.
pub(crate) type SessionNumber = u64;

/// The state of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The upstream has not answered an `initialize` of the host.
    Opening,
    /// The handshake is complete, so leash can open a lost session again.
    Live,
    /// The upstream has lost the session, and leash opens it again. It sends nothing else.
    Reviving,
    /// The session could not be opened again. leash tries again after a pause, or when a message needs the session.
    Paused,
    /// leash ends the upstream sessions.
    Ending(Reason),
    /// All tasks of the connection are over, and all sessions ended.
    Ended(Reason),
    /// All tasks of the connection are over. leash had no more time to end a session, so the keeper must end it.
    LeftToKeeper(Reason),
}

/// The transport of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamTransport {
    /// Not known yet.
    Unknown,
    /// Streamable HTTP, with the address for POST: the URL, or the address to which it redirected `initialize`.
    Streamable(Uri),
    /// HTTP+SSE of 2024-11-05, with the address for POST while the stream is open.
    HttpSse(Option<Uri>),
}

/// The values of the session headers, from the response to `initialize` on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionHeaders {
    /// The id that the upstream gave, if it gave one.
    pub(crate) id: Option<String>,
    /// The agreed protocol version.
    pub(crate) version: Option<String>,
}

/// The reason why a session needs no DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoneReason {
    /// The upstream answered 404: it no longer knows the session.
    Forgotten,
    /// The stream that was the session is closed.
    StreamClosed,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The upstream accepted an `initialize` by Streamable HTTP and may have named a session. `awaited`: the caller
    /// still waits for the response.
    InitializeAccepted { endpoint: Uri, session: Option<(SessionNumber, String)>, awaited: bool },
    /// The upstream answered an `initialize` of the host, or one that leash repeated, with a result.
    HandshakeAnswered { by_host: bool, version: Option<String> },
    /// The upstream answered an `initialize` with an error.
    HandshakeRefused,
    /// The upstream accepted another message at this address by Streamable HTTP.
    PostAccepted(Uri),
    /// A stream of HTTP+SSE is open, and the upstream named the address for POST.
    StreamOpened { endpoint: Uri, session: SessionNumber },
    /// The upstream closed the stream of this generation.
    StreamClosed { generation: u64 },
    /// The upstream refused a message of this generation because it has lost the session.
    SessionLost { generation: u64, gone: Option<GoneReason> },
    /// The lost session is open again.
    Revived,
    /// The lost session could not be opened again.
    RevivalFailed,
    /// The pause before the next try is over.
    PauseOver,
    /// The connection must end.
    End(Reason),
    /// A session has ended. `cut_short`: leash had no more time, and the session may still be open.
    SessionEnded { session: SessionNumber, cut_short: bool },
    /// All tasks of the connection are over, so no response can come any more.
    Drained,
}

/// An action that the driver has to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Use this session from now on, and write it into the ledger before the host learns of it. `None`: the upstream
    /// has no sessions.
    Hold(Option<SessionNumber>),
    /// Tell the keeper of a session that the host will not use.
    HoldUntilEnded(SessionNumber),
    /// End the session, then report [`Event::SessionEnded`].
    Delete(SessionNumber),
    /// Record that the session needs no DELETE.
    RecordGone(SessionNumber, GoneReason),
    /// Record the agreed protocol version of the session in use.
    RecordVersion(String),
    /// Stop reading the stream of the previous session.
    StopListener,
    /// Send no messages of the host.
    SuspendOutbox,
    /// Send messages of the host again.
    ResumeOutbox,
    /// Start a task that opens the lost session again.
    Revive,
    /// End the pause of that task.
    EndPause,
    /// Say that the connection ends.
    AnnounceEnd(Reason),
}

/// A connection's state, and the facts that decide what an event means.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLife {
    state: State,
    transport: UpstreamTransport,
    /// True if leash may open a lost session again.
    revives: bool,
    session: Option<SessionHeaders>,
    /// The number of sessions and streams opened so far. A response to a message of an earlier generation says nothing
    /// about the session in use.
    generation: u64,
    /// The upstream session in use.
    current: Option<SessionNumber>,
    /// The upstream sessions that leash is ending.
    leaving: Vec<SessionNumber>,
}

impl ConnectionLife {
    /// A connection whose host has written nothing yet.
    pub(crate) fn new(transport: UpstreamTransport, revives: bool) -> ConnectionLife {
        let (state, session, generation) = (State::Opening, None, 0);
        ConnectionLife { state, transport, revives, session, generation, current: None, leaving: Vec::new() }
    }

    /// The current state.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The transport of the upstream.
    pub(crate) fn transport(&self) -> &UpstreamTransport {
        &self.transport
    }

    /// True if leash may open a lost session again.
    pub(crate) fn revives(&self) -> bool {
        self.revives
    }

    /// The values of the session headers.
    pub(crate) fn session(&self) -> Option<&SessionHeaders> {
        self.session.as_ref()
    }

    /// True if the upstream gave the session an id, which it may forget.
    pub(crate) fn has_session_id(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.id.is_some())
    }

    /// The number of sessions and streams opened so far.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The reason of the end, once it has begun.
    pub(crate) fn end_reason(&self) -> Option<&Reason> {
        match &self.state {
            State::Ending(reason) | State::Ended(reason) | State::LeftToKeeper(reason) => Some(reason),
            State::Opening | State::Live | State::Reviving | State::Paused => None,
        }
    }

    /// Applies one event.
    pub(crate) fn apply(&mut self, event: Event) -> Vec<Effect> {
        match self.state {
            State::Opening | State::Live | State::Reviving | State::Paused => self.apply_in_use(event),
            State::Ending(_) | State::Ended(_) | State::LeftToKeeper(_) => self.apply_at_the_end(event),
        }
    }

    fn apply_in_use(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::InitializeAccepted { endpoint, session, awaited: true } => {
                let (number, id) = session.unzip();
                self.transport = UpstreamTransport::Streamable(endpoint);
                self.session = Some(SessionHeaders { id, version: None });
                self.replace(number)
            }
            // The caller no longer waits: the host will never use this session.
            Event::InitializeAccepted { session, .. } => self.release(session.map(|(number, _)| number)),
            Event::StreamOpened { endpoint, session } => {
                self.transport = UpstreamTransport::HttpSse(Some(endpoint));
                self.replace(Some(session))
            }
            Event::HandshakeAnswered { by_host, version } => {
                if by_host && self.state == State::Opening {
                    self.state = State::Live;
                }
                self.session.get_or_insert_default().version.clone_from(&version);
                version.into_iter().map(Effect::RecordVersion).collect()
            }
            // If the upstream opened a session all the same, it is ended when it is replaced, or at the end.
            Event::HandshakeRefused => {
                self.session = None;
                Vec::new()
            }
            Event::PostAccepted(endpoint) => {
                if self.transport == UpstreamTransport::Unknown {
                    self.transport = UpstreamTransport::Streamable(endpoint);
                }
                Vec::new()
            }
            Event::StreamClosed { generation } if generation == self.generation => {
                self.transport = UpstreamTransport::HttpSse(None);
                self.lost(Some(GoneReason::StreamClosed))
            }
            Event::SessionLost { generation, gone } if generation == self.generation => self.lost(gone),
            // Another session has taken its place.
            Event::StreamClosed { .. } | Event::SessionLost { .. } => Vec::new(),
            Event::Revived | Event::RevivalFailed => self.tried_to_revive(),
            Event::PauseOver => self.pause_over(),
            Event::End(reason) => self.end(reason),
            Event::SessionEnded { session, cut_short } => self.session_ended(session, cut_short),
            // The driver waits for the tasks only after the end has begun.
            Event::Drained => Vec::new(),
        }
    }

    /// Applies an event after the end has begun: the host gets no more responses, and leash sends nothing but DELETE.
    fn apply_at_the_end(&mut self, event: Event) -> Vec<Effect> {
        match (&self.state, event) {
            // The response came too late: the host will never use this session.
            (_, Event::InitializeAccepted { session, .. }) => self.release(session.map(|(number, _)| number)),
            (_, Event::StreamOpened { session, .. }) => self.release(Some(session)),
            (_, Event::SessionEnded { session, cut_short }) => self.session_ended(session, cut_short),
            (State::Ending(reason), Event::Drained) => {
                let over = if self.leaving.is_empty() { State::Ended } else { State::LeftToKeeper };
                self.state = over(reason.clone());
                Vec::new()
            }
            // It ends once, for the first reason.
            (_, Event::End(_) | Event::Drained) => Vec::new(),
            (_, Event::HandshakeAnswered { .. } | Event::HandshakeRefused | Event::PostAccepted(_)) => Vec::new(),
            // `end` has released the session, so there is nothing to lose or to open again.
            (_, Event::StreamClosed { .. } | Event::SessionLost { .. }) => Vec::new(),
            (_, Event::Revived | Event::RevivalFailed | Event::PauseOver) => Vec::new(),
        }
    }

    /// Handles the end of a try to open the session again. A stream that closed right after the handshake counts as a
    /// failure, and without HTTP+SSE the next message tries again.
    fn tried_to_revive(&mut self) -> Vec<Effect> {
        match self.state {
            State::Reviving => {
                self.state = if self.is_stream_closed() { State::Paused } else { State::Live };
                vec![Effect::ResumeOutbox]
            }
            // No try was under way.
            State::Opening | State::Live | State::Paused => Vec::new(),
            State::Ending(_) | State::Ended(_) | State::LeftToKeeper(_) => Vec::new(),
        }
    }

    fn pause_over(&mut self) -> Vec<Effect> {
        match self.state {
            // The host has opened a session itself during the pause.
            State::Reviving | State::Paused if !self.is_stream_closed() => {
                self.state = State::Live;
                vec![Effect::ResumeOutbox]
            }
            State::Paused => {
                self.state = State::Reviving;
                vec![Effect::SuspendOutbox]
            }
            // `SessionLost` has ended the pause and begun the next try.
            State::Reviving => Vec::new(),
            // There was no pause.
            State::Opening | State::Live => Vec::new(),
            State::Ending(_) | State::Ended(_) | State::LeftToKeeper(_) => Vec::new(),
        }
    }

    /// Forgets a session that has ended. The keeper ends a session that leash had no time for, so that one stays.
    fn session_ended(&mut self, session: SessionNumber, cut_short: bool) -> Vec<Effect> {
        self.leaving.retain(|leaving| cut_short || *leaving != session);
        Vec::new()
    }

    fn is_stream_closed(&self) -> bool {
        self.transport == UpstreamTransport::HttpSse(None)
    }

    /// Uses a new session and ends the previous one.
    fn replace(&mut self, session: Option<SessionNumber>) -> Vec<Effect> {
        self.generation += 1;
        let previous = std::mem::replace(&mut self.current, session);
        self.leaving.extend(previous);
        let mut effects = vec![Effect::StopListener, Effect::Hold(session)];
        effects.extend(previous.map(Effect::Delete));
        effects
    }

    /// Ends a session that the host will never use.
    fn release(&mut self, session: Option<SessionNumber>) -> Vec<Effect> {
        self.leaving.extend(session);
        let release = |session| [Effect::HoldUntilEnded(session), Effect::Delete(session)];
        session.into_iter().flat_map(release).collect()
    }

    /// Decides what follows when the upstream has lost the session in use.
    fn lost(&mut self, gone: Option<GoneReason>) -> Vec<Effect> {
        let mut effects = Vec::new();
        // If the upstream was not explicit, the response to DELETE will show whether the session is gone.
        if let Some(gone) = gone {
            effects.extend(self.current.take().map(|session| Effect::RecordGone(session, gone)));
        }
        match self.state {
            _ if !self.revives => effects.extend(self.end(Reason::UpstreamForgot)),
            State::Live => {
                self.state = State::Reviving;
                effects.extend([Effect::SuspendOutbox, Effect::Revive]);
            }
            State::Paused => {
                self.state = State::Reviving;
                effects.extend([Effect::SuspendOutbox, Effect::EndPause]);
            }
            // There was no handshake, so there is nothing to repeat. The next message is sent as it is.
            State::Opening => {}
            // The task that opens the session again is running.
            State::Reviving => {}
            State::Ending(_) | State::Ended(_) | State::LeftToKeeper(_) => {}
        }
        effects
    }

    fn end(&mut self, reason: Reason) -> Vec<Effect> {
        self.state = State::Ending(reason.clone());
        let current = self.current.take();
        self.leaving.extend(current);
        std::iter::once(Effect::AnnounceEnd(reason)).chain(current.map(Effect::Delete)).collect()
    }
}

#[cfg(test)]
mod tests;
