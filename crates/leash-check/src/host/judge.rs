//! The verdicts about a host, from the facts of its runs. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;

use super::journal::{self, Happened, JournalEntry, Part};
use crate::report::{Observation, Row, fail, pass, skip, warn};
use crate::rule;
use crate::survivor::{self, Survivor};
use leash_model::duration;

/// The way in which a host is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
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
pub(super) const ENDINGS: [Ending; 6] = [
    Ending::Exit,
    Ending::Signal(Signal::TERM),
    Ending::Signal(Signal::INT),
    Ending::Signal(Signal::HUP),
    Ending::Terminal,
    Ending::Kill,
];

impl Ending {
    /// The middle part of a check's id.
    fn word(self) -> &'static str {
        match self {
            Ending::Exit => "exit",
            Ending::Signal(Signal::INT) => "int",
            Ending::Signal(Signal::HUP) => "hup",
            Ending::Signal(_) => "term",
            Ending::Terminal => "terminal",
            Ending::Kill => "kill",
        }
    }

    /// The description in the report.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Ending::Exit => "the end of its input",
            Ending::Signal(Signal::INT) => "SIGINT",
            Ending::Signal(Signal::HUP) => "SIGHUP",
            Ending::Signal(_) => "SIGTERM",
            Ending::Terminal => "the end of its terminal",
            Ending::Kill => "SIGKILL",
        }
    }
}

/// The facts of one run.
#[derive(Clone, Debug)]
pub(super) struct HostRun {
    pub(super) ending: Ending,
    /// All events that the stand-ins recorded.
    pub(super) journal: Vec<JournalEntry>,
    /// The number of events at the moment when the host was ended.
    pub(super) before: usize,
    /// True if the host was alive at that moment.
    pub(super) stayed: bool,
    /// The time until it exited; `None` if it did not.
    pub(super) left_after: Option<Duration>,
    /// The time limit.
    pub(super) patience: Duration,
    /// The processes that were left one grace after that.
    pub(super) left: Vec<Survivor>,
    pub(super) last_words: String,
    pub(super) took: Duration,
}

/// All rows of the report about a host.
pub(super) fn rows(lives: &[HostRun]) -> Vec<Row> {
    let mut rows: Vec<Row> = lives
        .first()
        .map(|first| Row::new("host.connects", "connects to its servers", rule::HANDSHAKE, connects(first)))
        .into_iter()
        .collect();
    let works = lives.first().is_some_and(connected);
    for life in lives {
        let (word, how) = (life.ending.word(), life.ending.describe());
        let killed = life.ending == Ending::Kill;
        let servers_rule = if killed { rule::HOST_KILLED } else { rule::HOST_SERVERS };
        let row = |what: &str, title: String, rule, seen| Row::new(format!("host.{word}.{what}"), title, rule, seen);
        rows.push(row("leaves", format!("leaves on {how}"), rule::HOST_LEAVES, leaves(life, works)).took(life.took));
        rows.push(row("servers", format!("no process survives {how}"), servers_rule, servers(life)));
        rows.push(row("sessions", format!("sessions are deleted on {how}"), rule::HOST_DELETE, sessions(life)));
    }
    rows
}

fn connects(life: &HostRun) -> Observation {
    let connected = journal::connected(&life.journal);
    let names = |parts: &BTreeSet<Part>| parts.iter().map(|part| part.word()).collect::<Vec<_>>().join(", ");
    let missing: BTreeSet<Part> = Part::SERVERS.into_iter().filter(|part| !connected.contains(part)).collect();
    if connected.is_empty() {
        return fail(with_words("it connected to no server", life));
    }
    match missing.is_empty() {
        true => pass(names(&connected)),
        false => pass(format!("{}; not to {}", names(&connected), names(&missing))),
    }
}

fn with_words(text: &str, life: &HostRun) -> String {
    let words = &life.last_words;
    if words.is_empty() { text.to_owned() } else { format!("{text}; it said: {words}") }
}

/// True if it connected to a server.
fn connected(life: &HostRun) -> bool {
    !journal::connected(&life.journal).is_empty()
}

