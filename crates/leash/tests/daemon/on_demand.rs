//! `leash serve --on-demand`: it runs while a process needs it, and not longer.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;
use testkit::{or_skip, process};

use super::{Process, answering, ask, create, socket, stdio_server, wait_answering};

/// A process that needs a daemon, and does nothing else.
fn starter(scene: &Scene) -> Process {
    let mut command = scene.command("sleep");
    Process::new(command.arg("100000").stdout(Stdio::null()).spawn().expect("cannot start sleep"))
}

/// `leash serve --on-demand`.
fn daemon(scene: &Scene, options: &[&str]) -> Process {
    let mut command = scene.leash(["serve", "--on-demand"]);
    command.args(options).stdout(Stdio::null()).stderr(scene_stderr(scene));
    Process::new(command.spawn().expect("cannot start leash"))
}

fn scene_stderr(scene: &Scene) -> std::fs::File {
    let path = scene.dir().join("stderr");
    std::fs::File::options().create(true).append(true).open(path).expect("stderr is a file")
}

fn for_starter(scene: &Scene, starter: &Process) -> Process {
    daemon(scene, &["--starter", &starter.number().to_string()])
}

/// Checks that nothing is left of a daemon that ended by itself.
fn ended_by_itself(scene: &Scene, mut daemon: Process) {
    assert_eq!(daemon.wait().code(), Some(0), "{}", scene.stderr());
    assert!(!socket(scene).exists());
    assert_eq!(scene.stderr(), "");
    scene.wait_gone(&[]).expect("nothing is left");
}

fn check_ten_at_once(scene: &Scene) {
    let starter = starter(scene);
    let mut daemons: Vec<Process> = (0..10).map(|_| for_starter(scene, &starter)).collect();
    let one = wait_answering(&socket(scene));
    let mut others: Vec<_> = daemons.extract_if(.., |daemon| daemon.number() != one).collect();
    assert_eq!((daemons.len(), others.len()), (1, 9));
    for other in &mut others {
        assert_eq!(other.wait().code(), Some(0), "{}", scene.stderr());
    }
    assert_eq!(answering(&socket(scene)), Some(one));
    drop(starter);
    ended_by_itself(scene, daemons.remove(0));
}

#[test]
fn one_of_ten_concurrent_daemons_stays() {
    check_ten_at_once(&or_skip!(Scene::set(Who::User)));
}

#[test]
fn one_of_ten_daemons_takes_over_a_dead_socket() {
    let scene = or_skip!(Scene::set(Who::User));
    let starter = starter(&scene);
    let mut dead = for_starter(&scene, &starter);
    wait_answering(&socket(&scene));
    dead.handle.signal(Signal::KILL).expect("it is alive");
    dead.wait();
    assert!(socket(&scene).exists());
    drop(starter);
    check_ten_at_once(&scene);
}

#[test]
fn parent_is_the_default_starter() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut shell = scene.command("sh");
    // A shell with another command to run stays, and is the parent.
    shell.args(["-c", "\"$@\" & wait", "sh"]).arg(scene.leash_path()).args(["serve", "--on-demand"]);
    let shell = Process::new(shell.stdout(Stdio::null()).stderr(scene_stderr(&scene)).spawn().expect("a shell"));
    let daemon = wait_answering(&socket(&scene));
    let child = process::children(shell.pid()).into_iter().next().expect("the daemon is its child");
    assert_eq!(child.pid.as_raw_nonzero().get(), daemon);
    let daemon = process::Handle::open(child.pid, |now| now.start == child.start).expect("it has not ended");
    drop(shell);
    assert!(daemon.wait_gone(LIMIT), "it does not end");
    assert!(!socket(&scene).exists());
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn dead_starter_does_not_keep_the_daemon() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut dead = starter(&scene);
    let number = dead.number().to_string();
    dead.child.kill().expect("it is our child");
    dead.wait();
    ended_by_itself(&scene, daemon(&scene, &["--starter", &number]));
}

#[test]
fn session_keeps_the_daemon_without_a_starter() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let starter = starter(&scene);
    let daemon = for_starter(&scene, &starter);
    wait_answering(&socket(&scene));
    let session = create(&socket(&scene), &json!({ "mcpServers": { "a": stdio_server(&scene) } }));
    scene.census().wait_ready(LIMIT).expect("the server runs");
    drop(starter);
    // The lease is longer than the daemon waits for a starter: the session must end by its lease, and not before.
    let id = session["id"].as_str().expect("an id");
    let lease = ask(&socket(&scene), "PUT", &format!("/v1/sessions/{id}/lease"), r#"{"ttl": "8s"}"#);
    assert_eq!(lease.status, 200, "{}", lease.text());
    scene.census().wait_gone(LIMIT).expect("the lease runs out");
    assert!(daemon.handle.is_alive(), "it left with its session, and not after it: {}", scene.stderr());
    ended_by_itself(&scene, daemon);
    let receipts = scene.answer(["history", "--json"]).json();
    let reason = &receipts["receipts"][0]["reason"]["kind"];
    assert_ne!(reason, "shutdown", "the daemon did not wait for its session: {receipts:#}");
}

#[test]
fn daemon_has_its_own_process_session() {
    let scene = or_skip!(Scene::set(Who::User));
    let starter = starter(&scene);
    let daemon = for_starter(&scene, &starter);
    let pid = wait_answering(&socket(&scene));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is alive");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    assert_eq!((fields[2], fields[3]), (pid.to_string().as_str(), pid.to_string().as_str()), "group and session");
    drop((starter, daemon));
}

#[test]
fn configuration_in_the_directory_is_not_read() {
    let scene = or_skip!(Scene::set(Who::User));
    std::fs::write(scene.dir().join(".mcp.json"), "{ this is no configuration").expect("a file");
    let starter = starter(&scene);
    let daemon = for_starter(&scene, &starter);
    assert_eq!(wait_answering(&socket(&scene)), daemon.number());
}

#[test]
fn daemon_stops_on_sigterm() {
    let scene = or_skip!(Scene::set(Who::User));
    let starter = starter(&scene);
    let mut daemon = for_starter(&scene, &starter);
    wait_answering(&socket(&scene));
    daemon.handle.signal(Signal::TERM).expect("it is alive");
    assert_eq!(daemon.wait().code(), Some(0), "{}", scene.stderr());
    assert!(!socket(&scene).exists());
    // The next one starts without waiting.
    let next = for_starter(&scene, &starter);
    assert_eq!(wait_answering(&socket(&scene)), next.number());
}
