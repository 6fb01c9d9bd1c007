//! The server attacks its own leash, with the rights of the user that both run as. It may lose its session by that. It
//! must not outlive the session, and leash must not report it as gone while it lives.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use rustix::process::{Resource, Signal};
use serde_json::Value;
use testkit::cgroup::Outer;
use testkit::host::{Host, Manner};
use testkit::leash::{Answer, keeper};
use testkit::or_skip;
use testkit::process::{self, Handle};
use testkit::scene::Scene;
use testkit::sys::{self, Step};
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::{check_gone, record_file, start, start_words, trivial};

/// A host with an attacker behind `leash run`.
fn attacked(scene: &Scene, contain: &str, attack: &str) -> Host {
    let tree = scene.tree("attacker", ["--attack", attack]);
    scene.host(&Manner::default(), None, &scene.run_words(["--contain", contain, "--grace", "100ms"], &tree))
}

/// Checks that leash ends by itself after the attack, and that nothing of the tree is left then.
fn check_ends(attack: &str) {
    for (contain, who) in [("reaper", Who::User), ("leaf", Who::Root), ("group", Who::User)] {
        let scene = or_skip!(Scene::set(who));
        let mut host = attacked(&scene, contain, attack);
        let leash = host.server();
        assert!(leash.wait_gone(LIMIT), "{contain}: leash goes on after `{attack}`\n{}", scene.stderr());
        if contain != "group" {
            check_gone(&scene, &[host.pid()]);
        }
        let history = scene.answer(["history", "--json"]).json();
        let last = history["receipts"].as_array().and_then(|all| all.last()).expect("a receipt").clone();
        let fate = &last["holdings"][0]["fate"];
        // In `group` the attacker has left the group: it may live, and then the receipt names it.
        let is_alive = scene.witness().is_populated();
        assert_eq!(fate == "gone", !is_alive, "{contain}, `{attack}`: {last:#}");
        assert_eq!(last["ended_by"], "supervisor", "{contain}, `{attack}`: {last:#}");
    }
}

#[test]
fn forged_end_in_the_record_is_not_believed() {
    check_ends("forge-record");
}

#[test]
fn forged_end_on_the_control_socket_is_not_believed() {
    check_ends("forge-over");
}

#[test]
fn forged_failure_on_the_control_socket_ends_the_tree() {
    for who in [Who::User, Who::Root] {
        let scene = or_skip!(Scene::set(who));
        let mut host = attacked(&scene, "reaper", "forge-failure");
        assert!(host.server().wait_gone(LIMIT), "leash goes on\n{}", scene.stderr());
        check_gone(&scene, &[host.pid()]);
    }
}

/// Checks that the tree and leash end with the owner, also after the attack.
fn check_ends_with_its_owner(contain: &str, attack: &str) {
    let mut scene = or_skip!(Scene::set(Who::User));
    or_skip!(scene.delegate());
    let mut host = attacked(&scene, contain, attack);
    if let Err(heard) = scene.census().wait_ready(LIMIT) {
        panic!("no attack, only: {heard}\n{}", scene.stderr());
    }
    host.close_stdin();
    check_gone(&scene, &[host.pid()]);
    assert!(host.wait_ended(LIMIT).is_some(), "the host does not see leash end");
}

#[test]
fn traced_keeper_is_replaced() {
    for contain in ["reaper", "leaf"] {
        check_ends_with_its_owner(contain, "trace");
    }
}

/// The kernel never gives the zombie of a traced keeper to leash.
#[test]
fn traced_and_killed_keeper_is_replaced() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut host = attacked(&scene, "reaper", "trace-and-kill");
    assert!(host.server().wait_gone(LIMIT), "leash goes on\n{}", scene.stderr());
    check_gone(&scene, &[host.pid()]);
}

