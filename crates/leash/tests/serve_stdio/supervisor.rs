//! One supervisor holds all trees of a gateway, each of which has a keeper. Any of them may be killed.

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::gateway::Gateway;
use testkit::or_skip;
use testkit::process::{self, Handle, Process};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait;

use crate::{Client, LATEST, gateway};

/// A gateway whose trees have no leaf, so that only descent says whose process it is.
fn in_reaper(scene: &Scene) -> Gateway {
    let words = scene.tree("polite", ["--mcp"]);
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let server = json!({"command": words[0], "args": words[1..], "leash": {"contain": "reaper"}});
    let path = scene.dir().join("leash.json");
    std::fs::write(&path, json!({"mcpServers": {"x": server}}).to_string()).expect("cannot write a file");
    Gateway::start(scene, ["--config".as_ref(), path.as_os_str()])
}

/// The only child of the gateway.
fn supervisor(gateway: &Gateway) -> Process {
    let mut children = process::children(gateway.pid());
    assert_eq!(children.len(), 1, "{children:?}");
    children.remove(0)
}

fn hold(process: &Process) -> Handle {
    Handle::open(process.pid, |now| now.start == process.start).expect("it lives")
}

fn kill(process: &Process) {
    let held = hold(process);
    held.signal(Signal::KILL).expect("it can be killed");
    assert!(held.wait_gone(wait::LIMIT), "a killed process lives");
}

fn ping(client: &Client<'_>) -> u16 {
    client.post(&json!({"jsonrpc": "2.0", "id": 7, "method": "ping"})).status
}

/// The reason of each receipt, and whether all was gone.
fn ends(scene: &Scene) -> Vec<(String, bool)> {
    let history = scene.answer(["history", "--json"]).json();
    let fate = |receipt: &Value| receipt["holdings"][0]["fate"] == "gone";
    let receipts = history["receipts"].as_array().cloned().unwrap_or_default();
    receipts.iter().map(|receipt| (receipt["reason"]["kind"].to_string(), fate(receipt))).collect()
}

#[test]
fn all_trees_have_one_supervisor_which_leaves_when_it_has_none() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let clients = [Client::open(&gateway, LATEST), Client::open(&gateway, LATEST), Client::open(&gateway, LATEST)];
    let supervisor = supervisor(&gateway);
    let keepers = process::children(supervisor.pid);
    assert_eq!(keepers.len(), 3, "{keepers:?}");
    assert!(keepers.iter().all(|keeper| process::children(keeper.pid).len() == 1), "a keeper has one server");
    for client in &clients {
        assert_eq!(client.delete(), 200);
    }
    scene.wait_gone(&[gateway.pid()]).expect("nothing is left, not even the dead supervisor");
    assert_eq!(process::children(gateway.pid()).len(), 0);
    let again = Client::open(&gateway, LATEST);
    assert_eq!(ping(&again), 200);
    assert_eq!(again.delete(), 200);
    scene.wait_gone(&[gateway.pid()]).expect("nothing is left");
}

#[test]
fn only_the_tree_of_a_killed_keeper_ends() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = in_reaper(&scene);
    let clients = [Client::open(&gateway, LATEST), Client::open(&gateway, LATEST)];
    let supervisor = supervisor(&gateway);
    let keepers = process::children(supervisor.pid);
    let (killed, other) = (&keepers[0], &keepers[1]);
    let (victim, bystander) = (process::children(killed.pid).remove(0), process::children(other.pid).remove(0));
    let victim = hold(&victim);
    kill(killed);
    assert!(victim.wait_gone(wait::LIMIT), "its server lives");
    gateway.wait_metric("leash_sessions{server=\"x\",state=\"live\"}", 1.0);
    assert!(hold(&bystander).is_alive() && hold(other).is_alive());
    let answers: Vec<u16> = clients.iter().map(ping).collect();
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    assert_eq!(ends(&scene), [("\"keeper_killed\"".to_owned(), true)]);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
    assert_eq!(ends(&scene).len(), 2);
}

#[test]
fn every_tree_of_a_killed_supervisor_ends_and_the_next_start_has_another() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = in_reaper(&scene);
    let _clients = [Client::open(&gateway, LATEST), Client::open(&gateway, LATEST)];
    let supervisor = supervisor(&gateway);
    kill(&supervisor);
    scene.wait_gone(&[gateway.pid()]).expect("the keepers end the trees");
    let killed = ("\"supervisor_killed\"".to_owned(), true);
    assert_eq!(ends(&scene), [killed.clone(), killed]);
    let again = Client::open(&gateway, LATEST);
    assert_eq!(ping(&again), 200);
    assert_eq!(again.delete(), 200);
    scene.wait_gone(&[gateway.pid()]).expect("nothing is left");
}

#[test]
fn leash_end_ends_one_of_the_trees() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let clients = [Client::open(&gateway, LATEST), Client::open(&gateway, LATEST)];
    let listed = scene.answer(["ps", "--leashed", "--json"]).json();
    let first = listed["sessions"][0]["session"].as_str().unwrap_or_else(|| panic!("a session: {listed:#}"));
    let answer = scene.answer(["end", first]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let answers: Vec<u16> = clients.iter().map(ping).collect();
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}
