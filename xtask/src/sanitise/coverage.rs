//! The lines of leash that the tests run, in the tests themselves and in every process of leash that they start. The
//! counters are in memory-mapped files, so that a process that is killed, executes another program or exits at once has
//! counted too.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::lcov::{self, FileLines};
use super::llvm::Llvm;
use super::{Finding, Verdict};
use crate::step::{Failure, Outcome, Step, Workspace, say};
use crate::{setup, vm};

/// The lowest acceptable percentage of executed lines in a lifecycle module.
const LEAST: f64 = 90.0;

/// The modules that implement the lifecycle, by the beginnings of their paths.
const LIFECYCLE: [(&str, &[&str]); 10] = [
    ("trees", &["crates/leash-tree/src/tree/", "crates/leash-tree/src/contain/", "crates/leash-tree/src/platform/"]),
    ("owners", &["crates/leash-tree/src/owner/"]),
    ("ledger", &["crates/leash-tree/src/ledger/"]),
    ("orphans", &["crates/leash-orphans/src/"]),
    ("sessions", &["crates/leash-tree/src/session/", "crates/leash-model/src/client_session.rs"]),
    (
        "gateway",
        &[
            "crates/leash-gateway/src/state/",
            "crates/leash-gateway/src/serve.rs",
            "crates/leash-gateway/src/sweep.rs",
            "crates/leash-gateway/src/timers.rs",
            "crates/leash-gateway/src/daemon/",
        ],
    ),
    ("HTTP servers", &["crates/leash-gateway/src/guard/", "crates/leash-upstream/src/"]),
    ("stdio servers", &["crates/leash-gateway/src/stdio/"]),
    ("connect", &["crates/leash-connect/src/"]),
    ("control API", &["crates/leash-gateway/src/control"]),
];

/// The packages that are instrumented.
const PACKAGES: [&str; 11] = [
    "mcp-leash",
    "mcp-leash-check",
    "mcp-leash-connect",
    "mcp-leash-core",
    "mcp-leash-gateway",
    "mcp-leash-model",
    "mcp-leash-orphans",
    "mcp-leash-protocol",
    "mcp-leash-tower",
    "mcp-leash-tree",
    "mcp-leash-upstream",
];

/// Features of the library that its tests need.
const FEATURES: &str = "mcp-leash-core/rmcp,mcp-leash-core/testing";

/// The tests that run beside the unit tests: those of the binary that are about lifecycles. The others are about files
/// and texts, or need foreign programs that take long to start. Each is named, so that nothing else is built.
const TESTS: [&str; 21] = [
    "adopt",
    "bad_days",
    "commands",
    "connect",
    "control",
    "daemon",
    "fidelity",
    "layer",
    "leak",
    "library",
    "matrix",
    "orphans",
    "peer",
    "pid_reuse",
    "pressure",
    "rmcp",
    "serve",
    "serve_stdio",
    "sessions",
    "start_race",
    "strangers",
];

/// The filter of the tests. An instrumented program has a variable in its environment that some tests would report. Of
/// the matrix, it selects the cases in which another process must take over, and all cases of `group`.
const RUN: &str = "all() - (binary(fidelity) & test(environment)) - (binary(matrix) \
    - test(keeper_kill) - test(leash_kill) - test(leader_sigkill) - test(group))";

/// Makes the compiler instrument the packages of leash and nothing else.
const WRAPPER: &str = "#!/bin/sh
# Made by `cargo xtask sanitise coverage`.
case \"$CARGO_PKG_NAME\" in
    mcp-leash | mcp-leash-*) exec \"$@\" -C instrument-coverage -C llvm-args=-runtime-counter-relocation ;;
    *) exec \"$@\" ;;
esac
";

/// The results.
pub(super) struct Coverage {
    files: FileLines,
    /// The last line of the test runner.
    tests: String,
    all_passed: bool,
    /// True if the tests in the box passed; the error says why there is no box.
    boxed: Result<bool, String>,
}

/// The line counts of a file or module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Lines {
    all: usize,
    run: usize,
}

impl Lines {
    fn percent(self) -> f64 {
        if self.all == 0 { 0.0 } else { self.run as f64 * 100.0 / self.all as f64 }
    }
}

impl std::fmt::Display for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} % of {} lines", self.percent(), self.all)
    }
}

pub(super) fn look(workspace: &Workspace) -> Outcome<Coverage> {
    let llvm = Llvm::find(workspace)?;
    let deps = setup::install(workspace)?;
    let place = Place::prepare(workspace)?;
    place.build()?;
    let variables = deps.variables();
    say("Running", "the tests, instrumented");
    let output = place.nextest(&["run", "--no-fail-fast", "--color=never"]).envs(&variables).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let log = place.dir.join("tests.log");
    fs::write(&log, &said).map_err(Failure::at(&log))?;
    let tests = said.lines().find_map(|line| line.trim().strip_prefix("Summary ")?.split_once("] "));
    let tests = tests
        .map(|(_, tests)| tests.to_owned())
        .ok_or_else(|| Failure::new(format!("the tests were not run; see `{}`", log.display())))?;
    let boxed = place.run_box(workspace)?;
    let files = lcov::read(&place.export(&llvm)?, &workspace.root)?;
    Ok(Coverage { files, tests, all_passed: output.status.success(), boxed })
}

