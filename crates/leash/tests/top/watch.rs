//! `leash ps --watch` tells every change.

use std::process::{Child, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use testkit::lines::Lines;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::{Run, handle, wait_exit};

fn start(scene: &Scene, words: &[&str]) -> (Child, Lines<ChildStdout>) {
    let mut command = scene.leash(words);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("leash starts");
    let lines = Lines::new(child.stdout.take().expect("it is a pipe"));
    (child, lines)
}

/// The documents up to the first that is wanted.
fn until(lines: &mut Lines<ChildStdout>, what: &str, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut documents = Vec::new();
    loop {
        let line = lines.next(LIMIT).unwrap_or_else(|| panic!("{what} is missing after {documents:#?}"));
        let document: Value = serde_json::from_str(&line).expect("each line is a document");
        documents.push(document);
        if wanted(&documents[documents.len() - 1]) {
            return documents;
        }
    }
}

fn has_row(rows: &Value, name: &str) -> bool {
    rows.as_array().into_iter().flatten().any(|row| row["name"] == name)
}

#[test]
fn json_is_a_snapshot_and_then_changes() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut first = Run::start(&scene, "first", &scene.tree("polite", [""; 0]));
    scene.census().wait_all_ready(1, LIMIT).expect("the tree did not come up");
    let (mut watch, mut lines) = start(&scene, &["ps", "--json", "--watch"]);
    let mut all = until(&mut lines, "the snapshot", |document| has_row(&document["added"], "first"));
    assert_eq!((all.len(), &all[0]["kind"], &all[0]["version"]), (1, &"snapshot".into(), &1.into()));

    let mut second = Run::start(&scene, "second", &scene.tree("polite", [""; 0]));
    all.extend(until(&mut lines, "the new server", |document| has_row(&document["added"], "second")));
    let is_counted = |document: &Value| {
        let rows = document["changed"].as_array().into_iter().chain(document["added"].as_array()).flatten();
        rows.into_iter().any(|row| row["name"] == "second" && row["memory_bytes"].as_u64() > Some(0))
    };
    if !is_counted(&all[all.len() - 1]) {
        all.extend(until(&mut lines, "its processes", is_counted));
    }

    drop(first.0.stdin.take());
    first.wait();
    let is_ended = |document: &Value| has_row(&document["ended"], "first");
    all.extend(until(&mut lines, "the receipt", is_ended));
    let key = all[0]["added"][0]["key"].clone();
    let is_removed = |document: &Value| document["removed"].as_array().is_some_and(|keys| keys.contains(&key));
    if !all.iter().any(is_removed) {
        all.extend(until(&mut lines, "its removal", is_removed));
    }
    let revisions: Vec<u64> = all.iter().filter_map(|document| document["revision"].as_u64()).collect();
    assert_eq!(revisions, (1..=all.len() as u64).collect::<Vec<_>>());

    handle(&watch).signal(Signal::TERM).expect("it can be signalled");
    assert_eq!(wait_exit(&mut watch), Some(0));
    drop(second.0.stdin.take());
    second.wait();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn tables_are_printed_below_each_other_into_a_pipe() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let (mut watch, mut lines) = start(&scene, &["ps", "--watch"]);
    let shown = |lines: &mut Lines<ChildStdout>, text: &str| {
        let found = lines.wait(LIMIT, |line| line.contains(text).then(|| line.to_owned()));
        found.unwrap_or_else(|| panic!("{text} is missing"))
    };
    shown(&mut lines, "No MCP server runs here.");
    let mut files = Run::start(&scene, "files", &scene.tree("polite", [""; 0]));
    scene.census().wait_all_ready(1, LIMIT).expect("the tree did not come up");
    let line = shown(&mut lines, "running");
    assert!(line.contains("files") && !line.contains('\u{1b}'), "{line:?}");
    drop(files.0.stdin.take());
    files.wait();
    shown(&mut lines, "No MCP server runs here.");
    handle(&watch).signal(Signal::INT).expect("it can be signalled");
    assert_eq!(wait_exit(&mut watch), Some(0));
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn closed_pipe_ends_the_watch() {
    let scene = or_skip!(Scene::set(Who::User));
    let (mut watch, mut lines) = start(&scene, &["ps", "--watch", "--json"]);
    assert!(lines.next(LIMIT).is_some_and(|line| line.contains("snapshot")));
    drop(lines);
    assert_eq!(wait_exit(&mut watch), Some(0));
    scene.wait_gone(&[]).expect("nothing is left");
}
