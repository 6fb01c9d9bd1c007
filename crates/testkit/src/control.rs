//! The control API of a running `leash serve`, over its socket.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;

use crate::http::{Connection, Reply};
use crate::openapi::PUBLISHED;
use crate::scene::Scene;
use crate::wait::{Deadline, LIMIT};

/// A caller of the control API. Each request has a connection of its own, and each response must be in the OpenAPI
/// document.
#[derive(Clone, Debug)]
pub struct Control {
    socket: PathBuf,
    checks: bool,
}

impl Control {
    /// At the usual place in a scene.
    pub fn of(scene: &Scene) -> Self {
        Self::at(&scene.runtime_dir().join("control.sock"))
    }

    /// At this socket.
    pub fn at(socket: &Path) -> Self {
        // Read now: the first request of a test must not be slower than the next.
        LazyLock::force(&PUBLISHED);
        Self { socket: socket.to_owned(), checks: true }
    }

    /// The same without checks of responses, for measurements.
    pub fn unchecked(self) -> Self {
        Self { checks: false, ..self }
    }

    /// Sends a request and does not wait for the answer.
    ///
    /// # Panics
    /// If no server listens at the socket.
    pub fn begin(&self, method: &str, path: &str, body: &str) -> Connection<UnixStream> {
        let mut connection = Connection::open_local(&self.socket).expect("no server listens");
        let json: &[_] = if body.is_empty() { &[] } else { &[("content-type", "application/json"), ("accept", "*/*")] };
        connection.send(method, path, json, body.as_bytes()).expect("cannot send the request");
        connection
    }

    /// Sends a request and returns its answer.
    ///
    /// # Panics
    /// If there is no answer, or it is not in the OpenAPI document.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Reply {
        let reply = self.begin(method, path, body).reply();
        let reply = reply.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        if self.checks {
            PUBLISHED.check((method, path), reply.status, reply.header("content-type").unwrap_or(""), &reply.body);
        }
        reply
    }

    /// Creates a session.
    ///
    /// # Panics
    /// If that fails.
    pub fn create(&self, request: &Value) -> Value {
        let reply = self.ask("POST", "/v1/sessions", &request.to_string());
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()
    }

    /// The current state of a session.
    pub fn show(&self, session: &Value) -> Value {
        self.ask("GET", &path(session, ""), "").json()
    }

    /// Ends a session, and returns its receipt.
    ///
    /// # Panics
    /// If that fails.
    pub fn end(&self, session: &Value) -> Value {
        let reply = self.ask("DELETE", &path(session, ""), "");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Subscribes to events. Returns the stream after the head of the answer.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn listen(&self, query: &str) -> Listening {
        let mut connection = self.begin("GET", &format!("/v1/events{query}"), "");
        let head = connection.head().expect("there is no answer");
        assert_eq!(head.status, 200);
        let mut listening = Listening { connection, heard: String::new() };
        // The stream begins with a comment. A caller that has read it misses no later event.
        while !listening.heard.contains("\n\n") {
            assert!(listening.more(), "the stream has ended");
        }
        listening
    }
}

/// The path of a session, followed by `more`.
///
/// # Panics
/// If the value is not a session.
pub fn path(session: &Value, more: &str) -> String {
    format!("/v1/sessions/{}{more}", session["id"].as_str().expect("a session has an id"))
}

/// The path of a server of a session without the `/mcp` at its end, as `Gateway::post` takes names.
///
/// # Panics
/// If there is no such server.
pub fn server(session: &Value, name: &str) -> String {
    let servers = session["servers"].as_array().expect("a session has servers");
    let found = servers.iter().find(|server| server["name"] == name).expect("there is no such server");
    let url = found["url"].as_str().expect("a server has a url");
    let path = url.splitn(4, '/').nth(3).and_then(|path| path.strip_suffix("/mcp"));
    path.expect("a url has a path").to_owned()
}

/// A stream of events.
#[derive(Debug)]
pub struct Listening {
    connection: Connection<UnixStream>,
    heard: String,
}

impl Listening {
    /// A stream over a connection whose response head was read already.
    pub fn on(connection: Connection<UnixStream>) -> Self {
        Self { connection, heard: String::new() }
    }

    /// The next event: its name and its data. `None` at the end.
    ///
    /// # Panics
    /// If none arrives in time.
    pub fn event(&mut self) -> Option<(String, Value)> {
        let deadline = Deadline::after(LIMIT);
        loop {
            while let Some((block, rest)) = self.heard.split_once("\n\n") {
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let event = field("event: ").zip(field("data: "));
                self.heard = rest.to_owned();
                if let Some((name, data)) = event {
                    return Some((name, serde_json::from_str(&data).expect("data is JSON")));
                }
            }
            assert!(!deadline.is_over(), "no event came");
            if !self.more() {
                return None;
            }
        }
    }

    fn more(&mut self) -> bool {
        match self.connection.chunk().expect("the stream broke off") {
            Some(chunk) => {
                self.heard.push_str(&String::from_utf8(chunk).expect("events are text"));
                true
            }
            None => false,
        }
    }
}
