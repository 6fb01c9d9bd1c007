//! The verdicts about a stdio server, from the facts of its runs. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use super::plan::{ExitRequest, PLAN, Probe, Stage};
use super::talk::Handshake;
use crate::report::{Observation, Row, fail, pass, skip};
use crate::rule;
use crate::survivor::{self, Survivor};
use leash_model::duration;
use leash_model::receipt::{Exit, signal_name};

/// The facts of one run.
#[derive(Clone, Debug)]
pub(super) struct StdioRun {
    pub(super) probe: Probe,
    /// `None` if no handshake was tried.
    pub(super) handshake: Option<Handshake>,
    /// True if the call was answered before the server was asked to exit.
    pub(super) answered: bool,
    /// True if its first process was alive when it was asked to exit.
    pub(super) lived: bool,
    /// The time until its first process exited; `None` if it did not.
    pub(super) left_after: Option<Duration>,
    pub(super) exit: Option<Exit>,
    /// The time limit.
    pub(super) patience: Duration,
    /// The listening ports of all its processes when it was asked to exit.
    pub(super) ports: BTreeSet<u16>,
    /// Processes that were left one grace after the first one had exited.
    pub(super) left: Vec<Survivor>,
    /// Its ports that were still in use then.
    pub(super) ports_left: BTreeSet<u16>,
    pub(super) last_words: String,
    pub(super) took: Duration,
}

/// All rows of the report about a server. `again` is the handshake of one more start after all runs.
pub(super) fn rows(lives: &[StdioRun], again: Option<&Handshake>, grace: Duration) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(first) = lives.first() {
        rows.push(Row::new("stdio.handshake", "answers the handshake", rule::HANDSHAKE, handshake(first)));
    }
    // A program without a handshake is no server, so its exits prove nothing.
    let works = lives.first().is_some_and(|first| matches!(first.handshake, Some(Handshake::Done { .. })));
    for probe in PLAN {
        let life = lives.iter().find(|life| life.probe.id == probe.id);
        let seen = life.filter(|_| works).map_or_else(|| skip("there was no handshake"), leaves);
        let took = life.map(|life| life.took).unwrap_or_default();
        rows.push(Row::new(probe.id, probe.title, probe.ask.rule(), seen).took(took));
    }
    rows.push(Row::new("stdio.helpers", "leaves no process behind", rule::HELPERS, helpers(lives, grace)));
    rows.push(Row::new("stdio.ports", "leaves no listening port behind", rule::PORTS, ports(lives)));
    rows.push(Row::new("stdio.browsers", "leaves no browser behind", rule::BROWSERS, browsers(lives)));
    let first = lives.first().and_then(|life| life.handshake.as_ref());
    rows.push(Row::new("stdio.again", "starts again after all that", rule::AGAIN, starts_again(first, again)));
    rows
}

fn handshake(life: &StdioRun) -> Observation {
    let with_words = |text: &str| match life.last_words.is_empty() {
        true => text.to_owned(),
        false => format!("{text}; it said: {}", life.last_words),
    };
    match &life.handshake {
        Some(Handshake::Done { server, version, took }) => {
            pass(format!("{server}, revision {version}, in {}", duration::rough(*took)))
        }
        Some(Handshake::Refused(why)) => fail(with_words(why)),
        Some(Handshake::Silent) => fail(with_words("no answer to `initialize`")),
        Some(Handshake::Left) => fail(with_words("it left during the handshake")),
        None => skip("not tried"),
    }
}

