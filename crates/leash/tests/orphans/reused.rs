//! A pid of an orphan that is reused by an innocent process between the scan and the first signal. Shown in a PID
//! namespace with so few pids that they are reused after a hundred forks.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leash_model::identity::Identity;
use leash_orphans::act::{self, ReapOutcome, ReapSettings, Spared};
use leash_orphans::knowledge::DeclaredCommand;
use leash_orphans::scan::scan;
use leash_orphans::{Finding, JudgePolicy, Knowledge, Verdict, judge};
use leash_tree::platform::proc::Proc;
use rustix::process::{Pid, Signal};
use testkit::namespace::{inside, small_pid_max_is_private};
use testkit::or_skip;
use testkit::process::Handle;
use testkit::user::{User, Who};
use testkit::wait::{self, LIMIT};

use super::hosts::{Host, server};
use super::zoo::{Zoo, living};

/// The lowest pid that the kernel reuses.
const RESERVED: u32 = 300;

/// Runs `case` in a namespace with a hundred reusable pids.
fn check(test: &str, case: fn()) {
    or_skip!(User::find(Who::Root));
    or_skip!(small_pid_max_is_private());
    if inside(&format!("reused::{test}"), &["--pid-max", "450"]) {
        while end(innocent()) < RESERVED {}
        case();
    }
}

/// A process that has nothing to do with this test; any signal would end it.
fn innocent() -> Child {
    let mut command = Command::new(testkit::leash::zoo());
    command.arg("idle").stdin(Stdio::null()).spawn().expect("cannot start an innocent process")
}

/// Ends one, which must be alive until now, and returns its pid.
fn end(mut process: Child) -> u32 {
    assert_eq!(process.try_wait().expect("it is a child of ours"), None, "an innocent process was ended");
    process.kill().expect("cannot kill");
    process.wait().expect("cannot wait");
    process.id()
}

/// Innocent processes with the pids of dead ones.
struct Innocents(Vec<Child>);

impl Innocents {
    /// Starts processes until each of `numbers` belongs to one.
    fn take(numbers: &[i32]) -> Innocents {
        let mut wanted: BTreeSet<u32> = numbers.iter().map(|pid| pid.unsigned_abs()).collect();
        let mut innocents = Innocents(Vec::new());
        wait::until("the numbers to come round", || {
            let child = innocent();
            if wanted.remove(&child.id()) {
                innocents.0.push(child);
            } else {
                end(child);
            }
            wanted.is_empty().then_some(())
        });
        innocents
    }

    fn check_alive(self) {
        for child in self.0 {
            end(child);
        }
    }
}

/// Kills these processes and waits until their pids are free.
fn free(numbers: &[i32]) {
    for pid in numbers.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        if let Some(handle) = Handle::open(pid, |_| true) {
            handle.signal(Signal::KILL).expect("cannot kill an orphan");
            assert!(handle.wait_gone(LIMIT), "it does not die");
        }
        // The init of the namespace reaps it.
        wait::until("its number to be free", || testkit::process::Process::read(pid).is_none().then_some(()));
    }
}

/// A machine with one orphan, and the facts about it.
struct Stage {
    zoo: Zoo,
    knowledge: Knowledge,
}

impl Stage {
    fn set(kind: &str, size: usize) -> Stage {
        let mut zoo = Zoo::open(Who::Root).expect("root can be root");
        let words = zoo.declared(true, kind, size);
        zoo.hosts.push(Host::start(zoo.python(&[server(&words)])));
        zoo.expect(true, 1);
        zoo.begin();
        let (client, name) = ("Test".to_owned(), "orphan".to_owned());
        let declared = DeclaredCommand { client, name, command: words, cwd: None, project: None, inside_only: false };
        Stage { zoo, knowledge: Knowledge { declared: vec![declared], ..Knowledge::default() } }
    }

    fn look(&self) -> Vec<Finding> {
        let facts = scan(&proc(), &self.knowledge, &[]);
        judge(&facts, &self.knowledge, &JudgePolicy::default())
    }

