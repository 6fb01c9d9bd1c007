//! Sessions that a `leash serve` holds and other processes have joined: `leash ps` shows all of it, `leash end` ends
//! all of it.

use std::ffi::OsString;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, initialize};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::upstream::Upstream;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use crate::stage::{Joiner, NONE, alive, groups, wait_members, web};

/// A daemon with a session that has a stdio server and an HTTP server, both in use.
struct Held {
    scene: Scene,
    web: Upstream,
    gateway: Gateway,
    session: Value,
    /// The client of the HTTP server, which stays.
    _client: Connection,
}

impl Held {
    fn set(who: Who) -> Result<Held, String> {
        let mut scene = Scene::set(who)?;
        let web = web();
        let gateway = Gateway::single(&scene, &["--grace", "300ms"], &[OsString::from("cat")]);
        let words = scene.tree("setsid", ["--mcp"]);
        let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
        let request = json!({
            "name": "shop", "labels": { "team": "red" },
            "mcpServers": {
                "files": { "command": words[0], "args": words[1..], "leash": { "grace": "300ms" } },
                "web": { "type": "http", "url": web.url() },
            },
        });
        let session = create(&scene, &request);
        scene.census().wait_ready(LIMIT).map_err(|heard| format!("the stdio server does not run: {heard}"))?;
        let client = open(&gateway, &session, "web");
        Ok(Held { scene, web, gateway, session, _client: client })
    }

    fn id(&self) -> &str {
        self.session["id"].as_str().expect("an id")
    }
}

