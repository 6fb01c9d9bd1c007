//! A minimal MCP client over stdio: the handshake, and one call in flight.

use std::time::Duration;

use serde_json::{Value, json};

use crate::subject::{Subject, SubjectOutput};
use leash_model::clock::Moment;

/// The newest revision with a handshake, and the one without.
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";

/// The time for a server to read a line. A server that does not read is asked to exit all the same.
const READ: Duration = Duration::from_secs(2);

/// A server that closes its stdout is usually about to exit; this is how long the check waits for that.
const LEAVING: Duration = Duration::from_millis(200);

/// The size of a pipe. That much output may be unread at a deadline; what a server writes after that is ignored.
const BACKLOG: usize = 64 * 1024;

/// The result of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// The server's name, the revision, and the time since its start.
    Done { server: String, version: String, took: Duration },
    /// It sent something that is not a response.
    Refused(String),
    /// It sent nothing in time.
    Silent,
    /// It closed its stdout or exited.
    Left,
}

/// The call that shall be in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
}

/// A reply to a request.
enum ServerReply {
    Result(Value),
    Error(Value),
    Silent,
    Left,
}

/// The first message of a client.
pub(crate) fn initialize() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": LEGACY, "capabilities": {},
            "clientInfo": { "name": "leash-check", "version": env!("CARGO_PKG_VERSION") },
        },
    })
}

/// The `_meta` of a modern request.
fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "leash-check", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// The first message of a modern client.
pub(crate) fn discover(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "server/discover", "params": { "_meta": modern_meta() } })
}

/// Sends `initialize` and does not wait.
pub(super) fn send_initialize(subject: &mut Subject<'_>) {
    subject.write_line(&initialize().to_string(), Moment::now() + READ);
}

/// Performs the whole handshake. A server that refuses `initialize` may be one without a handshake: it is asked for
/// its revision.
pub(super) fn handshake(subject: &mut Subject<'_>, began: Moment, deadline: Moment) -> Handshake {
    send_initialize(subject);
    match reply(subject, 1, deadline) {
        ServerReply::Result(result) => {
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            subject.write_line(&initialized.to_string(), deadline);
            let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
            let (server, version) = (text(&result["serverInfo"]["name"]), text(&result["protocolVersion"]));
            Handshake::Done { server, version, took: Moment::now().since(began) }
        }
        ServerReply::Error(error) => discover_modern(subject, began, deadline).unwrap_or_else(|| {
            Handshake::Refused(format!("`initialize` was answered with an error: {}", error["message"]))
        }),
        ServerReply::Silent => Handshake::Silent,
        ServerReply::Left => Handshake::Left,
    }
}

fn discover_modern(subject: &mut Subject<'_>, began: Moment, deadline: Moment) -> Option<Handshake> {
    subject.write_line(&discover(2).to_string(), deadline);
    let ServerReply::Result(result) = reply(subject, 2, deadline) else { return None };
    let server = result["serverInfo"]["name"].as_str().unwrap_or("unknown").to_owned();
    Some(Handshake::Done { server, version: MODERN.to_owned(), took: Moment::now().since(began) })
}

/// Sends the call, waits until the server has read it and has worked on it for `time_limit`; returns true if it has
/// responded by then.
pub(super) fn call(subject: &mut Subject<'_>, call: Option<&ToolCall>, version: &str, time_limit: Duration) -> bool {
    let (method, mut params) = match call {
        Some(call) => ("tools/call", json!({ "name": call.tool, "arguments": call.arguments })),
        None => ("tools/list", json!({})),
    };
    if version == MODERN {
        params["_meta"] = modern_meta();
    }
    let request = json!({ "jsonrpc": "2.0", "id": 3, "method": method, "params": params });
    subject.write_line(&request.to_string(), Moment::now() + READ);
    subject.wait_read(Moment::now() + READ);
    match reply(subject, 3, Moment::now() + time_limit) {
        ServerReply::Result(_) | ServerReply::Error(_) => true,
        ServerReply::Silent => false,
        ServerReply::Left => {
            subject.wait_leader(Moment::now() + LEAVING);
            false
        }
    }
}

/// Reads until the response to `id` arrives. Requests of the server are answered meanwhile, so that it can continue.
fn reply(subject: &mut Subject<'_>, id: u64, deadline: Moment) -> ServerReply {
    let mut backlog = BACKLOG;
    loop {
        let line = match subject.read_line(deadline) {
            SubjectOutput::Line(line) => line,
            SubjectOutput::End => return ServerReply::Left,
            SubjectOutput::Nothing => return ServerReply::Silent,
        };
        // Lines that are not messages are ignored: they are not leaks.
        let mut message = serde_json::from_slice::<Value>(&line).unwrap_or_default();
        if let (Some(method), Some(theirs)) = (message["method"].as_str(), message.get("id")) {
            subject.write_line(&answer(method, theirs).to_string(), deadline);
        } else if message["id"] == id {
            return match message.get_mut("result") {
                Some(result) => ServerReply::Result(result.take()),
                None => ServerReply::Error(message["error"].take()),
            };
        }
        if Moment::now() >= deadline {
            backlog = backlog.saturating_sub(line.len() + 1);
        }
        if backlog == 0 {
            return ServerReply::Silent;
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
