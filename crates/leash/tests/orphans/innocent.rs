//! Programs that are not servers, but have something in common with the command of one.

use std::fs;
use std::path::Path;

use serde_json::json;
use testkit::or_skip;
use testkit::user::Who;

use super::hosts::{Host, server_with};
use super::zoo::{Zoo, living};

/// Holds a census and ignores the end of its input.
const WORKER: &str = r#"
import os, signal, sys
census = os.open(sys.argv[1] if len(sys.argv) > 1 else os.environ["CENSUS"], os.O_WRONLY)
os.write(census, b"ready 1\n")
while True: signal.pause()
"#;

/// Writes a VS Code configuration for all of the user's workspaces.
fn declare(zoo: &Zoo, command: &[&str]) {
    let path = zoo.home().join(".config/Code/User/mcp.json");
    fs::create_dir_all(path.parent().expect("it has one")).expect("the scene has room");
    let servers = json!({ "servers": { "it": { "command": command[0], "args": command[1..] } } });
    fs::write(path, servers.to_string()).expect("the scene has room");
}

/// Puts a script into a directory of the scene.
fn script(zoo: &Zoo, dir: &str, name: &str) {
    let dir = zoo.home().join(dir);
    fs::create_dir_all(&dir).expect("the scene has room");
    fs::write(dir.join(name), WORKER).expect("the scene has room");
}

/// Starts `words` in a directory, under a host that is killed.
fn abandon(zoo: &mut Zoo, doomed: bool, dir: &Path, words: &[&str]) {
    let census = if doomed { zoo.doomed.path() } else { zoo.safe.path() }.to_owned();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut host = zoo.python(&[server_with(&words, json!({ "cwd": dir }))]);
    host.env("CENSUS", census);
    zoo.hosts.push(Host::start(host));
    zoo.expect(doomed, 1);
}

/// Ends all proved orphans, with `reap` and with `watch`, and checks that all others are alive.
fn end_all(zoo: &mut Zoo) {
    let stay = zoo.begin();
    assert!(!stay.is_empty());
    let quick = ["--min-age", "0", "--settle", "200ms", "--grace", "200ms"];
    let answer = zoo.reap(&["--yes"]);
    assert_eq!((answer.code, living(&zoo.safe)), (0, stay.clone()), "{answer:?}");
    let watched = zoo.scene.answer(["watch", "--once"].iter().chain(&quick));
    assert_eq!((watched.code, living(&zoo.safe)), (0, stay), "{watched:?}");
    zoo.doomed.wait_gone(testkit::wait::LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
}

#[test]
fn a_program_with_the_interpreter_of_a_server_is_not_ended() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    declare(&zoo, &["python3", "${workspaceFolder}/tools/mcp.py"]);
    script(&zoo, "billing", "production_billing_worker.py");
    script(&zoo, "work/tools", "mcp.py");
    let (billing, work) = (zoo.home().join("billing"), zoo.home().join("work"));
    abandon(&mut zoo, false, &billing, &["python3", "production_billing_worker.py"]);
    let server = work.join("tools/mcp.py").display().to_string();
    // The same file, but not in the workspace that it was started in: nothing shows that a client started it.
    abandon(&mut zoo, false, &billing, &["python3", &server]);
    abandon(&mut zoo, true, &work, &["python3", &server]);
    end_all(&mut zoo);
}

#[test]
fn a_script_of_another_directory_is_not_ended() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    declare(&zoo, &["python3", "server.py"]);
    script(&zoo, "billing", "server.py");
    let billing = zoo.home().join("billing");
    abandon(&mut zoo, false, &billing, &["python3", "server.py"]);
    end_all(&mut zoo);
}

#[test]
fn a_server_of_a_project_is_ended_in_its_directory_only() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    for dir in ["project", "billing"] {
        script(&zoo, dir, "server.py");
    }
    let (project, billing) = (zoo.home().join("project"), zoo.home().join("billing"));
    let servers = json!({ "mcpServers": { "it": { "command": "python3", "args": ["server.py"] } } });
    fs::write(project.join(".mcp.json"), servers.to_string()).expect("the scene has room");
    abandon(&mut zoo, false, &billing, &["python3", "server.py"]);
    abandon(&mut zoo, true, &project, &["python3", "server.py"]);
    let stay = zoo.begin();
    let answer = zoo.reap(&["--yes", "--project", &project.display().to_string()]);
    zoo.doomed.wait_gone(testkit::wait::LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
    assert_eq!((answer.code, living(&zoo.safe)), (0, stay), "{answer:?}");
}

/// A named process is ended, and no other likely orphan.
#[test]
fn a_likely_orphan_is_ended_only_by_its_pid() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    declare(&zoo, &["python3", "server.py"]);
    script(&zoo, "a", "server.py");
    let dir = zoo.home().join("a");
    abandon(&mut zoo, false, &dir, &["python3", "server.py"]);
    abandon(&mut zoo, true, &dir, &["python3", "server.py"]);
    let stay = zoo.begin();
    let pid = living(&zoo.doomed).first().expect("it is up").0.to_string();
    assert_ne!(zoo.scene.answer(["reap", "--likely", "--yes"]).code, 0, "no process is named");
    let answer = zoo.reap(&["--yes", "--likely", &pid]);
    zoo.doomed.wait_gone(testkit::wait::LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
    assert_eq!((answer.code, living(&zoo.safe)), (0, stay), "{answer:?}");
    let again = zoo.reap(&["--yes", "--likely", &pid]);
    assert_eq!(again.code, 1, "it is gone: {again:?}");
}
