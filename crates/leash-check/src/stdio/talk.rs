//! A few words of MCP over stdio: enough to shake hands and to have a call in flight.

use std::time::Duration;

use serde_json::{Value, json};

use crate::subject::{Heard, Subject};
use leash_model::clock::Moment;

/// The newest revision with a handshake, and the one without.
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";

/// How long a server may take to read a line. One that does not read is asked to leave all the same.
const READ: Duration = Duration::from_secs(2);

/// A server that closes its stdout is on its way out, most often: so long it is waited for to have left.
const LEAVING: Duration = Duration::from_millis(200);

/// What a pipe holds. As much may have been said by a deadline and not be read yet; who goes on after that says nothing to the point.
const BACKLOG: usize = 64 * 1024;

/// How the handshake went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// The server's name, the revision, and the time from its start.
    Done { server: String, version: String, took: Duration },
    /// It said something that is no answer.
    Refused(String),
    /// It said nothing in time.
    Silent,
    /// It closed its stdout or left.
    Left,
}

/// The call that is to be in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
}

/// A reply to a request.
enum Reply {
    Result(Value),
    Error(Value),
    Silent,
    Left,
}

/// The first line of a client.
pub(crate) fn initialize() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": LEGACY, "capabilities": {},
            "clientInfo": { "name": "leash-check", "version": env!("CARGO_PKG_VERSION") },
        },
    })
}

/// What a modern request says of itself.
fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "leash-check", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// The first line of a modern client.
pub(crate) fn discover(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "server/discover", "params": { "_meta": modern_meta() } })
}

/// Sends `initialize` and does not wait.
pub(super) fn greet(subject: &mut Subject<'_>) {
    subject.say(&initialize().to_string(), Moment::now() + READ);
}

/// The whole handshake. A server that refuses `initialize` may be one that has none: it is asked for its revision.
pub(super) fn shake_hands(subject: &mut Subject<'_>, began: Moment, deadline: Moment) -> Handshake {
    greet(subject);
    match reply(subject, 1, deadline) {
        Reply::Result(result) => {
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            subject.say(&initialized.to_string(), deadline);
            let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
            let (server, version) = (text(&result["serverInfo"]["name"]), text(&result["protocolVersion"]));
            Handshake::Done { server, version, took: Moment::now().since(began) }
        }
        Reply::Error(error) => ask_modern(subject, began, deadline).unwrap_or_else(|| {
            Handshake::Refused(format!("`initialize` was answered with an error: {}", error["message"]))
        }),
        Reply::Silent => Handshake::Silent,
        Reply::Left => Handshake::Left,
    }
}

fn ask_modern(subject: &mut Subject<'_>, began: Moment, deadline: Moment) -> Option<Handshake> {
    subject.say(&discover(2).to_string(), deadline);
    let Reply::Result(result) = reply(subject, 2, deadline) else { return None };
    let server = result["serverInfo"]["name"].as_str().unwrap_or("unknown").to_owned();
    Some(Handshake::Done { server, version: MODERN.to_owned(), took: Moment::now().since(began) })
}

/// Sends the call, waits until the server has read it and was at work for `patience`; whether it has answered by then.
pub(super) fn call(subject: &mut Subject<'_>, call: Option<&Call>, version: &str, patience: Duration) -> bool {
    let (method, mut params) = match call {
        Some(call) => ("tools/call", json!({ "name": call.tool, "arguments": call.arguments })),
        None => ("tools/list", json!({})),
    };
    if version == MODERN {
        params["_meta"] = modern_meta();
    }
    let request = json!({ "jsonrpc": "2.0", "id": 3, "method": method, "params": params });
    subject.say(&request.to_string(), Moment::now() + READ);
    subject.wait_read(Moment::now() + READ);
    match reply(subject, 3, Moment::now() + patience) {
        Reply::Result(_) | Reply::Error(_) => true,
        Reply::Silent => false,
        Reply::Left => {
            subject.wait_leader(Moment::now() + LEAVING);
            false
        }
    }
}

/// Reads until the answer to `id` is there. Requests of the server are answered meanwhile, as far as it takes for it to go on.
fn reply(subject: &mut Subject<'_>, id: u64, deadline: Moment) -> Reply {
    let mut backlog = BACKLOG;
    loop {
        let line = match subject.hear(deadline) {
            Heard::Line(line) => line,
            Heard::End => return Reply::Left,
            Heard::Nothing => return Reply::Silent,
        };
        // Lines that are no messages are another matter than leaks.
        let mut message = serde_json::from_slice::<Value>(&line).unwrap_or_default();
        if let (Some(method), Some(theirs)) = (message["method"].as_str(), message.get("id")) {
            subject.say(&answer(method, theirs).to_string(), deadline);
        } else if message["id"] == id {
            return match message.get_mut("result") {
                Some(result) => Reply::Result(result.take()),
                None => Reply::Error(message["error"].take()),
            };
        }
        if Moment::now() >= deadline {
            backlog = backlog.saturating_sub(line.len() + 1);
        }
        if backlog == 0 {
            return Reply::Silent;
        }
    }
}

fn answer(method: &str, id: &Value) -> Value {
    match method {
        "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
        "roots/list" => json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [] } }),
        _ => json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "Method not found" } }),
    }
}