    /// The orphan and its `size` processes, as the first scan finds it.
    fn orphan(&self, size: usize) -> Finding {
        let is_it = |found: &Finding| found.verdict == Verdict::OrphanProved && found.tree.len() == size;
        wait::until("the orphan", || self.look().into_iter().find(is_it))
    }

    /// Ends it; `meanwhile` runs right after each further scan.
    fn end(&self, root: Identity, mut meanwhile: impl FnMut(usize)) -> ReapOutcome {
        let settings = ReapSettings { verdicts: vec![Verdict::OrphanProved], grace: Duration::from_millis(200) };
        let mut scans = 0;
        act::end(&proc(), root, &settings, &mut || {
            let found = self.look();
            scans += 1;
            meanwhile(scans);
            found
        })
    }
}

fn proc() -> Proc {
    Proc::own().expect("the namespace has a /proc")
}

fn is_gone(outcome: &ReapOutcome) -> bool {
    matches!(outcome, ReapOutcome::Spared(Spared::Gone))
}

#[test]
fn between_the_scans() {
    check("between_the_looks", || {
        let stage = Stage::set("stubborn", 1);
        let orphan = stage.orphan(1);
        free(&[orphan.root.pid]);
        let innocents = Innocents::take(&[orphan.root.pid]);
        let outcome = stage.end(orphan.root, |_| {});
        innocents.check_alive();
        assert!(is_gone(&outcome), "{outcome:?}");
    });
}

/// The latest moment: it was judged again, and only the signal is missing.
#[test]
fn after_the_last_look() {
    check("after_the_last_look", || {
        let stage = Stage::set("stubborn", 1);
        let orphan = stage.orphan(1);
        let mut innocents = None;
        let outcome = stage.end(orphan.root, |_| {
            free(&[orphan.root.pid]);
            innocents = Some(Innocents::take(&[orphan.root.pid]));
        });
        innocents.expect("there was a second look").check_alive();
        assert!(is_gone(&outcome), "{outcome:?}");
    });
}

/// All members of a tree but the first died, and their pids were reused, at each of the scans.
#[test]
fn of_the_members_of_a_tree() {
    check("of_the_members_of_a_tree", || {
        for at in 1..=2 {
            // The process that started the others exits with its host, so none of them has a living parent.
            let stage = Stage::set("setsid", 4);
            let orphan = stage.orphan(3);
            let members: Vec<i32> = orphan.tree.iter().skip(1).map(|id| id.pid).collect();
            let mut innocents = None;
            let outcome = stage.end(orphan.root, |look| {
                if look == at {
                    free(&members);
                    innocents = Some(Innocents::take(&members));
                }
            });
            innocents.expect("there were two looks").check_alive();
            let ReapOutcome::Ended(receipt) = outcome else { panic!("{outcome:?}") };
            assert!(receipt.nothing_left(), "{receipt:?}");
            stage.zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}"));
        }
    });
}

/// The program itself, while orphans die and their pids are reused as fast as possible.
#[test]
fn while_reap_is_at_work() {
    check("while_reap_is_at_work", || {
        for _ in 0..5 {
            let mut zoo = Zoo::open(Who::Root).expect("root can be root");
            let words = zoo.declared(true, "stubborn", 1);
            zoo.hosts.push(Host::start(zoo.python(&vec![server(&words); 8])));
            zoo.expect(true, 8);
            zoo.begin();
            let orphans: Vec<i32> = living(&zoo.doomed).iter().map(|(pid, _)| *pid).collect();
            let mut command = zoo.scene.leash(["reap", "--grace", "100ms", "--json", "--yes"]);
            let command = command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut reap = command.spawn().expect("cannot start leash");
            let mut innocents = Vec::new();
            let status = wait::until("leash to end", || {
                if let Some(pid) = orphans.get(innocents.len()) {
                    free(&[*pid]);
                }
                innocents.push(innocent());
                if innocents.len() > 40 {
                    end(innocents.remove(0));
                }
                reap.try_wait().expect("it is a child of ours")
            });
            for child in innocents {
                end(child);
            }
            assert!(status.success(), "{status}");
            zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}"));
        }
    });
}
