//! Reads trees and their processes again and again, for a view that is open for long. It remembers what it read before:
//! a record is read again only if its file was replaced, and a process is measured exactly only from time to time.
//! Between two exact measurements its memory follows its resident pages, which one small read shows.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use super::alive::{all_below, servers_of, stats_of};
use crate::ledger::store::{self, RecordFile, Store};
use crate::platform::proc::{Proc, Stat};
use leash_model::alive::{MemberKind, SessionMember, TreeProcess};
use leash_model::identity::Identity;
use leash_model::record::Record;

/// The least number of looks between two exact measurements of a process. An exact one makes the kernel walk all pages of
/// the process: some milliseconds for a large one.
const LOOKS_BETWEEN: u64 = 10;

/// Finds the descendants of a keeper; `None` if it is not known.
pub type FindBelow<'a> = dyn Fn(Identity) -> Option<Vec<Stat>> + 'a;

/// What was read before.
#[derive(Debug, Default)]
pub struct RememberedTrees {
    /// The records, by runtime directory and run.
    records: HashMap<(PathBuf, String), (RecordFile, Option<Record>)>,
    /// The processes, by PID and start.
    processes: HashMap<(i32, u64), RememberedProcess>,
    looks: u64,
}

#[derive(Debug)]
struct RememberedProcess {
    command: String,
    /// The look of the exact measurement.
    measured: u64,
    /// The exact memory, and the resident memory at that time.
    exact: (u64, u64),
    /// The last look that asked for it.
    asked: u64,
}

impl RememberedTrees {
    /// Begins a look. Processes that the last look did not ask for are forgotten.
    pub fn begin(&mut self) {
        let last = self.looks;
        self.processes.retain(|_, process| process.asked == last);
        self.looks += 1;
    }

    /// Every tree of these ledgers in this boot and PID namespace, and whether a process of leash looks after it.
    pub fn trees(&mut self, stores: &[Store]) -> io::Result<Vec<SessionMember>> {
        let (mut members, mut seen) = (Vec::new(), HashSet::new());
        for store in stores {
            for run in store.recorded()? {
                let key = (store.runtime_dir().to_owned(), run);
                let Some(file) = store.record_file(&key.1) else { continue };
                if self.records.get(&key).is_none_or(|(known, _)| *known != file) {
                    let record = store.read(&key.1)?.filter(store::is_of_this_place);
                    self.records.insert(key.clone(), (file, record));
                }
                let record = self.records.get(&key).and_then(|(_, record)| record.clone());
                if let Some(record) = record {
                    let mut member = SessionMember::of_record(record, store.runtime_dir());
                    member.abandoned = !store.locked(&member.run);
                    members.push(member);
                }
                seen.insert(key);
            }
        }
        self.records.retain(|key, _| seen.contains(key));
        Ok(members)
    }

    /// Looks which processes the trees have now. `below` finds the descendants of a keeper that a scan has seen: all
    /// processes of an attended tree are below its keeper. For a tree that is not attended, or that the scan has not
    /// seen, more must be read.
    pub fn find_processes(&mut self, members: &mut [SessionMember], proc: &Proc, below: &FindBelow<'_>) {
        for member in members {
            let is_attended = !member.abandoned;
            if let MemberKind::Tree { record, processes } = &mut member.kind {
                let keeper = record.keeper.filter(|_| is_attended);
                let known = keeper.and_then(|keeper| Some((keeper.pid, below(keeper)?)));
                let stats = match known {
                    Some((keeper, found)) => servers_of(found, Some(keeper), proc),
                    None => stats_of(record, proc, &|keeper| all_below(keeper, proc)),
                };
                *processes = stats.into_iter().map(|stat| self.process(stat, proc)).collect();
            }
        }
    }

    /// A process of any tree, as it is now; `None` if it is gone.
    pub fn find(&mut self, pid: i32, start: u64, proc: &Proc) -> Option<TreeProcess> {
        let stat = proc.stat(pid).filter(|stat| stat.start == start && !stat.dead())?;
        Some(self.process(stat, proc))
    }

