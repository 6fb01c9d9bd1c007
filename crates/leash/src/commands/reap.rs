//! `leash reap`.

use std::path::Path;

use leash_model::clock::Moment;
use leash_model::identity::Identity;
use leash_model::receipt::Receipt;
use leash_orphans::act::{self, ReapOutcome, ReapTerms, Spared, watch};
use leash_orphans::scan::belongings::{self, Belongings};
use leash_orphans::{Evidence, Finding, Policy, Verdict};
use leash_tree::ledger::receipts;
use rustix::time::Timespec;
use serde_json::json;

use super::survey::Survey;
use crate::args::Reap;
use crate::output::escape::add;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::table;
use crate::output::{evidence, message};
use crate::{exit_code, places};

pub(crate) fn reap(args: &Reap) -> u8 {
    let printer = Printer::new(false);
    let mut survey = match Survey::open(printer, &args.projects) {
        Ok(survey) => survey,
        Err(code) => return code,
    };
    let policy = Policy { settle: args.settle, ..Policy::default() };
    if !args.yes {
        let findings = survey.look(&policy);
        plan(printer, args, &survey, &findings);
        return exit_code::OK;
    }
    // Sweep first, because it may leave a process that only the scan finds.
    let mut done: Vec<Done> = survey.sweep(printer).into_iter().map(Ok).collect();
    let findings = survey.look(&policy);
    let (policy, findings) = wait_for_hosts(&mut survey, policy, findings, args);
    for finding in findings.iter().filter(|finding| is_due(finding, args)) {
        let terms = ReapTerms { verdicts: verdicts(finding, args), grace: args.grace };
        done.push(end(printer, &mut survey, finding.root, &terms, &policy).map_err(|spared| (finding.clone(), spared)));
    }
    let told = report(printer, args.json, &done);
    if unknown(printer, args, &findings) { exit_code::NOT_ALL } else { told }
}

/// The verdicts that are enough to end this finding. A likely orphan is ended only if the user has named its PID.
fn verdicts(finding: &Finding, args: &Reap) -> Vec<Verdict> {
    let named = finding.tree.iter().any(|id| args.likely.contains(&id.pid));
    let mut verdicts = vec![Verdict::OrphanProved];
    verdicts.extend(named.then_some(Verdict::OrphanLikely));
    verdicts.extend(args.stale.then_some(Verdict::StaleHost));
    verdicts
}

/// Warns about named processes that belong to no server that may be ended; returns true if there are any.
fn unknown(printer: Printer, args: &Reap, findings: &[Finding]) -> bool {
    let due = |pid: &i32| findings.iter().any(|one| is_due(one, args) && one.tree.iter().any(|id| id.pid == *pid));
    let unknown: Vec<&i32> = args.likely.iter().filter(|pid| !due(pid)).collect();
    for pid in &unknown {
        printer.warning(format!(
            "process {pid} belongs to no server that is likely an orphan: `leash why {pid}` says more"
        ));
    }
    !unknown.is_empty()
}

/// True if the user asked for it. What a dead leash left is swept instead, as far as its record proves it.
fn is_due(finding: &Finding, args: &Reap) -> bool {
    verdicts(finding, args).contains(&finding.verdict) && finding.leashed.is_none()
}

/// If the ends of a server are closed while its parent lives, waits as long as a host may take to end it properly.
fn wait_for_hosts(survey: &mut Survey, policy: Policy, findings: Vec<Finding>, args: &Reap) -> (Policy, Vec<Finding>) {
    let is_waiting = |fact: &Evidence| matches!(fact, Evidence::NotSettled { .. });
    if !findings.iter().any(|finding| finding.evidence.iter().any(is_waiting)) {
        return (policy, findings);
    }
    let (mut memory, terms) =
        (watch::WatchMemory::default(), watch::WatchTerms { settle: args.settle, ..Default::default() });
    let began = Moment::now();
    memory.note(&findings, &terms, began);
    pause_until(began + args.settle);
    let policy = memory.policy(&terms, Moment::now());
    let findings = survey.look(&policy);
    (policy, findings)
}

