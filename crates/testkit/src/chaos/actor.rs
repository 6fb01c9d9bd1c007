//! An actor: a host or a client that uses a server through leash, and the processes that belong to it.

use std::io::Write;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::action::{Part, Start};
use crate::http;
use crate::lines::Lines;
use crate::process::{self, Handle, Process};

/// The timeout for a start. A longer one is of no use: the episode continues.
pub(crate) const UP: Duration = Duration::from_secs(20);

/// The timeout for an answer, which may never come.
const ANSWER: Duration = Duration::from_secs(2);

/// The role name of a keeper of upstream sessions, of `connect` and of `serve`: see
/// `crates/leash-core/src/http/connect/undertaker.rs`.
const KEEPER_OF_SESSIONS: &str = "mcp-undertaker";

/// A running host or client. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) start: Start,
    child: Child,
    host: Handle,
    orders: Option<ChildStdin>,
    says: Lines<ChildStdout>,
    /// True if it came up, false if it failed. `None` while it starts.
    pub(crate) up: Option<bool>,
    /// The name by which the upstream server knows the leash that opens its session.
    pub(crate) opener: Option<String>,
    /// The number of restarts of the upstream server when the actor started.
    pub(crate) restarts: u64,
    /// True if a fault hit while it waited for its session: a session may exist whose id no client learnt.
    pub(crate) is_doubted: bool,
    /// The same for a session that its leash may have opened in place of a lost one.
    pub(crate) reopening_is_doubted: bool,
    /// Its own `leash run` or `leash connect`, and the keeper of that, after they were seen.
    leash: Option<Handle>,
    keeper: Option<Handle>,
}

impl Actor {
    pub(crate) fn begin(start: Start, mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let host = Handle::open(Pid::from_child(&child), |_| true).ok_or("the host has no number")?;
        let says = Lines::new(child.stdout.take().ok_or("the host does not speak")?);
        let orders = child.stdin.take();
        let mut actor = Self {
            orders,
            child,
            host,
            says,
            start,
            up: None,
            opener: None,
            restarts: 0,
            is_doubted: false,
            reopening_is_doubted: false,
            leash: None,
            keeper: None,
        };
        if actor.is_raw_host() {
            actor.order(&format!("send {}", http::initialize("2025-06-18")));
        }
        Ok(actor)
    }

    /// True if it speaks JSON-RPC line by line through `zoo host`.
    fn is_raw_host(&self) -> bool {
        self.is_raw() && !self.is_http()
    }

    fn is_raw(&self) -> bool {
        self.start.driver.is_raw()
    }

    fn is_http(&self) -> bool {
        self.start.route.is_http()
    }

    /// Checks without waiting whether it came up.
    pub(crate) fn hear(&mut self) {
        self.wait_up(Duration::ZERO);
    }

    /// Waits until its server answers, or until it is clear that it never will.
    pub(crate) fn wait_up(&mut self, limit: Duration) {
        if self.up.is_some() {
            return;
        }
        let (raw, is_http) = (self.is_raw(), self.is_http());
        self.up = self.says.wait(limit, |line| match (raw, is_http) {
            (true, true) => (line == "ready").then_some(true),
            (true, false) if line.starts_with("exited") || line.starts_with("killed") => Some(false),
            (true, false) if line.contains("\"error\"") => Some(false),
            (true, false) => line.contains("\"result\"").then_some(true),
            (false, _) if !line.contains("\"connect\"") => None,
            (false, _) => Some(!line.contains("\"error\"")),
        });
    }

    /// Looks up its processes while they exist.
    pub(crate) fn look(&mut self) {
        if self.is_http() {
            return;
        }
        if self.leash.is_none() {
            self.leash = child_of(self.host.pid(), |process| process.name == "leash");
        }
        // A killed keeper is replaced by another one.
        if let (None, Some(leash)) = (self.keeper.as_ref().filter(|keeper| keeper.is_alive()), &self.leash)
            && leash.is_alive()
        {
            self.keeper = child_of(leash.pid(), is_keeper).or(self.keeper.take());
        }
    }

