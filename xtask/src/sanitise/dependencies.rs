//! The dependencies of leash: licences, versions, sources and advisories, checked with cargo-deny and `deny.toml`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Finding, Verdict};
use crate::setup;
use crate::step::{Failure, Outcome, Step, Workspace, say};

const DENY: &str = "cargo-deny@0.20.2";

/// The first that knows every key of `deny.toml`.
const DENY_AT_LEAST: [u32; 3] = [0, 18, 0];

/// The checks, and the texts for success.
const CHECKS: [(&str, &str, &str); 4] = [
    ("licenses", "licences of dependencies", "each may be linked into a program under MIT OR Apache-2.0"),
    ("bans", "versions of dependencies", "one of each, but for those that `deny.toml` skips with a reason"),
    ("sources", "sources of dependencies", "all from the registry"),
    ("advisories", "advisories and yanked versions", "none"),
];

pub(super) fn look(workspace: &Workspace) -> Outcome<Vec<Finding>> {
    let deny = deny(workspace)?;
    CHECKS.into_iter().map(|(check, what, well)| ask(workspace, &deny, (check, what, well))).collect()
}

/// The machine's own cargo-deny, or one that is built here.
fn deny(workspace: &Workspace) -> Outcome<PathBuf> {
    if installed() {
        return Ok("cargo-deny".into());
    }
    let dir = workspace.target.join("tools/deny");
    // It runs once, so a fast build matters more than a fast program.
    let words = ["install", "--locked", "--debug", DENY, "--root"];
    setup::once(&dir, DENY, || Step::cargo().args(words).args([&dir]).run())?;
    Ok(dir.join("bin/cargo-deny"))
}

/// True if the machine has a version that is new enough.
pub(crate) fn installed() -> bool {
    let answer = Step::new("cargo-deny").args(["--version"]).answer();
    answer.is_some_and(|answer| setup::version(&answer) >= DENY_AT_LEAST)
}

fn ask(workspace: &Workspace, deny: &Path, (check, what, well): (&str, &str, &str)) -> Outcome<Finding> {
    say("Checking", what);
    let run = |format: &str| {
        Step::new(deny)
            .args(["--format", format, "check", "--hide-inclusion-graph", check])
            .dir(&workspace.root)
            .output()
    };
    let said = String::from_utf8_lossy(&run("json")?.stderr).into_owned();
    let (verdict, found) = match summary(&said, check) {
        Some(0) => (Verdict::Good, well.to_owned()),
        Some(errors) => {
            say("Found", String::from_utf8_lossy(&run("human")?.stderr));
            (Verdict::Bad, format!("{errors} errors"))
        }
        None if unreachable(&said) => (Verdict::Unknown, "the database is not reachable from here".to_owned()),
        None => return Err(Failure::new(format!("cargo-deny has no summary: {said}"))),
    };
    Ok(Finding { part: "dependencies", what: what.to_owned(), found, verdict })
}

/// The number of errors of `check`, from the last line of cargo-deny.
fn summary(said: &str, check: &str) -> Option<u64> {
    let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let summary = lines.rfind(|line| line["type"] == "summary")?;
    summary["fields"][check]["errors"].as_u64()
}

/// True if it could not fetch the advisory database.
fn unreachable(said: &str) -> bool {
    said.contains("failed to fetch advisory database") || said.contains("failed to load advisory database")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_read_from_the_last_line() {
        let good = r#"{"type":"diagnostic","fields":{}}
{"fields":{"bans":{"errors":0,"helps":0,"notes":3,"warnings":0}},"type":"summary"}"#;
        assert_eq!(summary(good, "bans"), Some(0));
        assert_eq!(summary(&good.replace("\"errors\":0", "\"errors\":2"), "bans"), Some(2));
        // The summary of another check, or none at all, is not a success.
        assert_eq!(summary(good, "licenses"), None);
        assert_eq!(summary("cannot read deny.toml", "bans"), None);
        assert!(!unreachable("cannot read deny.toml"));
        assert!(unreachable("2026-11-16 [ERROR] failed to fetch advisory database with cli: failed to clone"));
    }
}
