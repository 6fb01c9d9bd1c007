//! The examples of the guide, as a reader would run them: official SDK clients, a real server through npx, one over
//! HTTP.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};
use testkit::or_skip;
use testkit::process::Process;

use super::stage::{Stage, Worker, source};

#[test]
fn typescript() {
    let stage = or_skip!(Stage::set());
    // The directory that `npm install` would make from examples/package.json.
    let dir = stage.scene.dir().join("examples");
    let modules = dir.join("node_modules");
    fs::create_dir_all(&modules).expect("cannot make a directory");
    let packages = stage.deps.npm().join("node_modules/@modelcontextprotocol");
    symlink(packages, modules.join("@modelcontextprotocol")).expect("cannot make a link");
    symlink(source("clients/typescript"), modules.join("mcp-leash")).expect("cannot make a link");
    fs::copy(source("examples/worker.mjs"), dir.join("worker.mjs")).expect("cannot copy the example");
    let mut command = stage.scene.command("node");
    command.arg(dir.join("worker.mjs"));
    check(stage, command);
}

#[test]
fn python() {
    let stage = or_skip!(Stage::set());
    let mut command = stage.scene.command(stage.deps.python());
    command.arg(source("examples/worker.py")).env("PYTHONPATH", source("clients/python/src"));
    check(stage, command);
}

/// Checks that both servers answer each job, that no job leaves anything, and that a failed job does not affect the
/// next.
fn check(stage: Stage, mut command: Command) {
    // npx finds its package here: by default servers start in the directory of the worker.
    command.current_dir(stage.deps.npm()).env("WEB_URL", stage.fixture.url());
    let mut worker = Worker::start(command, &stage);
    let jobs = fs::read_to_string(source("examples/jobs.jsonl")).expect("the example has jobs");
    let jobs: Vec<Value> = jobs.lines().map(|line| serde_json::from_str(line).expect("a job is JSON")).collect();
    let mut done = 0;
    for job in &jobs {
        worker.tell(&job.to_string());
        let outcome = worker.heard(&stage);
        if job["servers"].is_object() {
            assert_eq!(outcome["error"], "server-failed", "{outcome}\n{}", stage.scene.stderr());
            continue;
        }
        done += 1;
        let text = job["say"].as_str().expect("a job has something to say");
        assert_eq!(outcome["answers"], json!({"everything": format!("Echo: {text}"), "web": text}), "{outcome}");
        assert_eq!(outcome["gone"], true, "{outcome}");
        // No wait is needed: the call that ended the session has returned.
        let report = stage.fixture.report();
        assert_eq!((report.open().len(), report.opened()), (0, done), "{outcome}");
        let processes = stage.scene.outer().map(|outer| outer.processes()).unwrap_or_default();
        // The daemon, its keeper and its supervisor stay for the next job, the last for about a second.
        let is_daemon = |one: &&Process| {
            one.name.starts_with("leash") || one.keeps_sessions() || one.command_line() == "mcp-supervisor"
        };
        let others = processes.iter().filter(|one| one.pid != worker.pid() && !is_daemon(one));
        let left: Vec<String> = others.map(ToString::to_string).collect();
        assert_eq!(left, [""; 0], "{outcome}");
    }
    assert_eq!((done, jobs.len()), (3, 4));
    worker.end_input();
    assert!(worker.wait().success(), "{}", stage.scene.stderr());
    stage.check_end();
}
