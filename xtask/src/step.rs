//! What chores are made of: commands that are shown, run, and must succeed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Why a chore was given up, for the person who asked for it.
#[derive(Debug)]
pub(crate) struct Failure(String);

/// What comes of a chore.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// An error, and the file it is about.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self(format!("`{}`: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Shows what is being done, in the form that cargo has.
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
        // What `cargo run` says about this program is seen by the build scripts of others, some of which then build everything
        // anew: what is built here and what is built by hand would never be the same.
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

    /// Runs it unseen; what it says is seen when it fails.
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

    /// Runs it unseen, for all that it says and how it ends.
    pub(crate) fn output(mut self) -> Outcome<Output> {
        let shown = self.shown();
        let output = self.0.stdin(Stdio::null()).output();
        output.map_err(|error| Failure(format!("cannot start `{shown}`: {error}")))
    }

    /// Runs it unseen, for its answer. `None` when it does not exist or fails.
    pub(crate) fn answer(mut self) -> Option<String> {
        let output = self.0.stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// The command itself, for who starts it in another way.
    pub(crate) fn command(self) -> Command {
        self.0
    }

    /// How it is shown to people.
    pub(crate) fn shown(&self) -> String {
        let program = Path::new(self.0.get_program()).file_name().unwrap_or_default();
        let words = [program].into_iter().chain(self.0.get_args()).map(OsStr::to_string_lossy);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Where things are.
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

    /// The step that builds the fixture. One of its own: together with leash, leash would be built with what the SDK below the
    /// fixture wants of the crates that both have. A counterpart need not be fast: optimising the SDK would take minutes.
    pub(crate) fn fixture(&self) -> Step {
        self.cargo(["build", "--package", "testkit", "--features", "fixture", "--bin", "fixture"])
    }

    /// How tests and benches find the programs they try. Built before it is used.
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

/// Says to this program, built for release, that it is the one that plays.
pub(crate) const PLAY: &str = "--play";

/// What follows a flag; without it, how the command is used.
pub(crate) fn value<T: std::str::FromStr>(word: Option<&str>, usage: &str) -> Outcome<T> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| Failure::new(usage))
}