/// Sleeps until the deadline: no event reports that nothing has happened.
pub(super) fn pause_until(deadline: Moment) {
    loop {
        let left = deadline.since(Moment::now());
        if left.is_zero() {
            return;
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let _ = rustix::event::poll(&mut [], Some(&timeout));
    }
}

/// Ends one finding, and stores the receipt.
pub(super) fn end(
    printer: Printer,
    survey: &mut Survey,
    root: Identity,
    terms: &ReapTerms,
    policy: &Policy,
) -> Result<Receipt, Spared> {
    let proc = survey.proc;
    match act::end(&proc, root, terms, &mut || survey.look(policy)) {
        ReapOutcome::Ended(receipt) => {
            let path = places::announced().receipts;
            keep(printer, &path, &receipt);
            Ok(*receipt)
        }
        ReapOutcome::Spared(spared) => Err(spared),
    }
}

fn keep(printer: Printer, path: &Path, receipt: &Receipt) {
    if let Err(error) = receipts::append(path, receipt) {
        printer.warning(format!("cannot write {}: {error}", path.display()));
    }
}

/// Prints what `reap --yes` would do.
fn plan(printer: Printer, args: &Reap, survey: &Survey, findings: &[Finding]) {
    unknown(printer, args, findings);
    let listed = |finding: &&Finding| !matches!(finding.verdict, Verdict::Live | Verdict::Unknown);
    let listed: Vec<(&Finding, Belongings)> =
        findings.iter().filter(listed).map(|finding| (finding, belongings::of(&survey.proc, &finding.tree))).collect();
    if args.json {
        let one = |(finding, had): &(&Finding, Belongings)| json!({ "finding": finding, "belongings": had, "would_end": is_due(finding, args) });
        let plan = json!({ "version": 1, "plan": listed.iter().map(one).collect::<Vec<_>>() });
        printer.exact(format!("{plan:#}\n"));
        return;
    }
    if listed.is_empty() {
        printer.data("no orphans\n");
        return;
    }
    let row = |(finding, had): &(&Finding, Belongings)| {
        vec![
            finding.root.pid.to_string(),
            finding.server.clone().unwrap_or_else(|| "-".to_owned()),
            finding.client.clone().unwrap_or_else(|| "-".to_owned()),
            finding.tree.len().to_string(),
            bytes(had.memory),
            bytes(had.swap),
            span(u64::try_from(finding.age.as_millis()).unwrap_or(u64::MAX)),
            finding.verdict.word().to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    printer.data(table(&["PID", "SERVER", "CLIENT", "PROCS", "MEMORY", "SWAP", "AGE", "VERDICT"], &rows));
    for (finding, had) in &listed {
        printer.data(details(finding, had));
    }
    let due: Vec<&(&Finding, Belongings)> = listed.iter().filter(|(finding, _)| is_due(finding, args)).collect();
    let memory: u64 = due.iter().map(|(_, had)| had.memory + had.swap).sum();
    printer.data(format!(
        "{} would be ended, {} would come back; `leash reap --yes` does it\n",
        due.len(),
        bytes(memory)
    ));
}

fn details(finding: &Finding, had: &Belongings) -> String {
    let mut lines = vec![format!("{}:", evidence::subject(finding))];
    lines.extend(
        std::iter::once(&finding.is).chain(&finding.evidence).map(|fact| format!("  {}", evidence::sentence(fact))),
    );
    lines.extend(had.ports.iter().map(|port| format!("  it listens on port {port}")));
    lines.extend(had.locks.iter().map(|lock| format!("  it keeps {lock} locked")));
    let mut text = String::new();
    lines.iter().for_each(|line| add(&mut text, format_args!("{line}")));
    text
}

type Done = Result<Receipt, (Finding, Spared)>;

fn report(printer: Printer, as_json: bool, done: &[Done]) -> u8 {
    let nothing_left = done.iter().flatten().all(Receipt::nothing_left);
    if as_json {
        let receipts: Vec<&Receipt> = done.iter().flatten().collect();
        let spared = done.iter().filter_map(|one| one.as_ref().err());
        let spared: Vec<_> =
            spared.map(|(finding, why)| json!({ "finding": finding, "why": why.to_string() })).collect();
        printer.exact(format!("{:#}\n", json!({ "version": 1, "receipts": receipts, "spared": spared })));
    } else {
        for one in done {
            match one {
                Ok(receipt) => {
                    printer.data(format!("{}\n", message::receipt_line(receipt)));
                    message::left_lines(receipt).iter().for_each(|line| printer.data(format!("  {line}\n")));
                }
                Err((finding, why)) => printer.data(format!("{}: not ended: {why}\n", evidence::subject(finding))),
            }
        }
        let back: u64 = done.iter().flatten().flat_map(Receipt::trees).map(|tree| tree.memory_bytes).sum();
        printer.data(format!("{} ended, {} came back\n", done.iter().flatten().count(), bytes(back)));
    }
    if nothing_left { exit_code::OK } else { exit_code::NOT_ALL }
}
