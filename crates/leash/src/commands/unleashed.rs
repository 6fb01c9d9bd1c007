//! The servers that do not run under leash, for `leash ps`.

use leash_model::alive::SessionMember;
use leash_model::duration;
use leash_model::identity::Identity;
use leash_orphans::scan::resources::{self, TreeResources};
use leash_orphans::{Facts, Finding};
use schemars::JsonSchema;
use serde::Serialize;

use super::survey::Survey;
use crate::args::Ps;
use crate::output::evidence;
use crate::output::printer::{bytes, span};
use crate::output::table::{Column, table};
use crate::output::text::{Text, add};

const COLUMNS: [Column; 9] = [
    Column::new("PID"),
    Column::new("NOT LEASHED").cut(16),
    Column::new("CLIENT").cut(16),
    Column::new("PROCS").left_out(3),
    Column::new("MEMORY").left_out(4),
    Column::new("SWAP").left_out(1),
    Column::new("AGE").left_out(5),
    Column::new("IDLE").left_out(2),
    Column::new("VERDICT").verdict(),
];

/// A server that does not run under leash, and its resources.
#[derive(Serialize, JsonSchema)]
pub(super) struct UnleashedServer {
    /// The server and the verdict about it.
    finding: Finding,
    /// Its memory.
    memory_bytes: u64,
    /// Its memory in swap.
    swap_bytes: u64,
    /// The approximate time since one of its processes ran; null if the kernel does not say it.
    idle_ms: Option<u64>,
}

/// The result of the scan.
#[derive(Default)]
pub(super) struct Unleashed {
    facts: Facts,
    servers: Vec<UnleashedServer>,
    /// The clients that start a server with leash.
    pub(super) adopted_clients: Vec<String>,
}

/// Scans for them, beside the trees that run under leash.
pub(super) fn look(mut survey: Survey, trees: &[SessionMember]) -> Unleashed {
    let (facts, findings) = survey.look_beside(trees);
    // Only root can judge servers of other users.
    let is_ours =
        |finding: &Finding| facts.uid == 0 || facts.same(&finding.root).is_some_and(|process| process.uid == facts.uid);
    let listed = findings.into_iter().filter(|finding| finding.leashed.is_none() && is_ours(finding));
    let servers = listed.map(|finding| {
        let TreeResources { memory, swap, .. } = resources::memory(&survey.proc, &finding.tree);
        let idle_ms = idle_ms(&finding.tree).map(|idle| idle.min(age_ms(&finding)));
        UnleashedServer { finding, memory_bytes: memory, swap_bytes: swap, idle_ms }
    });
    let servers = servers.collect();
    Unleashed { servers, facts, adopted_clients: survey.adopted_clients() }
}

fn age_ms(finding: &Finding) -> u64 {
    duration::as_ms(finding.age)
}

/// The approximate time since a process of the tree last ran: the scheduler's clocks of two processors differ. `None`
/// if the kernel does not report it (`CONFIG_SCHED_DEBUG`).
fn idle_ms(tree: &[Identity]) -> Option<u64> {
    let now = last_run("self")?;
    let last = tree.iter().flat_map(|id| tasks(id.pid)).filter_map(|task| last_run(&task)).max()?;
    Some(now.saturating_sub(last))
}

fn tasks(pid: i32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.map(|entry| format!("{pid}/task/{}", entry.file_name().display())).collect()
}

/// The time at which a task last got a processor, in milliseconds of the scheduler's clock.
fn last_run(task: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{task}/sched")).ok()?;
    let line = text.lines().find(|line| line.starts_with("se.exec_start"))?;
    line.rsplit(':').next()?.trim().split('.').next()?.parse().ok()
}

impl Unleashed {
    /// The table or the trees, as the options say.
    pub(super) fn shown(&self, args: &Ps) -> Text {
        if args.tree || args.verbose { self.trees() } else { self.listing() }
    }

    /// A table; empty if there are no servers.
    pub(super) fn listing(&self) -> Text {
        let mut text = Text::default();
        if !self.servers.is_empty() {
            text.line("");
            text.append(table(&COLUMNS, &self.servers.iter().map(row).collect::<Vec<_>>()));
        }
        for server in &self.servers {
            if let Some(note) = evidence::same_command(&server.finding) {
                add(&mut text, format_args!("{}: {note}", server.finding.root.pid));
            }
        }
        text
    }

    /// True if no server was found.
    pub(super) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The same with each tree.
    pub(super) fn trees(&self) -> Text {
        let mut text = Text::default();
        for server in &self.servers {
            let row = row(server).join("  ");
            add(&mut text, format_args!("{row}"));
            if let Some(note) = evidence::same_command(&server.finding) {
                add(&mut text, format_args!("  {note}"));
            }
            for process in server.finding.tree.iter().filter_map(|id| self.facts.same(id)) {
                let above = self.facts.ancestors(process);
                let is_member = |pid: i32| server.finding.tree.iter().any(|id| id.pid == pid);
                let depth = above.take_while(|above| is_member(above.id.pid)).count();
                let indent = "  ".repeat(depth);
                add(&mut text, format_args!("  {indent}{} {}", process.id.pid, process.command()));
            }
        }
        text
    }

    pub(super) fn servers(&self) -> &[UnleashedServer] {
        &self.servers
    }
}

fn row(server: &UnleashedServer) -> Vec<String> {
    let finding = &server.finding;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        finding.root.pid.to_string(),
        or_dash(finding.server.clone()),
        or_dash(evidence::holder(finding)),
        finding.tree.len().to_string(),
        bytes(server.memory_bytes),
        bytes(server.swap_bytes),
        span(age_ms(finding)),
        or_dash(server.idle_ms.map(span)),
        finding.verdict.word().to_owned(),
    ]
}
