//! The effects of `leash top` and of the page: they run on threads of their own and print nothing.

use std::path::PathBuf;
use std::time::Duration;

use leash_model::identity::Identity;
use leash_model::receipt::Receipt;
use leash_orphans::act::ReapSettings;
use leash_orphans::{JudgePolicy, Verdict};
use leash_tree::ledger::logs::tail;
use leash_tree::ledger::store::Store;
use leash_tree::platform::proc::Proc;
use leash_tree::session::Target;

use super::survey::Survey;
use super::{end, logs, reap, why};
use crate::output::message;
use crate::places;

/// The time between SIGTERM and SIGKILL of `leash reap`.
const GRACE: Duration = Duration::from_secs(2);

/// The most lines of a log that are shown.
const LOG_LINES: usize = 200;

/// The last lines that a server wrote to stderr.
pub(super) fn log_lines(word: &str) -> Vec<String> {
    let files = places::receipts_files();
    let mut entries: Vec<_> = files.iter().flat_map(|file| tail(file, word, LOG_LINES).unwrap_or_default()).collect();
    entries.sort_by_key(|entry| entry.at_ms);
    if entries.is_empty() {
        return vec![
            "It has no log: it wrote nothing to stderr, or leash does not keep it (`leash run --log` does).".to_owned(),
        ];
    }
    entries.iter().map(|entry| logs::line(entry).shown(false).into_owned()).collect()
}

/// What `leash why` says about a process, one line each.
pub(super) fn explain(pid: i32) -> Vec<String> {
    let answer = survey().and_then(|mut survey| {
        why::about_process(&mut survey, pid).ok_or_else(|| format!("there is no process {pid}"))
    });
    match answer {
        Ok(text) => text.shown(false).lines().map(str::to_owned).collect(),
        Err(problem) => vec![problem],
    }
}

/// The end of a row.
pub(super) struct RowEnd {
    /// The result for people, one line each.
    pub(super) lines: Vec<String>,
    pub(super) receipts: Vec<Receipt>,
}

/// The first line about an end, for a user who knows the row by this name.
pub(super) fn told(end: Result<RowEnd, String>, name: &str) -> String {
    match end {
        Ok(end) => end.lines.into_iter().next().unwrap_or_else(|| format!("{name} has ended")),
        Err(problem) => format!("{name}: {problem}"),
    }
}

/// Ends a session or a run, as `leash end` does. `socket` is that of the daemon that may hold it.
pub(super) fn end(target: Target, socket: PathBuf) -> Result<RowEnd, String> {
    let (text, receipts) = end::end_target(target, socket)?;
    Ok(RowEnd { lines: text.shown(false).lines().map(str::to_owned).collect(), receipts })
}

/// Ends an orphan, as `leash reap --yes` does.
pub(super) fn reap(root: Identity) -> Result<RowEnd, String> {
    let settings = ReapSettings { verdicts: vec![Verdict::OrphanProved], grace: GRACE };
    let ended = reap::end_unprinted(&mut survey()?, root, &settings, &JudgePolicy::default());
    let (receipt, warning) = ended.map_err(|spared| format!("not ended: {spared}"))?;
    let line = message::receipt_line(&receipt).shown(false).into_owned();
    Ok(RowEnd { lines: std::iter::once(line).chain(warning).collect(), receipts: vec![receipt] })
}

fn survey() -> Result<Survey, String> {
    let proc = Proc::own().map_err(|why| format!("cannot read processes: {why}"))?;
    let stores = Store::look_all(&places::places()).map_err(|error| format!("cannot read the ledger: {error}"))?;
    Ok(Survey::new(proc, stores, &[]))
}
