//! The building blocks of tasks: commands that are shown, run, and must succeed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The reason why a task failed, for the person who started it.
#[derive(Debug)]
pub(crate) struct Failure(String);

/// The result of a task.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// An error with the file that it is about.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self(format!("`{}`: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The packages and features of which tests are built. Every build of tests selects the same, so that nothing is compiled
/// twice. The library's optional features are not among its default features.
pub(crate) const SELECTION: [&str; 3] = ["--workspace", "--features", "mcp-leash-core/rmcp,mcp-leash-core/tower"];

/// Prints the current step, in the format of cargo.
pub(crate) fn say(verb: &str, what: impl fmt::Display) {
    eprintln!("{verb:>12} {what}");
}

/// One command.
pub(crate) struct Step(Command);

impl Step {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self(Command::new(program))
    }

    /// The cargo that runs this program.
    pub(crate) fn cargo() -> Self {
        let mut step = Self::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // `cargo run` sets variables about this program. The build scripts of some crates depend on them and would
        // rebuild everything, so that builds from here and builds by hand would always invalidate each other.
        let about_us = |name: &OsString| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.to_string_lossy().starts_with(start))
        };
        for (name, _) in env::vars_os().filter(|(name, _)| about_us(name)) {
            step.0.env_remove(name);
        }
        step
    }

    pub(crate) fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.0.args(words);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn envs(mut self, variables: &[(&'static str, OsString)]) -> Self {
        self.0.envs(variables.iter().map(|(name, value)| (name, value)));
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.0.current_dir(dir);
        self
    }

    /// Shows and runs it.
    pub(crate) fn run(mut self) -> Outcome {
        let shown = self.shown();
        say("Running", &shown);
        let status = self.0.status().map_err(|error| Failure(format!("cannot start `{shown}`: {error}")))?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure(format!("`{shown}` failed: {status}"))),
        }
    }

    /// Runs it without showing it; prints its output if it fails.
    pub(crate) fn quietly(self) -> Outcome {
        let shown = self.shown();
        let output = self.output()?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(Failure(format!("`{shown}` failed: {}: {}", output.status, said.trim())))
            }
        }
    }

    /// Runs it without showing it, and returns its output and status.
    pub(crate) fn output(mut self) -> Outcome<Output> {
        let shown = self.shown();
        let output = self.0.stdin(Stdio::null()).output();
        output.map_err(|error| Failure(format!("cannot start `{shown}`: {error}")))
    }

    /// Runs it without showing it, and returns its stdout. `None` if it does not exist or fails.
    pub(crate) fn answer(mut self) -> Option<String> {
        let output = self.0.stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// The command itself, for callers that start it in another way.
    pub(crate) fn command(self) -> Command {
        self.0
    }

    /// Its text for people.
    pub(crate) fn shown(&self) -> String {
        let program = Path::new(self.0.get_program()).file_name().unwrap_or_default();
        let words = [program].into_iter().chain(self.0.get_args()).map(OsStr::to_string_lossy);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The paths of the workspace.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Workspace {
    pub(crate) fn find() -> Outcome<Self> {
        let answer = Step::cargo()
            .args(["metadata", "--no-deps", "--format-version=1"])
            .dir(Path::new(env!("CARGO_MANIFEST_DIR")))
            .answer()
            .ok_or_else(|| Failure::new("`cargo metadata` failed"))?;
        let facts: Value = serde_json::from_str(&answer).map_err(|error| Failure(error.to_string()))?;
        let path = |name: &str| facts[name].as_str().map(PathBuf::from);
        match (path("workspace_root"), path("target_directory")) {
            (Some(root), Some(target)) => Ok(Self { root, target }),
            _ => Err(Failure::new("`cargo metadata` does not say where the workspace is")),
        }
    }

    /// A step of cargo on this workspace.
    pub(crate) fn cargo<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Step {
        Step::cargo().args(words).dir(&self.root)
    }

    /// A program built by `--release`.
    pub(crate) fn release(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }

    /// The step that builds the fixture. It is separate: built together with leash, leash would get the crate features
    /// that the fixture's SDK enables in shared crates. Not optimised, because a counterpart need not be fast, and
    /// optimising the SDK would take minutes.
    pub(crate) fn fixture(&self) -> Step {
        self.cargo(["build", "--package", "testkit", "--features", "fixture", "--bin", "fixture"])
    }

    /// The variables by which tests and benches find the programs under test. The programs must be built before.
    pub(crate) fn programs(&self) -> [(&'static str, OsString); 3] {
        [
            ("LEASH_BIN", self.release("leash").into()),
            ("ZOO_BIN", self.release("zoo").into()),
            ("FIXTURE_BIN", self.target.join("debug/fixture").into()),
        ]
    }
}

/// `dirs` in front of PATH.
pub(crate) fn path_with(dirs: &[PathBuf]) -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let all = dirs.iter().cloned().chain(env::split_paths(&path));
    env::join_paths(all).unwrap_or(path)
}

/// Tells this program, built for release, that it should play.
pub(crate) const PLAY: &str = "--play";

/// The value of a flag; without it, the usage text as error.
pub(crate) fn value<T: std::str::FromStr>(word: Option<&str>, usage: &str) -> Outcome<T> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| Failure::new(usage))
}