fn leaves(life: &StdioRun) -> Observation {
    let Probe { stage, ask, .. } = life.probe;
    if matches!(stage, Stage::Ready | Stage::InFlight) && !matches!(life.handshake, Some(Handshake::Done { .. })) {
        return fail("this time there was no handshake");
    }
    let how = life.exit.map(|exit| match exit {
        Exit::Code(code) => format!(", exit code {code}"),
        Exit::Signal(signal) => format!(", by {}", signal_name(signal)),
    });
    match life.left_after {
        // A server that crashes on a message has not shown that it exits on request.
        Some(_) if !life.lived => fail(format!("it had exited before it was asked{}", how.unwrap_or_default())),
        Some(after) => {
            let not_in_flight = if life.answered { "; the call was answered before: name a longer one" } else { "" };
            pass(format!("in {}{}{not_in_flight}", duration::rough(after), how.unwrap_or_default()))
        }
        None => {
            let what = match ask {
                ExitRequest::Eof => "stdin was closed",
                ExitRequest::Term => "SIGTERM",
                ExitRequest::HostGone => "both pipes were closed",
            };
            fail(format!("still there {} after {what}", duration::rough(life.patience)))
        }
    }
}

/// The processes that were left, and the runs. A run in which the server itself stayed does not count: it had no
/// chance to end its helpers.
fn left_in(lives: &[StdioRun], wanted: impl Fn(&Survivor) -> bool) -> (Vec<&str>, Vec<&Survivor>) {
    let (mut ids, mut all) = (Vec::new(), Vec::new());
    for life in lives {
        let left: Vec<&Survivor> = life.left.iter().filter(|survivor| wanted(survivor)).collect();
        if !left.is_empty() {
            ids.push(life.probe.id.trim_start_matches("stdio."));
            all.extend(left);
        }
    }
    (ids, all)
}

fn none_left(lives: &[StdioRun]) -> Option<Observation> {
    lives.iter().all(|life| life.left_after.is_none()).then(|| skip("it never exited by itself"))
}

fn helpers(lives: &[StdioRun], grace: Duration) -> Observation {
    let (ids, left) = left_in(lives, |_| true);
    match (left.is_empty(), none_left(lives)) {
        (false, _) => fail(format!(
            "{} left {} after the server, in {}: {}",
            counted(left.len()),
            duration::rough(grace),
            ids.join(", "),
            survivor::list(&left)
        )),
        (true, Some(unknown)) => unknown,
        (true, None) => pass("none"),
    }
}

fn ports(lives: &[StdioRun]) -> Observation {
    let left: BTreeSet<u16> = lives.iter().flat_map(|life| &life.ports_left).copied().collect();
    let had: BTreeSet<u16> = lives.iter().flat_map(|life| &life.ports).copied().collect();
    let list = |ports: &BTreeSet<u16>| ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    match (left.is_empty(), none_left(lives)) {
        (false, _) => fail(format!("still listening: {}", list(&left))),
        (true, Some(unknown)) => unknown,
        (true, None) if had.is_empty() => pass("it listens on none"),
        (true, None) => pass(format!("closed: {}", list(&had))),
    }
}

fn browsers(lives: &[StdioRun]) -> Observation {
    let (ids, left) = left_in(lives, Survivor::is_browser);
    match (left.is_empty(), none_left(lives)) {
        (false, _) => fail(format!("{}, in {}: {}", counted(left.len()), ids.join(", "), survivor::list(&left))),
        (true, Some(unknown)) => unknown,
        (true, None) => pass("none"),
    }
}

fn starts_again(first: Option<&Handshake>, again: Option<&Handshake>) -> Observation {
    match (first, again) {
        (Some(Handshake::Done { server, .. }), Some(Handshake::Done { server: now, took, .. })) => {
            match server == now {
                true => pass(format!("answers in {}", duration::rough(*took))),
                false => fail(format!("it was `{server}` and is `{now}` now")),
            }
        }
        (Some(Handshake::Done { .. }), Some(Handshake::Refused(why))) => fail(why.clone()),
        (Some(Handshake::Done { .. }), Some(Handshake::Silent)) => fail("no answer to `initialize` any more"),
        (Some(Handshake::Done { .. }), Some(Handshake::Left)) => fail("it left during the handshake"),
        _ => skip("there was no handshake"),
    }
}

fn counted(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

#[cfg(test)]
mod tests;