/// A tracer outside of the tree is not ended with it, and keeps the dead keeper as a zombie.
#[test]
fn tracer_outside_of_the_tree_does_not_make_the_end_doubtful() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut host = start(&mut scene, &Manner::default(), &["--contain", "reaper", "--grace", "100ms"], "setsid");
    let process = process::children(host.server().pid()).pop().expect("leash has a keeper");
    let keeper = keeper(host.server().pid());
    let words = ["trace".to_owned(), process.pid.as_raw_nonzero().to_string(), process.start.to_string()];
    let mut command = scene.zoo(&words);
    let mut tracer = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("cannot start the tracer");
    let mut said = [0; 7];
    tracer.stdout.take().expect("it is piped").read_exact(&mut said).expect("it traces");
    assert_eq!(&said, b"traced\n");
    keeper.signal(Signal::KILL).expect("cannot kill the keeper");
    assert!(host.server().wait_gone(LIMIT), "leash goes on\n{}", scene.stderr());
    let history = scene.answer(["history", "--json"]).json();
    assert_eq!(history["receipts"][0]["holdings"][0]["fate"], "gone", "{history:#}");
    tracer.kill().expect("cannot kill the tracer");
    tracer.wait().expect("it is our child");
    check_gone(&scene, &[host.pid()]);
}

/// Without a single descriptor leash cannot watch or list anything, so it ends the tree.
#[test]
fn limit_of_no_descriptors_ends_the_tree() {
    for (contain, who) in [("reaper", Who::User), ("leaf", Who::Root)] {
        let scene = or_skip!(Scene::set(who));
        let mut host = attacked(&scene, contain, "starve");
        assert!(host.server().wait_gone(LIMIT), "{contain}: leash goes on\n{}", scene.stderr());
        check_gone(&scene, &[host.pid()]);
    }
}

/// Kills leash and keeper at once.
fn kill_both(leash: &Handle) {
    let keeper = keeper(leash.pid());
    for signal in [Signal::STOP, Signal::KILL] {
        leash.signal(signal).expect("cannot signal leash");
        keeper.signal(signal).expect("cannot signal the keeper");
    }
    assert!(leash.wait_gone(LIMIT) && keeper.wait_gone(LIMIT), "SIGKILL does not work");
}

/// A copy of the lock looks like a living leash.
#[test]
fn stolen_lock_does_not_keep_the_sweep_away() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut host = attacked(&scene, "reaper", "steal-lock");
    scene.census().wait_ready(LIMIT).expect("no attack");
    wait::until("both members in the ledger", || (scene.recorded_members() == 2).then_some(()));
    kill_both(&host.server());
    let answer: Answer = trivial(&scene, &[]).output().expect("cannot start leash").into();
    assert_eq!(answer.code, 0, "{answer:?}");
    check_gone(&scene, &[host.pid()]);
    assert!(scene.ledger().is_empty(), "{:?}", scene.ledger());
}

/// A tree in `leaf` without leash and keeper, its host, and its record.
fn orphaned_leaf(scene: &mut Scene) -> (Host, Value) {
    let words = scene.run_words(["--contain", "leaf"], &scene.tree::<&str>("setsid", []));
    let mut host = start_words(scene, &Manner::default(), &words);
    wait::until("both members in the ledger", || (scene.recorded_members() == 2).then_some(()));
    let record = fs::read(record_file(scene).expect("a record")).expect("readable");
    kill_both(&host.server());
    (host, serde_json::from_slice(&record).expect("JSON"))
}

/// Checks that no receipt says "gone", and that the record waits for the next start, which ends the tree.
fn check_postponed(scene: &mut Scene, host: &Host) {
    let told = scene.answer(["history", "--json"]).json();
    let all = told["receipts"].as_array().cloned().unwrap_or_default();
    let gone = all.iter().find(|one| one["reason"]["kind"] == "swept" && one["holdings"][0]["fate"] == "gone");
    assert!(gone.is_none(), "called gone: {gone:#?}");
    if !scene.ledger().is_empty() {
        assert_eq!(trivial(scene, &[]).status().expect("cannot start leash").code(), Some(0));
    }
    check_gone(scene, &[host.pid()]);
    let told = scene.answer(["history", "--json"]).json();
    let all = told["receipts"].as_array().cloned().unwrap_or_default();
    assert!(all.iter().any(|one| one["reason"]["kind"] == "swept"), "no receipt: {told:#}");
    assert!(scene.ledger().is_empty(), "{:?}", scene.ledger());
}

