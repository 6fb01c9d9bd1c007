//! `leash guard`: the sessions of a program that speaks HTTP itself are DELETEd once, whatever is killed.

use std::io::Write as _;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use testkit::leash::keeper;
use testkit::lines::Lines;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

use crate::host::scene;
use crate::upstream::Upstream;

/// A guard as a child of the test, which is its program.
struct GuardProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    says: Lines<ChildStdout>,
}

impl GuardProcess {
    fn start(scene: &Scene) -> GuardProcess {
        let mut command = scene.leash(["guard", "--session", "mine", "--name", "test", "--label", "a=b"]);
        let stderr = std::fs::File::create(scene.dir().join("stderr")).expect("stderr is a file");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().expect("leash");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let mut guard = GuardProcess { child, stdin, says: Lines::new(stdout) };
        assert_eq!(guard.said(), Some(json!({"session": "mine"})));
        guard
    }

    /// The next line.
    fn said(&mut self) -> Option<Value> {
        self.says.next(LIMIT).map(|line| serde_json::from_str(&line).expect("a line is JSON"))
    }

    fn tell(&mut self, line: &Value) {
        writeln!(self.stdin.as_mut().expect("stdin is open"), "{line}").expect("the guard reads");
    }

    fn open(&mut self, upstream: &Upstream, id: &str, token: &str) {
        let headers = json!([["Authorization", format!("Bearer {token}")], ["Content-Type", "application/json"]]);
        let opened = json!({"url": upstream.url(), "session": id, "version": "2025-11-25", "headers": headers});
        self.tell(&json!({ "open": opened }));
        assert_eq!(self.said(), Some(json!({ "held": id })));
    }

    fn signal(&self, signal: Signal) {
        let handle = Handle::open(Pid::from_child(&self.child), |_| true).expect("it is our child");
        handle.signal(signal).expect("it lives");
    }

    /// Closes stdin.
    fn close(&mut self) {
        self.stdin = None;
    }

    fn code(&mut self) -> Option<i32> {
        self.child.wait().expect("it is our child").code()
    }
}

/// A server that accepts every DELETE.
fn upstream() -> Upstream {
    Upstream::start(|_, talk| talk.answer(200, &[], ""))
}

fn receipts(scene: &Scene) -> Vec<Value> {
    scene.answer(["history", "--json"]).json()["receipts"].as_array().cloned().unwrap_or_default()
}

/// Checks that each session was DELETEd once, with the latest credentials, and that nothing of leash is left.
fn check_deleted(scene: &Scene, upstream: &Upstream, expected: &[(&str, &str)], by: &str) {
    upstream.wait_count("DELETE", expected.len());
    scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}\n{}", scene.stderr()));
    let mut seen: Vec<(String, String)> = upstream
        .of("DELETE")
        .iter()
        .map(|seen| (seen.header("mcp-session-id").to_owned(), seen.header("authorization").to_owned()))
        .collect();
    seen.sort();
    let expected = expected.iter().map(|(id, token)| ((*id).to_owned(), format!("Bearer {token}")));
    assert_eq!(seen, expected.collect::<Vec<_>>());
    assert!(upstream.of("DELETE").iter().all(|seen| seen.header("content-type").is_empty()));
    let receipts = receipts(scene);
    let [receipt] = &receipts[..] else { panic!("not one receipt: {receipts:#?}") };
    assert_eq!((&receipt["session"], &receipt["name"]), (&json!("mine"), &json!("test")));
    assert_eq!((&receipt["ended_by"], &receipt["labels"]["a"]), (&json!(by), &json!("b")));
    assert!(scene.ledger().is_empty(), "{:?}", scene.ledger());
}

#[test]
fn closed_stdin_ends_all_sessions_with_their_latest_credentials() {
    let (scene, upstream) = (scene(), upstream());
    let mut guard = GuardProcess::start(&scene);
    guard.open(&upstream, "one", "old");
    guard.open(&upstream, "two", "second");
    guard.open(&upstream, "one", "new");
    guard.close();
    let receipt = guard.said().expect("a receipt");
    assert_eq!(receipt["holdings"].as_array().map(Vec::len), Some(2), "{receipt:#}");
    assert_eq!((guard.said(), guard.code()), (None, Some(0)));
    check_deleted(&scene, &upstream, &[("one", "new"), ("two", "second")], "gateway");
}

