//! Scans the servers of this machine, for the commands that judge them.

use std::path::PathBuf;

use leash_model::alive::SessionMember;
use leash_model::identity::Identity;
use leash_model::receipt::Receipt;
use leash_orphans::knowledge::LeashedRun;
use leash_orphans::scan::{UnrelatedProcesses, scan, scan_again};
use leash_orphans::{Facts, Finding, JudgePolicy, Knowledge, clients, judge};
use leash_tree::ledger::receipts;
use leash_tree::ledger::store::Store;
use leash_tree::platform::proc::Proc;
use leash_tree::session::alive;
use leash_tree::tree::sweep::sweep;

use super::ledger;
use crate::output::printer::Printer;
use crate::{exit_code, places};

/// The state that a scan needs.
pub(super) struct Survey {
    pub(super) proc: Proc,
    stores: Vec<Store>,
    knowledge: Knowledge,
}

impl Survey {
    /// Reads the clients' declarations and the ledger. The error is an exit code; its message was printed.
    pub(super) fn open(printer: Printer, projects: &[PathBuf]) -> Result<Survey, u8> {
        let proc = Proc::own().map_err(|why| {
            printer.error_text(format!("cannot read processes: {why}"), Some("leash needs a /proc of its own"));
            exit_code::LEASH_FAILED
        })?;
        Ok(Survey::new(proc, ledger::look(printer)?, projects))
    }

    /// The same, with what the caller has opened.
    pub(super) fn new(proc: Proc, stores: Vec<Store>, projects: &[PathBuf]) -> Survey {
        let mut knowledge = Knowledge::default();
        // Errors in the clients' files do not matter here.
        let files = places::roots(projects).map(|roots| clients::configs(&roots).0).unwrap_or_default();
        files.iter().for_each(|file| knowledge.declare(file));
        // The working directory of this process is among these.
        for file in places::project_dirs(&proc).iter().flat_map(|dir| places::found_configs(dir)) {
            if !files.iter().any(|known| known.path == file.path && known.client == file.client) {
                knowledge.declare_found(&file);
            }
        }
        for path in places::receipts_files() {
            let (receipts, _) = receipts::read(&path).unwrap_or_default();
            knowledge.note_ended(&receipts);
        }
        Survey { proc, stores, knowledge }
    }

    /// Ends what dead runs of leash left behind, as far as their records prove it, and adds the receipts to the
    /// knowledge.
    pub(super) fn sweep(&mut self, printer: Printer) -> Vec<Receipt> {
        let swept = sweep(&self.stores, Some(&self.proc));
        swept.warnings.iter().for_each(|warning| printer.warning(warning));
        self.knowledge.note_ended(&swept.receipts);
        swept.receipts
    }

    /// Scans and judges again: processes that were unrelated are not read each time.
    pub(super) fn look_again(&mut self, policy: &JudgePolicy, unrelated: &mut UnrelatedProcesses) -> Vec<Finding> {
        self.read_ledger();
        judge(&scan_again(&self.proc, &self.knowledge, unrelated), &self.knowledge, policy)
    }

    /// Scans and judges.
    pub(super) fn look(&mut self, policy: &JudgePolicy) -> Vec<Finding> {
        self.look_at(policy, &[]).1
    }

    /// The same; the processes in `also` are read in any case.
    pub(super) fn look_at(&mut self, policy: &JudgePolicy, also: &[i32]) -> (Facts, Vec<Finding>) {
        self.read_ledger();
        self.judge(policy, also)
    }

    /// The same, with the trees that the caller has just read from the ledger.
    pub(super) fn look_beside(&mut self, trees: &[SessionMember]) -> (Facts, Vec<Finding>) {
        self.knowledge.leashed = trees.iter().map(LeashedRun::of).collect();
        self.judge(&JudgePolicy::default(), &[])
    }

    /// The same again: processes that were unrelated are not read each time.
    pub(super) fn look_beside_again(
        &mut self,
        trees: &[SessionMember],
        unrelated: &mut UnrelatedProcesses,
    ) -> (Facts, Vec<Finding>) {
        self.knowledge.leashed = trees.iter().map(LeashedRun::of).collect();
        let facts = scan_again(&self.proc, &self.knowledge, unrelated);
        let findings = judge(&facts, &self.knowledge, &JudgePolicy::default());
        (facts, findings)
    }

    /// Adds the receipts of sessions that have ended to the knowledge.
    pub(super) fn note_ended(&mut self, receipts: &[Receipt]) {
        self.knowledge.note_ended(receipts);
    }

    fn judge(&self, policy: &JudgePolicy, also: &[i32]) -> (Facts, Vec<Finding>) {
        let facts = scan(&self.proc, &self.knowledge, also);
        let findings = judge(&facts, &self.knowledge, policy);
        (facts, findings)
    }

    /// The trees that the ledger has now.
    pub(super) fn trees(&self) -> impl Iterator<Item = SessionMember> {
        self.stores.iter().flat_map(|store| alive::trees_now(store).unwrap_or_default())
    }

    /// The clients that start a server with leash.
    pub(super) fn adopted_clients(&self) -> Vec<String> {
        self.knowledge.adopted_clients().into_iter().map(str::to_owned).collect()
    }

    /// The runs that a process of leash looks after.
    pub(super) fn runs_of(&self, attendant: &Identity) -> Vec<&LeashedRun> {
        let runs = self.knowledge.leashed.iter();
        runs.filter(|run| run.attendants.iter().any(|id| id.is(attendant))).collect()
    }

    /// The run to which a finding belongs.
    pub(super) fn run(&self, finding: &Finding) -> Option<&LeashedRun> {
        let is_its = |run: &&LeashedRun| run.processes.iter().any(|id| finding.tree.iter().any(|member| member.is(id)));
        self.knowledge.leashed.iter().find(is_its)
    }

    /// Reads the ledger again for each scan, because runs begin and end.
    fn read_ledger(&mut self) {
        self.knowledge.leashed = self.trees().map(|tree| LeashedRun::of(&tree)).collect();
    }
}
