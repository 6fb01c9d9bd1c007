//! The end of a soak: all clients crash at once, and then nothing may be left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use testkit::gateway::Gateway;
use testkit::scene::Scene;
use testkit::wait::{self, Stopwatch};

use super::meter::{AT_REST, METERS, Page, Values, look};
use super::upstream::{Upstream, Witness};
use crate::step::Outcome;

/// Far beyond the time that the end of ten thousand sessions takes: a DELETE alone may be retried for 30 s.
const PATIENCE: Duration = Duration::from_secs(180);

/// The polling interval for a gateway that is busy with ten thousand ends.
const PAUSE: Duration = Duration::from_millis(200);

/// The reasons for the end of sessions, as in the gateway's metrics.
const REASONS: [&str; 4] = ["owner_gone", "client_deleted", "idle", "client_left"];

/// The result of the end.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Descriptions of everything that is left.
    pub(crate) left: Vec<String>,
    /// The time from the crash of all clients until the gateway was back in its initial state.
    pub(crate) took: Duration,
    /// The gateway before the first client, and after the last one.
    pub(crate) before: Values,
    pub(crate) after: Values,
    /// Sessions by the reason of their end, as the gateway counted them.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    /// The counters of the upstream server.
    pub(crate) witness: Witness,
}

/// Waits until nothing is left, and returns what is.
pub(crate) fn end(scene: &Scene, mut serve: Gateway, upstream: &Upstream, before: Values) -> Outcome<Ending> {
    let watch = Stopwatch::start();
    let mut left = Vec::new();
    let open = || Page::of(&serve).sessions();
    if wait::every(PAUSE, PATIENCE, || (open() == 0.0).then_some(())).is_none() {
        left.push(format!("{} sessions at leash", open()));
    }
    let meters: Vec<usize> = (0..METERS.len()).filter(|at| AT_REST.contains(&METERS[*at].name)).collect();
    let restless = |now: &Values| meters.iter().copied().filter(|at| now[*at] > before[*at]).collect::<Vec<_>>();
    wait::every(PAUSE, PATIENCE, || look(&serve).is_ok_and(|now| restless(&now).is_empty()).then_some(()));
    let (took, after) = (watch.time(), look(&serve)?);
    for at in restless(&after) {
        left.push(format!("{} {}, and {} before", after[at], METERS[at].name, before[at]));
    }
    let page = Page::of(&serve);
    let reasons: BTreeMap<_, _> = REASONS.map(|reason| (reason, ended(&page, &format!("\"{reason}\"")))).into();
    let (opened, all) = (page.sum("leash_sessions_opened_total", "") as u64, ended(&page, ""));
    if opened != all {
        left.push(format!("{opened} sessions were opened and {all} ended"));
    }
    let failed = page.sum("leash_deletes_failed_total", "");
    if failed > 0.0 {
        left.push(format!("{failed} sessions whose DELETE failed"));
    }
    let witness = upstream.witness();
    left.extend(upstream_left(&witness));
    serve.signal(Signal::TERM);
    let code = serve.wait();
    if code != Some(0) {
        left.push(format!("leash serve ended with {code:?}: {}", serve.said()));
    }
    left.extend(traces(scene));
    Ok(Ending { left, took, before, after, reasons, witness })
}

fn ended(page: &Page, label: &str) -> u64 {
    page.sum("leash_sessions_ended_total", label) as u64
}

/// The complaints of the upstream server.
fn upstream_left(witness: &Witness) -> Vec<String> {
    let mut left = Vec::new();
    if witness.open() > 0 {
        left.push(format!("{} sessions at the upstream server", witness.open()));
    }
    if witness.opened != witness.deleted {
        left.push(format!("{} upstream sessions, and {} ended by DELETE", witness.opened, witness.deleted));
    }
    if witness.astray > 0 {
        left.push(format!("{} DELETEs of sessions that were not there", witness.astray));
    }
    left
}

/// The processes, records and receipts that should not exist after the exit of the gateway.
fn traces(scene: &Scene) -> Vec<String> {
    let mut left = Vec::new();
    if let Err(survivors) = scene.wait_gone(&[]) {
        left.push(survivors.to_string());
    }
    for ledger in ["sessions", "gateways"] {
        let files = files(&scene.runtime_dir().join(ledger));
        if files > 0 {
            left.push(format!("{files} files in the ledger of {ledger}"));
        }
    }
    // The last hundred thousand or so: older receipts are rotated away.
    let history = scene.answer(["history", "--json", "-n", "1000000"]).json();
    let receipts = history["receipts"].as_array().cloned().unwrap_or_default();
    let fate = |receipt: &serde_json::Value| receipt["holdings"].to_string().contains("\"left\"");
    let unsettled = receipts.iter().filter(|receipt| fate(receipt)).count();
    if receipts.is_empty() || unsettled > 0 {
        left.push(format!("of {} receipts {unsettled} say that something was left", receipts.len()));
    }
    left
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}
