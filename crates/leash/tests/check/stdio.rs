//! stdio servers.

use std::ffi::OsString;

use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{check_clean, deps, me, row, with};

/// Runs the check on a command, and checks that nothing is left of it afterwards.
fn check(scene: &mut Scene, options: &[&str], command: &[OsString]) -> Answer {
    let words = ["check", "--json"].iter().chain(options).map(OsString::from);
    let answer = scene.answer(words.chain(["--".into()]).chain(command.iter().cloned()));
    check_clean(scene);
    answer
}

/// A tree of the zoo that speaks MCP.
fn tree(scene: &Scene, kind: &str) -> Vec<OsString> {
    scene.tree(kind, ["--mcp"])
}

/// A server of the zoo that starts another command in the background first.
fn after(scene: &Scene, first: &str) -> Vec<OsString> {
    let server = tree(scene, "polite");
    let words = server.iter().map(|word| format!("'{}'", word.to_string_lossy()));
    let script = format!("{first} </dev/null >/dev/null 2>&1 & exec {}", words.collect::<Vec<_>>().join(" "));
    ["bash", "-c", &script].map(OsString::from).to_vec()
}

const GRACE: &[&str] = &["--grace", "300ms"];

#[test]
fn a_polite_server_passes() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let server = tree(&scene, "polite");
    let answer = check(&mut scene, &["--grace", "2s"], &server);
    assert_eq!((with(&answer, "fail"), with(&answer, "skip")), (vec![], vec![]), "{answer:?}");
    assert_eq!((answer.code, with(&answer, "pass").len()), (0, 15));
}

#[test]
fn server_that_ignores_the_end_of_input_fails() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let server = tree(&scene, "ignores-eof");
    let answer = check(&mut scene, GRACE, &server);
    let found = ["eof", "host-gone", "eof-in-flight", "eof-at-start", "eof-before-handshake", "eof-during-handshake"];
    assert_eq!(with(&answer, "fail"), found.map(|id| format!("stdio.{id}")), "{answer:?}");
    assert_eq!(answer.code, 1);
    let eof = row(&answer, "stdio.eof");
    assert_eq!(eof["specification"]["text"], "servers SHOULD exit promptly when their standard input is closed");
    assert_eq!(eof["users"]["report"], "anthropics/claude-code#26658");
}

#[test]
fn stubborn_server_fails_every_ending() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let server = tree(&scene, "stubborn");
    let answer = check(&mut scene, GRACE, &server);
    assert_eq!(with(&answer, "fail").len(), 10, "{answer:?}");
    assert_eq!(with(&answer, "skip"), ["helpers", "ports", "browsers"].map(|id| format!("stdio.{id}")), "{answer:?}");
}

#[test]
fn hidden_helpers_are_found() {
    for kind in ["setsid", "daemon"] {
        let mut scene = or_skip!(Scene::set(Who::User));
        let server = tree(&scene, kind);
        let answer = check(&mut scene, GRACE, &server);
        assert_eq!(with(&answer, "fail"), ["stdio.helpers"], "{kind}: {answer:?}");
        let seen = row(&answer, "stdio.helpers")["detail"].to_string();
        assert!(seen.contains(&format!("zoo-{kind}")), "{seen}");
    }
}

/// A helper that would exit on SIGTERM is left too, because no process sends it one.
#[test]
fn helper_that_would_exit_on_sigterm_is_found() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let server = after(&scene, "sleep 600");
    let answer = check(&mut scene, GRACE, &server);
    assert_eq!(with(&answer, "fail"), ["stdio.helpers"], "{answer:?}");
}

/// A lock that only a clean exit removes: after SIGTERM the server cannot start again.
#[test]
fn server_that_does_not_start_again_fails() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let server = tree(&scene, "polite").iter().map(|word| format!("'{}'", word.to_string_lossy())).collect::<Vec<_>>();
    let script = format!(
        "lock=$PWD/run/lock; test -e $lock && echo locked >&2 && exit 3; touch $lock; {} && rm $lock",
        server.join(" ")
    );
    let answer = check(&mut scene, GRACE, &["bash", "-c", &script].map(OsString::from));
    assert_eq!(row(&answer, "stdio.eof")["status"], "pass", "{answer:?}");
    let found = with(&answer, "fail");
    assert!(found.contains(&"stdio.again".to_owned()) && found.contains(&"stdio.host-gone".to_owned()), "{answer:?}");
}

/// The call was answered before the end was requested: then nothing was pending, and the row says so.
#[test]
fn a_call_that_is_answered_at_once_is_not_in_flight() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let server = ["node".into(), deps.everything().into(), "stdio".into()];
    let answer = check(&mut scene, &["--grace", "5s", "--call", r#"echo {"message": "x"}"#], &server);
    let told = row(&answer, "stdio.eof-in-flight")["detail"].to_string();
    assert!(told.contains("the call was answered before"), "{told}");
}

/// The same for the default call. Its answer arrives before the next request.
#[test]
fn a_list_that_is_answered_at_once_is_not_in_flight() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let first = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"hasty"}}}"#;
    let third = r#"{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}"#;
    let script = format!("read line; printf '%s\\n%s\\n' '{first}' '{third}'; exec cat >/dev/null");
    let answer = check(&mut scene, GRACE, &["bash", "-c", &script].map(OsString::from));
    for id in ["stdio.eof-in-flight", "stdio.term-in-flight"] {
        let told = row(&answer, id)["detail"].to_string();
        assert!(told.contains("the call was answered before"), "{answer:?}");
    }
}

