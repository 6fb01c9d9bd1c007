//! A running `fixture http`: the server that leash is placed in front of, and the requests that it saw.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::Pid;
use serde_json::Value;

use crate::get;
use crate::leash;
use crate::lines::Lines;
use crate::wait::{self, LIMIT};

/// The server. It is killed when dropped, and ends when the test does.
#[derive(Debug)]
pub struct Fixture {
    child: Child,
    url: String,
    address: SocketAddr,
    _says: Lines<ChildStdout>,
}

impl Fixture {
    /// Starts one with these options on a free port of 127.0.0.1.
    pub fn http(options: &[&str]) -> Self {
        Self::start(Command::new(leash::fixture()), options)
    }

    /// Starts `command`, which is the program with anything that a test needs around it.
    ///
    /// # Panics
    /// If it does not print its address.
    pub fn start(mut command: Command, options: &[&str]) -> Self {
        command.args(["http", "--until-eof"]).args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("cannot start the fixture");
        let mut says = Lines::new(child.stdout.take().expect("stdout is a pipe"));
        let url = says.wait(LIMIT, |line| line.strip_prefix("listening on ").map(str::to_owned));
        let url = url.unwrap_or_else(|| panic!("the fixture does not listen: {}", says.rest()));
        let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp")?.parse().ok());
        let address = address.unwrap_or_else(|| panic!("not an address: {url}"));
        Self { child, url, address, _says: says }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its address, without the path.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its pid; not reused while this value exists.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).expect("a child has a number")
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The requests that it saw so far.
    pub fn report(&self) -> Report {
        let page = get::get(self.address, "/census");
        Report(serde_json::from_str(&page.body).unwrap_or_else(|error| panic!("not a census ({error}): {page:?}")))
    }

    /// Waits until `wanted` finds something in a report of what it saw.
    ///
    /// # Panics
    /// After [`LIMIT`], naming `what` was awaited and showing the last report.
    pub fn wait<T>(&self, what: &str, wanted: impl Fn(&Report) -> Option<T>) -> T {
        let found = wait::within(LIMIT, || wanted(&self.report()));
        found.unwrap_or_else(|| panic!("waited {LIMIT:?} in vain for {what}: {:#}", self.report().0))
    }

    /// Waits until every opened session is deleted, each exactly once. Returns their number.
    ///
    /// # Panics
    /// If one is left, or was deleted twice.
    pub fn wait_deleted(&self) -> u64 {
        let report = self.wait("every session to be deleted", |report| {
            (report.deleted().len() as u64 == report.opened()).then(|| report.clone())
        });
        assert!(report.deleted().values().all(|times| *times == 1), "deleted more than once: {:?}", report.deleted());
        assert_eq!(report.open(), [""; 0]);
        report.opened()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The requests and sessions that a fixture saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Report(pub Value);

impl Report {
    /// The sessions that are open now.
    pub fn open(&self) -> Vec<String> {
        self.list("open").iter().filter_map(|id| id.as_str().map(str::to_owned)).collect()
    }

    /// The number of sessions that were ever opened.
    pub fn opened(&self) -> u64 {
        self.0["opened"].as_u64().unwrap_or_default()
    }

    /// The number of DELETE requests for each session.
    pub fn deleted(&self) -> BTreeMap<String, u64> {
        let deleted = self.0["deleted"].as_object().into_iter().flatten();
        deleted.map(|(id, times)| (id.clone(), times.as_u64().unwrap_or_default())).collect()
    }

    /// The number of calls of `sleep` that were cancelled before their time was over.
    pub fn cancelled(&self) -> u64 {
        self.0["cancelled"].as_u64().unwrap_or_default()
    }

    /// The requests in the order of their arrival: `http`, `rpc`, `session`, `version`, `lastEventId`, `authorized`, `status`.
    pub fn requests(&self) -> &[Value] {
        self.list("requests")
    }

    /// The number of requests with this HTTP method and, if it is given, this JSON-RPC method.
    pub fn count(&self, http: &str, rpc: Option<&str>) -> usize {
        let is_one = |seen: &&Value| seen["http"] == http && rpc.is_none_or(|rpc| seen["rpc"] == rpc);
        self.requests().iter().filter(is_one).count()
    }

    fn list(&self, name: &str) -> &[Value] {
        self.0[name].as_array().map(Vec::as_slice).unwrap_or_default()
    }
}