/// With too few descriptors to look, leash keeps the record and does not report the tree as gone.
#[test]
fn sweep_without_descriptors_leaves_the_record_to_the_next_start() {
    for most in 4..14 {
        let mut scene = or_skip!(Scene::set(Who::Root));
        let (host, _) = orphaned_leaf(&mut scene);
        let mut command = trivial(&scene, &[]);
        sys::prepare(&mut command, vec![Step::Limit(Resource::Nofile, most)]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("cannot start leash");
        check_postponed(&mut scene, &host);
    }
}

/// If no cgroup is visible, the leaf may still have processes.
#[test]
fn sweep_without_cgroups_leaves_the_record_to_the_next_start() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let (host, _) = orphaned_leaf(&mut scene);
    let mut blind = scene.zoo(["ns", "--tmpfs", "/sys/fs/cgroup", "--"]);
    blind.args(scene.run_words(["--contain", "reaper"], &[scene.zoo_path().into(), "exit".into(), "0".into()]));
    let answer: Answer = blind.output().expect("cannot start leash").into();
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(record_file(&scene).is_some(), "the record is gone: {answer:?}");
    check_postponed(&mut scene, &host);
}

/// leash cannot find a process that left the leaf and is in no record, so it must not report the tree as gone.
#[test]
fn swept_leaf_that_was_left_is_not_called_gone() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let elsewhere = or_skip!(Outer::create());
    let tree = scene.tree("leaver", [std::ffi::OsString::from("--to"), elsewhere.dir().into()]);
    let words = scene.run_words(["--contain", "leaf"], &tree);
    let mut host = start_words(&mut scene, &Manner::default(), &words);
    wait::until("both members in the ledger", || (scene.recorded_members() == 2).then_some(()));
    let path = record_file(&scene).expect("a record");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
    kill_both(&host.server());
    record["members"] = Value::Array(Vec::new());
    fs::write(&path, record.to_string()).expect("cannot replace the record");
    assert_eq!(trivial(&scene, &[]).status().expect("cannot start leash").code(), Some(0));
    assert!(elsewhere.is_populated(), "the leaver lives: otherwise this test shows nothing");
    let told = scene.answer(["history", "--json"]).json();
    let swept = told["receipts"].as_array().into_iter().flatten().find(|one| one["reason"]["kind"] == "swept");
    assert_eq!(swept.expect("a receipt")["holdings"][0]["fate"], "left", "{told:#}");
}

/// A receipt that says that everything of a run is gone.
pub(super) fn forged_end(record: &Value, containment: &str) -> Value {
    serde_json::json!({
        "version": 1, "session": record["session"], "run": record["run"], "name": record["name"],
        "reason": { "kind": "server_exited" }, "containment": containment, "ended_by": "keeper",
        "holdings": [{
            "kind": "tree", "leader": record["leader"], "fate": "gone", "how": "exited", "members": 1, "memory_bytes": 0,
        }],
        "started_ms": 1, "ended_ms": 2, "took_ms": 0,
    })
}

/// The supervisor checks a forged end, and must not release the dead leader's pid by that: it is the id of the group.
#[test]
fn forged_end_does_not_save_a_group_whose_leader_is_dead() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let options = ["--contain", "group", "--grace", "3s"];
    let mut host = start(&mut scene, &Manner::default(), &options, "headless-member");
    let leash = host.server();
    let keeper = keeper(leash.pid());
    let leader = process::children(keeper.pid()).pop().expect("the keeper has the leader");
    let leader = Handle::open(leader.pid, |now| now.start == leader.start).expect("it lives");
    wait::until("a record", || record_file(&scene));
    host.close_stdin();
    assert!(leader.wait_gone(LIMIT), "the leader does not leave at the end of its input");
    let path = record_file(&scene).expect("the tree is still ending");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
    record["over"] = forged_end(&record, "group");
    fs::write(&path, record.to_string()).expect("cannot replace the record");
    keeper.signal(Signal::KILL).expect("cannot kill the keeper");
    check_gone(&scene, &[host.pid()]);
}