    /// Its own leash; `None` if it uses the shared gateway.
    pub(crate) fn leash(&self) -> Option<Pid> {
        self.leash.as_ref().filter(|leash| leash.is_alive()).map(Handle::pid)
    }

    /// One of its processes, if it exists.
    pub(crate) fn part(&self, part: Part) -> Option<Handle> {
        let keeper = self.keeper.as_ref().filter(|keeper| keeper.is_alive());
        match part {
            Part::Host => again(&self.host),
            Part::Leash => self.leash.as_ref().and_then(again),
            // `leash run` is its own supervisor.
            Part::Supervisor => None,
            Part::Keeper => keeper.and_then(again),
            Part::Leader => child_of(keeper?.pid(), |_| true),
            Part::Member => descendants(keeper?.pid()).into_iter().next_back().and_then(hold),
        }
    }

    /// Makes a call. Returns true if the actor took the order.
    pub(crate) fn call(&mut self) -> bool {
        let is_told = match self.is_raw_host() {
            true => self.order(r#"send {"jsonrpc":"2.0","id":1,"method":"ping"}"#),
            false => self.order("call"),
        };
        if is_told && self.up == Some(true) {
            let answers = ["\"id\":1", "call ", "\"call\""];
            let _ = self.says.wait(ANSWER, |line| answers.iter().any(|word| line.contains(word)).then_some(()));
        }
        is_told
    }

    pub(crate) fn abandon(&mut self) -> bool {
        match self.is_raw_host() {
            true => self.order(
                r#"send {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hang","arguments":{}}}"#,
            ),
            false => self.order("abandon"),
        }
    }

    /// Ends its HTTP session. The Python SDKs do that when they exit.
    pub(crate) fn delete(&mut self) -> bool {
        let is_told = self.is_http() && self.order("delete");
        if is_told {
            let _ = self.says.wait(ANSWER, |line| line.contains("delete").then_some(()));
        }
        is_told
    }

    /// Closes its session properly, and exits.
    pub(crate) fn close(&mut self) -> bool {
        let is_told = match self.is_raw_host() {
            true => self.order("close-stdin") && self.order("exit"),
            false => self.order("close"),
        };
        self.orders = None;
        is_told
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.host.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Sends an order to the actor. Returns true if it was written.
    fn order(&mut self, order: &str) -> bool {
        let is_taken = self.orders.as_mut().is_some_and(|orders| writeln!(orders, "{order}").is_ok());
        if !is_taken {
            self.orders = None;
        }
        is_taken
    }

    /// True if a ping is answered now.
    pub(crate) fn is_answered(&mut self) -> bool {
        self.order(r#"send {"jsonrpc":"2.0","id":77,"method":"ping"}"#);
        self.says.wait(crate::wait::LIMIT, |line| line.contains("\"id\":77").then_some(())).is_some()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True if a child of leash is a keeper of a tree or of a connection.
fn is_keeper(process: &Process) -> bool {
    process.command_line().split(' ').any(|word| matches!(word, "mcp-keeper" | KEEPER_OF_SESSIONS))
}

/// True if a child of leash is the keeper of its upstream sessions. The keeper of a tree is a child of a supervisor.
pub(crate) fn is_keeper_of_sessions(process: &Process) -> bool {
    process.command_line().split(' ').any(|word| word == KEEPER_OF_SESSIONS)
}

fn again(handle: &Handle) -> Option<Handle> {
    handle.is_alive().then(|| Handle::open(handle.pid(), |_| handle.is_alive())).flatten()
}

fn hold(found: Process) -> Option<Handle> {
    Handle::open(found.pid, |now| now.start == found.start)
}

fn child_of(parent: Pid, is_it: impl Fn(&Process) -> bool) -> Option<Handle> {
    process::children(parent).into_iter().find(is_it).and_then(hold)
}

/// All descendants of a process, parents before children.
pub(crate) fn descendants(pid: Pid) -> Vec<Process> {
    let mut found = process::children(pid);
    let mut next = 0;
    while let Some(process) = found.get(next) {
        // The tree may change during the walk; that is no worse than a change after it.
        let below = process::children(process.pid);
        found.extend(below);
        next += 1;
        if found.len() > 10_000 {
            break;
        }
    }
    found
}
