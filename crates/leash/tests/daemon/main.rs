//! `leash serve` as the daemon behind its control socket: its owner, its start and end, and the service for hosts.

mod address;
mod attach;
mod life;
mod on_demand;
mod socket;
mod strangers;

use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};

use rustix::process::Pid;
use serde_json::{Value, json};
use testkit::http::{Connection, Reply};
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

/// The control socket of a scene.
fn socket(scene: &Scene) -> PathBuf {
    scene.runtime_dir().join("control.sock")
}

/// A request over a control socket; an error if no daemon answers.
fn try_ask(socket: &Path, method: &str, path: &str, body: &str) -> std::io::Result<Reply> {
    let mut connection = Connection::open_local(socket)?;
    let headers: &[_] = if body.is_empty() { &[] } else { &[("content-type", "application/json")] };
    connection.send(method, path, headers, body.as_bytes())?;
    connection.reply()
}

/// The same, but a daemon must answer.
fn ask(socket: &Path, method: &str, path: &str, body: &str) -> Reply {
    try_ask(socket, method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// The pid of the process that answers on a control socket, if there is one.
fn answering(socket: &Path) -> Option<i32> {
    let reply = try_ask(socket, "GET", "/v1/version", "").ok()?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Some(reply.json()["pid"].as_i64().expect("it has a number") as i32)
}

/// Makes a session.
fn create(socket: &Path, request: &Value) -> Value {
    let reply = ask(socket, "POST", "/v1/sessions", &request.to_string());
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()
}

/// A stdio server of the zoo as an entry of `mcpServers`, with a helper that called `setsid`.
fn stdio_server(scene: &Scene) -> Value {
    let words: Vec<String> =
        scene.tree("setsid", ["--mcp"]).iter().map(|word| word.to_str().expect("plain words").to_owned()).collect();
    json!({ "command": words[0], "args": words[1..], "leash": { "grace": "300ms" } })
}

/// A child of the test. Dropping it kills it.
struct Process {
    child: Child,
    handle: Handle,
}

impl Process {
    fn new(child: Child) -> Process {
        let handle = Handle::open(Pid::from_child(&child), |_| true).expect("it was not waited for");
        Process { child, handle }
    }

    fn pid(&self) -> Pid {
        self.handle.pid()
    }

    fn number(&self) -> i32 {
        self.pid().as_raw_nonzero().get()
    }

    /// Waits for its exit.
    fn wait(&mut self) -> ExitStatus {
        assert!(self.handle.wait_gone(LIMIT), "it does not end");
        self.child.wait().expect("it is our child")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a process answers on a control socket, and returns its pid.
fn wait_answering(socket: &Path) -> i32 {
    wait::until("an answer on the control socket", || answering(socket))
}
