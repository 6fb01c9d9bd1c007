//! Ends real processes with verdicts that the test gives.
#![expect(clippy::disallowed_methods, reason = "the test starts the processes that it ends")]

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use leash_tree::platform::identity;

use super::*;
use crate::facts::Evidence;

/// A child process of the test, which is killed when this value is dropped.
struct Sheep {
    child: Child,
    id: Identity,
    /// The whole tree, also after its first process has exited.
    flock: Vec<Identity>,
}

impl Sheep {
    /// Starts a shell script and waits until it prints `ready`.
    fn start(script: &str) -> Sheep {
        let script = format!("{script}\nsleep 1000 >&2 &\necho ready\nwait");
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let id = HeldProcess::open(&Proc::own().unwrap(), child.id() as i32).unwrap().id;
        let mut sheep = Sheep { child, id, flock: Vec::new() };
        sheep.flock = sheep.tree();
        sheep
    }

    fn lives(&self) -> bool {
        identity::is_alive(self.id, &Proc::own().unwrap())
    }

    fn tree(&self) -> Vec<Identity> {
        let proc = Proc::own().unwrap();
        let below = proc.descendants(self.id.pid).found.into_iter().filter_map(|pid| HeldProcess::open(&proc, pid));
        std::iter::once(self.id).chain(below.map(|held| held.id)).collect()
    }
}

