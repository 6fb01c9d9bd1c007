//! The keeper, the supervisor and the code from fork to exec under valgrind: no invalid or uninitialised memory, no
//! lost block, no descriptor left open, for every end. Both run the built `leash`, as with a library's trees: `leash
//! run` executes `/proc/self/exe`, which under valgrind is valgrind.

use std::process::{Child, Stdio};
use std::time::Duration;

use leash_model::containment::Containment;
use leash_model::owner::OwnerWish as Owner;
use leash_model::receipt::{How, Reason, Receipt};
use leash_tree::places::Places;
use leash_tree::tree::{Spec, Tree};
use rustix::process::Signal;
use testkit::instructions::WORKS;
use testkit::process::{self, Handle};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::valgrind::{self, Report, Valgrind};
use testkit::{or_skip, wait};

/// The timeout for everything: valgrind is thirty times slower, and so is every grace.
const LIMIT: Duration = Duration::from_secs(60);

/// A way in which a tree ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The host closes stdin, and the tree exits.
    Eof,
    /// The host ends the tree, which ignores signals.
    Asked,
    /// SIGTERM to the supervisor.
    Term,
    /// An owner dies.
    OwnerGone,
    /// The supervisor is killed: the keeper ends the tree.
    SupervisorKill,
    /// The keeper is killed: the supervisor ends the tree.
    KeeperKill,
}

fn me() -> Who {
    if rustix::process::geteuid().is_root() { Who::Root } else { Who::User }
}

