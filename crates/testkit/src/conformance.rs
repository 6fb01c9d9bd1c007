//! The official conformance suite of MCP: runs it, and compares the results with and without leash in between.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::deps::Deps;
use crate::turn::Turn;

/// The number of scenarios that run at the same time, where each is run by itself: they mostly wait for two programs to
/// start.
const AT_ONCE: usize = 2;

/// A revision of the protocol. Its requirements are a frozen list of scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// 2025-11-25, the last one with sessions.
    Legacy,
    /// 2026-07-28, the first one without.
    Modern,
}

impl Revision {
    /// The name of the revision in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
        }
    }
}

/// The verdict of one check, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// The requirement is met.
    Success,
    /// Nothing was checked; the suite made a note.
    Info,
    /// Does not apply.
    Skipped,
    /// A SHOULD is violated.
    Warning,
    /// A MUST is violated.
    Failure,
}

impl Status {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "SUCCESS" => Self::Success,
            "INFO" => Self::Info,
            "SKIPPED" => Self::Skipped,
            "WARNING" => Self::Warning,
            "FAILURE" => Self::Failure,
            _ => return None,
        })
    }
}

/// The results of the suite: the verdict and the explanation of each check, by scenario and check. If a check was made
/// more than once, the worst verdict counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results(BTreeMap<(String, String), (Status, String)>);

impl Results {
    /// The complaints with their explanations, for a message.
    pub fn explain(&self) -> String {
        let bad = self.0.iter().filter(|(_, (status, _))| *status >= Status::Warning);
        bad.map(|((scenario, check), (status, why))| format!("{scenario}: {check}: {status:?}: {why}\n")).collect()
    }

    /// The scenarios that were run to their end.
    pub fn scenarios(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.keys().map(|(scenario, _)| scenario.as_str()).collect();
        names.dedup();
        names
    }

    /// The verdict of one check.
    pub fn status(&self, scenario: &str, check: &str) -> Option<Status> {
        self.0.get(&(scenario.to_owned(), check.to_owned())).map(|(status, _)| *status)
    }

    /// The number of checks with this verdict.
    pub fn count(&self, status: Status) -> usize {
        self.0.values().filter(|(found, _)| *found == status).count()
    }

    /// The checks that did not succeed, as `scenario: check`.
    pub fn complaints(&self) -> Vec<String> {
        let bad = self.0.iter().filter(|(_, (status, _))| *status >= Status::Warning);
        bad.map(|((scenario, check), _)| format!("{scenario}: {check}")).collect()
    }

    /// Keeps the results of the scenarios that `is_wanted` accepts.
    pub fn only(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|(scenario, _), _| is_wanted(scenario));
        self
    }

    fn read(dir: &Path) -> Self {
        let mut results = Self::default();
        for file in files(dir) {
            let Some(scenario) = scenario(dir, &file) else { continue };
            let text = fs::read_to_string(&file).expect("the suite wrote this file");
            let checks: Value = serde_json::from_str(&text).expect("the suite writes JSON");
            for check in checks.as_array().into_iter().flatten() {
                results.add(&scenario, check);
            }
        }
        results
    }

    fn add(&mut self, scenario: &str, check: &Value) {
        let word = |name: &str| check[name].as_str().unwrap_or_default();
        let status = Status::parse(word("status")).unwrap_or_else(|| panic!("no such status: {check}"));
        let found = (status, word("errorMessage").to_owned());
        let entry = self.0.entry((scenario.to_owned(), word("id").to_owned())).or_insert_with(|| found.clone());
        if found.0 > entry.0 {
            *entry = found;
        }
    }
}

/// A check with a worse verdict than without leash in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The scenario.
    pub scenario: String,
    /// The check.
    pub check: String,
    /// The verdict of the direct run; `None` if the check was not made.
    pub direct: Option<Status>,
    /// The verdict through leash; `None` if the check was not made.
    pub through: Option<Status>,
    /// The explanation of the suite.
    pub why: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, check, direct, through, why } = self;
        let status = |status: &Option<Status>| status.map_or("nothing".to_owned(), |status| format!("{status:?}"));
        write!(f, "{scenario}: {check}: {} -> {}", status(direct), status(through))?;
        if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
    }
}

/// Every check of `direct` that is worse in `through`, and every complaint that is new in `through`.
pub fn lost(direct: &Results, through: &Results) -> Vec<Loss> {
    let loss = |key: &(String, String), before: Option<Status>, after: Option<&(Status, String)>| Loss {
        scenario: key.0.clone(),
        check: key.1.clone(),
        direct: before,
        through: after.map(|(status, _)| *status),
        why: after.map(|(_, why)| why.clone()).unwrap_or_default(),
    };
    let worse = direct.0.iter().filter_map(|(key, (before, _))| {
        let after = through.0.get(key);
        let is_worse = match after {
            Some((after, _)) => after > before,
            // A note that is missing in `through` is no loss.
            None => matches!(before, Status::Success | Status::Warning),
        };
        is_worse.then(|| loss(key, Some(*before), after))
    });
    let is_new = |key| !direct.0.contains_key(key);
    let new = through.0.iter().filter(|(key, (after, _))| *after >= Status::Warning && is_new(*key));
    worse.chain(new.map(|(key, after)| loss(key, None, Some(after)))).collect()
}

/// Runs all scenarios that a revision has for servers against the one at `url`: the required ones and those that are
/// only reported.
pub fn server(deps: &Deps, url: &str, revision: Revision) -> Results {
    run(deps, &["server", "--url", url, "--requirements", revision.name()])
}

