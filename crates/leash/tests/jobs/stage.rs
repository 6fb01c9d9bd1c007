//! The common setup: a scene on which the modules find leash and the packages, an HTTP server, and a worker.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use testkit::census::Census;
use testkit::deps::Deps;
use testkit::fixture::Fixture;
use testkit::lines::Lines;
use testkit::process::{Handle, Process};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

/// The time between closing stdin, SIGTERM and SIGKILL. None of these helpers exits before SIGKILL.
const GRACE: &str = "100ms";

/// The stage of a test.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) fixture: Fixture,
    pub(crate) deps: Deps,
    pub(crate) scene: Scene,
}

impl Stage {
    pub(crate) fn set() -> Result<Self, String> {
        let deps = Deps::find()?;
        let mut scene = Scene::set(Who::me())?;
        let leash = scene.leash_path();
        scene.set_env("LEASH_BIN", leash);
        // The scripts are in the source tree, where Python must not write, and npm must not use the network.
        scene.set_env("PYTHONDONTWRITEBYTECODE", "1");
        scene.set_env("npm_config_offline", "true");
        scene.set_env("npm_config_update_notifier", "false");
        // The legacy era, which has sessions to delete.
        Ok(Self { fixture: Fixture::http(&["--era", "legacy"]), deps, scene })
    }

    /// Servers as in the original report: one through npx, one with helpers that leave their session, one over HTTP.
    pub(crate) fn servers(&self, census: &Census) -> Value {
        let dir = self.npx_dir();
        let tree = [OsString::from("setsid"), "--mcp".into(), "--census".into(), census.path().into()];
        let tree = tree.map(|word| word.into_string().expect("the path of a test is text"));
        let npx: Vec<&str> = ["--no", "tree"].into_iter().chain(tree.iter().map(String::as_str)).collect();
        let plain: Vec<&str> = ["tree"].into_iter().chain(tree.iter().map(String::as_str)).collect();
        json!({
            "npx": {"command": "npx", "args": npx, "cwd": dir, "leash": {"grace": GRACE}},
            "helpers": {"command": self.scene.zoo_path(), "args": plain, "leash": {"grace": GRACE}},
            "web": {"url": self.fixture.url()},
        })
    }

    /// A directory in which npx finds our package: `npm exec -> sh -> server`, without the start time of a Node server.
    fn npx_dir(&self) -> PathBuf {
        let dir = self.scene.dir().join("npx");
        let bin = dir.join("node_modules/.bin");
        if !bin.exists() {
            fs::create_dir_all(&bin).expect("cannot make a directory");
            fs::write(dir.join("package.json"), r#"{"name": "jobs", "private": true}"#).expect("cannot write");
            let script = format!("#!/bin/sh\nexec '{}' tree \"$@\"\n", self.scene.zoo_path().display());
            fs::write(bin.join("tree"), script).expect("cannot write");
            fs::set_permissions(bin.join("tree"), fs::Permissions::from_mode(0o755)).expect("cannot set its mode");
        }
        dir
    }

    /// The processes on the scene with this mark in their environment.
    pub(crate) fn marked(&self, mark: &str) -> Vec<Process> {
        let wanted = format!("LEASH_TEST_JOB={mark}");
        let processes = self.scene.outer().map(|outer| outer.processes()).unwrap_or_default();
        processes.into_iter().filter(|process| has_variable(process.pid, wanted.as_bytes())).collect()
    }

    /// Checks at the end of every test that workers, daemon and all their processes are gone.
    pub(crate) fn check_end(self) {
        self.fixture.wait_deleted();
        if let Err(survivors) = self.scene.wait_gone(&[]) {
            panic!("{survivors}\n{}", self.scene.stderr());
        }
        assert!(self.scene.ledger().is_empty(), "{:?}", self.scene.ledger());
    }

    /// A file for output that is only read when a test fails.
    pub(crate) fn stderr(&self) -> fs::File {
        let path = self.scene.dir().join("stderr");
        OpenOptions::new().append(true).create(true).open(path).expect("cannot open the file for stderr")
    }
}

fn has_variable(pid: Pid, wanted: &[u8]) -> bool {
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|variable| variable == wanted)
}

/// A file of this repository.
pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A number from the environment, or the default.
pub(crate) fn size(variable: &str, suite: usize) -> usize {
    std::env::var(variable).map_or(suite, |text| text.parse().expect("a size is a number"))
}

/// A worker: a process that speaks JSON lines. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    handle: Handle,
    orders: Option<ChildStdin>,
    says: Lines<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(mut command: Command, stage: &Stage) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stage.stderr())
            .spawn()
            .expect("cannot start the worker");
        let handle = Handle::open(Pid::from_child(&child), |_| true).expect("a child that was not waited for is there");
        let says = Lines::new(child.stdout.take().expect("stdout is a pipe"));
        Self { handle, orders: child.stdin.take(), says, child }
    }

    /// A worker that does `jobs` jobs, with one lane for each of `lanes`.
    pub(crate) fn load(stage: &Stage, lanes: &[Census], jobs: usize, waits: bool) -> Self {
        let order = json!({
            "module": source("clients/typescript/src/index.js"),
            "mcp": source("clients/typescript/test/mcp.mjs"),
            "jobs": jobs,
            "waits": waits,
            "lane": lanes.iter().map(|census| stage.servers(census)).collect::<Vec<_>>(),
        });
        let mut command = stage.scene.command("node");
        command.arg("--expose-gc").arg(source("crates/leash/tests/jobs/load.mjs")).arg(order.to_string());
        Self::start(command, stage)
    }

    pub(crate) fn pid(&self) -> Pid {
        self.handle.pid()
    }

    /// The next line; panics with the worker's output if there is none.
    pub(crate) fn heard(&mut self, stage: &Stage) -> Value {
        let line = self.says.next(LIMIT);
        let line = line.unwrap_or_else(|| panic!("the worker says nothing more\n{}", stage.scene.stderr()));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"))
    }

    /// Sends it a line.
    pub(crate) fn tell(&mut self, line: &str) {
        let orders = self.orders.as_mut().expect("it was not told the end");
        writeln!(orders, "{line}").expect("the worker is gone");
    }

    /// Closes its stdin.
    pub(crate) fn end_input(&mut self) {
        self.orders = None;
    }

    pub(crate) fn kill(&mut self) {
        self.handle.signal(Signal::KILL).expect("cannot signal the worker");
        self.wait();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        assert!(self.handle.wait_gone(LIMIT), "the worker does not end");
        self.child.wait().expect("it is our child")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
