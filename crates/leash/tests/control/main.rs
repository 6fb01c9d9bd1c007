//! The control API with real processes and two witnesses that use no code of leash: the census and the outer cgroup.

mod creating;
mod ending;
mod failures;
mod owners;
mod using;

use std::time::Duration;

use serde_json::{Value, json};
use testkit::control::{Control, server};
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::scene::Scene;
use testkit::user::Who;

/// A daemon, and its client.
struct Stage {
    scene: Scene,
    gateway: Gateway,
    control: Control,
}

impl Stage {
    fn set() -> Result<Stage, String> {
        let scene = Scene::set(Who::me())?;
        let gateway = Gateway::single(&scene, &[], &["cat".into()]);
        let control = Control::of(&scene);
        Ok(Stage { scene, gateway, control })
    }

    /// A tree of the zoo as an entry of `mcpServers`.
    fn tree(&self, kind: &str, grace: &str) -> Value {
        let words = self.scene.tree(kind, ["--mcp"]);
        let words: Vec<&str> = words.iter().map(|word| word.to_str().expect("plain words")).collect();
        json!({"command": words[0], "args": words[1..], "leash": {"grace": grace}})
    }

    /// Opens a client's session at a server.
    fn open(&self, session: &Value, name: &str) -> String {
        let reply = self.gateway.post(&server(session, name), None, &initialize("2025-06-18"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.header("mcp-session-id").expect("a session").to_owned()
    }

    /// The pid that a client's server says it has.
    fn pid(&self, session: &Value, name: &str, client: &str) -> i64 {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pid"}}"#;
        let reply = self.gateway.post(&server(session, name), Some(client), call);
        let text = reply.json()["result"]["content"][0]["text"].as_str().map(str::to_owned);
        text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{}", reply.text()))
    }

    /// Checks that no process of the zoo is alive at this moment, and that soon only the daemon is.
    fn nothing_is_left(&mut self) {
        let pid = self.gateway.pid();
        assert!(!self.scene.census().is_populated(), "the call returned before everything was gone");
        self.scene.wait_gone_within(Duration::from_secs(5), &[pid]).expect("nothing is left");
    }
}

/// The trees of a receipt: fate and step of each.
fn trees(receipt: &Value) -> Vec<(&str, &str)> {
    let holdings = receipt["holdings"].as_array().expect("holdings");
    let trees = holdings.iter().filter(|holding| holding["kind"] == "tree");
    trees.map(|tree| (tree["fate"].as_str().unwrap_or_default(), tree["how"].as_str().unwrap_or_default())).collect()
}

/// An HTTP server as an entry of `mcpServers`.
fn web(fixture: &Fixture) -> Value {
    json!({"type": "http", "url": fixture.url()})
}