/// Runs scenarios for servers one by one: for a server that starts slowly and that not all scenarios apply to.
pub fn server_in(deps: &Deps, url: &str, scenarios: &[&str], revision: Revision) -> Results {
    some(deps, &["server", "--url", url], scenarios, revision)
}

/// Runs scenarios for clients. `command` is split at blanks and started by a shell in [`Deps::npm`], with the URL of the
/// suite's server as its last word.
pub fn client(deps: &Deps, command: &str, scenarios: &[&str], revision: Revision) -> Results {
    some(deps, &["client", "--command", command], scenarios, revision)
}

fn some(deps: &Deps, words: &[&str], scenarios: &[&str], revision: Revision) -> Results {
    let one =
        |scenario: &str| run(deps, &[words, &["--scenario", scenario, "--spec-version", revision.name()]].concat());
    let mut all = Results::default();
    for some in scenarios.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let running: Vec<_> = some.iter().map(|scenario| scope.spawn(|| one(scenario))).collect();
            all.0.extend(running.into_iter().flat_map(|run| run.join().expect("the scenario ran").0));
        });
    }
    all
}

fn run(deps: &Deps, words: &[&str]) -> Results {
    // Some checks wait half a second for an answer. That is enough, but not beside a fork bomb.
    let _quiet = Turn::quiet().ok();
    let dir = Directory::create();
    let output = Command::new(deps.node_22())
        .arg(deps.conformance())
        .args(words)
        .arg("--output-dir")
        .arg(&dir.0)
        .current_dir(deps.npm())
        .stdin(Stdio::null())
        .output()
        .expect("cannot start the conformance suite");
    let results = Results::read(&dir.0);
    // The exit code is also 1 for a failed check, so the run is judged by its results.
    if results.0.is_empty() {
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        panic!("the conformance suite did not run: {said}{complained}");
    }
    results
}

/// Every `checks.json` below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("the suite was given this directory");
    let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
    entries
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        })
        .filter(|path| path.ends_with("checks.json"))
        .collect()
}

/// The scenario of `DIR/[server-]SCENARIO-TIME/checks.json`; one with a slash in its name has a directory more.
fn scenario(dir: &Path, file: &Path) -> Option<String> {
    const TIME: usize = "-2026-11-16T00-06-47-228Z".len();
    let name = file.parent()?.strip_prefix(dir).ok()?.to_str()?;
    let name = name.get(..name.len().checked_sub(TIME)?)?;
    Some(name.strip_prefix("server-").unwrap_or(name).to_owned())
}

/// The output directory of the suite.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Self {
        let dir = std::env::temp_dir().join(crate::unique("leash-conformance"));
        fs::create_dir(&dir).expect("cannot make a directory");
        Self(dir)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results(checks: &[(&str, &str)]) -> Results {
        let mut results = Results::default();
        for (id, status) in checks {
            results.add("scenario", &json!({"id": id, "status": status, "errorMessage": "because"}));
        }
        results
    }

    fn check_lost(direct: &[(&str, &str)], through: &[(&str, &str)], expected: &[&str]) {
        let lost = lost(&results(direct), &results(through));
        let lost: Vec<&str> = lost.iter().map(|loss| loss.check.as_str()).collect();
        assert_eq!(lost, expected, "{direct:?} {through:?}");
    }

    #[test]
    fn worse_check_is_a_loss() {
        check_lost(&[("a", "SUCCESS")], &[("a", "SUCCESS")], &[]);
        check_lost(&[("a", "SUCCESS")], &[("a", "FAILURE")], &["a"]);
        check_lost(&[("a", "SUCCESS")], &[("a", "INFO")], &["a"]);
        check_lost(&[("a", "WARNING")], &[("a", "FAILURE")], &["a"]);
    }

    #[test]
    fn improved_check_is_no_loss() {
        check_lost(&[("a", "FAILURE"), ("b", "WARNING")], &[("a", "SUCCESS"), ("b", "INFO")], &[]);
        check_lost(&[("a", "FAILURE")], &[], &[]);
    }

    #[test]
    fn missing_check_is_a_loss_and_missing_note_is_not() {
        check_lost(&[("a", "SUCCESS"), ("b", "INFO"), ("c", "SKIPPED")], &[], &["a"]);
    }

    #[test]
    fn a_new_complaint_is_a_loss() {
        check_lost(&[], &[("a", "FAILURE"), ("b", "WARNING"), ("c", "SUCCESS")], &["a", "b"]);
    }

    #[test]
    fn worst_verdict_of_repeated_checks_counts() {
        let results = results(&[("a", "SUCCESS"), ("a", "FAILURE"), ("a", "INFO")]);
        assert_eq!(results.status("scenario", "a"), Some(Status::Failure));
        assert_eq!(results.complaints(), ["scenario: a"]);
    }

    #[test]
    fn scenario_is_read_from_the_directory_name() {
        for (path, expected) in [
            ("/o/server-tools-list-2026-11-16T00-06-47-228Z/checks.json", "tools-list"),
            ("/o/server-server-stateless-2026-11-16T00-06-47-228Z/checks.json", "server-stateless"),
            ("/o/auth/metadata-default-2026-11-16T00-06-47-228Z/checks.json", "auth/metadata-default"),
        ] {
            assert_eq!(scenario(Path::new("/o"), Path::new(path)).as_deref(), Some(expected));
        }
    }
}
