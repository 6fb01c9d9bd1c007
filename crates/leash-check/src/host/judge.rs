//! The verdicts about a host, from the facts of its runs. Pure.

use std::{collections::BTreeSet, time::Duration};

use rustix::process::Signal;

use super::journal::{self, JournalEntry, StandInEvent, StandInRole};
use crate::report::{Observation, Row, fail, pass, skip, warn};
use crate::rule;
use crate::survivor::{self, Survivor};
use leash_model::duration;

/// The way in which a host is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostEnding {
    /// It exits by itself: its stdin is closed, unless it has exited before.
    Exit,
    /// A signal that it can handle.
    Signal(Signal),
    /// SIGKILL.
    Kill,
    /// Its terminal is closed: the kernel sends SIGHUP to its group, and the terminal no longer exists.
    Terminal,
}

/// All endings.
pub(super) const ENDINGS: [HostEnding; 6] = [
    HostEnding::Exit,
    HostEnding::Signal(Signal::TERM),
    HostEnding::Signal(Signal::INT),
    HostEnding::Signal(Signal::HUP),
    HostEnding::Terminal,
    HostEnding::Kill,
];

impl HostEnding {
    /// The middle part of a check's id.
    fn word(self) -> &'static str {
        match self {
            HostEnding::Exit => "exit",
            HostEnding::Signal(Signal::INT) => "int",
            HostEnding::Signal(Signal::HUP) => "hup",
            HostEnding::Signal(_) => "term",
            HostEnding::Terminal => "terminal",
            HostEnding::Kill => "kill",
        }
    }

    /// The description in the report.
    pub(super) fn describe(self) -> &'static str {
        match self {
            HostEnding::Exit => "the end of its input",
            HostEnding::Signal(Signal::INT) => "SIGINT",
            HostEnding::Signal(Signal::HUP) => "SIGHUP",
            HostEnding::Signal(_) => "SIGTERM",
            HostEnding::Terminal => "the end of its terminal",
            HostEnding::Kill => "SIGKILL",
        }
    }
}

/// The facts of one run.
#[derive(Clone, Debug)]
pub(super) struct HostRun {
    pub(super) ending: HostEnding,
    /// All events that the stand-ins recorded.
    pub(super) journal: Vec<JournalEntry>,
    /// The number of events at the moment when the host was ended.
    pub(super) before: usize,
    /// True if the host was alive at that moment.
    pub(super) stayed: bool,
    /// The time until it exited; `None` if it did not.
    pub(super) left_after: Option<Duration>,
    /// The time limit.
    pub(super) time_limit: Duration,
    /// The processes that were left one grace after that.
    pub(super) left: Vec<Survivor>,
    pub(super) stderr_tail: String,
    pub(super) took: Duration,
}

/// All rows of the report about a host.
pub(super) fn rows(runs: &[HostRun]) -> Vec<Row> {
    let mut rows: Vec<Row> = runs
        .first()
        .map(|first| Row::new("host.connects", "connects to its servers", rule::HANDSHAKE, connects(first)))
        .into_iter()
        .collect();
    let works = runs.first().is_some_and(connected);
    for run in runs {
        let (word, how) = (run.ending.word(), run.ending.describe());
        let killed = run.ending == HostEnding::Kill;
        let servers_rule = if killed { rule::HOST_KILLED } else { rule::HOST_SERVERS };
        let row = |what: &str, title: String, rule, seen| Row::new(format!("host.{word}.{what}"), title, rule, seen);
        rows.push(row("leaves", format!("exits on {how}"), rule::HOST_LEAVES, leaves(run, works)).took(run.took));
        rows.push(row("servers", format!("no process survives {how}"), servers_rule, servers(run)));
        rows.push(row("sessions", format!("sessions are deleted on {how}"), rule::HOST_DELETE, sessions(run)));
    }
    rows
}

fn connects(run: &HostRun) -> Observation {
    let connected = journal::connected(&run.journal);
    let names = |parts: &BTreeSet<StandInRole>| parts.iter().map(|part| part.word()).collect::<Vec<_>>().join(", ");
    let missing: BTreeSet<StandInRole> =
        StandInRole::SERVERS.into_iter().filter(|part| !connected.contains(part)).collect();
    if connected.is_empty() {
        return fail(with_words("it connected to no server", run));
    }
    match missing.is_empty() {
        true => pass(names(&connected)),
        false => pass(format!("{}; not to {}", names(&connected), names(&missing))),
    }
}

fn with_words(text: &str, run: &HostRun) -> String {
    let words = &run.stderr_tail;
    if words.is_empty() { text.to_owned() } else { format!("{text}; it said: {words}") }
}

