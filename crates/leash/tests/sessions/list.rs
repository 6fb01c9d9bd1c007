//! `leash ps` and `leash history` show sessions as a whole.

use serde_json::Value;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use crate::stage::{Joiner, wait_members, web};

#[test]
fn a_session_is_shown_with_its_members_below() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let web = web();
    let options = |name| ["--session", "red", "--grace", "0", "--name", name];
    let mut members = [
        Joiner::run(&scene, &options("files"), "setsid"),
        Joiner::run(&scene, &options("mail"), "polite"),
        Joiner::connect_open(&scene, &["--session", "red", "--name", "web", "--label", "a=b"], &web.url()),
        Joiner::run(&scene, &["--name", "alone", "--grace", "0"], "polite"),
    ];
    scene.census().wait_all_ready(3, LIMIT).expect("the trees did not come up");
    let group = wait_members(&scene, "red", 3);
    let names: Vec<&Value> = group["members"].as_array().into_iter().flatten().map(|member| &member["name"]).collect();
    for name in ["files", "mail", "web"] {
        assert!(names.contains(&&Value::from(name)), "{group:#}");
    }
    let sum: u64 =
        group["members"].as_array().into_iter().flatten().filter_map(|member| member["processes"].as_u64()).sum();
    assert_eq!(group["processes"].as_u64(), Some(sum));
    assert!(sum >= 3 && group["memory_bytes"].as_u64() > Some(0), "{group:#}");

    // The older fields are unchanged.
    let json = scene.answer(["ps", "--json"]).json();
    assert_eq!((&json["version"], json["sessions"].as_array().map(Vec::len)), (&1.into(), Some(3)));
    assert_eq!((&json["upstream"][0]["session"], &json["upstream"][0]["name"]), (&"red".into(), &"web".into()));

    let table = scene.answer(["ps"]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    let head = lines.iter().position(|line| line.starts_with("red ")).expect("a line for the session");
    assert!(lines[head].contains("3 members") && lines[head].contains("running"), "{table}");
    assert!(lines[head + 1..head + 4].iter().all(|line| line.starts_with("  ")), "{table}");
    assert_eq!(lines.iter().filter(|line| line.contains("alone")).count(), 1, "one member needs one line: {table}");
    let long = scene.answer(["ps", "--tree", "-v"]).stdout;
    assert!(
        long.contains("red  3 members, ") && long.contains("  owners: ") && long.contains("for leash connect"),
        "{long}"
    );

    assert_eq!(scene.answer(["end", "--all"]).code, 0);
    members.iter_mut().for_each(Joiner::wait);
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn history_of_a_session_is_complete() {
    let mut scene = or_skip!(Scene::set(Who::User));
    // More than are shown by default, and another session whose id begins alike.
    let mut members: Vec<Joiner> = Vec::new();
    for session in std::iter::repeat_n("red", 3).chain(["red-2"]) {
        members.push(Joiner::run(&scene, &["--session", session, "--grace", "0"], "polite"));
    }
    scene.census().wait_all_ready(4, LIMIT).expect("the trees did not come up");
    wait_members(&scene, "red", 3);
    wait_members(&scene, "red-2", 1);
    assert_eq!(scene.answer(["end", "--all"]).code, 0);
    members.iter_mut().for_each(Joiner::wait);

    let json = scene.answer(["history", "red", "--json"]).json();
    assert_eq!((&json["version"], json["receipts"].as_array().map(Vec::len)), (&1.into(), Some(3)), "{json:#}");
    let sum = &json["sessions"][0];
    assert_eq!(
        (&sum["session"], &sum["receipts"], &sum["all_gone"]),
        (&"red".into(), &3.into(), &true.into()),
        "{json:#}"
    );
    let text = scene.answer(["history", "red"]).stdout;
    assert!(text.contains("red: 3 receipts; 3 servers, ") && text.contains("all gone"), "{text}");
    assert!(!text.contains("red-2"), "{text}");
    let several = scene.answer(["history", "re"]);
    assert_eq!((several.code, &*several.stdout), (1, ""), "{several:?}");
    assert!(several.stderr.contains("`re` is the beginning of 2 sessions: red, red-2"), "{several:?}");
    let by_beginning = scene.answer(["history", "red-", "--json"]).json();
    assert_eq!(by_beginning["receipts"].as_array().map(Vec::len), Some(1), "{by_beginning:#}");
    assert_eq!(
        scene.answer(["history", "red", "-n", "1", "--json"]).json()["receipts"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(scene.answer(["history", "--json"]).json()["sessions"], Value::Null);
    scene.wait_gone(&[]).expect("nothing is left");
}
