//! The verdicts about a stdio server, from the facts of its runs. Pure.

use std::{collections::BTreeSet, time::Duration};

use super::plan::{ExitRequest, ExitStage, PLAN, Probe};
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
    pub(super) time_limit: Duration,
    /// The listening ports of all its processes when it was asked to exit.
    pub(super) ports: BTreeSet<u16>,
    /// Processes that were left one grace after the first one had exited.
    pub(super) left: Vec<Survivor>,
    /// Its ports that were still in use then.
    pub(super) ports_left: BTreeSet<u16>,
    pub(super) stderr_tail: String,
    pub(super) took: Duration,
}

/// All rows of the report about a server. `again` is the handshake of one more start after all runs.
pub(super) fn rows(runs: &[StdioRun], again: Option<&Handshake>, grace: Duration) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(first) = runs.first() {
        rows.push(Row::new("stdio.handshake", "answers the handshake", rule::HANDSHAKE, handshake(first)));
    }
    // A program without a handshake is no server, so its exits prove nothing.
    let works = runs.first().is_some_and(|first| matches!(first.handshake, Some(Handshake::Done { .. })));
    for probe in PLAN {
        let run = runs.iter().find(|run| run.probe.id == probe.id);
        let seen = run.filter(|_| works).map_or_else(|| skip("there was no handshake"), leaves);
        let took = run.map(|run| run.took).unwrap_or_default();
        rows.push(Row::new(probe.id, probe.title, probe.ask.rule(), seen).took(took));
    }
    rows.push(Row::new("stdio.helpers", "leaves no process behind", rule::HELPERS, helpers(runs, grace)));
    rows.push(Row::new("stdio.ports", "leaves no listening port behind", rule::PORTS, ports(runs)));
    rows.push(Row::new("stdio.browsers", "leaves no browser behind", rule::BROWSERS, browsers(runs)));
    let first = runs.first().and_then(|run| run.handshake.as_ref());
    rows.push(Row::new("stdio.again", "starts again after all that", rule::AGAIN, starts_again(first, again)));
    rows
}

fn handshake(run: &StdioRun) -> Observation {
    let with_words = |text: &str| match run.stderr_tail.is_empty() {
        true => text.to_owned(),
        false => format!("{text}; it said: {}", run.stderr_tail),
    };
    match &run.handshake {
        Some(Handshake::Done { server, version, took }) => {
            pass(format!("{server}, revision {version}, in {}", duration::rough(*took)))
        }
        Some(Handshake::Refused(why)) => fail(with_words(why)),
        Some(Handshake::Silent) => fail(with_words("no answer to `initialize`")),
        Some(Handshake::Left) => fail(with_words("it exited during the handshake")),
        None => skip("not tried"),
    }
}

fn leaves(run: &StdioRun) -> Observation {
    let Probe { stage, ask, .. } = run.probe;
    if matches!(stage, ExitStage::Ready | ExitStage::InFlight) && !matches!(run.handshake, Some(Handshake::Done { .. }))
    {
        return fail("this time there was no handshake");
    }
    let how = run.exit.map(|exit| match exit {
        Exit::Code(code) => format!(", exit code {code}"),
        Exit::Signal(signal) => format!(", by {}", signal_name(signal)),
    });
    match run.left_after {
        // A server that crashes on a message has not shown that it exits on request.
        Some(_) if !run.lived => fail(format!("it had exited before it was asked{}", how.unwrap_or_default())),
        Some(after) => {
            let not_in_flight = if run.answered { "; the call was answered before: name a longer one" } else { "" };
            pass(format!("in {}{}{not_in_flight}", duration::rough(after), how.unwrap_or_default()))
        }
        None => {
            let what = match ask {
                ExitRequest::Eof => "stdin was closed",
                ExitRequest::Term => "SIGTERM",
                ExitRequest::HostGone => "both pipes were closed",
            };
            fail(format!("still there {} after {what}", duration::rough(run.time_limit)))
        }
    }
}

/// The processes that were left, and the runs. A run in which the server itself stayed does not count: it had no
/// chance to end its helpers.
fn left_in(runs: &[StdioRun], wanted: impl Fn(&Survivor) -> bool) -> (Vec<&str>, Vec<&Survivor>) {
    let (mut ids, mut all) = (Vec::new(), Vec::new());
    for run in runs {
        let left: Vec<&Survivor> = run.left.iter().filter(|survivor| wanted(survivor)).collect();
        if !left.is_empty() {
            ids.push(run.probe.id.trim_start_matches("stdio."));
            all.extend(left);
        }
    }
    (ids, all)
}

fn none_left(runs: &[StdioRun]) -> Option<Observation> {
    runs.iter().all(|run| run.left_after.is_none()).then(|| skip("it never exited by itself"))
}

fn helpers(runs: &[StdioRun], grace: Duration) -> Observation {
    let (ids, left) = left_in(runs, |_| true);
    match (left.is_empty(), none_left(runs)) {
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

fn ports(runs: &[StdioRun]) -> Observation {
    let left: BTreeSet<u16> = runs.iter().flat_map(|run| &run.ports_left).copied().collect();
    let had: BTreeSet<u16> = runs.iter().flat_map(|run| &run.ports).copied().collect();
    let list = |ports: &BTreeSet<u16>| ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    match (left.is_empty(), none_left(runs)) {
        (false, _) => fail(format!("still listening: {}", list(&left))),
        (true, Some(unknown)) => unknown,
        (true, None) if had.is_empty() => pass("it listens on none"),
        (true, None) => pass(format!("closed: {}", list(&had))),
    }
}

fn browsers(runs: &[StdioRun]) -> Observation {
    let (ids, left) = left_in(runs, Survivor::is_browser);
    match (left.is_empty(), none_left(runs)) {
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
        (Some(Handshake::Done { .. }), Some(Handshake::Left)) => fail("it exited during the handshake"),
        _ => skip("there was no handshake"),
    }
}

fn counted(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

#[cfg(test)]
mod tests;
