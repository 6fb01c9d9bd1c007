//! Stdio servers behind `leash serve`: the routing of messages to streams, the messages that are kept for resumption,
//! and the errors for clients of a server that misbehaves.

mod failures;
mod modern;
mod resume;
mod stderr;
mod streams;
mod supervisor;

use serde_json::{Value, json};
use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, Reply, initialize};
use testkit::scene::Scene;

/// The last version with sessions: its clients accept an event without a message.
const LATEST: &str = "2025-11-25";

/// A gateway in front of a scripted legacy server.
fn gateway(scene: &Scene, options: &[&str]) -> Gateway {
    Gateway::single(scene, options, &scene.tree("polite", ["--mcp"]))
}

/// A session as its client sees it.
struct Client<'g> {
    gateway: &'g Gateway,
    session: String,
}

impl<'g> Client<'g> {
    fn open(gateway: &'g Gateway, version: &str) -> Self {
        let reply = gateway.post("x", None, &initialize(version));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let session = reply.header("mcp-session-id").expect("a session").to_owned();
        Self { gateway, session }
    }

    fn post(&self, message: &Value) -> Reply {
        self.gateway.post("x", Some(&self.session), &message.to_string())
    }

    /// Sends a POST and returns its connection.
    fn begin(&self, message: &Value) -> Connection {
        let mut connection = self.gateway.connect();
        let headers = [POST[0], POST[1], ("mcp-session-id", &self.session)];
        connection.send("POST", "/x/mcp", &headers, message.to_string().as_bytes()).expect("it is written");
        connection
    }

    /// Sends a GET, with `Last-Event-ID` if one is given, and returns its connection with the head of the answer.
    fn get(&self, from: Option<&str>) -> (Connection, Reply) {
        let mut connection = self.gateway.connect();
        let mut headers = vec![("accept", "text/event-stream"), ("mcp-session-id", self.session.as_str())];
        headers.extend(from.map(|from| ("last-event-id", from)));
        connection.send("GET", "/x/mcp", &headers, b"").expect("it is written");
        let head = connection.head().expect("there is no answer");
        (connection, head)
    }

    fn delete(&self) -> u16 {
        self.gateway.ask("DELETE", "/x/mcp", &[("mcp-session-id", &self.session)], b"").status
    }
}

/// A call of a tool of the test server.
fn call(id: u64, tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// A call of the tool that writes a line before its result.
fn say(id: u64, line: &Value) -> Value {
    call(id, "say", json!({"text": line.to_string()}))
}

/// An event of a stream: its id, and its message if it has one.
#[derive(Debug, PartialEq)]
struct Event {
    id: Option<String>,
    message: Option<Value>,
}

/// The events in a text, without comments.
fn events(text: &str) -> Vec<Event> {
    let blocks =
        text.split("\n\n").filter(|block| block.lines().any(|line| !line.starts_with(':') && !line.is_empty()));
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let message = |data: String| serde_json::from_str(&data).expect("an event carries JSON");
    blocks.map(|block| Event { id: field(block, "id"), message: field(block, "data").map(message) }).collect()
}

/// Reads a stream until this many events have arrived.
fn read_events(connection: &mut Connection, count: usize) -> Vec<Event> {
    let mut text = String::new();
    loop {
        let found = events(&text);
        if found.len() >= count && text.ends_with("\n\n") {
            return found;
        }
        let chunk = connection.chunk().expect("the stream broke off").expect("the stream has ended");
        text.push_str(&String::from_utf8(chunk).expect("events are text"));
    }
}
