//! The programs under test: their paths, the output of commands, and the roles of their processes.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use rustix::process::Pid;
use serde_json::Value;

use crate::process::{self, Handle};
use crate::wait;

/// The built `leash`.
pub fn leash() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("LEASH_BIN", "leash", &["--package", "mcp-leash"]))
}

/// The built `zoo`.
pub fn zoo() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("ZOO_BIN", "zoo", &["--package", "testkit"]))
}

/// The built `fixture`.
pub fn fixture() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("FIXTURE_BIN", "fixture", &["--package", "testkit", "--features", "fixture"]))
}

/// Returns the path that `cargo xtask test` gives in `variable`. Otherwise the program is next to the test executable,
/// and is built if it is missing.
fn find(variable: &str, name: &str, package: &[&str]) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        return path.into();
    }
    let deps = env::current_exe().expect("the test has a path");
    let dir = deps.ancestors().nth(2).expect("a test sits in target/PROFILE/deps");
    let program = dir.join(name);
    if !program.exists() {
        build(dir, name, package);
    }
    program
}

fn build(dir: &Path, name: &str, package: &[&str]) {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--bin", name]).args(package);
    if dir.ends_with("release") {
        command.arg("--release");
    }
    if let Some(target) = dir.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cannot start cargo");
    assert!(status.success(), "cannot build `{name}`");
}

/// The output and exit code of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its exit code; 128 + n after signal n, as in a shell.
    pub code: i32,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or_default());
        Self {
            code,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Answer {
    /// Its stdout as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {self:?}"),
        }
    }
}

/// The keeper of a running `leash serve`, which may have children with other roles.
pub fn gateway_keeper(gateway: Pid) -> Handle {
    let parent = gateway.as_raw_nonzero().get();
    wait::until("the gateway's keeper", || {
        let keeper = process::children(gateway).into_iter().find(process::Process::keeps_sessions)?;
        Handle::open(keeper.pid, |now| now.parent == parent && now.start == keeper.start)
    })
}

/// The keeper of a running `leash run`: the only child of the supervisor.
pub fn keeper(supervisor: Pid) -> Handle {
    let parent = supervisor.as_raw_nonzero().get();
    wait::until("the keeper", || {
        let children = process::children(supervisor);
        let [keeper] = &children[..] else {
            return None;
        };
        Handle::open(keeper.pid, |now| now.parent == parent)
    })
}
