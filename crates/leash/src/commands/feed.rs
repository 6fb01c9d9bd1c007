//! Looks at everything that is alive, again and again, for `leash top`, `leash ps --watch` and the page of `leash serve`: the ledger, the gateway,
//! and the servers of other programs. `leash_model::feed` compares the looks.
//!
//! A look costs little while nothing happens. Records that were not replaced are not read again. The servers of other
//! programs are judged again when a process has begun or ended since the last time, and otherwise every few seconds.

mod follow;
mod process_table;
mod rows;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use leash_gateway::control_client;
use leash_model::alive::{AliveSession, SessionMember};
use leash_model::clock::{self, Moment};
use leash_model::feed::FeedLook;
use leash_model::identity::Identity;
use leash_model::receipt::Receipt;
use leash_orphans::scan::UnrelatedProcesses;
use leash_orphans::{Facts, Finding};
use leash_tree::ledger::receipts::ReceiptsReader;
use leash_tree::ledger::store::Store;
use leash_tree::platform::proc::{Proc, Stat};
use leash_tree::session::alive;
use leash_tree::session::remembered::RememberedTrees;
use rustix::time::{ClockId, clock_gettime};

use self::process_table::ProcessTable;
use super::control::Daemon;
use super::survey::Survey;
use crate::places;
pub(super) use follow::{LookCause, follow};

/// The longest time after which servers of other programs are judged again, although no process began or ended: a
/// process can close a pipe, or execute another program.
const JUDGE_AGAIN: Duration = Duration::from_secs(5);

/// A scan may cost this share of a processor: it is not repeated before this many times its own processor time.
const SCAN_SHARE: u32 = 300;

/// The configurations of clients change, so leash reads them again after this time.
const KNOWLEDGE: Duration = Duration::from_secs(60);

/// Looks at everything that is alive.
pub(super) struct Looker {
    /// False with `--leashed`: servers of other programs are not searched.
    others_wanted: bool,
    /// The control socket of the daemon whose sessions are shown.
    socket: PathBuf,
    remembered: RememberedTrees,
    receipts: Vec<ReceiptsReader>,
    given_back: u64,
    /// The boot, milliseconds since 1970; read once, so that a start is always the same.
    booted_ms: u64,
    survey: Option<(Survey, Moment)>,
    unrelated: UnrelatedProcesses,
    scan: Option<ScanResult>,
}

/// The result of the last scan.
struct ScanResult {
    at: Moment,
    /// The same, milliseconds since 1970.
    at_ms: u64,
    /// The scan is not repeated before this.
    not_before: Moment,
    table: ProcessTable,
    findings: Vec<Finding>,
    /// The children of each process, with their starts.
    children: HashMap<i32, Vec<(i32, u64)>>,
    /// All processes, with their starts.
    seen: HashSet<(i32, u64)>,
}

impl Looker {
    pub(super) fn new(others_wanted: bool, socket: PathBuf) -> Looker {
        let mut receipts: Vec<ReceiptsReader> = places::receipts_files().into_iter().map(ReceiptsReader::new).collect();
        let booted_ms = clock::unix_ms().saturating_sub(clock::since_boot_ms());
        let old: Vec<Receipt> = receipts.iter_mut().flat_map(ReceiptsReader::read_new).collect();
        let of_this_boot = old.iter().filter(|receipt| receipt.ended_ms >= booted_ms);
        Looker {
            others_wanted,
            socket,
            remembered: RememberedTrees::default(),
            receipts,
            given_back: of_this_boot.map(given_back).sum(),
            booted_ms,
            survey: None,
            unrelated: UnrelatedProcesses::default(),
            scan: None,
        }
    }