/// Checks one tree with one end: its receipt, and the reports of valgrind.
fn check(end: End) {
    let valgrind = or_skip!(Valgrind::find());
    let mut scene = or_skip!(Scene::set(me()));
    let places = Places {
        runtime_dir: scene.runtime_dir(),
        receipts: scene.dir().join("state/receipts.jsonl"),
        program: valgrind.leash(&scene),
        ..Places::below(scene.dir())
    };
    let (kind, size) = if end == End::Eof { ("polite", 1) } else { ("chain", 3) };
    let mut owner = Owned::start(&scene);
    let spec = Spec::new(scene.tree(kind, ["--size".to_owned(), size.to_string()]))
        .grace(Duration::from_millis(300))
        .owners(vec![Owner::Pid(owner.0.id() as i32)]);
    // Any containment is accepted: valgrind does not know clone3, so this also runs the code that refuses `sealed` and
    // `leaf`.
    let mut tree = Tree::start(spec, &places).unwrap();
    assert_eq!(tree.containment(), Some(Containment::Reaper), "valgrind has learned something: {:?}", tree.refused());
    assert_eq!(scene.census().wait_ready(LIMIT).unwrap(), size);
    assert_eq!(scene.witness().holders().len(), size);
    let supervisor = supervisor();
    let keeper = keeper(&supervisor);
    let receipt = match end {
        End::Eof => {
            drop(tree.take_stdin());
            tree.wait().ok()
        }
        End::Asked => tree.end().ok(),
        End::Term => {
            supervisor.signal(Signal::TERM).unwrap();
            tree.wait().ok()
        }
        End::OwnerGone => {
            owner.end();
            tree.wait().ok()
        }
        End::SupervisorKill => {
            supervisor.signal(Signal::KILL).unwrap();
            tree.wait().ok()
        }
        End::KeeperKill => {
            keeper.signal(Signal::KILL).unwrap();
            tree.wait().ok()
        }
    };
    scene.census().wait_gone(LIMIT).unwrap();
    assert!(supervisor.wait_gone(LIMIT) && keeper.wait_gone(LIMIT), "leash itself stays");
    judge_receipt(end, receipt.as_ref());
    let reports = valgrind::reports(&scene);
    let of = |handle: &Handle| {
        let pid = handle.pid().as_raw_nonzero().get();
        reports.iter().find(|report| report.pid == pid).expect("every process has a report")
    };
    // A killed process has no complete report, but all the others must.
    assert_eq!(of(&supervisor).is_complete(), end != End::SupervisorKill, "{reports:?}");
    assert_eq!(of(&keeper).is_complete(), end != End::KeeperKill, "{reports:?}");
    // The third is the server between fork and exec.
    assert!(reports.len() >= 3, "{reports:?}");
    let complaints: Vec<&Report> = reports.iter().filter(|report| !report.is_clean()).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

fn judge_receipt(end: End, receipt: Option<&Receipt>) {
    let Some(receipt) = receipt else {
        // The supervisor would have sent it.
        assert_eq!(end, End::SupervisorKill);
        return;
    };
    assert!(receipt.all_gone(), "{receipt:?}");
    let how = receipt.trees().next().map(|tree| tree.how);
    match end {
        End::Eof => assert_eq!(how, Some(How::Eof)),
        End::Asked => assert_eq!((how, receipt.reason.label()), (Some(How::Kill), "requested")),
        End::KeeperKill => assert_eq!(receipt.reason, Reason::KeeperKilled),
        End::Term | End::OwnerGone | End::SupervisorKill => assert_eq!(how, Some(How::Kill), "{receipt:?}"),
    }
}

/// An owner: its exit ends the tree.
struct Owned(Child);

impl Owned {
    fn start(scene: &Scene) -> Self {
        Self(scene.zoo(["idle"]).stdout(Stdio::null()).spawn().expect("cannot start the owner"))
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.end();
    }
}

/// Our only child that is leash.
fn supervisor() -> Handle {
    let me = rustix::process::getpid();
    wait::until("the supervisor", || {
        let children = process::children(me);
        let child = children.iter().find(|child| !process::children(child.pid).is_empty())?;
        Handle::open(child.pid, |now| now.parent == me.as_raw_nonzero().get())
    })
}

fn keeper(supervisor: &Handle) -> Handle {
    testkit::leash::keeper(supervisor.pid())
}

#[test]
fn the_host_closes_stdin() {
    check(End::Eof);
}

#[test]
fn host_ends_the_tree() {
    check(End::Asked);
}

#[test]
fn the_supervisor_gets_sigterm() {
    check(End::Term);
}

#[test]
fn an_owner_is_gone() {
    check(End::OwnerGone);
}

#[test]
fn the_supervisor_is_killed() {
    check(End::SupervisorKill);
}

#[test]
fn the_keeper_is_killed() {
    check(End::KeeperKill);
}

/// Checks the check itself: each kind of misuse is found in the same way, and nothing else.
#[test]
fn planted_faults_are_found() {
    let valgrind = or_skip!(Valgrind::find());
    let planted = [("nothing", ""), ("memory", "uninitialised"), ("block", "lost"), ("descriptor", "descriptor")];
    for (misuse, found) in planted {
        let scene = or_skip!(Scene::set(me()));
        let status = valgrind.zoo(&scene, &["misuse", misuse]).status().expect("cannot start valgrind");
        assert!(status.success(), "{misuse}: {status}");
        let reports = valgrind::reports(&scene);
        let [report] = &reports[..] else { panic!("{misuse}: {reports:?}") };
        assert!(report.is_complete(), "{misuse}: {report:?}");
        assert_eq!(report.is_clean(), misuse == "nothing", "{misuse}: {report:?}");
        match misuse {
            "nothing" => {}
            "descriptor" => {
                let kept = report.descriptors.as_ref().map_or(0, Vec::len);
                assert_eq!((kept, report.complaints.len()), (1, 0), "{report:?}");
            }
            _ => assert!(matches!(&report.complaints[..], [one] if one.contains(found)), "{misuse}: {report:?}"),
        }
    }
}

/// The cost of leash in instructions, which a busy machine does not change. The bounds are in `testkit::instructions`.
#[test]
fn a_start_and_a_call_stay_within_their_instructions() {
    let valgrind = or_skip!(Valgrind::find());
    let counts = WORKS.iter().map(|work| work.measure(&valgrind).unwrap_or_else(|why| panic!("{}: {why}", work.name)));
    let passed: Vec<String> = counts.filter_map(|count| count.check().err()).collect();
    assert!(passed.is_empty(), "{}", passed.join("\n"));
}
