//! The steps of the test of a stdio server, in order.

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

/// One run of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) rule: Rule,
    pub(super) stage: ExitStage,
    pub(super) ask: ExitRequest,
}

/// All runs. The first one also shows whether the program is a server at all.
pub(super) const PLAN: [Probe; 10] = [
    Probe {
        id: "stdio.eof",
        title: "leaves at the end of input",
        rule: rule::EOF,
        stage: ExitStage::Ready,
        ask: ExitRequest::Eof,
    },
    Probe {
        id: "stdio.term",
        title: "leaves on SIGTERM",
        rule: rule::TERM,
        stage: ExitStage::Ready,
        ask: ExitRequest::Term,
    },
    Probe {
        id: "stdio.host-gone",
        title: "leaves when the host is killed",
        rule: rule::HOST_GONE,
        stage: ExitStage::Ready,
        ask: ExitRequest::HostGone,
    },
    Probe {
        id: "stdio.eof-in-flight",
        title: "leaves at the end of input, with a call in flight",
        rule: rule::EOF,
        stage: ExitStage::InFlight,
        ask: ExitRequest::Eof,
    },
    Probe {
        id: "stdio.term-in-flight",
        title: "leaves on SIGTERM, with a call in flight",
        rule: rule::TERM,
        stage: ExitStage::InFlight,
        ask: ExitRequest::Term,
    },
    Probe {
        id: "stdio.eof-at-start",
        title: "leaves at the end of input, right after its start",
        rule: rule::EOF,
        stage: ExitStage::Started,
        ask: ExitRequest::Eof,
    },
    Probe {
        id: "stdio.eof-before-handshake",
        title: "leaves at the end of input, before the handshake",
        rule: rule::EOF,
        stage: ExitStage::Up,
        ask: ExitRequest::Eof,
    },
    Probe {
        id: "stdio.term-before-handshake",
        title: "leaves on SIGTERM, before the handshake",
        rule: rule::TERM,
        stage: ExitStage::Up,
        ask: ExitRequest::Term,
    },
    Probe {
        id: "stdio.eof-during-handshake",
        title: "leaves at the end of input, during the handshake",
        rule: rule::EOF,
        stage: ExitStage::Greeting,
        ask: ExitRequest::Eof,
    },
    Probe {
        id: "stdio.term-during-handshake",
        title: "leaves on SIGTERM, during the handshake",
        rule: rule::TERM,
        stage: ExitStage::Greeting,
        ask: ExitRequest::Term,
    },
];