/// The directories of the instrumented programs.
struct Place {
    root: PathBuf,
    dir: PathBuf,
    profiles: PathBuf,
    wrapper: PathBuf,
}

impl Place {
    fn prepare(workspace: &Workspace) -> Outcome<Self> {
        let dir = workspace.target.join("coverage");
        let (profiles, wrapper) = (dir.join("profiles"), dir.join("rustc.sh"));
        if profiles.exists() {
            fs::remove_dir_all(&profiles).map_err(Failure::at(&profiles))?;
        }
        fs::create_dir_all(&profiles).map_err(Failure::at(&profiles))?;
        // An unchanged file is not written again: otherwise cargo would recompile everything.
        if fs::read_to_string(&wrapper).ok().as_deref() != Some(WRAPPER) {
            fs::write(&wrapper, WRAPPER).map_err(Failure::at(&wrapper))?;
        }
        for path in [&profiles, &wrapper] {
            fs::set_permissions(path, Permissions::from_mode(0o777)).map_err(Failure::at(path))?;
        }
        Ok(Self { root: workspace.root.clone(), dir, profiles, wrapper })
    }

    /// A step of cargo with its own target directory and variables.
    fn cargo(&self, words: &[&str]) -> Step {
        Step::cargo()
            .args(words)
            .dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.dir)
            .env("RUSTC_WORKSPACE_WRAPPER", &self.wrapper)
            .envs(&self.counters())
            .envs(&self.programs())
    }

    fn programs(&self) -> [(&'static str, OsString); 3] {
        let program = |name: &str| OsString::from(self.dir.join("debug").join(name));
        [("LEASH_BIN", program("leash")), ("ZOO_BIN", program("zoo")), ("FIXTURE_BIN", program("fixture"))]
    }

    /// One file for each program (`%m`), which its processes share while they run (`%c`).
    fn counters(&self) -> [(&'static str, OsString); 1] {
        [("LLVM_PROFILE_FILE", self.profiles.join("%m%c.profraw").into())]
    }

    fn nextest(&self, words: &[&str]) -> Step {
        self.cargo(&["nextest"])
            .args(words)
            .args(selection())
            .args(["--lib", "-E", RUN])
            .args(TESTS.iter().flat_map(|name| ["--test", name]))
    }

    fn build(&self) -> Outcome {
        self.cargo(&["build", "--package", "testkit", "--bin", "zoo"]).run()?;
        self.cargo(&["build", "--package", "testkit", "--features", "fixture", "--bin", "fixture"]).run()?;
        // Built in the same way as the tests: otherwise they would build another `leash`, without a prepared counter
        // file.
        self.nextest(&["run", "--no-run"]).run()?;
        // Its first process creates the counter file. Processes of other users must be able to write to it as well.
        Step::new(self.dir.join("debug/leash")).args(["--version"]).envs(&self.counters()).quietly()?;
        for entry in fs::read_dir(&self.profiles).map_err(Failure::at(&self.profiles))?.flatten() {
            fs::set_permissions(entry.path(), Permissions::from_mode(0o666)).map_err(Failure::at(&entry.path()))?;
        }
        Ok(())
    }

    /// Runs the tests that need a desktop, and adds their counters. The inner error says why there is no box.
    fn run_box(&self, workspace: &Workspace) -> Outcome<Result<bool, String>> {
        if let Err(why) = vm::requirements() {
            return Ok(Err(why.to_string()));
        }
        let cargo = |words: &[&str]| self.cargo(words).args(selection());
        let programs = vm::Programs { variables: self.programs(), cargo: &cargo, instrumented: true };
        let (counters, passed) = vm::count(workspace, &programs)?;
        // The names of the files depend on the programs alone, so these have a directory of their own.
        let dir = self.profiles.join("box");
        fs::create_dir(&dir).map_err(Failure::at(&dir))?;
        Step::new("tar").args(["-xf".as_ref(), counters.as_os_str(), "-C".as_ref(), dir.as_os_str()]).quietly()?;
        Ok(Ok(passed))
    }

    /// The counters, line by line.
    fn export(&self, llvm: &Llvm) -> Outcome<String> {
        let listed = self.nextest(&["list", "--list-type=binaries-only", "--message-format=json"]).answer();
        let listed: Value = listed
            .and_then(|listed| serde_json::from_str(&listed).ok())
            .ok_or_else(|| Failure::new("the runner does not list its programs"))?;
        let binaries = listed["rust-binaries"].as_object().into_iter().flat_map(|binaries| binaries.values());
        let mut programs: Vec<OsString> =
            binaries.filter_map(|binary| binary["binary-path"].as_str()).map(OsString::from).collect();
        programs.push(self.dir.join("debug/leash").into());
        let profiles = [self.profiles.clone(), self.profiles.join("box")].into_iter().flat_map(profiles_in);
        let merged = self.dir.join("all.profdata");
        llvm.tool("llvm-profdata")
            // A process of a user without write permission leaves an empty file; all the others are used.
            .args(["merge", "--sparse", "--failure-mode=all", "-o"])
            .args([&merged])
            .args(profiles)
            .quietly()?;
        let objects = programs.into_iter().flat_map(|program| [OsString::from("-object"), program]);
        let mut profile = OsString::from("-instr-profile=");
        profile.push(&merged);
        let output = llvm.tool("llvm-cov").args(["export", "-format=lcov"]).args([profile]).args(objects).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(Failure::new(String::from_utf8_lossy(&output.stderr))),
        }
    }
}