fn create(scene: &Scene, request: &Value) -> Value {
    let socket = scene.runtime_dir().join("control.sock");
    let mut connection = Connection::open_local(&socket).expect("the daemon listens");
    let body = request.to_string();
    let reply = connection.ask("POST", "/v1/sessions", &[("content-type", "application/json")], body.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()
}

/// Connects a client to one of the session's servers.
fn open(gateway: &Gateway, session: &Value, server: &str) -> Connection {
    let servers = session["servers"].as_array().expect("a list");
    let url = servers.iter().find(|known| known["name"] == server).and_then(|known| known["url"].as_str());
    let path = url.and_then(|url| url.split_once("/s/")).map(|(_, path)| format!("/s/{path}")).expect("an address");
    let mut client = gateway.connect();
    let reply = client.ask("POST", &path, &POST, initialize("2025-11-25").as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    client
}

/// The daemon's servers, and the runs that joined by name, end in one call with one receipt.
#[test]
fn servers_of_the_daemon_and_joined_runs_end_together() {
    for who in [Who::Root, Who::User] {
        let mut held = or_skip!(Held::set(who));
        let id = held.id().to_owned();
        let mut joined = Joiner::run(&held.scene, &["--session", &id, "--grace", "100ms"], "stubborn");
        held.scene.census().wait_all_ready(2, LIMIT).expect("the tree did not come up");
        // The stdio server, the upstream session, and the run that joined.
        let group = wait_members(&held.scene, &id, 3);
        assert_eq!((&group["name"], &group["servers"]), (&"shop".into(), &json!(["files", "web"])), "{group:#}");
        let secret =
            held.session["servers"][0]["url"].as_str().and_then(|url| url.split('/').nth(4)).expect("a secret");
        for words in [&["ps"][..], &["ps", "--json"], &["ps", "-v", "--tree"]] {
            let listed = held.scene.answer(words);
            assert!(listed.stdout.contains("shop") && !listed.stdout.contains(secret), "{listed:?}");
        }

        let answer = held.scene.answer(["end", "--json", &id]);
        assert_eq!(answer.code, 0, "{answer:?}\n{}", held.gateway.said());
        let ended = answer.json();
        let [receipt] = &ended["receipts"].as_array().expect("a list")[..] else { panic!("{ended:#}") };
        let of_kind = |kind: &str| {
            let holdings = receipt["holdings"].as_array().expect("a list");
            holdings.iter().filter(|holding| holding["kind"] == kind && holding["fate"] == "gone").count()
        };
        assert_eq!(
            (&receipt["session"], of_kind("tree"), of_kind("upstream")),
            (&id.as_str().into(), 2, 1),
            "{receipt:#}"
        );
        assert_eq!(held.web.of("DELETE").len(), 1, "it was DELETEd before the call returned");
        assert!(!held.scene.census().is_populated(), "something was alive when `leash end` had returned");
        joined.wait();
        assert_eq!(alive(&held.scene), Vec::<String>::new());
        assert_eq!(held.scene.answer(["end", &id]).code, 1, "it is over");
        held.gateway.stop();
        held.scene.wait_gone(&[]).expect("nothing is left");
    }
}

/// The daemon's sessions are selected like any other.
#[test]
fn sessions_of_the_daemon_are_found_by_label_and_by_all() {
    let held = or_skip!(Held::set(Who::User));
    let other =
        json!({ "mcpServers": { "web": { "type": "http", "url": held.web.url() } }, "labels": { "team": "blue" } });
    let other = create(&held.scene, &other);
    let (id, other) = (held.id().to_owned(), other["id"].as_str().expect("an id").to_owned());
    assert_eq!(groups(&held.scene).len(), 2, "also one that has nothing open");
    let answer = held.scene.answer(["end", "--match", "team=gr*"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (0, ""), "{answer:?}");
    assert_eq!(held.scene.answer(["end", "--match", "team=r*"]).code, 0);
    assert_eq!(alive(&held.scene), [other.as_str()]);
    let answer = held.scene.answer(["end", "--all", "--force"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(alive(&held.scene), Vec::<String>::new());
    let history = held.scene.answer(["history", &id]);
    assert!(history.stdout.contains(&id[..8]) && !history.stdout.contains(&id), "it is short: {history:?}");
    let receipts = |word: &str| held.scene.answer(["history", word, "--json"]).json()["receipts"].clone();
    assert_eq!(receipts(&id[..8]), receipts(&id));
    assert!(receipts(&id)[0]["session"].as_str().is_some_and(|session| session.starts_with(&id)), "JSON has all of it");
    held.gateway.stop();
    held.scene.wait_gone(&[]).expect("nothing is left");
}

/// The daemon and its keeper were killed. Its trees end by themselves; `leash end` ends its upstream sessions.
#[test]
fn sessions_of_a_dead_daemon_are_ended_by_name() {
    let mut held = or_skip!(Held::set(Who::User));
    let id = held.id().to_owned();
    let keeper = testkit::leash::gateway_keeper(held.gateway.pid());
    // The keeper is stopped first, so that it cannot act before both are dead.
    keeper.signal(Signal::STOP).expect("it lives");
    held.gateway.signal(Signal::KILL);
    held.gateway.wait();
    keeper.signal(Signal::KILL).expect("it was not waited for");
    held.scene.census().wait_gone(LIMIT).expect("the keepers end the trees");
    wait::until("the upstream session alone", || {
        let groups = groups(&held.scene);
        let [group] = &groups[..] else { return None };
        let abandoned = group["state"].as_str().is_some_and(|state| state.starts_with("abandoned"));
        (group["session"] == id.as_str() && abandoned).then_some(())
    });
    assert_eq!(held.web.of("DELETE").len(), 0);
    let answer = held.scene.answer(["end", &id]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(held.web.of("DELETE").len(), 1, "{answer:?}");
    assert_eq!(held.scene.answer([&NONE[..], &["end", "--all"]].concat()).code, 0);
    assert_eq!(alive(&held.scene), Vec::<String>::new());
    held.scene.wait_gone(&[]).expect("nothing is left");
}

/// The sessions of a gateway's own clients are listed, and end with their client.
#[test]
fn a_clients_session_is_not_ended_from_outside() {
    let scene = or_skip!(Scene::set(Who::User));
    let web = web();
    let gateway = Gateway::start(&scene, ["--name", "x", "--url", &web.url()]);
    let mut client = gateway.connect();
    let reply = client.ask("POST", "/x/mcp", &POST, initialize("2025-11-25").as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    let session = alive(&scene).pop().expect("it is listed");
    let answer = scene.answer(["end", &session]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("`leash serve`") && answer.stderr.contains("ends it with its client"), "{answer:?}");
    let answer = scene.answer(["end", "--all"]);
    assert_eq!(answer.code, 0, "it is none of what can be ended: {answer:?}");
    assert_eq!((alive(&scene), web.of("DELETE").len()), (vec![session], 0));
    gateway.stop();
    assert_eq!(web.of("DELETE").len(), 1);
    scene.wait_gone(&[]).expect("nothing is left");
}
