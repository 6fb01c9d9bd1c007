//! The verdicts about an HTTP server, from its responses. Pure.

use std::time::Duration;

use super::test_client::Answer;
use crate::report::{Observation, Row, fail, pass, skip, warn};
use crate::rule;
use leash_model::duration;

/// The memory per session that is no leak yet. The heap of Node grows by some 20 KiB for each of a few hundred
/// sessions before its first collection; users have reported sessions that leave 700 KiB each.
const PER_SESSION: u64 = 32 * 1024;

/// The facts about a server.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpFacts {
    /// The response to `initialize`.
    pub(super) opened: Option<Answer>,
    /// The response to `server/discover`, if `initialize` was refused.
    pub(super) modern: Option<Answer>,
    /// The response to DELETE of that session.
    pub(super) deleted: Option<Answer>,
    /// The response to a request in that session, after DELETE.
    pub(super) afterwards: Option<Answer>,
    /// The response to a request with an unknown session id.
    pub(super) unknown: Option<Answer>,
    /// The response to a request in a session that was idle for the expected time.
    pub(super) abandoned: Option<(Duration, Answer)>,
    /// The response to `initialize` from a foreign web page.
    pub(super) foreign: Option<Answer>,
    /// The memory of the server's process.
    pub(super) memory: LeftMemory,
}

/// The memory that sessions left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum LeftMemory {
    /// The user gave no process.
    #[default]
    NotAsked,
    /// It could not be read.
    Unknown(String),
    /// Bytes after each round of this many sessions, which were opened and ended.
    Rounds { sessions: u64, bytes: Vec<u64> },
}

/// All rows of the report about a server.
pub(super) fn rows(facts: &HttpFacts) -> Vec<Row> {
    let opened = facts.opened.as_ref();
    vec![
        Row::new("http.session", "opens a session", rule::SESSION, session(opened, facts.modern.as_ref())),
        Row::new("http.delete", "lets a client end its session", rule::DELETE, deleted(opened, facts.deleted.as_ref())),
        Row::new(
            "http.terminated",
            "answers 404 once a session was ended",
            rule::TERMINATED,
            terminated(facts.deleted.as_ref(), facts.afterwards.as_ref()),
        ),
        Row::new("http.unknown", "answers 404 to an unknown session", rule::TERMINATED, unknown(opened, facts)),
        Row::new("http.expiry", "ends idle sessions", rule::EXPIRY, expiry(opened, facts)),
        Row::new("http.origin", "refuses a foreign origin", rule::ORIGIN, origin(opened, facts.foreign.as_ref())),
        Row::new("http.memory", "keeps no memory of ended sessions", rule::MEMORY, memory(&facts.memory)),
    ]
}

fn session(opened: Option<&Answer>, modern: Option<&Answer>) -> Observation {
    match opened {
        Some(answer) if answer.is_result() => match answer.session() {
            Some(_) => pass("it gave an id"),
            None => pass("it has no sessions: nothing can be left behind"),
        },
        Some(_) if modern.is_some_and(Answer::is_result) => {
            pass("it speaks a revision without sessions only: nothing can be left behind")
        }
        Some(answer) => fail(answered("`initialize`", answer)),
        None => skip("not tried"),
    }
}

/// The outcome of a request.
fn answered(request: &str, answer: &Answer) -> String {
    match answer {
        Answer::Status { status, .. } => format!("{request} was answered with {status}"),
        // It names the server and the cause.
        Answer::Failed(why) => why.clone(),
    }
}

/// The reason why sessions can't be judged.
fn no_session(opened: Option<&Answer>) -> Option<Observation> {
    match opened {
        Some(answer) if answer.session().is_some() => None,
        Some(answer) if answer.is_result() => Some(skip("the server has no sessions")),
        _ => Some(skip("there was no session")),
    }
}

fn deleted(opened: Option<&Answer>, deleted: Option<&Answer>) -> Observation {
    if let Some(skipped) = no_session(opened) {
        return skipped;
    }
    match deleted {
        Some(Answer::Status { status: status @ 200..300, .. }) => pass(status.to_string()),
        Some(Answer::Status { status: 405, .. }) => warn("405: clients can't end sessions, so the server has to"),
        Some(answer) => fail(answered("DELETE", answer)),
        None => skip("not tried"),
    }
}

fn terminated(deleted: Option<&Answer>, afterwards: Option<&Answer>) -> Observation {
    match (deleted.and_then(Answer::status), afterwards) {
        (Some(200..300), Some(Answer::Status { status: 404, .. })) => pass("404"),
        (Some(200..300), Some(answer)) => fail(answered("a request after DELETE", answer)),
        _ => skip("no session was ended"),
    }
}

fn unknown(opened: Option<&Answer>, facts: &HttpFacts) -> Observation {
    if let Some(skipped) = no_session(opened) {
        return skipped;
    }
    match &facts.unknown {
        Some(Answer::Status { status: 404, .. }) => pass("404"),
        Some(answer) => fail(format!(
            "{}: after a restart of the server its clients do not learn to open a new session",
            answer.describe()
        )),
        None => skip("not tried"),
    }
}

fn expiry(opened: Option<&Answer>, facts: &HttpFacts) -> Observation {
    if let Some(skipped) = no_session(opened) {
        return skipped;
    }
    match &facts.abandoned {
        Some((waited, Answer::Status { status: 404, .. })) => pass(format!("gone after {}", duration::rough(*waited))),
        Some((waited, answer)) => {
            fail(format!("{} after {} without a request", answer.describe(), duration::rough(*waited)))
        }
        None => skip("use --expect-idle to test it"),
    }
}

fn origin(opened: Option<&Answer>, foreign: Option<&Answer>) -> Observation {
    match foreign {
        Some(Answer::Failed(_)) if matches!(opened, Some(Answer::Failed(_))) => skip("the server does not answer"),
        Some(Answer::Status { status: 403, .. }) => pass("403"),
        Some(Answer::Status { status: status @ 400..500, .. }) => warn(format!("refused with {status}, not with 403")),
        Some(answer @ Answer::Status { status: 200..300, .. }) => match answer.session() {
            Some(_) => fail("a foreign web page was given a session"),
            None => fail("a foreign web page was answered"),
        },
        Some(answer) => fail(answer.describe()),
        None => skip("not tried"),
    }
}

/// A leak grows in every round; memory that is reused, or not released yet, does not.
fn memory(memory: &LeftMemory) -> Observation {
    let (sessions, bytes) = match memory {
        LeftMemory::NotAsked => return skip("use --pid to measure it"),
        LeftMemory::Unknown(why) => return skip(why.clone()),
        LeftMemory::Rounds { sessions, bytes } => (*sessions, bytes),
    };
    let text = format!(
        "at least {:.1} KiB for each of {} sessions that were opened and ended",
        least_growth(sessions, bytes) as f64 / 1024.0,
        sessions * (bytes.len().saturating_sub(1) as u64)
    );
    if still_grows(sessions, bytes) { fail(text) } else { pass(text) }
}

/// True if in every round a session left more than the limit.
pub(super) fn still_grows(sessions: u64, bytes: &[u64]) -> bool {
    least_growth(sessions, bytes) > PER_SESSION
}

/// The memory that each session left in the round with the least growth.
fn least_growth(sessions: u64, bytes: &[u64]) -> u64 {
    let growth = bytes.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min().unwrap_or_default();
    growth / sessions.max(1)
}

#[cfg(test)]
mod tests;
