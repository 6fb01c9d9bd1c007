//! Text that others chose is printed without control characters, in every command.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::json;
use testkit::gateway::Gateway;
use testkit::host::Manner;
use testkit::http::initialize;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait;

use super::{receipts, runs, shell};

/// A name that a user may choose to mislead root: it clears the screen, fakes a row, and changes the writing direction.
const EVIL: &str = "e\u{1b}[2J\nFORGED \u{202e}\u{9b}31m\u{2028}FORGED\u{85}\u{200b}\u{7f}\r\nFORGED\u{2066}\u{1b}[1mx";

#[track_caller]
fn check_text(text: &str) {
    let harmful = |letter: char| {
        letter != '\n' && letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(harmful), "{text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("FORGED")), "{text:?}");
}

#[track_caller]
fn check_answer(answer: &Answer) {
    check_text(&answer.stdout);
    check_text(&answer.stderr);
}

/// Runs a command that prints the text, and returns its output.
#[track_caller]
fn check<W: AsRef<OsStr> + std::fmt::Debug>(scene: &Scene, words: impl IntoIterator<Item = W>) -> Answer {
    let answer = scene.answer(words);
    check_answer(&answer);
    assert!((answer.stdout.clone() + &answer.stderr).contains(r"\u{202e}"), "it is not printed: {answer:?}");
    answer
}

#[test]
fn control_characters_of_users_are_escaped() {
    let scene = or_skip!(Scene::set(Who::User));
    let (label, script) = (format!("key={EVIL}"), format!("printf 'x\\033[2J\\nFORGED' >/proc/$$/comm; cat # {EVIL}"));
    let options = ["--session", "job-1", "--name", EVIL, "--label", &label, "--grace", "100ms"];
    let words = scene.run_words(options, &shell(&script));
    let mut host = scene.host(&Manner::default(), None, &words);
    let server = wait::until("the server to call itself something else", || {
        let members = runs(&scene).first()?["members"].as_array().cloned()?;
        let server =
            members.iter().find(|member| member["command"].as_str().is_some_and(|line| line.contains(EVIL)))?;
        let pid = server["pid"].as_i64()?;
        fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.contains('\u{1b}').then_some(pid.to_string())
    });
    for words in [&["ps"][..], &["ps", "-v"], &["ps", "--tree", "-v"], &["why", &server], &["end", EVIL]] {
        check(&scene, words);
    }
    check_answer(&scene.answer(["reap"]));
    assert_eq!(runs(&scene)[0]["name"], EVIL, "JSON is exact");
    check(&scene, ["end", "job-1"]);
    check(&scene, ["history"]);
    check(&scene, ["history", "job-1"]);
    check(&scene, ["run", "-v", "--name", EVIL, "--", "true"]);
    check_answer(&scene.answer(["run", "-v", "--name", EVIL, "--", "/"]));
    check(&scene, ["history"]);
    assert!(receipts(&scene).iter().any(|receipt| receipt["name"] == EVIL), "JSON is exact");
    host.close_stdin();
    scene.wait_gone(&[host.pid()]).expect("nothing but the host is left");
}

/// Errors repeat the words of the command line, and variables.
#[test]
fn control_characters_in_errors_are_escaped() {
    let scene = or_skip!(Scene::set(Who::User));
    let (dashes, path, pair) = (format!("--{EVIL}"), format!("/{EVIL}"), format!("{EVIL}={EVIL}"));
    let url = format!("http://127.0.0.1:1/{EVIL}");
    let target = format!("job-1/{EVIL}");
    for words in [
        &[EVIL][..],
        &[&dashes],
        &["--color", EVIL],
        &["run", &dashes, "--", "true"],
        &["run", "--grace", EVIL, "--", "true"],
        &["run", "--contain", EVIL, "--", "true"],
        &["run", "--session", EVIL, "--", "true"],
        &["run", "--label", EVIL, "--", "true"],
        &["run", "--owner", EVIL, "--", "true"],
        &["run", "--cwd", &path, "--", "true"],
        &["run", "--", EVIL],
        &["run", "--", &path],
        &["connect", EVIL],
        &["connect", &url],
        &["attach", EVIL],
        &["attach", "--control", &path, &target],
        &["serve", "--config", &path],
        &["serve", "--listen", EVIL],
        &["serve", "--token-env", EVIL, "--", "true"],
        &["serve", "--name", EVIL, "--", "true"],
        &["serve", "--", EVIL],
        &["serve", "--control", &path, "--", "true"],
        &["why", EVIL],
        &["reap", "--likely", EVIL],
        &["watch", "--interval", EVIL],
        &["end", &pair],
        &["end", "--match", EVIL],
        &["history", EVIL],
        &["adopt", "--client", EVIL],
        &["adopt", "--project", &path],
        &["release", "--server", EVIL],
        &["check", "--url", EVIL],
        &["check", "--", EVIL],
        &["check", "--junit", &path, "--", "true"],
        &["check", "--token-env", EVIL, "--", "true"],
        &["completions", EVIL],
        &["man", "--dir", "/dev/null/\u{1b}[2J"],
    ] {
        let answer = scene.answer(words);
        check_answer(&answer);
        assert_ne!(answer.code, 0, "{words:?}: {answer:?}");
        // A bare error of the system does not say what it is about.
        assert!(!answer.stderr.contains("error: Permission denied"), "{words:?}: {answer:?}");
        assert!(!answer.stderr.contains("error: No such file"), "{words:?}: {answer:?}");
    }
    for variable in ["LEASH_GRACE", "LEASH_SESSION", "LEASH_RUNTIME_DIR"] {
        let answer: Answer = scene.leash(["run", "true"]).env(variable, EVIL).output().expect("leash runs").into();
        check_answer(&answer);
    }
    let dir = scene.dir().join(EVIL);
    let doctor = scene.leash(["doctor", "-v"]).env("LEASH_RUNTIME_DIR", &dir).output().expect("leash runs").into();
    check_answer(&doctor);
    assert!(doctor.stdout.contains(r"\u{1b}[2J"), "{doctor:?}");
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The log of `leash serve`, the mistakes in its configuration, and its sessions in `leash ps`.
#[test]
fn control_characters_are_escaped_in_the_log_of_serve() {
    let scene = or_skip!(Scene::set(Who::User));
    let config = scene.dir().join("leash.json");
    let servers = json!({ "mcpServers": { EVIL: { "command": EVIL, EVIL: 1 }, "x": { "command": EVIL } }, EVIL: 1 });
    fs::write(&config, servers.to_string()).expect("a file");
    let path = config.display().to_string();
    check(&scene, ["serve", "--strict", "--config", &path]);
    check(&scene, ["serve", "--check", "--config", &path]);
    // The start fails, or the server exits; both are reported.
    let gateway = Gateway::single(&scene, &[], &shell(&format!("exit 3 # {EVIL}")));
    let reply = gateway.post("x", None, &initialize("2025-11-25"));
    assert_ne!(reply.status, 200, "{}", reply.text());
    check_answer(&scene.answer(["ps", "-v"]));
    check_answer(&scene.answer(["history"]));
    check_text(&gateway.said());
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The report of `leash check` repeats what a server wrote.
#[test]
fn control_characters_are_escaped_in_the_report_of_check() {
    let scene = or_skip!(Scene::set(Who::User));
    let script = "printf 'e\\033[2J\\r\\nFORGED\\033[1m\\n'; exec sleep 1000";
    let words = ["check", "-v", "--grace", "100ms", "--ready", "300ms", "--", "sh", "-c", script, EVIL];
    check(&scene, words);
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The names of servers in a client's file, their commands in a diff, and the orphans with these names.
#[test]
fn control_characters_in_the_files_of_clients_are_escaped() {
    let scene = or_skip!(Scene::set(Who::User));
    let script = format!("while :; do sleep 1000; done # {EVIL}");
    // The command of this one proves that it is an orphan.
    let (twin, program) = (format!("{EVIL}2"), scene.dir().join("server").display().to_string());
    fs::write(&program, "#!/bin/sh\nwhile :; do sleep 1000; done\n").expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
    let file = json!({ "mcpServers": { EVIL: { "command": "sh", "args": ["-c", script] }, "w": { "url": EVIL }, twin: { "command": program } } });
    let path = scene.dir().join(".claude.json");
    fs::write(&path, format!("{file:#}")).expect("a file");
    scene.user().own(&path).expect("it can be given away");
    let pid = orphan(&scene, &script);
    check(&scene, ["ps"]);
    check(&scene, ["ps", "--tree"]);
    check(&scene, ["why", &pid]);
    check(&scene, ["reap"]);
    check(&scene, ["adopt"]);
    check(&scene, ["adopt", "--yes"]);
    check(&scene, ["release"]);
    check(&scene, ["release", "--yes"]);
    check(&scene, ["reap", "--likely", &pid, "--yes"]);
    orphan(&scene, &program);
    check(&scene, ["watch", "--once", "--settle", "0s", "--min-age", "0s"]);
    scene.wait_gone(&[]).expect("nothing is left");
}

/// Starts a server whose host exits, and returns its pid.
fn orphan(scene: &Scene, script: &str) -> String {
    let mut host = scene.command("sh");
    host.args(["-c", r#": | sh -c "$1" | : &"#, "host", script]).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(host.stderr(Stdio::null()).status().expect("sh runs").success());
    wait::until("the orphan", || {
        let servers = scene.answer(["ps", "--json"]).json()["servers"].as_array().cloned()?;
        let verdict = |server: &&serde_json::Value| matches!(server["finding"]["verdict"].as_str(), Some(word) if word.starts_with("orphan"));
        servers.iter().find(verdict)?["finding"]["root"]["pid"].as_i64().map(|pid| pid.to_string())
    })
}