    /// Looks once. After a change of the ledger alone, the servers of other programs are not judged again.
    pub(super) fn look(&mut self, cause: LookCause) -> FeedLook {
        let mut look = FeedLook { at_ms: clock::unix_ms(), ..FeedLook::default() };
        let places = places::places();
        let stores = Store::look_all(&places).unwrap_or_else(|error| {
            look.warnings.push(format!("cannot read the ledger: {error}"));
            Vec::new()
        });
        look.ended = self.receipts.iter_mut().flat_map(ReceiptsReader::read_new).collect();
        self.given_back += look.ended.iter().map(given_back).sum::<u64>();
        look.given_back_bytes = self.given_back;
        if let Some((survey, _)) = &mut self.survey {
            survey.note_ended(&look.ended);
        }
        let proc = Proc::own().map_err(|why| look.warnings.push(format!("cannot read processes: {why}"))).ok();
        let (_, held, warning) = Daemon::find(self.socket.clone());
        look.warnings.extend(warning);
        self.remembered.begin();
        let mut members = self.remembered.trees(&stores).unwrap_or_else(|error| {
            look.warnings.push(format!("cannot read the ledger: {error}"));
            Vec::new()
        });
        // The scan comes next: it takes the server of a run that began after the ledger was read for an unleashed one.
        if let Some(proc) = proc.filter(|_| self.others_wanted) {
            self.judge(proc, stores, &members, cause);
        }
        members.extend(alive::open(&places).unwrap_or_else(|error| {
            look.warnings.push(format!("upstream sessions can't be listed: {error}"));
            Vec::new()
        }));
        alive::find_clients(&mut members, &places);
        if let Some(proc) = &proc {
            self.find_processes(&mut members, proc);
        }
        let has_clients = members.iter().any(|member| member.client.is_some());
        // An older gateway does not count requests.
        let status = has_clients.then(|| control_client::status(&self.socket).ok()).flatten();
        let sessions = AliveSession::join(members, held);
        let findings = self.scan.as_ref().map(|scan| &scan.findings[..]).unwrap_or_default();
        look.judged_ms = self.scan.as_ref().map(|scan| scan.at_ms);
        look.rows = rows::of_sessions(&sessions, findings);
        if let Some(status) = &status {
            rows::add_calls(&mut look.rows, status);
        }
        if let Some(proc) = &proc {
            look.rows.extend(rows::of_others(findings, &look.rows, self.booted_ms, &mut |id| {
                self.remembered.find(id.pid, id.start, proc)
            }));
        }
        look
    }

    /// Scans and judges, if it is time to.
    fn judge(&mut self, proc: Proc, stores: Vec<Store>, trees: &[SessionMember], cause: LookCause) {
        let now = Moment::now();
        if self.scan.as_ref().is_some_and(|scan| cause == LookCause::Ledger || now < scan.not_before) {
            return;
        }
        let table = ProcessTable::read(&proc);
        if self.scan.as_ref().is_some_and(|scan| now.since(scan.at) < JUDGE_AGAIN && scan.table == table) {
            return;
        }
        let spent = processor_time();
        if self.survey.as_ref().is_none_or(|(_, at)| now.since(*at) >= KNOWLEDGE) {
            self.survey = Some((Survey::new(proc, stores, &[]), now));
        }
        let Some((survey, _)) = &mut self.survey else { return };
        let (facts, findings) = survey.look_beside_again(trees, &mut self.unrelated);
        let not_before = now + (processor_time() - spent) * SCAN_SHARE;
        let (children, findings) = (children(&facts), ours(&facts, findings));
        let seen = facts.processes.iter().map(|process| (process.id.pid, process.id.start)).collect();
        self.scan = Some(ScanResult { at: now, at_ms: clock::unix_ms(), not_before, table, findings, children, seen });
    }

    fn find_processes(&mut self, members: &mut [SessionMember], proc: &Proc) {
        let scan = self.scan.as_ref();
        let below = |keeper: Identity| {
            let scan = scan.filter(|scan| scan.seen.contains(&(keeper.pid, keeper.start)))?;
            Some(descendants(keeper.pid, &scan.children, proc))
        };
        self.remembered.find_processes(members, proc, &below);
    }
}

/// The memory that an end has given back.
fn given_back(receipt: &Receipt) -> u64 {
    receipt.trees().map(|tree| tree.memory_bytes).sum()
}

/// Only root can judge servers of other users.
fn ours(facts: &Facts, findings: Vec<Finding>) -> Vec<Finding> {
    let is_ours =
        |finding: &Finding| facts.uid == 0 || facts.same(&finding.root).is_some_and(|process| process.uid == facts.uid);
    findings.into_iter().filter(is_ours).collect()
}

fn children(facts: &Facts) -> HashMap<i32, Vec<(i32, u64)>> {
    let mut children: HashMap<i32, Vec<(i32, u64)>> = HashMap::new();
    for process in &facts.processes {
        children.entry(process.ppid).or_default().push((process.id.pid, process.id.start));
    }
    children
}

/// The descendants of a process that still live, by the children of the last scan.
fn descendants(root: i32, children: &HashMap<i32, Vec<(i32, u64)>>, proc: &Proc) -> Vec<Stat> {
    let (mut found, mut next) = (Vec::new(), vec![root]);
    while let Some(parent) = next.pop() {
        for (pid, start) in children.get(&parent).into_iter().flatten() {
            // A number of the scan may belong to another process now.
            found.extend(proc.stat(*pid).filter(|stat| stat.start == *start));
            next.push(*pid);
        }
    }
    found
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}