/// The reason why its exit can't be judged.
fn unknown(life: &HostRun) -> Option<Observation> {
    if !connected(life) {
        return Some(skip("it connected to no server"));
    }
    // For a host that finishes its work and exits, this is the normal exit.
    if !life.stayed && life.ending != Ending::Exit {
        return Some(skip("it had left before it was ended"));
    }
    None
}

/// `works`: the host connected in its first run.
fn leaves(life: &HostRun, works: bool) -> Observation {
    match (connected(life), life.ending) {
        // With a terminal, a host may first ask the user a question.
        (false, Ending::Terminal) if works => return skip("it connects to no server in front of a terminal"),
        (false, _) if works => return fail(with_words("it connected to no server this time", life)),
        _ => {}
    }
    if let Some(skipped) = unknown(life) {
        return skipped;
    }
    match (life.left_after, life.ending) {
        (Some(_), _) if !life.stayed => pass("it left by itself"),
        (Some(after), _) => pass(format!("in {}", duration::rough(after))),
        // A host need not read its stdin.
        (None, Ending::Exit) => skip("it does not leave when its stdin is closed"),
        (None, _) => fail(format!("still there after {}", duration::rough(life.patience))),
    }
}

/// The reason to skip a run without a finding. Processes that were left are a finding in any case.
fn nothing_found(life: &HostRun) -> Option<Observation> {
    unknown(life).or_else(|| life.left_after.is_none().then(|| skip("the host did not leave")))
}

/// A killed host can do nothing, so this is only a warning; users are harmed all the same.
fn finding(life: &HostRun, text: String) -> Observation {
    if life.ending == Ending::Kill && life.stayed { warn(text) } else { fail(text) }
}

fn servers(life: &HostRun) -> Observation {
    if let Some(skipped) = nothing_found(life).filter(|_| life.left.is_empty()) {
        return skipped;
    }
    let started = journal::connected(&life.journal).iter().any(|part| matches!(part, Part::Polite | Part::Deaf));
    if life.left.is_empty() {
        let let_go = |part: Part| {
            life.journal[..before(life)].iter().any(|entry| entry.part == part && entry.happened == Happened::Eof)
        };
        let all_let_go = journal::connected(&life.journal).into_iter().filter(|part| *part != Part::Http).all(let_go);
        return match (started, all_let_go) {
            (false, _) => pass("none; it had started none of the test servers"),
            (true, true) => pass("none; it had closed their pipes before"),
            (true, false) => pass("none"),
        };
    }
    let part_of =
        |survivor: &Survivor| life.journal.iter().find(|entry| entry.pid == survivor.id.pid).map(|entry| entry.part);
    let mut names: Vec<String> = Vec::new();
    for part in [Part::Polite, Part::Deaf, Part::Helper] {
        if life.left.iter().any(|survivor| part_of(survivor) == Some(part)) {
            names.push(part.describe().to_owned());
        }
    }
    let others: Vec<&Survivor> = life.left.iter().filter(|survivor| part_of(survivor).is_none()).collect();
    if !others.is_empty() {
        names.push(survivor::list(&others));
    }
    let text = format!("{} left: {}", life.left.len(), names.join(", "));
    // The specification requires only the server's own process to exit, and that one has.
    let only_helpers = life.left.iter().all(|survivor| part_of(survivor) == Some(Part::Helper));
    if only_helpers { warn(text) } else { finding(life, text) }
}

/// The number of events before the host was ended.
fn before(life: &HostRun) -> usize {
    life.before.min(life.journal.len())
}

fn sessions(life: &HostRun) -> Observation {
    let (opened, deleted) = journal::sessions(&life.journal);
    let left = opened.difference(&deleted).count();
    // A host that has not exited may still need its sessions.
    if let Some(skipped) = nothing_found(life).filter(|_| left == 0 || life.left_after.is_none()) {
        return skipped;
    }
    match (opened.len(), left) {
        (0, _) => skip("it opened no session"),
        (all, 0) if journal::sessions(&life.journal[..before(life)]).1.len() == all => {
            pass(format!("{all} of {all}, before it was ended"))
        }
        (all, 0) => pass(format!("{all} of {all}")),
        (all, left) => finding(life, format!("{left} of {all} not deleted")),
    }
}

#[cfg(test)]
mod tests;