    fn process(&mut self, stat: Stat, proc: &Proc) -> TreeProcess {
        let (look, resident) = (self.looks, stat.resident_bytes);
        let measure = || (proc.proportional_bytes(stat.pid), resident);
        let known = self.processes.entry((stat.pid, stat.start)).or_insert_with(|| RememberedProcess {
            command: proc.command_line(stat.pid),
            measured: look,
            exact: measure(),
            asked: look,
        });
        known.asked = look;
        if known.exact.1 != resident && look >= known.measured + LOOKS_BETWEEN {
            // A process that changes may also have executed another program.
            (known.exact, known.measured, known.command) = (measure(), look, proc.command_line(stat.pid));
        }
        TreeProcess {
            pid: stat.pid,
            ppid: stat.ppid,
            start: stat.start,
            state: stat.state,
            command: known.command.clone(),
            memory_bytes: estimate(known.exact, resident),
        }
    }
}

/// The memory of a process whose resident memory was `exact.1` when its memory was `exact.0`: pages that came or went are
/// its own.
fn estimate(exact: (u64, u64), resident: u64) -> u64 {
    (exact.0 + resident).saturating_sub(exact.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leash_model::clock;
    use serde_json::json;
    use testkit::Scratch;

    use crate::platform::identity::{boot_id, pid_namespace};

    fn record(run: &str, name: &str) -> Record {
        let record = json!({
            "version": 1, "boot": boot_id(), "pid_namespace": pid_namespace(), "run": run, "session": run, "name": name,
            "command": [], "owners": [], "phase": "running", "supervisor": null, "keeper": null, "leader": null,
            "members": [], "memory_bytes": 0, "containment": "leaf", "leaf": null, "grace_ms": 0,
            "started_ms": clock::unix_ms(), "receipts": "",
        });
        serde_json::from_value(record).expect("a record")
    }

    #[test]
    fn replaced_records_are_read_again_and_removed_ones_are_forgotten() {
        let scratch = Scratch::new();
        let store = Store::open(&scratch.join("run")).expect("a store");
        let mut remembered = RememberedTrees::default();
        let mut names = |stores: &[Store]| {
            remembered.begin();
            let trees = remembered.trees(stores).expect("the ledger is read");
            let names = trees.iter().map(|tree| format!("{} {}", tree.name, tree.abandoned));
            (names.collect::<Vec<_>>(), remembered.records.len())
        };
        let stores = [store.clone()];
        let one = store.create(&record("one", "a")).expect("written");
        let two = store.create(&record("two", "b")).expect("written");
        assert_eq!(names(&stores), (vec!["a false".to_owned(), "b false".to_owned()], 2));
        one.write(&record("one", "c")).expect("written");
        drop(two);
        assert_eq!(names(&stores), (vec!["c false".to_owned(), "b true".to_owned()], 2));
        one.remove();
        assert_eq!(names(&stores), (vec!["b true".to_owned()], 1));
    }

    #[test]
    fn process_is_measured_exactly_from_time_to_time() {
        let proc = Proc::own().expect("a /proc");
        let me = proc.stat(rustix::process::getpid().as_raw_pid()).expect("ourselves");
        let mut remembered = RememberedTrees::default();
        let mut look = |resident_bytes: u64| {
            remembered.begin();
            remembered.process(Stat { resident_bytes, ..me.clone() }, &proc).memory_bytes
        };
        let first = look(1 << 30);
        assert!(first > 0);
        assert_eq!(look((1 << 30) + 4096), first + 4096);
        assert_eq!(look(0), 0, "an estimate is never negative");
        for _ in 3..LOOKS_BETWEEN {
            assert_eq!(look(1 << 30), first);
        }
        assert_eq!(look(1 << 30), first, "it has not changed, so it is not measured");
        let exact = look(1);
        assert!(exact > 0, "by the estimate it would have nothing");
        assert_eq!(remembered.processes.len(), 1);
        remembered.begin();
        remembered.begin();
        assert!(remembered.processes.is_empty(), "no look asked for it");
    }

    #[test]
    fn process_that_is_gone_or_another_one_is_not_found() {
        let proc = Proc::own().expect("a /proc");
        let pid = rustix::process::getpid().as_raw_pid();
        let me = proc.stat(pid).expect("ourselves");
        let mut remembered = RememberedTrees::default();
        assert_eq!(remembered.find(pid, me.start, &proc).map(|found| found.pid), Some(pid));
        assert_eq!(remembered.find(pid, me.start + 1, &proc), None);
    }
}
