//! `leash watch --pressure`.

use std::ffi::OsString;
use std::fs;
use std::process::{Child, Stdio};

use leash_model::pressure::MemoryState;
use serde_json::Value;
use testkit::census::Census;
use testkit::host::{Host, Manner};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::machine::Machine;

/// A server on a leash, with a host and a census of its own.
struct Server {
    census: Census,
    host: Host,
}

impl Server {
    /// A server that waits for requests.
    fn idle(scene: &Scene, name: &str, options: &[&str], memory: &str) -> Server {
        let census = Census::create(scene.dir().join(name));
        let words = ["tree", "ignores-eof", "--memory", memory, "--census"].map(OsString::from);
        let words = [scene.zoo_path().into()].into_iter().chain(words).chain([census.path().into()]).collect();
        let mut server = Server::start(scene, name, options, census, words);
        server.census.wait_ready(LIMIT).expect("it starts");
        server
    }

    /// A shell that holds the census and runs this script; it never reads its stdin.
    fn shell(scene: &Scene, name: &str, options: &[&str], script: &str) -> Server {
        let census = Census::create(scene.dir().join(name));
        let script = format!("exec 9>{}; echo >&9; {script}", census.path().display());
        let mut server = Server::start(scene, name, options, census, ["sh", "-c", &script].map(OsString::from).into());
        server.census.wait_first(LIMIT).expect("it starts");
        server
    }

    fn start(scene: &Scene, name: &str, options: &[&str], census: Census, words: Vec<OsString>) -> Server {
        let options = ["--grace", "200ms", "--name", name].into_iter().chain(options.iter().copied());
        let host = scene.host(&Manner::default(), None, &scene.run_words(options, &words));
        Server { census, host }
    }

    fn check_lives(&self, name: &str) {
        assert!(self.census.is_populated(), "`{name}` must live");
    }

    /// Ends the host, and with it the server.
    fn end(self) {
        drop(self.host);
        self.census.wait_gone(LIMIT).expect("it ends with its host");
    }
}

/// A running `leash watch --pressure` with its stderr in a file. Dropping it kills it.
struct Watch {
    child: Child,
    log: std::path::PathBuf,
}

impl Watch {
    fn start(scene: &Scene, options: &[&str]) -> Watch {
        let log = scene.dir().join("watch.log");
        let mut command = scene.leash(["watch", "--pressure", "--grace", "200ms"].iter().chain(options));
        command.stdin(Stdio::null()).stderr(fs::File::create(&log).expect("ours"));
        Watch { child: command.spawn().expect("watch starts"), log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The names and reasons of all receipts, the oldest first.
fn receipts(scene: &Scene) -> Vec<(String, String)> {
    let history = scene.answer(["history", "--json"]).json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all = history["receipts"].as_array().cloned().unwrap_or_default();
    all.sort_by_key(|receipt| receipt["ended_ms"].as_u64());
    all.iter().map(|receipt| (text(&receipt["name"]), text(&receipt["reason"]["kind"]))).collect()
}

#[test]
fn idle_servers_that_may_be_stopped_end_and_the_largest_is_first() {
    let Some(machine) =
        or_skip!(Machine::enter("watching::idle_servers_that_may_be_stopped_end_and_the_largest_is_first"))
    else {
        return;
    };
    let scene = or_skip!(Scene::set(Who::Root));
    let may_stop = ["--pressure-stop", "2s"];
    let small = Server::idle(&scene, "small", &may_stop, "1");
    let large = Server::idle(&scene, "large", &may_stop, "64");
    let kept = Server::idle(&scene, "kept", &[], "64");
    let patient = Server::idle(&scene, "patient", &["--pressure-stop", "1h"], "64");
    let busy = Server::shell(&scene, "busy", &may_stop, "while :; do :; done");
    let watch = Watch::start(&scene, &["--interval", "1s"]);
    machine.set_memory(MemoryState::Short);
    small.census.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{}", watch.said()));
    large.census.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{}", watch.said()));
    let ended = wait::until("two receipts", || Some(receipts(&scene)).filter(|receipts| receipts.len() >= 2));
    let expected = [("large", "memory_pressure"), ("small", "memory_pressure")];
    assert_eq!(ended, expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())), "{}", watch.said());
    for (name, server) in [("kept", &kept), ("patient", &patient), ("busy", &busy)] {
        server.check_lives(name);
    }
    drop(watch);
    [small, large, kept, patient, busy].into_iter().for_each(Server::end);
}

#[test]
fn server_with_an_unread_request_is_spared() {
    let Some(machine) = or_skip!(Machine::enter("watching::server_with_an_unread_request_is_spared")) else { return };
    let scene = or_skip!(Scene::set(Who::Root));
    let zoo = scene.zoo_path();
    let mut server = Server::shell(&scene, "deaf", &["--pressure-stop", "1s"], &format!("exec {} idle", zoo.display()));
    server.host.send("a request");
    let watch = Watch::start(&scene, &["--interval", "1s"]);
    machine.set_memory(MemoryState::Short);
    wait::until("the keeper refuses", || watch.said().contains("it is in use").then_some(()));
    server.check_lives("deaf");
    assert_eq!(receipts(&scene), []);
    drop(watch);
    server.end();
}

/// `watch` has a minimum age of a day here, so it ends the orphan only because memory is low.
#[test]
fn young_orphan_ends_before_an_idle_server() {
    let Some(machine) = or_skip!(Machine::enter("watching::young_orphan_ends_before_an_idle_server")) else { return };
    let scene = or_skip!(Scene::set(Who::Root));
    let idle = Server::idle(&scene, "idle", &["--pressure-stop", "1s"], "64");
    let mut orphan = Census::create(scene.dir().join("orphan"));
    let words: Vec<OsString> = [scene.zoo_path().into(), "tree".into(), "ignores-eof".into(), "--census".into()]
        .into_iter()
        .chain([orphan.path().into()])
        .collect();
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let server =
        serde_json::json!({ "command": text(&words[0]), "args": words[1..].iter().map(text).collect::<Vec<_>>() });
    let config = serde_json::json!({ "mcpServers": { "forgotten": server } });
    fs::write(scene.dir().join(".claude.json"), config.to_string()).expect("ours");
    let host = scene.host(&Manner::default(), None, &words);
    orphan.wait_ready(LIMIT).expect("it starts");
    let watch = Watch::start(&scene, &["--interval", "1s", "--min-age", "24h"]);
    drop(host);
    assert!(orphan.is_populated(), "it survives its host");
    // No process waits for memory yet.
    machine.set_memory(MemoryState::Low);
    orphan.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{}", watch.said()));
    idle.check_lives("idle");
    machine.set_memory(MemoryState::Short);
    idle.census.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{}", watch.said()));
    let ended = wait::until("two receipts", || Some(receipts(&scene)).filter(|receipts| receipts.len() >= 2));
    let expected = [("forgotten", "orphan"), ("idle", "memory_pressure")];
    assert_eq!(ended, expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())), "{}", watch.said());
    drop(watch);
    idle.end();
}
