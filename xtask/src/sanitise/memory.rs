//! Runs the tests of the keeper, the supervisor and the code from fork to exec under valgrind, and reports each.

use super::{Finding, Verdict};
use crate::setup;
use crate::step::{Failure, Outcome, Workspace, say};

/// The finding of a test that passed.
const CLEAN: &str = "no error, no block lost, no descriptor kept";

/// The test of the tests, and its finding.
const PLANTED: (&str, &str) =
    ("planted_faults_are_found", "an error, a lost block and a kept descriptor, each of them alone");

pub(super) fn look(workspace: &Workspace) -> Outcome<Vec<Finding>> {
    let deps = setup::install_valgrind(workspace)?;
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    say("Checking", "the keeper and the spawn path under valgrind");
    let words = ["nextest", "run", "--package", "mcp-leash", "--test", "valgrind", "--no-fail-fast"];
    let output = workspace
        .cargo(words)
        // A skipped test counts as passed, and prints a note.
        .args(["--success-output=immediate", "--status-level=pass", "--color=never"])
        .envs(&workspace.programs())
        .envs(&deps.variables())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let findings = read(&said);
    if looked(&findings) && !output.status.success() {
        say("Found", &said);
    }
    match looked(&findings) {
        true => Ok(findings),
        false => Err(Failure::new(format!("no test was run under valgrind: {said}"))),
    }
}

/// True if a test was not skipped. A part that was requested and could not be checked is no success.
fn looked(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.verdict != Verdict::Unknown)
}

/// From lines such as `        PASS [   1.2s] (1/7) mcp-leash::valgrind the_keeper_is_killed`.
fn read(said: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.iter().position(|word| *word == "mcp-leash::valgrind").and_then(|at| words.get(at + 1));
        if let (Some(name), Some(status)) = (name, words.first()) {
            let what = name.replace('_', " ");
            let found = match *status {
                "PASS" if *name == PLANTED.0 => PLANTED.1,
                "PASS" => CLEAN,
                _ => "see above",
            };
            let verdict = Verdict::is(*status == "PASS");
            // The runner names failed tests again at the end.
            if !findings.iter().any(|finding| finding.what == what) {
                findings.push(Finding { part: "memory", what, found: found.to_owned(), verdict });
            }
        } else if let (Some((_, why)), Some(last)) = (line.split_once("note: skipped: "), findings.last_mut()) {
            (last.found, last.verdict) = (format!("skipped: {why}"), Verdict::Unknown);
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_read_from_the_output_of_the_runner() {
        let said = "\
    Starting 3 tests across 1 binary
        PASS [   1.245s] (1/3) mcp-leash::valgrind the_keeper_is_killed
        FAIL [   0.100s] (2/3) mcp-leash::valgrind an_owner_is_gone
  stderr ───
    thread panicked
        PASS [   0.001s] (3/3) mcp-leash::valgrind planted_faults_are_found
  stderr ───
    note: skipped: there is no valgrind
     Summary [   1.3s] 3 tests run: 2 passed, 1 failed, 0 skipped
        FAIL [   0.100s] (2/3) mcp-leash::valgrind an_owner_is_gone
";
        let found = read(said);
        let verdicts: Vec<(&str, Verdict)> =
            found.iter().map(|finding| (finding.what.as_str(), finding.verdict)).collect();
        assert_eq!(
            verdicts,
            [
                ("the keeper is killed", Verdict::Good),
                ("an owner is gone", Verdict::Bad),
                ("planted faults are found", Verdict::Unknown),
            ]
        );
        assert!(looked(&found) && !looked(&found[2..]) && !looked(&[]));
    }
}
