//! `cargo xtask sanitise`: checks beyond the tests: dependencies, unsafe code, memory errors and coverage.

mod coverage;
pub(crate) mod dependencies;
mod lcov;
mod llvm;
mod memory;
mod soundness;

use std::fs;

use serde_json::{Value, json};

use crate::step::{Failure, Outcome, Step, Workspace, say};

const USAGE: &str =
    "sanitise has the parts `dependencies`, `unsafe`, `memory` and `coverage` (none named: all), and --json";

const PARTS: [&str; 4] = ["dependencies", "unsafe", "memory", "coverage"];

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
    /// It could not be checked, which is no reason to fail.
    Unknown,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Bad => "**bad**",
            Self::Unknown => "not known",
        }
    }

    fn is(good: bool) -> Self {
        if good { Self::Good } else { Self::Bad }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    part: &'static str,
    what: String,
    found: String,
    verdict: Verdict,
}

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    parts: Vec<String>,
    json: bool,
}

impl Order {
    fn parse(words: &[String]) -> Outcome<Self> {
        let (options, mut parts): (Vec<String>, Vec<String>) =
            words.iter().cloned().partition(|word| word.starts_with('-'));
        if options.iter().any(|option| option != "--json") || parts.iter().any(|part| !PARTS.contains(&part.as_str())) {
            return Err(Failure::new(USAGE));
        }
        if parts.is_empty() {
            parts = PARTS.map(str::to_owned).into();
        }
        Ok(Self { parts, json: !options.is_empty() })
    }
}

pub(crate) fn run(workspace: &Workspace, words: &[String]) -> Outcome {
    let order = Order::parse(words)?;
    let mut findings = Vec::new();
    let mut coverage = None;
    for part in &order.parts {
        match part.as_str() {
            "dependencies" => findings.extend(dependencies::look(workspace)?),
            "unsafe" => findings.extend(unsafe_findings(workspace)?),
            "memory" => findings.extend(memory::look(workspace)?),
            _ => {
                let covered = coverage::look(workspace)?;
                findings.extend(covered.findings());
                coverage = Some(covered);
            }
        }
    }
    let heading = heading();
    let whole = json!({
        "format": 1,
        "heading": heading,
        "findings": findings.iter().map(as_json).collect::<Vec<_>>(),
        "coverage": coverage.as_ref().map(coverage::Coverage::as_json),
    });
    let dir = workspace.target.join("sanitise");
    fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
    let file = dir.join("report.json");
    fs::write(&file, format!("{whole:#}\n")).map_err(Failure::at(&file))?;
    match order.json {
        true => println!("{whole:#}"),
        false => {
            println!("\n{heading}\n\n{}", table(&findings));
            coverage.iter().for_each(|coverage| println!("{}", coverage.table()));
            say("Written", file.display());
        }
    }
    match findings.iter().filter(|finding| finding.verdict == Verdict::Bad).count() {
        0 => Ok(()),
        bad => Err(Failure::new(format!("{bad} of {} are not as they should be", findings.len()))),
    }
}

/// Reports the uses of `unsafe`.
fn unsafe_findings(workspace: &Workspace) -> Outcome<Vec<Finding>> {
    let mut findings = Vec::new();
    for found in soundness::look(&workspace.root)? {
        found.complaints.iter().for_each(|complaint| say("Found", complaint));
        findings.push(Finding {
            part: "unsafe",
            what: format!("`{}`", found.file),
            found: match found.complaints.len() {
                0 => format!("{} uses, each with its `SAFETY:` line", found.uses),
                bad => format!("{bad} complaints"),
            },
            verdict: Verdict::is(found.complaints.is_empty()),
        });
    }
    Ok(findings)
}

/// The date and the versions.
fn heading() -> String {
    let answer = |program: &str, words: &[&str]| Step::new(program).args(words).answer().unwrap_or_default();
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let rustc = answer("rustc", &["--version"]);
    format!(
        "{}, Linux {kernel}, {}.",
        answer("date", &["-u", "+%Y-%m-%d"]),
        rustc.split(" (").next().unwrap_or_default()
    )
}

fn table(findings: &[Finding]) -> String {
    let mut table = String::from("| part | what | found | |\n| --- | --- | --- | --- |\n");
    for Finding { part, what, found, verdict } in findings {
        table.push_str(&format!("| {part} | {what} | {found} | {} |\n", verdict.name()));
    }
    table
}

fn as_json(finding: &Finding) -> Value {
    let Finding { part, what, found, verdict } = finding;
    json!({"part": part, "what": what, "found": found, "verdict": format!("{verdict:?}").to_lowercase()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_options_as_they_are_typed() {
        let parse =
            |words: &[&str]| Order::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).ok();
        let all = PARTS.map(str::to_owned).to_vec();
        assert_eq!(parse(&[]), Some(Order { parts: all.clone(), json: false }));
        assert_eq!(parse(&["--json"]), Some(Order { parts: all, json: true }));
        assert_eq!(parse(&["unsafe", "--json"]), Some(Order { parts: vec!["unsafe".to_owned()], json: true }));
        assert_eq!(parse(&["everything"]), None);
        assert_eq!(parse(&["--fast"]), None);
    }

    #[test]
    fn the_table_has_a_line_for_each_finding() {
        let finding = |verdict| Finding { part: "memory", what: "a".to_owned(), found: "b".to_owned(), verdict };
        let text = table(&[finding(Verdict::Good), finding(Verdict::Bad)]);
        assert_eq!(
            text.lines().skip(2).collect::<Vec<_>>(),
            ["| memory | a | b | ok |", "| memory | a | b | **bad** |"]
        );
        assert_eq!(as_json(&finding(Verdict::Unknown))["verdict"], "unknown");
    }
}
