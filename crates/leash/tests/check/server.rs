//! A server with selectable faults: `server.py`.

use std::io::Write as _;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;
use testkit::deps::Deps;
use testkit::get;
use testkit::lines::Lines;
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

use super::script;

pub(super) struct Server {
    child: Child,
    url: String,
    _says: Lines<ChildStdout>,
}

impl Server {
    pub(super) fn start(scene: &Scene, deps: &Deps, faults: &[&str]) -> Server {
        let mut command = scene.command(deps.python());
        command.arg(script("server.py")).args(faults).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python starts");
        let mut says = Lines::new(child.stdout.take().expect("stdout is a pipe"));
        let url = says.wait(LIMIT, |line| line.strip_prefix("listening on ").map(str::to_owned));
        Server { child, url: url.expect("it listens"), _says: says }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Its counters: `opened`, `deletes`, `held`, and the number of `open` sessions.
    pub(super) fn seen(&self) -> Value {
        let address = self.url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")?.parse().ok());
        let page = get::get(address.expect("it is an address"), "/seen");
        serde_json::from_str(&page.body).unwrap_or_else(|error| panic!("not JSON ({error}): {page:?}"))
    }

    /// Waits until it holds a request.
    pub(super) fn wait_held(&self) {
        wait::until("a request that is held", || (self.seen()["held"] == 1).then_some(()));
    }

    /// Makes it continue with the held request.
    pub(super) fn release(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("stdin is a pipe");
        stdin.write_all(b"go on\n").expect("it reads");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
