//! `leash end`: all members, whichever process started them; one receipt; nothing is left.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use testkit::leash::{Answer, keeper};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use crate::stage::{Joiner, NONE, alive, groups, shell, wait_members, web};

/// The only receipt of a `leash end --json`.
fn receipt(answer: &Answer) -> Value {
    let answered = answer.json();
    assert_eq!((&answered["version"], &answered["unfinished"]), (&1.into(), &Value::Array(Vec::new())), "{answered:#}");
    let [receipt] = &answered["receipts"].as_array().expect("a list")[..] else { panic!("{answered:#}") };
    receipt.clone()
}

fn of_kind(receipt: &Value, kind: &str) -> usize {
    receipt["holdings"].as_array().into_iter().flatten().filter(|holding| holding["kind"] == kind).count()
}

/// Servers and connections of different processes end in one call with one receipt.
#[test]
fn all_members_end_with_one_receipt() {
    for who in [Who::Root, Who::User] {
        let mut scene = or_skip!(Scene::set(who));
        let web = web();
        let in_red = ["--session", "red", "--grace", "200ms"];
        let mut members = [
            Joiner::run(&scene, &in_red, "stubborn"),
            Joiner::run(&scene, &in_red, "setsid"),
            Joiner::connect_open(&scene, &in_red, &web.url()),
            Joiner::connect_open(&scene, &in_red, &web.url()),
        ];
        let mut other = Joiner::run(&scene, &["--session", "blue", "--grace", "0"], "polite");
        scene.census().wait_all_ready(3, LIMIT).expect("the trees did not come up");
        wait_members(&scene, "red", 4);

        let answer = scene.answer(["end", "--json", "red"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let receipt = receipt(&answer);
        assert_eq!((&receipt["session"], &receipt["reason"]["kind"]), (&"red".into(), &"requested".into()));
        assert_eq!((of_kind(&receipt, "tree"), of_kind(&receipt, "upstream")), (2, 2), "{receipt:#}");
        assert_eq!(receipt["members"].as_array().map(Vec::len), Some(4), "{receipt:#}");
        assert_eq!(web.of("DELETE").len(), 2, "both were DELETEd before it returned");
        assert_eq!(alive(&scene), ["blue"]);
        members.iter_mut().for_each(Joiner::wait);

        assert!(other.is_alive());
        assert_eq!(scene.answer(["end", "--force", "blue"]).code, 0);
        other.wait();
        scene.wait_gone(&[]).expect("nothing is left");
    }
}

/// The text output has a line for the session and one for each holding.
#[test]
fn text_output_has_a_line_for_each_holding() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let web = web();
    let mut members = [
        Joiner::run(&scene, &["--session", "red", "--name", "files", "--grace", "0"], "setsid"),
        Joiner::connect_open(&scene, &["--session", "red", "--name", "web"], &web.url()),
    ];
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    wait_members(&scene, "red", 2);
    // With a zero grace, processes that the keeper has not seen by then are ended but not counted.
    wait::until("both processes to be known", || (scene.recorded_members() == 2).then_some(()));
    let answer = scene.answer(["end", "red"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let mut lines: Vec<&str> = answer.stdout.lines().collect();
    // The members are in the order in which they joined, which is random.
    lines[1..].sort_unstable();
    let [head, files, web] = lines[..] else { panic!("{answer:?}") };
    assert!(
        head.starts_with("red: leash end; 1 server, 2 processes, ")
            && head.contains("; 1 upstream session; all gone in "),
        "{head}"
    );
    assert!(files.starts_with("  files: 2 processes, killed in ") && files.ends_with("; gone"), "{files}");
    assert!(web.starts_with("  web: upstream session session- at http://") && web.ends_with("; gone"), "{web}");
    members.iter_mut().for_each(Joiner::wait);
    scene.wait_gone(&[]).expect("nothing is left");
}

/// A connection is a member before it has an upstream session.
#[test]
fn a_connection_that_has_nothing_open_is_ended_too() {
    let scene = or_skip!(Scene::set(Who::User));
    let web = web();
    let mut quiet = Joiner::connect(&scene, &["--session", "red"], &web.url());
    let group = wait_members(&scene, "red", 1);
    assert_eq!(group["members"][0]["kind"], "connection", "{group:#}");
    let answer = scene.answer(["end", "red"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (0, "red: ended; it held nothing\n"), "{answer:?}");
    quiet.wait();
    assert_eq!(web.seen(), Vec::new(), "nothing was ever sent");
    assert_eq!(scene.answer(["end", "red"]).code, 1, "it is not known any more");
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The grace is an hour: without --force the test would time out.
#[test]
fn force_gives_no_grace() {
    for contain in ["reaper", "sealed"] {
        let mut scene = or_skip!(Scene::set(Who::User));
        let options = ["--session", "red", "--grace", "1h", "--contain", contain];
        let mut members = [Joiner::run(&scene, &options, "stubborn"), Joiner::run(&scene, &options, "stubborn")];
        scene.census().wait_all_ready(2, LIMIT).expect("the trees did not come up");
        wait_members(&scene, "red", 2);
        let answer = scene.answer(["end", "--force", "--json", "red"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let receipt = receipt(&answer);
        let holdings = receipt["holdings"].as_array().expect("a list");
        assert!(holdings.len() == 2 && holdings.iter().all(|tree| tree["how"] == "kill"), "{receipt:#}");
        members.iter_mut().for_each(Joiner::wait);
        scene.wait_gone(&[]).expect("nothing is left");
    }
}

/// Force also ends members that are already ending with a long grace.
#[test]
fn force_cuts_a_grace_short() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut member = Joiner::run(&scene, &["--session", "red", "--grace", "1h"], "stubborn");
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    wait_members(&scene, "red", 1);
    member.signal(Signal::TERM);
    wait::until("the end to begin", || {
        let group = crate::stage::groups(&scene).into_iter().next()?;
        (group["state"] == "ending").then_some(())
    });
    assert_eq!(scene.answer(["end", "--force", "red"]).code, 0);
    member.wait();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// All processes of leash are stopped: force works all the same.
#[test]
fn force_wakes_a_stopped_leash() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut member = Joiner::run(&scene, &["--session", "red", "--grace", "1h"], "stubborn");
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    wait_members(&scene, "red", 1);
    let keeper = keeper(member.handle().pid());
    member.signal(Signal::STOP);
    keeper.signal(Signal::STOP).expect("the keeper can be signalled");
    let answer = scene.answer(["end", "--force", "red"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    member.wait();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The first member stays until the second has joined; then one earlier call ends both.
#[test]
fn member_that_joins_meanwhile_is_ended_too() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let go = scene.dir().join("go");
    let script = format!("trap '' TERM; while ! [ -e {} ]; do sleep 0.05; done", go.display());
    let mut first = Joiner::run_words(&scene, &["--session", "red", "--grace", "1h"], &shell(&script));
    wait_members(&scene, "red", 1);
    let mut command = scene.leash(["end", "--json", "red"]);
    let ending = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("cannot start leash");
    wait::until("the end to begin", || {
        crate::stage::groups(&scene).iter().any(|group| group["state"] == "ending").then_some(())
    });
    let mut second = Joiner::run(&scene, &["--session", "red", "--grace", "100ms"], "setsid");
    scene.census().wait_ready(LIMIT).expect("the second tree did not come up");
    std::fs::write(&go, "").expect("cannot let the first one go");
    let answer: Answer = ending.wait_with_output().expect("cannot wait for leash").into();
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(receipt(&answer)["members"].as_array().map(Vec::len), Some(2), "{answer:?}");
    first.wait();
    second.wait();
    assert_eq!(alive(&scene), Vec::<String>::new());
    scene.wait_gone(&[]).expect("nothing is left");
}

/// Killing `leash end` changes nothing for the members that it has told.
#[test]
fn end_continues_after_leash_end_is_killed() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let options = ["--session", "red", "--grace", "500ms"];
    let mut members = [Joiner::run(&scene, &options, "stubborn"), Joiner::run(&scene, &options, "stubborn")];
    scene.census().wait_all_ready(2, LIMIT).expect("the trees did not come up");
    wait_members(&scene, "red", 2);
    let mut command = scene.leash(["end", "red"]);
    let mut ending = command.stdout(Stdio::null()).spawn().expect("cannot start leash");
    wait::until("the end to begin", || {
        let all = |group: &Value| {
            group["members"].as_array().is_some_and(|all| all.iter().all(|one| one["state"] == "ending"))
        };
        let groups = crate::stage::groups(&scene);
        (groups.is_empty() || groups.iter().all(all)).then_some(())
    });
    let _ = ending.kill();
    ending.wait().expect("it was not waited for");
    members.iter_mut().for_each(Joiner::wait);
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn one_member_can_be_ended_alone() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let options = ["--session", "red", "--grace", "0"];
    let mut members = [Joiner::run(&scene, &options, "polite"), Joiner::run(&scene, &options, "polite")];
    scene.census().wait_all_ready(2, LIMIT).expect("the trees did not come up");
    let group = wait_members(&scene, "red", 2);
    let run = group["members"][0]["run"].as_str().expect("an id");
    assert_eq!(scene.answer(["end", &run[..8]]).code, 0);
    let left = wait_members(&scene, "red", 1);
    assert_eq!(left["members"][0]["run"], group["members"][1]["run"]);
    assert_eq!(scene.answer(["end", "red"]).code, 0);
    members.iter_mut().for_each(Joiner::wait);
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn sessions_are_chosen_by_label() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let web = web();
    let start = |session: &str, labels: [&str; 2]| {
        let options = ["--session", session, "--label", labels[0], "--label", labels[1], "--grace", "0"];
        Joiner::run(&scene, &options, "polite")
    };
    let mut members = [
        start("red-1", ["team=red", "stage=test"]),
        start("red-2", ["team=red", "stage=production"]),
        start("blue-1", ["team=blue", "stage=test"]),
        Joiner::connect(&scene, &["--session", "web-1", "--label", "team=web", "--label", "stage=test"], &web.url()),
        // A member without the label ends with its session.
        Joiner::run(&scene, &["--session", "red-1", "--grace", "0"], "polite"),
    ];
    scene.census().wait_all_ready(4, LIMIT).expect("the trees did not come up");
    for (session, count) in [("red-1", 2), ("red-2", 1), ("blue-1", 1), ("web-1", 1)] {
        wait_members(&scene, session, count);
    }
    let check = |words: &[&str], left: &[&str]| {
        let answer = scene.answer([&["end"], words].concat());
        assert_eq!(answer.code, 0, "{answer:?}");
        let mut now = alive(&scene);
        now.sort();
        assert_eq!(now, left, "{answer:?}");
        answer
    };
    let nothing = check(&["--match", "team=red", "--match", "stage=live"], &["blue-1", "red-1", "red-2", "web-1"]);
    assert!(nothing.stderr.contains("nothing to end") && nothing.stdout.is_empty(), "{nothing:?}");
    check(&["--match", "team=red", "--match", "stage=t*"], &["blue-1", "red-2", "web-1"]);
    check(&["--match", "team=*e*", "--match", "stage=*t"], &["red-2"]);
    check(&["--all"], &[]);
    let nothing = check(&["--all"], &[]);
    assert!(nothing.stderr.contains("no session is alive"), "{nothing:?}");
    members.iter_mut().for_each(Joiner::wait);
    scene.wait_gone(&[]).expect("nothing is left");
}

/// leash and keeper of a member were killed: `leash end` ends its upstream session and its processes by name.
#[test]
fn members_whose_leash_was_killed_are_ended() {
    let mut scene = or_skip!(Scene::set(Who::Root));
    let web = web();
    let mut run = Joiner::run(&scene, &["--session", "red", "--contain", "leaf", "--grace", "100ms"], "setsid");
    let mut connection = Joiner::connect_open(&scene, &["--session", "red"], &web.url());
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    wait_members(&scene, "red", 2);
    wait::until("both members in the ledger", || (scene.recorded_members() == 2).then_some(()));
    for member in [&run, &connection] {
        let keeper = keeper(member.handle().pid());
        // Both are stopped first, so that neither sees the other die.
        for signal in [Signal::STOP, Signal::KILL] {
            member.signal(signal);
            keeper.signal(signal).expect("the keeper can be signalled");
        }
        assert!(keeper.wait_gone(LIMIT));
    }
    run.wait();
    connection.wait();
    assert_eq!(web.of("DELETE").len(), 0);
    let answer = scene.answer(["end", "--json", "red"]);
    // The end is not proved: a process may have left the cgroup, and descent was lost with the keeper.
    assert_eq!(answer.code, 1, "{answer:?}");
    let receipt = receipt(&answer);
    assert_eq!((of_kind(&receipt, "tree"), of_kind(&receipt, "upstream")), (1, 1), "{receipt:#}");
    assert_eq!((&receipt["ended_by"], web.of("DELETE").len()), (&"sweep".into(), 1), "{receipt:#}");
    assert_eq!(alive(&scene), Vec::<String>::new());
    scene.wait_gone(&[]).expect("nothing is left");
    assert_eq!(scene.answer(NONE.iter().chain(&["end", "--all"])).code, 0);
}

/// A server that stops leash and keeper, again and again, is ended all the same.
#[test]
fn force_ends_a_server_that_stops_leash_again_and_again() {
    for contain in ["reaper", "leaf"] {
        let mut scene = or_skip!(Scene::set(Who::User));
        or_skip!(scene.delegate());
        let tree = scene.tree("attacker", ["--attack", "stop"]);
        let options = ["--session", "red", "--grace", "1h", "--contain", contain];
        let mut member = Joiner::run_words(&scene, &options, &tree);
        scene.census().wait_ready(LIMIT).expect("the tree did not come up");
        // The server may stop leash before leash has recorded that the server runs.
        wait::until("the session", || groups(&scene).into_iter().find(|group| group["session"] == "red"));
        scene.answer(["end", "--force", "red"]);
        scene.wait_gone(&[]).expect("nothing is left");
        member.wait();
        assert_eq!(alive(&scene), Vec::<String>::new());
    }
}
