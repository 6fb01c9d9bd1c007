//! The steps of the test of a stdio server, in order.

use self::ExitRequest::{Eof, HostGone, Term};
use self::ExitStage::{Greeting, InFlight, Ready, Started, Up};
use crate::rule::{self, Rule};

/// The moment at which the server is asked to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitStage {
    /// Right after the start, before any message.
    Started,
    /// The server is up, judging by its earlier start time; no message was sent.
    Up,
    /// The server is up, `initialize` was sent, and the response is not awaited.
    Greeting,
    /// The handshake is done.
    Ready,
    /// A call is not answered yet.
    InFlight,
}

/// The way in which the server is asked to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitRequest {
    /// Its stdin is closed.
    Eof,
    /// SIGTERM is sent to its first process; stdin stays open.
    Term,
    /// Both pipes are closed at once.
    HostGone,
}

impl ExitRequest {
    /// The requirement that the server exits on it.
    pub(super) fn rule(self) -> Rule {
        match self {
            Eof => rule::EOF,
            Term => rule::TERM,
            HostGone => rule::HOST_GONE,
        }
    }
}

/// One run of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) stage: ExitStage,
    pub(super) ask: ExitRequest,
}

const fn probe(id: &'static str, title: &'static str, stage: ExitStage, ask: ExitRequest) -> Probe {
    Probe { id, title, stage, ask }
}

/// All runs. The first one also shows whether the program is a server at all.
pub(super) const PLAN: [Probe; 10] = [
    probe("stdio.eof", "exits at the end of input", Ready, Eof),
    probe("stdio.term", "exits on SIGTERM", Ready, Term),
    probe("stdio.host-gone", "exits when the host is killed", Ready, HostGone),
    probe("stdio.eof-in-flight", "exits at the end of input, with a call in flight", InFlight, Eof),
    probe("stdio.term-in-flight", "exits on SIGTERM, with a call in flight", InFlight, Term),
    probe("stdio.eof-at-start", "exits at the end of input, right after its start", Started, Eof),
    probe("stdio.eof-before-handshake", "exits at the end of input, before the handshake", Up, Eof),
    probe("stdio.term-before-handshake", "exits on SIGTERM, before the handshake", Up, Term),
    probe("stdio.eof-during-handshake", "exits at the end of input, during the handshake", Greeting, Eof),
    probe("stdio.term-during-handshake", "exits on SIGTERM, during the handshake", Greeting, Term),
];