#[test]
fn signals_and_leash_end_end_the_session() {
    for (end, code) in [("TERM", Some(143)), ("end", Some(0))] {
        let (scene, upstream) = (scene(), upstream());
        let mut guard = GuardProcess::start(&scene);
        guard.open(&upstream, "one", "hush");
        match end {
            "end" => assert_eq!(scene.answer(["end", "mine"]).code, 0),
            _ => guard.signal(Signal::TERM),
        }
        assert_eq!(guard.code(), code, "{end}");
        check_deleted(&scene, &upstream, &[("one", "hush")], "gateway");
    }
}

#[test]
fn keeper_ends_the_session_of_a_killed_guard() {
    let (scene, upstream) = (scene(), upstream());
    let mut guard = GuardProcess::start(&scene);
    guard.open(&upstream, "one", "hush");
    guard.signal(Signal::KILL);
    assert_eq!(guard.code(), None);
    check_deleted(&scene, &upstream, &[("one", "hush")], "keeper");
}

#[test]
fn killed_keeper_is_replaced() {
    let (scene, upstream) = (scene(), upstream());
    let mut guard = GuardProcess::start(&scene);
    guard.open(&upstream, "one", "hush");
    let pid = Pid::from_child(&guard.child);
    let first = keeper(pid);
    first.signal(Signal::KILL).expect("it lives");
    wait::until("another keeper", || (keeper(pid).pid() != first.pid()).then_some(()));
    // The answer comes after the guard has told the new keeper everything.
    guard.open(&upstream, "one", "new");
    assert_eq!(upstream.of("DELETE").len(), 0);
    guard.signal(Signal::KILL);
    guard.code();
    check_deleted(&scene, &upstream, &[("one", "new")], "keeper");
}

#[test]
fn session_that_the_program_has_deleted_is_left_alone() {
    let (scene, upstream) = (scene(), upstream());
    let mut guard = GuardProcess::start(&scene);
    guard.open(&upstream, "one", "hush");
    guard.tell(&json!({"ended": {"session": "one", "status": 204}}));
    guard.close();
    let receipt = guard.said().expect("a receipt");
    let holding = &receipt["holdings"][0];
    assert_eq!((&holding["how"], &holding["status"]), (&json!("deleted"), &json!(204)), "{receipt:#}");
    assert_eq!(guard.code(), Some(0));
    scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
    assert_eq!(upstream.of("DELETE").len(), 0);
}

#[test]
fn session_that_the_server_keeps_is_exit_code_1() {
    let scene = scene();
    let upstream = Upstream::start(|_, talk| talk.answer(405, &[], ""));
    let mut guard = GuardProcess::start(&scene);
    guard.open(&upstream, "one", "hush");
    guard.close();
    assert_eq!(guard.said().expect("a receipt")["holdings"][0]["fate"], "left");
    assert_eq!(guard.code(), Some(1));
    scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
}

#[test]
fn wrong_lines_are_warnings_without_the_line() {
    let (scene, upstream) = (scene(), upstream());
    let mut guard = GuardProcess::start(&scene);
    guard.tell(&json!({"open": {"url": "ftp://hush/", "session": "x"}}));
    guard.tell(&json!("hush"));
    guard.open(&upstream, "one", "hush");
    guard.close();
    assert!(guard.said().is_some() && guard.code() == Some(0));
    let said = scene.stderr();
    assert!(said.matches("warning").count() == 2 && !said.contains("hush"), "{said}");
    check_deleted(&scene, &upstream, &[("one", "hush")], "gateway");
}

#[test]
fn guard_without_a_session_leaves_no_receipt() {
    let scene = scene();
    let mut guard = GuardProcess::start(&scene);
    guard.close();
    assert_eq!((guard.said(), guard.code()), (None, Some(0)));
    scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
    assert_eq!((receipts(&scene), scene.ledger().len()), (vec![], 0));
}