/// leash does not believe a record without a living supervisor or keeper that says that all is over.
#[test]
fn forged_end_in_an_abandoned_record_is_not_believed() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let (host, mut record) = orphaned_leaf(&mut scene);
    record["over"] = forged_end(&record, "leaf");
    fs::write(record_file(&scene).expect("a record"), record.to_string()).expect("cannot replace the record");
    assert_eq!(trivial(&scene, &[]).status().expect("cannot start leash").code(), Some(0));
    check_gone(&scene, &[host.pid()]);
}

/// Checks that leash starts and ends although a pipe is in its directories.
fn check_not_held_up(path: &str) {
    let scene = or_skip!(Scene::set(Who::User));
    let path = scene.dir().join(path);
    let dir = path.parent().expect("it is in a directory");
    if !dir.exists() {
        fs::create_dir(dir).expect("cannot make a directory");
    }
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("cannot set its mode");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).expect("cannot make a pipe");
    for path in [dir, &path] {
        scene.user().own(path).expect("cannot give it to the user");
    }
    let mut leash = trivial(&scene, &[]).stderr(Stdio::null()).spawn().expect("cannot start leash");
    let handle = Handle::open(rustix::process::Pid::from_child(&leash), |_| true).expect("a child has its number");
    let ended = handle.wait_gone(LIMIT);
    if !ended {
        leash.kill().expect("cannot kill leash");
    }
    let code = leash.wait().expect("cannot wait for leash").code();
    assert_eq!((ended, code), (true, Some(0)), "{}", path.display());
    check_gone(&scene, &[]);
}

#[test]
fn pipe_in_the_place_of_a_record_does_not_block_leash() {
    check_not_held_up("run/sessions/x.json");
}

#[test]
fn pipe_in_the_place_of_a_lock_does_not_block_leash() {
    check_not_held_up("run/sessions/x.lock");
}

#[test]
fn pipe_in_the_place_of_the_receipts_does_not_block_leash() {
    check_not_held_up("state/leash/receipts.jsonl");
}

/// The keeper replaces the record of a changing tree through a temporary file.
#[test]
fn pipe_in_the_place_of_a_new_record_does_not_block_the_keeper() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let words = scene.run_words(["--contain", "reaper", "--grace", "100ms"], &scene.tree::<&str>("stubborn", []));
    let mut host = start_words(&mut scene, &Manner::default(), &words);
    wait::until("the leader in the ledger", || (scene.recorded_members() == 1).then_some(()));
    let path = record_file(&scene).expect("a record").with_extension("new");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).expect("cannot make a pipe");
    scene.user().own(&path).expect("cannot give it to the user");
    host.close_stdin();
    check_gone(&scene, &[host.pid()]);
}

/// A server can stop its keeper with its first instruction. Before that the record must name the keeper, or
/// `leash end --force` would not know what to kill. On one processor the server is often faster than its keeper.
#[test]
fn the_record_names_the_keeper_before_the_server_runs() {
    let scene = or_skip!(Scene::set(Who::User));
    let script = r#"kill -STOP $PPID; cat "$1"/sessions/*.json; kill -CONT $PPID"#;
    for _ in 0..100 {
        let mut command = scene.command("taskset");
        command.args(["-c", "0"]).arg(scene.leash_path()).args(["run", "--contain", "reaper"]);
        command.args(["--", "sh", "-c", script, "sh"]).arg(scene.runtime_dir());
        let answer: Answer = command.output().expect("taskset starts").into();
        let record: Value = serde_json::from_str(&answer.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", answer.stdout, answer.stderr));
        assert!(record["keeper"]["pid"].is_number(), "{record:#}");
    }
    scene.wait_gone(&[]).expect("nothing is left");
}