/// It exited before it was told to, which is no way to pass.
#[test]
fn server_that_crashes_on_a_call_fails() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let server = tree(&scene, "polite");
    let answer = check(&mut scene, &["--grace", "2s", "--call", "exit"], &server);
    assert_eq!(with(&answer, "fail"), ["stdio.eof-in-flight", "stdio.term-in-flight"], "{answer:?}");
    assert_eq!(row(&answer, "stdio.eof-in-flight")["detail"], "it had exited before it was asked, exit code 3");
}

/// Endless lines, one endless line, and endless requests from a server that does not read: each check ends in time.
#[test]
fn endless_output_does_not_block_the_check() {
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for command in [&["yes"][..], &["cat", "/dev/zero"], &["yes", ping]] {
        let mut scene = or_skip!(Scene::set(Who::User));
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let answer = check(&mut scene, &["--ready", "300ms", "--grace", "100ms"], &command);
        assert_eq!(with(&answer, "fail"), ["stdio.handshake"], "{answer:?}");
        assert_eq!(row(&answer, "stdio.handshake")["detail"], "no answer to `initialize`", "{answer:?}");
    }
}

#[test]
fn browser_is_reported_as_browser() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let server = after(&scene, "(exec -a chrome sleep 600)");
    let answer = check(&mut scene, GRACE, &server);
    assert_eq!(with(&answer, "fail"), ["stdio.helpers", "stdio.browsers"], "{answer:?}");
}

#[test]
fn a_port_that_stays_open_is_named() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let listen = "import socket, time; s = socket.create_server((\"127.0.0.1\", 0)); time.sleep(600)";
    let server = after(&scene, &format!("'{}' -c '{listen}'", deps.python().display()));
    let answer = check(&mut scene, &["--grace", "2s"], &server);
    assert_eq!(with(&answer, "fail"), ["stdio.helpers", "stdio.ports"], "{answer:?}");
    let seen = row(&answer, "stdio.ports")["detail"].to_string();
    assert!(seen.contains("still listening: "), "{seen}");
}

#[test]
fn command_that_is_not_a_server_is_reported() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let script = ["sh", "-c", "echo cannot find my key >&2; exit 3"].map(OsString::from);
    let answer = check(&mut scene, GRACE, &script);
    assert_eq!(with(&answer, "fail"), ["stdio.handshake"], "{answer:?}");
    assert!(row(&answer, "stdio.handshake")["detail"].to_string().contains("cannot find my key"), "{answer:?}");
}

#[test]
fn junit_is_written_where_it_was_asked_for() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("run/junit.xml");
    let server = tree(&scene, "setsid");
    let answer = check(&mut scene, &["--grace", "300ms", "--junit", &file.to_string_lossy()], &server);
    assert_eq!(answer.code, 1);
    let xml = std::fs::read_to_string(file).expect("it is written");
    assert!(xml.contains("tests=\"15\" failures=\"1\""), "{xml}");
    assert!(xml.contains("<failure message=\"") && xml.contains("anthropics/claude-code#26658"), "{xml}");
}

/// A check takes minutes: a report that cannot be written is an error before anything is started.
#[test]
fn junit_path_is_tested_before_the_check() {
    let scene = or_skip!(Scene::set(Who::User));
    let (mark, good) = (scene.dir().join("run/started"), scene.dir().join("run/junit.xml"));
    let server = ["sh", "-c", &format!("touch {}", mark.display())].map(OsString::from);
    for bad in ["/no/such/place/junit.xml", "/"] {
        let words = ["check", "--junit", bad, "--"].map(OsString::from);
        let answer = scene.answer(words.iter().chain(&server));
        assert_eq!(answer.code, 125, "{answer:?}");
        assert!(answer.stderr.contains(&format!("cannot write `{bad}`")) && answer.stdout.is_empty(), "{answer:?}");
        assert!(!mark.exists(), "the server was started");
    }
    // If nothing could be tested, there is no empty report, and an older one stays as it is.
    let nothing = |good: &str| scene.answer(["check", "--junit", good, "--", "/no/such/server"]);
    assert_eq!(nothing(&good.to_string_lossy()).code, 127);
    assert!(!good.exists());
    std::fs::write(&good, "before").expect("cannot write");
    scene.user().own(&good).expect("cannot give it to the user");
    assert_eq!(nothing(&good.to_string_lossy()).code, 127);
    assert_eq!(std::fs::read_to_string(&good).expect("it stays"), "before");
}

#[test]
fn command_needs_no_dashes_in_front() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let answer = scene.answer(["check", "--json", "--grace", "300ms", "sh", "-c", "exit 3"]);
    assert_eq!(with(&answer, "fail"), ["stdio.handshake"], "{answer:?}");
    check_clean(&mut scene);
    let answer = scene.answer(["check", "http://127.0.0.1:1/mcp"]);
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("hint: an HTTP server is named with --url"), "{answer:?}");
}

/// The usual test server.
#[test]
fn server_everything_passes() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let server = ["node".into(), deps.everything().into(), "stdio".into()];
    let answer = check(&mut scene, &["--grace", "5s"], &server);
    assert_eq!(with(&answer, "fail"), [""; 0], "{answer:?}");
}

/// Its own timer keeps it: it stays until the call is done.
#[test]
fn server_everything_with_a_long_call_stays() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let server = ["node".into(), deps.everything().into(), "stdio".into()];
    let call = r#"trigger-long-running-operation {"duration": 60, "steps": 60}"#;
    let answer = check(&mut scene, &["--grace", "3s", "--call", call], &server);
    assert_eq!(with(&answer, "fail"), ["stdio.eof-in-flight"], "{answer:?}");
}

/// A server of the official Python SDK, whose helper outlives it.
#[test]
fn helper_of_a_python_server_is_found() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_hosts/server.py");
    let answer = check(&mut scene, &["--grace", "3s"], &[deps.python().into(), script.into()]);
    assert_eq!(with(&answer, "fail"), ["stdio.helpers"], "{answer:?}");
}
