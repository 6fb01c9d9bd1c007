//! The effects of `leash top`: they run on threads of their own and print nothing.

use std::time::Duration;

use leash_model::identity::Identity;
use leash_orphans::act::ReapSettings;
use leash_orphans::{JudgePolicy, Verdict};
use leash_tree::ledger::logs::tail;
use leash_tree::ledger::store::Store;
use leash_tree::platform::proc::Proc;
use leash_tree::session::Target;

use super::super::survey::Survey;
use super::super::{end, logs, reap, why};
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

/// Ends a session or a run, as `leash end` does; one line about it.
pub(super) fn end(target: Target, name: &str) -> String {
    match end::end_target(target) {
        Ok(text) => text.shown(false).lines().next().map_or_else(|| format!("{name} has ended"), str::to_owned),
        Err(problem) => format!("{name}: {problem}"),
    }
}

/// Ends an orphan, as `leash reap --yes` does; one line about it.
pub(super) fn reap(root: Identity, name: &str) -> String {
    let settings = ReapSettings { verdicts: vec![Verdict::OrphanProved], grace: GRACE };
    let mut survey = match survey() {
        Ok(survey) => survey,
        Err(problem) => return format!("{name}: {problem}"),
    };
    match reap::end_unprinted(&mut survey, root, &settings, &JudgePolicy::default()) {
        Ok((receipt, None)) => message::receipt_line(&receipt).shown(false).into_owned(),
        Ok((_, Some(warning))) => format!("{name} has ended; {warning}"),
        Err(spared) => format!("{name}: not ended: {spared}"),
    }
}

fn survey() -> Result<Survey, String> {
    let proc = Proc::own().map_err(|why| format!("cannot read processes: {why}"))?;
    let stores = Store::look_all(&places::places()).map_err(|error| format!("cannot read the ledger: {error}"))?;
    Ok(Survey::new(proc, stores, &[]))
}
