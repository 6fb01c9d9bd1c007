//! What is done to a stdio server, in which order.

use crate::rule;
use crate::rule::Rule;

/// When the end is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Right after the start: nothing was said.
    Started,
    /// It is up, as far as the time that it took to answer before can tell, and nothing was said.
    Up,
    /// It is up, `initialize` was sent, and its answer is not awaited.
    Greeting,
    /// The handshake is done.
    Ready,
    /// A call is not answered yet.
    InFlight,
}

/// How the end is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// stdin is closed.
    Eof,
    /// SIGTERM to the first process, with stdin open.
    Term,
    /// Both pipes are gone at once.
    HostGone,
}

/// One life of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) rule: Rule,
    pub(super) stage: Stage,
    pub(super) ask: Ask,
}

/// All of them. The first is also the one that shows whether it is a server at all.
pub(super) const PLAN: [Probe; 10] = [
    Probe { id: "stdio.eof", title: "leaves at the end of input", rule: rule::EOF, stage: Stage::Ready, ask: Ask::Eof },
    Probe { id: "stdio.term", title: "leaves on SIGTERM", rule: rule::TERM, stage: Stage::Ready, ask: Ask::Term },
    Probe {
        id: "stdio.host-gone",
        title: "leaves when the host is killed",
        rule: rule::HOST_GONE,
        stage: Stage::Ready,
        ask: Ask::HostGone,
    },
    Probe {
        id: "stdio.eof-in-flight",
        title: "leaves at the end of input, with a call in flight",
        rule: rule::EOF,
        stage: Stage::InFlight,
        ask: Ask::Eof,
    },
    Probe {
        id: "stdio.term-in-flight",
        title: "leaves on SIGTERM, with a call in flight",
        rule: rule::TERM,
        stage: Stage::InFlight,
        ask: Ask::Term,
    },
    Probe {
        id: "stdio.eof-at-start",
        title: "leaves at the end of input, right after its start",
        rule: rule::EOF,
        stage: Stage::Started,
        ask: Ask::Eof,
    },
    Probe {
        id: "stdio.eof-before-handshake",
        title: "leaves at the end of input, before the handshake",
        rule: rule::EOF,
        stage: Stage::Up,
        ask: Ask::Eof,
    },
    Probe {
        id: "stdio.term-before-handshake",
        title: "leaves on SIGTERM, before the handshake",
        rule: rule::TERM,
        stage: Stage::Up,
        ask: Ask::Term,
    },
    Probe {
        id: "stdio.eof-during-handshake",
        title: "leaves at the end of input, during the handshake",
        rule: rule::EOF,
        stage: Stage::Greeting,
        ask: Ask::Eof,
    },
    Probe {
        id: "stdio.term-during-handshake",
        title: "leaves on SIGTERM, during the handshake",
        rule: rule::TERM,
        stage: Stage::Greeting,
        ask: Ask::Term,
    },
];