/// The packages and their features. Every build names the same, because another one would replace the program that counts.
fn selection() -> impl Iterator<Item = &'static str> {
    PACKAGES.iter().flat_map(|name| ["--package", name]).chain(["--features", FEATURES])
}

/// The counter files in a directory. Without a box, one of the directories is missing.
fn profiles_in(dir: PathBuf) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.is_file()).collect()
}

impl Coverage {
    fn lines(&self, starts: &[&str]) -> Lines {
        let mut lines = Lines::default();
        for (_, counted) in self.files.iter().filter(|(file, _)| starts.iter().any(|start| file.starts_with(start))) {
            lines.all += counted.len();
            lines.run += counted.values().filter(|run| **run).count();
        }
        lines
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let finding =
            |what: &str, found: String, verdict| Finding { part: "coverage", what: what.to_owned(), found, verdict };
        let tests = Verdict::is(self.all_passed);
        let mut findings = vec![finding("tests that were run, instrumented", self.tests.clone(), tests)];
        findings.push(match &self.boxed {
            Ok(passed) => {
                let found = if *passed { "all passed" } else { "not all passed" };
                finding("tests in the box, instrumented", found.to_owned(), Verdict::is(*passed))
            }
            Err(why) => finding("tests in the box, instrumented", format!("not run: {why}"), Verdict::Unknown),
        });
        for (name, starts) in LIFECYCLE {
            let lines = self.lines(starts);
            findings.push(finding(name, lines.to_string(), Verdict::is(lines.percent() >= LEAST)));
        }
        let all = self.lines(&["crates/"]);
        findings.push(finding("all of leash, by these tests", all.to_string(), Verdict::Good));
        findings
    }

    /// The files of the modules above, the lowest coverage first.
    pub(super) fn table(&self) -> String {
        let mut files: Vec<(&str, Lines)> = LIFECYCLE
            .iter()
            .flat_map(|(_, starts)| self.files.keys().filter(|file| starts.iter().any(|start| file.starts_with(start))))
            .map(|file| (file.as_str(), self.lines(&[file])))
            .collect();
        files.sort_by(|one, other| one.1.percent().total_cmp(&other.1.percent()));
        let mut table = String::from("| file | lines | run |\n| --- | ---: | ---: |\n");
        for (file, lines) in files.iter().filter(|(_, lines)| lines.percent() < LEAST) {
            let short = file.strip_prefix("crates/").unwrap_or(file);
            table.push_str(&format!("| `{short}` | {} | {:.1} % |\n", lines.all, lines.percent()));
        }
        table
    }

    /// All results, with the lines that were not run.
    pub(super) fn as_json(&self) -> Value {
        let files: serde_json::Map<String, Value> = self
            .files
            .iter()
            .map(|(file, lines)| {
                let missing: Vec<usize> = lines.iter().filter(|(_, run)| !**run).map(|(line, _)| *line).collect();
                (file.clone(), json!({"lines": lines.len(), "run": lines.len() - missing.len(), "missing": missing}))
            })
            .collect();
        json!({"tests": self.tests, "files": files})
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn low_coverage_is_a_failure() {
        let lines = |run: usize| (1..=10).map(|line| (line, line <= run)).collect();
        for (run, verdict) in [(8, Verdict::Bad), (9, Verdict::Good)] {
            let files = [("crates/leash-tree/src/tree/kill.rs".to_owned(), lines(run))].into();
            let coverage = Coverage { files, tests: String::new(), all_passed: true, boxed: Ok(true) };
            let trees = coverage.findings().into_iter().find(|finding| finding.what == "trees");
            assert_eq!(trees.map(|trees| trees.verdict), Some(verdict), "{run}");
        }
    }

    #[test]
    fn coverage_of_failed_tests_is_a_failure() {
        for (all_passed, verdict) in [(true, Verdict::Good), (false, Verdict::Bad)] {
            let coverage = Coverage { files: FileLines::new(), tests: String::new(), all_passed, boxed: Ok(true) };
            assert_eq!(coverage.findings()[0].verdict, verdict);
        }
    }

    #[test]
    fn every_lifecycle_module_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for start in LIFECYCLE.iter().flat_map(|(_, starts)| *starts) {
            let exists = root.join(start).exists() || root.join(format!("{start}.rs")).exists();
            assert!(exists, "{start}");
        }
    }
}
