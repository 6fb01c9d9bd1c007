//! Sessions in the ledger: lists the living ones, and ends them from outside.

mod ending;
mod held;
mod joined;
mod together;

pub use ending::{Ended, Ending, SweepUpstreams, Unfinished};
#[cfg(feature = "tokio")]
pub use held::AsyncStreams;
#[cfg(feature = "rmcp")]
pub(crate) use held::elsewhere;
pub use held::{Session, SessionEnding, SessionError};
pub use joined::{Joined, Target, joined};
pub use together::together;

use crate::contain::leaf::Leaf;
use crate::ledger::store::{self, Store};
use crate::platform::identity;
use crate::platform::proc::{Proc, Stat};
use leash_model::record::Record;

/// A run in the ledger, with or without a living process of leash.
#[derive(Debug)]
pub struct Live {
    /// Its record in the ledger.
    pub record: Record,
    /// True if leash or its keeper is alive. If not, the next start of leash ends the run.
    pub attended: bool,
    /// The current members; empty if /proc is not ours.
    pub members: Vec<Member>,
}

/// A process of a tree, as it is now.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its `stat`.
    pub stat: Stat,
    /// Its command line.
    pub command: String,
    /// Its memory: proportional if we may read that, otherwise its private pages.
    pub memory_bytes: u64,
}

impl Live {
    /// Memory of all members together.
    pub fn memory_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.memory_bytes).sum()
    }
}

/// Every run in the stores of this boot and PID namespace, the oldest first.
pub fn list(stores: &[Store], proc: Option<&Proc>) -> std::io::Result<Vec<Live>> {
    let mut runs = Vec::new();
    for store in stores {
        for record in store.list()?.into_iter().filter_map(|found| found.record).filter(store::is_of_this_place) {
            let members = proc.map(|proc| members(&record, proc)).unwrap_or_default();
            runs.push(Live { attended: store.locked(&record.run), record, members });
        }
    }
    runs.sort_by_key(|run| run.record.started_ms);
    Ok(runs)
}

/// The current members of a tree: the keeper's descendants, the leaf's members, and recorded members that still live.
fn members(record: &Record, proc: &Proc) -> Vec<Member> {
    let keeper = record.keeper.filter(|keeper| identity::is_alive(*keeper, proc));
    let mut pids: Vec<i32> = keeper.map(|keeper| proc.descendants(keeper.pid).found).unwrap_or_default();
    pids.extend(
        record.leaf.as_deref().and_then(|dir| Leaf::open(dir).ok()).map(|leaf| leaf.procs().found).unwrap_or_default(),
    );
    pids.extend(record.members.iter().filter(|id| identity::is_alive(**id, proc)).map(|id| id.pid));
    let mut seen = std::collections::HashSet::new();
    let ours = |stat: &Stat| stat.comm == "keeper" && keeper.is_some_and(|keeper| is_ours(proc, stat.pid, keeper.pid));
    let living = pids
        .into_iter()
        .filter(|pid| seen.insert(*pid))
        .filter_map(|pid| proc.stat(pid))
        .filter(|stat| !stat.dead() && !ours(stat));
    living
        .map(|stat| Member {
            command: proc.command_line(stat.pid),
            memory_bytes: proc.proportional_bytes(stat.pid),
            stat,
        })
        .collect()
}

/// True for the two processes of leash inside a sealed namespace. They are forks of the keeper: same program, same
/// arguments.
fn is_ours(proc: &Proc, pid: i32, keeper: i32) -> bool {
    proc.argv(pid) == proc.argv(keeper)
}
