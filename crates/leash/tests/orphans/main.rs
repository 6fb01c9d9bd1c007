//! Orphans of other hosts: every proved one is ended, and no other process is touched.

#![expect(clippy::disallowed_methods, reason = "the hosts whose servers are orphaned are started here")]

mod hosts;
mod innocent;
mod install;
mod naming;
mod options;
mod reused;
mod strays;
mod superuser;
mod unseen;
mod watching;
mod zoo;

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::user::Who;
use testkit::wait::LIMIT;
use zoo::{Zoo, living};

/// `LEASH_ORPHAN_ROUNDS=100 cargo test -p mcp-leash --test orphans every_proved_orphan` repeats it a hundred times, for
/// longer than nextest would allow.
fn rounds() -> usize {
    std::env::var("LEASH_ORPHAN_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

/// As a fresh unprivileged user, who has no other processes on the machine.
#[test]
fn every_proved_orphan_is_ended_and_no_other_process() {
    for round in 0..rounds() {
        let mut zoo = or_skip!(Zoo::open(Who::User));
        zoo.with_npx();
        let stay = zoo.play();
        let go = living(&zoo.doomed);
        assert!(stay.len() + go.len() >= 60, "{} and {} are not enough", stay.len(), go.len());
        let answer = zoo.reap(&["--yes"]);
        assert_eq!(answer.code, 0, "round {round}: {answer:?}");
        if let Err(left) = zoo.doomed.wait_gone(LIMIT) {
            panic!("round {round}: {left}\n{answer:?}");
        }
        assert_eq!(living(&zoo.safe), stay, "round {round}: a process was touched: {answer:?}");
        if rounds() > 2 {
            testkit::note(&format!("round {round}: {} ended, {} untouched", go.len(), stay.len()));
        }
        // All of it is gone, so there is nothing more to do.
        let again = zoo.reap(&["--yes"]).json();
        assert_eq!(again["receipts"].as_array().map(Vec::len), Some(0), "{again}");
    }
}

/// Without `--yes` nothing is ended.
#[test]
fn plan_ends_no_process() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let stay = zoo.play();
    let go = living(&zoo.doomed);
    let plan = zoo.reap(&[]);
    assert_eq!((living(&zoo.safe), living(&zoo.doomed)), (stay.clone(), go.clone()), "a process was touched");
    let planned = planned(&plan);
    // The shells in front of some servers are in no census.
    assert!(go.iter().all(|(pid, _)| planned.contains(pid)), "{go:?} in {plan:?}");
    assert!(stay.iter().all(|(pid, _)| !planned.contains(pid)), "{stay:?} not in {plan:?}");
    let memory = plan.json()["plan"][0]["belongings"]["memory"].as_u64();
    assert!(memory.is_some_and(|bytes| bytes > 0), "{plan:?}");
}

/// The superuser sees the orphans of other users as well. The test only makes a plan, because the machine may have
/// further ones.
#[test]
fn root_proves_the_orphans_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        testkit::note("skipped: not root");
        return;
    }
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let stay = zoo.play();
    let go: BTreeSet<i32> = living(&zoo.doomed).iter().map(|(pid, _)| *pid).collect();
    let mut command = Command::new(testkit::leash::leash());
    command.args(["reap", "--json"]).env("HOME", zoo.home()).env("LEASH_RUNTIME_DIR", zoo.home().join("root"));
    let plan: Answer = command.output().expect("cannot start leash").into();
    let planned = planned(&plan);
    assert!(go.is_subset(&planned), "{go:?} in {plan:?}");
    let user = zoo.scene.user().uid();
    let spared = stay.iter().map(|(pid, _)| *pid).filter(|pid| uid(*pid) == user);
    assert!(spared.clone().count() > 0);
    spared.for_each(|pid| assert!(!planned.contains(&pid), "{pid} is held: {plan:?}"));
}

fn uid(pid: i32) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(format!("/proc/{pid}")).map_or(0, |meta| meta.uid())
}

/// All processes that a plan would end.
fn planned(plan: &Answer) -> BTreeSet<i32> {
    let plan = plan.json();
    let due = plan["plan"].as_array().into_iter().flatten().filter(|one| one["would_end"] == true);
    let tree = |one: &Value| one["finding"]["tree"].as_array().cloned().unwrap_or_default();
    due.flat_map(tree).filter_map(|id| i32::try_from(id["pid"].as_i64()?).ok()).collect()
}

/// `why` explains the same in sentences.
#[test]
fn why_explains_the_holders_of_a_server() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let stay = zoo.play();
    let user = zoo.scene.user().uid();
    let explain = |pid: i32| zoo.scene.answer(["why", &pid.to_string()]).stdout;
    let orphan = living(&zoo.doomed).iter().next().map(|(pid, _)| explain(*pid)).expect("there are orphans");
    assert!(orphan.contains("orphan") && orphan.contains("leash reap --yes"), "{orphan}");
    let held: Vec<String> = stay.iter().map(|(pid, _)| *pid).filter(|pid| uid(*pid) == user).map(explain).collect();
    assert!(held.iter().any(|text| text.contains("holds the other end of its stdin")), "{held:?}");
    assert!(held.iter().any(|text| text.contains("not an MCP server")), "{held:?}");
    assert!(!held.iter().any(|text| text.contains("leash reap --yes")), "{held:?}");
}
