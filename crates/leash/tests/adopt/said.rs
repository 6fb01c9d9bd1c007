//! What people and programs are told, and that nothing is written unasked.

use std::process::Stdio;

use expect_test::{Expect, expect};
use testkit::pty::Pty;
use testkit::wait::LIMIT;

use crate::Home;

const TEXT: &str =
    "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" },\n    \"b\": { \"url\": \"https://h/mcp\" }\n  }\n}\n";

fn home() -> Home {
    let home = Home::new();
    home.put(".cursor/mcp.json", TEXT);
    home
}

#[track_caller]
fn check(home: &Home, words: &[&str], expected: &Expect) {
    expected.assert_eq(&home.scene.transcript(words));
}

#[test]
fn without_a_terminal_nothing_is_written() {
    let home = home();
    check(&home, &["adopt", "--leash", "leash"], &expect![[r#""#]]);
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
    assert!(!home.path("state/leash/adopt").exists());
    home.adopt(&[]);
    let adopted = home.text(".cursor/mcp.json");
    check(&home, &["release"], &expect![[r#""#]]);
    assert_eq!(home.text(".cursor/mcp.json"), adopted);
    check(&home, &["release", "--yes"], &expect![[r#""#]]);
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
}

#[test]
fn programs_get_json() {
    let home = home();
    let plan = home.well(&["adopt", "--json", "--leash", "leash"]).json();
    let file = &plan["files"][0];
    assert_eq!((&plan["version"], &file["client"], &file["scope"]), (&1.into(), &"cursor".into(), &"user".into()));
    assert_eq!((&file["adopted"], &file["written"]), (&serde_json::json!(["a"]), &false.into()));
    assert_eq!((&file["left"][0]["server"], &file["left"][0]["why"]), (&"b".into(), &"it is an HTTP server".into()));
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
    let done = home.well(&["adopt", "--json", "--yes", "--leash", "leash"]).json();
    assert_eq!(done["files"][0]["written"], true);
    assert_ne!(home.text(".cursor/mcp.json"), TEXT);
    let released = home.well(&["release", "--json", "--yes"]).json();
    assert_eq!(
        released["files"][0]["servers"][0],
        serde_json::json!({"server": "a", "outcome": "released", "why": null})
    );
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
}

#[test]
fn the_diff_can_be_applied_by_others() {
    let home = home();
    let diff = home.well(&["adopt", "--diff", "--leash", "leash"]).stdout;
    home.adopt(&[]);
    let adopted = home.text(".cursor/mcp.json");
    home.well(&["release", "--yes"]);
    home.put("change.patch", &diff);
    // git is where this repository is.
    let mut git = home.scene.command("git");
    git.args(["apply", "--unsafe-paths", "-p1"]).arg(home.path("change.patch")).current_dir("/");
    let applied = git.output().expect("cannot start git");
    assert!(applied.status.success(), "{applied:?}\n{diff}");
    assert_eq!(home.text(".cursor/mcp.json"), adopted);
}

#[track_caller]
fn check_answer(answer: &str, written: bool) {
    let home = home();
    let pty = Pty::open().expect("a terminal");
    let end = || Stdio::from(pty.terminal().expect("its other side"));
    let mut command = home.scene.leash(["adopt", "--leash", "leash"]);
    command.stdin(end()).stdout(Stdio::null()).stderr(end());
    let mut child = command.spawn().expect("cannot start leash");
    drop(command);
    pty.wait_shown("Write these changes? [y/N]", 1).expect("it asks");
    pty.enter(answer).expect("it is typed");
    let gone = testkit::wait::within(LIMIT, || child.try_wait().expect("it is ours"));
    assert!(gone.expect("it ends").success());
    assert_eq!(home.text(".cursor/mcp.json") != TEXT, written, "{answer:?}");
}

#[test]
fn at_a_terminal_it_asks() {
    check_answer("y\n", true);
    check_answer("\n", false);
    check_answer("nope\n", false);
}

#[test]
fn mistakes_on_the_command_line() {
    let home = home();
    check(&home, &["adopt", "emacs"], &expect![[r#""#]]);
    check(&home, &["adopt", "--leash", "/opt/other"], &expect![[r#""#]]);
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
}

#[test]
fn help() {
    let home = Home::new();
    check(&home, &["adopt", "--help"], &expect![[r#""#]]);
    check(&home, &["release", "--help"], &expect![[r#""#]]);
}
