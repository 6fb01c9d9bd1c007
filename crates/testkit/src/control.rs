//! The control API of a running `leash serve`, over its socket.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::http::{Connection, Reply};
use crate::scene::Scene;
use crate::wait::{Deadline, LIMIT};

/// A caller of the control API. Each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct Control {
    socket: PathBuf,
}

impl Control {
    /// At the usual place of a scene.
    pub fn of(scene: &Scene) -> Self {
        Self::at(&scene.runtime_dir().join("control.sock"))
    }

    /// At this socket.
    pub fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Sends a request and does not wait for the answer.
    ///
    /// # Panics
    /// When nobody listens.
    pub fn begin(&self, method: &str, path: &str, body: &str) -> Connection<UnixStream> {
        let mut connection = Connection::open_local(&self.socket).expect("nobody listens");
        let json: &[_] = if body.is_empty() { &[] } else { &[("content-type", "application/json"), ("accept", "*/*")] };
        connection.send(method, path, json, body.as_bytes()).expect("the request was not taken");
        connection
    }

    /// A request and its answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Reply {
        self.begin(method, path, body).reply().unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Begins a session.
    ///
    /// # Panics
    /// When it does not.
    pub fn create(&self, request: &Value) -> Value {
        let reply = self.ask("POST", "/v1/sessions", &request.to_string());
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()
    }

    /// A session as it is now.
    pub fn show(&self, session: &Value) -> Value {
        self.ask("GET", &path(session, ""), "").json()
    }

    /// Ends a session; its receipt.
    ///
    /// # Panics
    /// When it does not.
    pub fn end(&self, session: &Value) -> Value {
        let reply = self.ask("DELETE", &path(session, ""), "");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Listens to events; what comes after the head of the answer.
    ///
    /// # Panics
    /// When that is refused.
    pub fn listen(&self, query: &str) -> Listening {
        let mut connection = self.begin("GET", &format!("/v1/events{query}"), "");
        let head = connection.head().expect("there is no answer");
        assert_eq!(head.status, 200);
        let mut listening = Listening { connection, heard: String::new() };
        // The first thing is a comment: whoever has seen it misses nothing.
        while !listening.heard.contains("\n\n") {
            assert!(listening.more(), "the stream has ended");
        }
        listening
    }
}

/// The path of a session, and more.
///
/// # Panics
/// When it is none.
pub fn path(session: &Value, more: &str) -> String {
    format!("/v1/sessions/{}{more}", session["id"].as_str().expect("a session has an id"))
}

/// The path of a server of a session, as `Gateway::post` takes names: all but the `/mcp` at its end.
///
/// # Panics
/// When there is no such server.
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
    /// The stream that the answer to a request is; its head was read.
    pub fn on(connection: Connection<UnixStream>) -> Self {
        Self { connection, heard: String::new() }
    }

    /// The next event: its name and its data. `None` at the end.
    ///
    /// # Panics
    /// When there is none for too long.
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
