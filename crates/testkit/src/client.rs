//! Real clients, written with the official SDKs: the scripts in `crates/leash/tests/clients` and `fixture client`. They
//! all take the same arguments and print the same lines.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::deps::Deps;
use crate::leash;
use crate::lines::Lines;
use crate::process::Handle;
use crate::scene::Scene;
use crate::wait::LIMIT;

/// The SDK that a client is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// npm `@modelcontextprotocol/sdk` 1.32.2.
    TypeScript1,
    /// npm `@modelcontextprotocol/client` 2.4.0.
    TypeScript2,
    /// PyPI `mcp` 1.30.0.
    Python1,
    /// PyPI `mcp` 2.3.0.
    Python2,
    /// crates.io `rmcp` 3.8.0.
    Rust,
}

impl Sdk {
    /// True if closing a client ends its session, too. The TypeScript SDKs have another method for that.
    pub fn deletes_on_close(self) -> bool {
        match self {
            Self::TypeScript1 | Self::TypeScript2 => false,
            Self::Python1 | Self::Python2 | Self::Rust => true,
        }
    }
}

/// The era that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `initialize`.
    Legacy,
    /// `server/discover`, and `initialize` if the server does not know it.
    Auto,
    /// 2026-07-28 only.
    Modern,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Auto => "auto",
            Self::Modern => "modern",
        }
    }
}

/// The server that a client speaks to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A URL.
    Http(String),
    /// The command line of a server that the client starts.
    Stdio(Vec<OsString>),
}

/// A client and its acts.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// Its SDK.
    pub sdk: Sdk,
    /// The era.
    pub mode: Mode,
    /// Its acts, in this order: list, call, count, progress, cancel, sampling, elicitation, resume, wait, and at the
    /// end close, terminate, obey, hang or vanish.
    pub acts: &'a [&'a str],
    /// The server that it speaks to.
    pub target: Target,
}

impl Order<'_> {
    /// The command line that starts it. It must be started in [`Deps::npm`].
    pub fn words(&self, deps: &Deps) -> Vec<OsString> {
        let mut words: Vec<OsString> = match self.sdk {
            Sdk::TypeScript1 => vec!["node".into(), script("sdk1.mjs").into()],
            Sdk::TypeScript2 => vec!["node".into(), script("client2.mjs").into()],
            Sdk::Python1 => vec![deps.old_python().into(), script("mcp1.py").into()],
            Sdk::Python2 => vec![deps.python().into(), script("mcp2.py").into()],
            Sdk::Rust => vec![leash::fixture().into(), "client".into()],
        };
        words.extend([self.mode.name().into(), self.acts.join(",").into()]);
        match &self.target {
            Target::Http(url) => words.extend(["http".into(), url.into()]),
            Target::Stdio(command) => {
                words.push("stdio".into());
                words.extend_from_slice(command);
            }
        }
        words
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../leash/tests/clients").join(name)
}

/// A running client. It is killed when dropped.
#[derive(Debug)]
pub struct Client {
    child: Child,
    handle: Handle,
    says: Lines<ChildStdout>,
}

impl Client {
    /// Starts one, with the environment of the test.
    pub fn start(deps: &Deps, order: &Order<'_>) -> Self {
        let words = order.words(deps);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        Self::run(command, deps)
    }

    /// Starts one on a scene: for its user, with its environment and in its outer cgroup.
    pub fn start_on(scene: &Scene, deps: &Deps, order: &Order<'_>) -> Self {
        let words = order.words(deps);
        let mut command = scene.command(&words[0]);
        command.args(&words[1..]);
        Self::run(command, deps)
    }

    /// Starts `command`, which consists of the words of an [`Order`] and of anything that a test needs around it.
    pub fn run(mut command: Command, deps: &Deps) -> Self {
        command.current_dir(deps.npm()).stdout(Stdio::piped());
        // The scripts are in the source tree, where Python must not write.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.spawn().expect("cannot start the client");
        let pid = Pid::from_raw(child.id() as i32).expect("a child has a number");
        let handle = Handle::open(pid, |_| true).expect("a child that was not waited for has its number");
        Self { says: Lines::new(child.stdout.take().expect("stdout is a pipe")), child, handle }
    }

    /// Waits for the client's next line, and checks that it is about `act`.
    ///
    /// # Panics
    /// If the line is about another act, or there is none.
    pub fn outcome(&mut self, act: &str) -> Value {
        let line = self.says.next(LIMIT).unwrap_or_else(|| panic!("the client said nothing about `{act}`"));
        let outcome: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"));
        assert_eq!(outcome["act"], act, "{outcome}");
        outcome
    }

    /// Its pid; not reused while this value exists.
    pub fn pid(&self) -> Pid {
        self.handle.pid()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.handle.signal(signal).expect("cannot signal the client");
    }

    /// Waits until it ended.
    pub fn wait(&mut self) -> ExitStatus {
        assert!(self.handle.wait_gone(LIMIT), "the client does not end");
        self.child.wait().expect("cannot wait for the client")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
