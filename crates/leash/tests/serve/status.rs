//! `leash status`: the gateway of this user, or another one by its address.

use serde_json::Value;
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{both, config, open};

fn status(scene: &Scene) -> Value {
    scene.answer(["status", "--json"]).json()
}

/// The lines with URLs.
fn urls(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("  ") && line.contains(": http://")).collect()
}

#[test]
fn servers_clients_trees_and_urls_are_shown() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, "");
    let before = status(&scene);
    assert_eq!(before["pid"], gateway.pid().as_raw_nonzero().get());
    assert_eq!(before["servers"][1]["sessions"], Value::Array(Vec::new()), "{before:#}");
    let connection = gateway.connect();
    open(&gateway, "stdio");
    open(&gateway, "http");
    let found = wait::until("the tree's memory", || {
        let found = status(&scene);
        (found["servers"][1]["memory_bytes"].as_u64()? > 0).then_some(found)
    });
    let [http, stdio] = [&found["servers"][0], &found["servers"][1]];
    assert_eq!((&http["name"], &http["kind"], &http["trees"]), (&"http".into(), &"http".into(), &0.into()));
    assert_eq!((&stdio["name"], &stdio["kind"], &stdio["trees"]), (&"stdio".into(), &"stdio".into(), &1.into()));
    assert_eq!(stdio["url"], gateway.url("stdio"), "{found:#}");
    for server in [http, stdio] {
        let session = &server["sessions"][0];
        assert_eq!(session["id"].as_str().map(str::len), Some(8), "the whole id is a credential: {found:#}");
        assert!(session["client"]["address"].is_string() || session["client"]["pid"].is_number(), "{found:#}");
    }
    // `leash serve` has printed the same lines.
    let shown = scene.answer(["status"]).stdout;
    assert_eq!(urls(&shown).len(), 2, "{shown}");
    assert_eq!(urls(&shown), urls(&gateway.said()));
    drop(connection);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn last_problems_are_shown() {
    let scene = or_skip!(Scene::set(Who::User));
    let text = r#"{"mcpServers": {"bad": {"command": "sh", "args": ["-c", "echo no key >&2; exit 3"]},
        "absent": {"command": "/no/such/server"}}}"#;
    let gateway = Gateway::start(&scene, ["--config", &config(&scene, text)]);
    gateway.post("bad", None, &initialize("2025-11-25"));
    let found = wait::until("the problem", || {
        let found = status(&scene);
        let is_there = |one: &Value| one["text"] == "`bad` exited with code 3; its stderr ends with: no key";
        found["problems"].as_array()?.iter().any(is_there).then_some(found)
    });
    assert_eq!((&found["servers"][0]["name"], &found["servers"][0]["available"]), (&"absent".into(), &false.into()));
    let shown = scene.answer(["status"]).stdout;
    assert!(shown.contains("  absent: not available; `leash serve --check` says why\n"), "{shown}");
    assert!(shown.contains(" ago: `bad` exited with code 3; its stderr ends with: no key\n"), "{shown}");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn no_gateway_is_said_with_one_thing_to_do() {
    let scene = or_skip!(Scene::set(Who::User));
    let answer = scene.answer(["status"]);
    assert_eq!((answer.code, &*answer.stdout), (1, ""), "{answer:?}");
    assert!(answer.stderr.starts_with("error: no `leash serve` listens on "), "{answer:?}");
    assert!(answer.stderr.contains("\nhint: start one: leash serve "), "{answer:?}");
}

#[test]
fn gateway_at_an_address_needs_the_token() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("CONTROL_TOKEN", "correct-horse");
    scene.set_env("OTHER_TOKEN", "wrong");
    let options = ["--no-control", "--control-listen", "127.0.0.1:0", "--control-token-env", "CONTROL_TOKEN"];
    let gateway = Gateway::single(&scene, &options, &["cat".into()]);
    let url = wait::until("the control API", || {
        gateway.said().lines().find_map(|line| Some(line.strip_prefix("control API on ")?.to_owned()))
    });
    let ask = |url: &str, variable: &str| scene.answer(["status", "--url", url, "--token-env", variable, "--json"]);
    assert_eq!(ask(&url, "CONTROL_TOKEN").json()["servers"][0]["name"], "x");
    assert_eq!(ask(&format!("{url}/"), "CONTROL_TOKEN").code, 0);
    let wrong = ask(&url, "OTHER_TOKEN");
    assert!(wrong.code == 125 && wrong.stderr.contains("--control-token-env"), "{wrong:?}");
    assert_eq!(ask(&url, "NO_SUCH_VARIABLE").code, 2);
    assert_eq!(ask("https://example.org", "CONTROL_TOKEN").code, 2);
    assert_eq!(ask("http://127.0.0.1:1", "CONTROL_TOKEN").code, 1);
    assert_eq!(scene.answer(["status"]).code, 1, "it has no control socket");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}
