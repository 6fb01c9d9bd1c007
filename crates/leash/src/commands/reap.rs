//! `leash reap`.

use leash_model::clock::Moment;
use leash_model::duration;
use leash_model::identity::Identity;
use leash_model::receipt::Receipt;
use leash_orphans::act::{self, ReapOutcome, ReapSettings, Spared, watch};
use leash_orphans::scan::resources::{self, TreeResources};
use leash_orphans::{Evidence, Finding, JudgePolicy, Verdict};
use leash_tree::ledger::receipts;
use leash_tree::platform::poll;
use schemars::JsonSchema;
use serde::Serialize;

use super::survey::Survey;
use crate::args::Reap;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::{Column, table};
use crate::output::text::Text;
use crate::output::waiting::Waiting;
use crate::output::{evidence, message};
use crate::{exit_code, places};

pub(crate) fn reap(args: &Reap) -> u8 {
    let printer = Printer::new(false);
    let mut survey = match Survey::open(printer, &args.projects) {
        Ok(survey) => survey,
        Err(code) => return code,
    };
    let policy = JudgePolicy { settle: args.settle, ..JudgePolicy::default() };
    if !args.yes {
        let findings = survey.look(&policy);
        plan(printer, args, &survey, &findings);
        return exit_code::OK;
    }
    // Sweep first, because it may leave a process that only the scan finds. A user who names a process wants that one.
    let swept = if args.pids.is_empty() { survey.sweep(printer) } else { Vec::new() };
    let mut done: Vec<Done> = swept.into_iter().map(Ok).collect();
    let findings = survey.look(&policy);
    let (policy, findings) = wait_for_hosts(&mut survey, policy, findings, args);
    for finding in findings.iter().filter(|finding| is_due(finding, args)) {
        let settings = ReapSettings { verdicts: verdicts(finding, args), grace: args.grace };
        done.push(
            end(printer, &mut survey, finding.root, &settings, &policy).map_err(|spared| (finding.clone(), spared)),
        );
    }
    let code = report(printer, args.json, &done);
    if unknown(printer, args, &findings) { exit_code::NOT_ALL } else { code }
}

/// The verdicts that are enough to end this finding. A likely orphan is ended only if the user has named its PID.
fn verdicts(finding: &Finding, args: &Reap) -> Vec<Verdict> {
    let is_named = |pid: &i32| args.likely.contains(pid) || args.pids.contains(pid);
    let named = finding.tree.iter().any(|id| is_named(&id.pid));
    let mut verdicts = vec![Verdict::OrphanProved];
    verdicts.extend(named.then_some(Verdict::OrphanLikely));
    verdicts.extend(args.stale.then_some(Verdict::StaleHost));
    verdicts
}

/// Warns about named processes that belong to no server that may be ended; returns true if there are any.
fn unknown(printer: Printer, args: &Reap, findings: &[Finding]) -> bool {
    let due = |pid: &i32| findings.iter().any(|one| is_due(one, args) && one.tree.iter().any(|id| id.pid == *pid));
    let unknown: Vec<&i32> = args.likely.iter().chain(&args.pids).filter(|pid| !due(pid)).collect();
    for pid in &unknown {
        printer.warning(format!(
            "process {pid} belongs to no server that is an orphan, or likely one: `leash why {pid}` says more"
        ));
    }
    !unknown.is_empty()
}

/// True if the user asked for it. What a dead leash left is swept instead, as far as its record proves it.
fn is_due(finding: &Finding, args: &Reap) -> bool {
    verdicts(finding, args).contains(&finding.verdict) && finding.leashed.is_none() && is_asked(finding, args)
}

/// True if the user named no process, or one of this server.
fn is_asked(finding: &Finding, args: &Reap) -> bool {
    args.pids.is_empty() || finding.tree.iter().any(|id| args.pids.contains(&id.pid))
}

/// If the ends of a server are closed while its parent lives, waits as long as a host may take to end it properly.
fn wait_for_hosts(
    survey: &mut Survey,
    policy: JudgePolicy,
    findings: Vec<Finding>,
    args: &Reap,
) -> (JudgePolicy, Vec<Finding>) {
    let is_waiting = |fact: &Evidence| matches!(fact, Evidence::NotSettled { .. });
    if !findings.iter().any(|finding| finding.evidence.iter().any(is_waiting)) {
        return (policy, findings);
    }
    let (mut memory, settings) =
        (watch::WatchMemory::default(), watch::WatchSettings { settle: args.settle, ..Default::default() });
    let began = Moment::now();
    memory.note(&findings, &settings, began);
    pause_until(began + args.settle);
    let policy = memory.policy(&settings, Moment::now());
    let findings = survey.look(&policy);
    (policy, findings)
}

/// Sleeps until the deadline: no event reports that nothing has happened.
pub(super) fn pause_until(deadline: Moment) {
    let what = "to see whether the parents of servers with closed pipes end them";
    let _waiting = Waiting::begin(what, Some(deadline.since(Moment::now())));
    while Moment::now() < deadline {
        poll::pause(deadline.since(Moment::now()));
    }
}

/// Ends one finding, and stores the receipt.
pub(super) fn end(
    printer: Printer,
    survey: &mut Survey,
    root: Identity,
    settings: &ReapSettings,
    policy: &JudgePolicy,
) -> Result<Receipt, Spared> {
    let (receipt, warning) = end_unprinted(survey, root, settings, policy)?;
    warning.into_iter().for_each(|warning| printer.warning(warning));
    Ok(receipt)
}