impl Drop for Sheep {
    fn drop(&mut self) {
        for member in &self.flock {
            if let Some(held) = HeldProcess::open_same(&Proc::own().unwrap(), *member) {
                let _ = held.signal(Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

fn finding(root: Identity, tree: Vec<Identity>, verdict: Verdict) -> Finding {
    Finding {
        role: TreeRole::Server,
        root,
        tree,
        holder: None,
        client: Some("Test".to_owned()),
        server: Some("sheep".to_owned()),
        identified_by: Evidence::Package { package: "sheep".to_owned() },
        verdict,
        evidence: Vec::new(),
        leashed: None,
        ends_gone: true,
        age: Duration::from_secs(5),
    }
}

fn settings() -> ReapSettings {
    ReapSettings { verdicts: vec![Verdict::OrphanProved], grace: Duration::from_secs(10) }
}

fn run(root: Identity, settings: &ReapSettings, mut rescan: impl FnMut() -> Vec<Finding>) -> ReapOutcome {
    end(&Proc::own().unwrap(), root, settings, &mut rescan)
}

fn ended(outcome: ReapOutcome) -> Receipt {
    match outcome {
        ReapOutcome::Ended(receipt) => *receipt,
        ReapOutcome::Spared(spared) => panic!("{spared}"),
    }
}

fn spared(outcome: ReapOutcome) -> Spared {
    match outcome {
        ReapOutcome::Ended(receipt) => panic!("{receipt:?}"),
        ReapOutcome::Spared(spared) => spared,
    }
}

#[test]
fn only_the_proved_tree_is_ended() {
    let (sheep, bystander) = (Sheep::start(""), Sheep::start(""));
    let tree = sheep.tree();
    let receipt = ended(run(sheep.id, &settings(), || {
        vec![
            finding(bystander.id, bystander.tree(), Verdict::Live),
            finding(sheep.id, sheep.tree(), Verdict::OrphanProved),
        ]
    }));
    assert!(receipt.nothing_left() && !sheep.lives() && bystander.lives());
    assert!(tree.iter().all(|member| !identity::is_alive(*member, &Proc::own().unwrap())));
    let end = receipt.trees().next().unwrap();
    assert_eq!((end.how, end.leader), (How::Term, Some(sheep.id)));
    assert_eq!((receipt.reason, receipt.ended_by, receipt.name.as_str()), (Reason::Orphan, EndedBy::Reap, "sheep"));
}

#[test]
fn a_process_that_ignores_sigterm_is_killed() {
    let sheep = Sheep::start("trap '' TERM");
    let quick = ReapSettings { grace: Duration::ZERO, ..settings() };
    let receipt = ended(run(sheep.id, &quick, || vec![finding(sheep.id, sheep.tree(), Verdict::OrphanProved)]));
    assert!(receipt.nothing_left() && !sheep.lives());
    assert_eq!(receipt.trees().next().unwrap().how, How::Kill);
}

#[test]
fn a_second_scan_that_disagrees_spares_the_tree() {
    let sheep = Sheep::start("");
    for verdict in [Verdict::Live, Verdict::Unknown, Verdict::OrphanLikely, Verdict::StaleHost] {
        let outcome = run(sheep.id, &settings(), || vec![finding(sheep.id, sheep.tree(), verdict)]);
        assert_eq!(spared(outcome), Spared::Changed { verdict: Some(verdict) });
    }
    assert_eq!(spared(run(sheep.id, &settings(), Vec::new)), Spared::Changed { verdict: None });
    assert!(sheep.lives());
}

/// The verdict changes while the tree is being held.
#[test]
fn every_scan_must_agree() {
    let sheep = Sheep::start("");
    let mut looks = 0;
    let outcome = run(sheep.id, &settings(), || {
        looks += 1;
        let verdict = if looks == 1 { Verdict::OrphanProved } else { Verdict::Live };
        vec![finding(sheep.id, sheep.tree(), verdict)]
    });
    // The first scan shows a child that was not held before, so a second scan follows.
    assert_eq!((spared(outcome), looks), (Spared::Changed { verdict: Some(Verdict::Live) }, 2));
    assert!(sheep.lives());
}

#[test]
fn a_process_with_a_reused_pid_is_not_signalled() {
    let sheep = Sheep::start("");
    let before = Identity { start: sheep.id.start.wrapping_sub(1), inode: None, ..sheep.id };
    let outcome = run(before, &settings(), || vec![finding(before, vec![before], Verdict::OrphanProved)]);
    assert_eq!(spared(outcome), Spared::Gone);
    assert!(sheep.lives());
}

/// A member whose PID was reused between the scans is not signalled.
#[test]
fn a_member_with_a_reused_pid_is_not_signalled() {
    let (sheep, other) = (Sheep::start(""), Sheep::start(""));
    let stale = Identity { start: other.id.start.wrapping_sub(1), inode: None, ..other.id };
    let mut looks = 0;
    let outcome = run(sheep.id, &settings(), || {
        looks += 1;
        let mut tree = sheep.tree();
        if looks < 3 {
            tree.push(stale);
        }
        vec![finding(sheep.id, tree, Verdict::OrphanProved)]
    });
    assert!(ended(outcome).nothing_left());
    assert!(!sheep.lives() && other.lives());
}

#[test]
fn a_tree_that_keeps_growing_is_left_alone() {
    let sheep = Sheep::start("");
    let others: Vec<Sheep> = (0..SCANS).map(|_| Sheep::start("")).collect();
    let mut looks = 0;
    let outcome = run(sheep.id, &settings(), || {
        looks += 1;
        let tree = std::iter::once(sheep.id).chain(others.iter().take(looks).map(|other| other.id));
        vec![finding(sheep.id, tree.collect(), Verdict::OrphanProved)]
    });
    assert_eq!(spared(outcome), Spared::KeepsGrowing);
    assert!(sheep.lives() && others.iter().all(Sheep::lives));
}

#[test]
fn a_process_that_has_exited_is_not_scanned() {
    let mut sheep = Sheep::start("");
    sheep.child.kill().unwrap();
    sheep.child.wait().unwrap();
    assert_eq!(
        spared(run(sheep.id, &settings(), || unreachable!("the process has exited before the scan"))),
        Spared::Gone
    );
}

#[test]
fn a_stopped_process_receives_sigterm() {
    let sheep = Sheep::start("");
    HeldProcess::open_same(&Proc::own().unwrap(), sheep.id).unwrap().signal(Signal::STOP).unwrap();
    let receipt = ended(run(sheep.id, &settings(), || vec![finding(sheep.id, sheep.tree(), Verdict::OrphanProved)]));
    assert!(receipt.nothing_left());
    assert_eq!(receipt.trees().next().unwrap().how, How::Term);
}

#[test]
fn a_tree_that_contains_leash_is_not_ended() {
    let sheep = Sheep::start("");
    let me = identity::current(&Proc::own().unwrap()).unwrap();
    let outcome = run(sheep.id, &settings(), || vec![finding(sheep.id, vec![sheep.id, me], Verdict::OrphanProved)]);
    assert_eq!(spared(outcome), Spared::ContainsCaller);
    assert!(sheep.lives());
}