/// True if it connected to a server.
fn connected(run: &HostRun) -> bool {
    !journal::connected(&run.journal).is_empty()
}

/// The reason why its exit can't be judged.
fn unknown(run: &HostRun) -> Option<Observation> {
    if !connected(run) {
        return Some(skip("it connected to no server"));
    }
    // For a host that finishes its work and exits, this is the normal exit.
    if !run.stayed && run.ending != HostEnding::Exit {
        return Some(skip("it had exited before leash ended it"));
    }
    None
}

/// `works`: the host connected in its first run.
fn leaves(run: &HostRun, works: bool) -> Observation {
    match (connected(run), run.ending) {
        // With a terminal, a host may first ask the user a question.
        (false, HostEnding::Terminal) if works => return skip("it connects to no server in front of a terminal"),
        (false, _) if works => return fail(with_words("it connected to no server this time", run)),
        _ => {}
    }
    if let Some(skipped) = unknown(run) {
        return skipped;
    }
    match (run.left_after, run.ending) {
        (Some(_), _) if !run.stayed => pass("it exited by itself"),
        (Some(after), _) => pass(format!("in {}", duration::rough(after))),
        // A host need not read its stdin.
        (None, HostEnding::Exit) => skip("it does not exit when its stdin is closed"),
        (None, _) => fail(format!("still there after {}", duration::rough(run.time_limit))),
    }
}

/// The reason to skip a run without a finding. Processes that were left are a finding in any case.
fn nothing_found(run: &HostRun) -> Option<Observation> {
    unknown(run).or_else(|| run.left_after.is_none().then(|| skip("the host did not exit")))
}

/// A killed host can do nothing, so this is only a warning; users are harmed all the same.
fn finding(run: &HostRun, text: String) -> Observation {
    if run.ending == HostEnding::Kill && run.stayed { warn(text) } else { fail(text) }
}

fn servers(run: &HostRun) -> Observation {
    if let Some(skipped) = nothing_found(run).filter(|_| run.left.is_empty()) {
        return skipped;
    }
    let started =
        journal::connected(&run.journal).iter().any(|part| matches!(part, StandInRole::Polite | StandInRole::Deaf));
    if run.left.is_empty() {
        let saw_eof = |part: StandInRole| {
            run.journal[..before(run)].iter().any(|entry| entry.part == part && entry.event == StandInEvent::Eof)
        };
        let all_saw_eof =
            journal::connected(&run.journal).into_iter().filter(|part| *part != StandInRole::Http).all(saw_eof);
        return match (started, all_saw_eof) {
            (false, _) => pass("none; it had started none of the test servers"),
            (true, true) => pass("none; it had closed their pipes before"),
            (true, false) => pass("none"),
        };
    }
    let part_of =
        |survivor: &Survivor| run.journal.iter().find(|entry| entry.pid == survivor.id.pid).map(|entry| entry.part);
    let mut names: Vec<String> = Vec::new();
    for part in [StandInRole::Polite, StandInRole::Deaf, StandInRole::Helper] {
        if run.left.iter().any(|survivor| part_of(survivor) == Some(part)) {
            names.push(part.describe().to_owned());
        }
    }
    let others: Vec<&Survivor> = run.left.iter().filter(|survivor| part_of(survivor).is_none()).collect();
    if !others.is_empty() {
        names.push(survivor::list(&others));
    }
    let text = format!("{} left: {}", run.left.len(), names.join(", "));
    // The specification requires only the server's own process to exit, and that one has.
    let only_helpers = run.left.iter().all(|survivor| part_of(survivor) == Some(StandInRole::Helper));
    if only_helpers { warn(text) } else { finding(run, text) }
}

/// The number of events before the host was ended.
fn before(run: &HostRun) -> usize {
    run.before.min(run.journal.len())
}

fn sessions(run: &HostRun) -> Observation {
    let (opened, deleted) = journal::sessions(&run.journal);
    let left = opened.difference(&deleted).count();
    // A host that has not exited may still need its sessions.
    if let Some(skipped) = nothing_found(run).filter(|_| left == 0 || run.left_after.is_none()) {
        return skipped;
    }
    match (opened.len(), left) {
        (0, _) => skip("it opened no session"),
        (all, 0) if journal::sessions(&run.journal[..before(run)]).1.len() == all => {
            pass(format!("{all} of {all}, before it was ended"))
        }
        (all, 0) => pass(format!("{all} of {all}")),
        (all, left) => finding(run, format!("{left} of {all} not deleted")),
    }
}

#[cfg(test)]
mod tests;