/// The same; the warning is for the user.
pub(super) fn end_unprinted(
    survey: &mut Survey,
    root: Identity,
    settings: &ReapSettings,
    policy: &JudgePolicy,
) -> Result<(Receipt, Option<String>), Spared> {
    let proc = survey.proc;
    let _waiting = Waiting::begin(format!("for process {} and its tree to end", root.pid), Some(settings.grace));
    match act::end(&proc, root, settings, &mut || survey.look(policy)) {
        ReapOutcome::Ended(receipt) => {
            let path = places::announced().receipts;
            let unwritten = receipts::append(&path, &receipt).err();
            let warning = unwritten.map(|error| format!("cannot write {}: {error}", path.display()));
            Ok((*receipt, warning))
        }
        ReapOutcome::Spared(spared) => Err(spared),
    }
}

/// What `leash reap --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReapPlan<'a> {
    /// The orphans, the likely ones and the stale hosts.
    plan: Vec<PlannedEnd<'a>>,
}

/// A server that is, or may be, an orphan.
#[derive(Serialize, JsonSchema)]
struct PlannedEnd<'a> {
    /// The server and the verdict about it.
    finding: &'a Finding,
    /// Its resources.
    belongings: TreeResources,
    /// True if the same command with `--yes` would end it.
    would_end: bool,
}

/// What `leash reap --yes --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReapAnswer<'a> {
    /// The receipts of the servers that were ended.
    receipts: Vec<&'a Receipt>,
    /// The servers that were not ended.
    spared: Vec<SparedServer<'a>>,
}

/// A server that was not ended.
#[derive(Serialize, JsonSchema)]
struct SparedServer<'a> {
    /// The server and the verdict about it.
    finding: &'a Finding,
    /// The reason.
    why: String,
}

/// Prints what `reap --yes` would do.
fn plan(printer: Printer, args: &Reap, survey: &Survey, findings: &[Finding]) {
    unknown(printer, args, findings);
    let listed =
        |finding: &&Finding| !matches!(finding.verdict, Verdict::Live | Verdict::Unknown) && is_asked(finding, args);
    let listed: Vec<(&Finding, TreeResources)> =
        findings.iter().filter(listed).map(|finding| (finding, resources::of(&survey.proc, &finding.tree))).collect();
    if args.json {
        let one = |(finding, belongings)| PlannedEnd { finding, belongings, would_end: is_due(finding, args) };
        return printer.json(ReapPlan { plan: listed.into_iter().map(one).collect() });
    }
    if listed.is_empty() {
        printer.say("no orphans");
        return;
    }
    let row = |(finding, resources): &(&Finding, TreeResources)| {
        vec![
            finding.root.pid.to_string(),
            finding.server.clone().unwrap_or_else(|| "-".to_owned()),
            evidence::holder(finding).unwrap_or_else(|| "-".to_owned()),
            finding.tree.len().to_string(),
            bytes(resources.memory),
            bytes(resources.swap),
            span(duration::as_ms(finding.age)),
            finding.verdict.word().to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    printer.data(&table(&COLUMNS, &rows));
    for (finding, resources) in &listed {
        printer.data(&details(finding, resources));
    }
    let due: Vec<&(&Finding, TreeResources)> = listed.iter().filter(|(finding, _)| is_due(finding, args)).collect();
    let memory: u64 = due.iter().map(|(_, resources)| resources.memory + resources.swap).sum();
    match due.len() {
        0 => printer.say("none of them would be ended; `leash why PID` says what ends one of them"),
        ended => printer.say(format_args!("{ended} would be ended, {} would be freed; --yes does it", bytes(memory))),
    }
}

const COLUMNS: [Column; 8] = [
    Column::new("PID"),
    Column::new("SERVER").cut(16),
    Column::new("CLIENT").cut(16),
    Column::new("PROCS").left_out(2),
    Column::new("MEMORY").left_out(3),
    Column::new("SWAP").left_out(1),
    Column::new("AGE").left_out(4),
    Column::new("VERDICT").verdict(),
];

fn details(finding: &Finding, resources: &TreeResources) -> Text {
    let mut text = Text::default();
    text.line(format_args!("{}:", evidence::subject(finding)));
    for fact in std::iter::once(&finding.identified_by).chain(&finding.evidence) {
        text.line(format_args!("  {}", evidence::sentence(fact)));
    }
    resources.ports.iter().for_each(|port| text.line(format_args!("  it listens on port {port}")));
    resources.locks.iter().for_each(|lock| text.line(format_args!("  it keeps {lock} locked")));
    text
}

type Done = Result<Receipt, (Finding, Spared)>;

fn report(printer: Printer, as_json: bool, done: &[Done]) -> u8 {
    let nothing_left = done.iter().flatten().all(Receipt::nothing_left);
    if as_json {
        let receipts: Vec<&Receipt> = done.iter().flatten().collect();
        let spared = done.iter().filter_map(|one| one.as_ref().err());
        let spared = spared.map(|(finding, why)| SparedServer { finding, why: why.to_string() }).collect();
        printer.json(ReapAnswer { receipts, spared });
    } else {
        for one in done {
            match one {
                Ok(receipt) => {
                    printer.say(message::receipt_line(receipt));
                    message::left_lines(receipt).iter().for_each(|line| printer.say(format_args!("  {line}")));
                }
                Err((finding, why)) => printer.say(format_args!("{}: not ended: {why}", evidence::subject(finding))),
            }
        }
        let freed: u64 = done.iter().flatten().flat_map(Receipt::trees).map(|tree| tree.memory_bytes).sum();
        printer.say(format_args!("{} ended, {} freed", done.iter().flatten().count(), bytes(freed)));
    }
    if nothing_left { exit_code::OK } else { exit_code::NOT_ALL }
}
