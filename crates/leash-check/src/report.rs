//! The result of a check: rows with a status each, as values, JSON and JUnit XML.
//!
//! The XML is made by hand: `quick-junit` drops tabs, line breaks in messages and the words behind an escape character,
//! and lets U+FFFE pass, which no parser accepts.

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;

use super::rule::Rule;
use leash_model::duration;

/// Version of the report's JSON; raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// The result of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The requirement is met.
    Pass,
    /// Users are harmed, and the authors of the tested program could have known it.
    Fail,
    /// Users are harmed, but the specification allows this behaviour.
    Warn,
    /// The row could not be tested.
    Skip,
}

impl Status {
    /// One word for a table.
    pub fn word(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::Fail => "FAIL",
            Status::Warn => "warn",
            Status::Skip => "skip",
        }
    }
}

/// One row of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// A stable name: `stdio.eof`.
    pub id: String,
    /// The step, in a few words.
    pub title: String,
    /// The result.
    pub status: Status,
    /// The observation.
    pub detail: String,
    /// The requirement, and the harm to users.
    #[serde(flatten)]
    pub rule: Rule,
    /// The time that it took.
    pub took_ms: u64,
}

impl Row {
    /// Creates a row; [`Row::took`] adds the time.
    pub fn new(id: impl Into<String>, title: impl Into<String>, rule: Rule, (status, detail): Observation) -> Row {
        Row { id: id.into(), title: title.into(), status, detail, rule, took_ms: 0 }
    }

    /// Sets the time that it took.
    #[must_use]
    pub fn took(mut self, time: Duration) -> Row {
        self.took_ms = duration::as_ms(time);
        self
    }
}

/// A status and the observation.
pub type Observation = (Status, String);

/// The requirement is met.
pub(crate) fn pass(detail: impl Into<String>) -> Observation {
    (Status::Pass, detail.into())
}

/// A finding.
pub(crate) fn fail(detail: impl Into<String>) -> Observation {
    (Status::Fail, detail.into())
}

/// A finding that the specification allows.
pub(crate) fn warn(detail: impl Into<String>) -> Observation {
    (Status::Warn, detail.into())
}

/// The row could not be tested.
pub(crate) fn skip(detail: impl Into<String>) -> Observation {
    (Status::Skip, detail.into())
}

/// The complete result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckReport {
    /// The version of this format.
    pub version: u32,
    /// `stdio`, `http` or `host`.
    pub kind: &'static str,
    /// The command or the address.
    pub target: String,
    /// True if there is no finding.
    pub passed: bool,
    /// The checks, in their order.
    pub checks: Vec<Row>,
}

impl CheckReport {
    /// A report. With `strict`, a warning is a finding.
    pub fn new(kind: &'static str, target: impl Into<String>, mut checks: Vec<Row>, strict: bool) -> CheckReport {
        for row in checks.iter_mut().filter(|row| strict && row.status == Status::Warn) {
            row.status = Status::Fail;
        }
        let passed = checks.iter().all(|row| row.status != Status::Fail);
        CheckReport { version: VERSION, kind, target: target.into(), passed, checks }
    }

    /// The number of rows with this status.
    pub fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|row| row.status == status).count()
    }

    /// The report as JUnit XML, which most CI systems read.
    pub fn junit(&self) -> String {
        let time = self.checks.iter().map(|row| row.took_ms).sum::<u64>();
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let counts = format!(
            "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{}\"",
            self.checks.len(),
            self.count(Status::Fail),
            self.count(Status::Skip),
            seconds(time)
        );
        // Writing to a String can't fail.
        let _ = writeln!(xml, "<testsuites name=\"leash check\" {counts}>");
        let _ = writeln!(xml, "  <testsuite name=\"{}\" {counts}>", escaped(&format!("{} {}", self.kind, self.target)));
        for row in &self.checks {
            junit_case(&mut xml, row);
        }
        xml.push_str("  </testsuite>\n</testsuites>\n");
        xml
    }
}

fn junit_case(xml: &mut String, row: &Row) {
    let (class, name) = row.id.rsplit_once('.').unwrap_or(("check", &row.id));
    let open = format!(
        "    <testcase classname=\"leash.check.{}\" name=\"{}\" time=\"{}\"",
        escaped(class),
        escaped(&format!("{name}: {}", row.title)),
        seconds(row.took_ms)
    );
    let detail = escaped(&row.detail);
    let _ = match row.status {
        Status::Pass => writeln!(xml, "{open}/>"),
        Status::Skip => writeln!(xml, "{open}><skipped message=\"{detail}\"/></testcase>"),
        Status::Warn => writeln!(xml, "{open}><system-out>warning: {detail}</system-out></testcase>"),
        Status::Fail => {
            let Rule { specification, users } = row.rule;
            let why = format!(
                "MCP {}, {}: {}\n{}: {}",
                specification.revision, specification.section, specification.text, users.report, users.text
            );
            writeln!(xml, "{open}><failure message=\"{detail}\">{}</failure></testcase>", escaped(&why))
        }
    };
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// Text escaped for XML. A character that XML can't express (most control characters) becomes U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule;

    fn rows() -> Vec<Row> {
        vec![
            Row::new("stdio.eof", "end of input", rule::EOF, pass("left")).took(Duration::from_millis(1500)),
            Row::new("stdio.term", "SIGTERM", rule::TERM, fail("still there: `a <b> & \"c\"`\u{1b}")),
            Row::new("host.kill.servers", "killed", rule::HOST_KILLED, warn("1 survived")),
            Row::new("http.idle", "idle", rule::EXPIRY, skip("no --expect-idle")),
        ]
    }

    #[test]
    fn a_warning_counts_only_when_strict() {
        let without_failure = |strict| {
            let rows = rows().into_iter().filter(|row| row.status != Status::Fail).collect();
            CheckReport::new("host", "x", rows, strict).passed
        };
        assert!(without_failure(false));
        assert!(!without_failure(true));
        assert!(!CheckReport::new("host", "x", rows(), false).passed);
    }

    #[test]
    fn junit_and_json_agree() {
        let report = CheckReport::new("stdio", "run <me>", rows(), false);
        let xml = report.junit();
        assert!(xml.contains("tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"1.500\""), "{xml}");
        assert!(xml.contains("<testsuite name=\"stdio run &lt;me&gt;\""), "{xml}");
        assert!(xml.contains("classname=\"leash.check.stdio\" name=\"eof: end of input\" time=\"1.500\"/>"), "{xml}");
        assert!(xml.contains("message=\"still there: `a &lt;b&gt; &amp; &quot;c&quot;`\u{fffd}\""), "{xml}");
        assert!(xml.contains("MCP 2025-11-25, basic/lifecycle, Shutdown: "), "{xml}");
        assert!(xml.contains("anthropics/claude-code#26658: "), "{xml}");
        assert!(xml.contains("<system-out>warning: 1 survived</system-out>"), "{xml}");
        let json = serde_json::to_value(&report).expect("a plain value");
        assert_eq!(json["checks"][1]["status"], "fail");
        assert_eq!(json["checks"][1]["specification"]["revision"], "2025-11-25");
        assert_eq!(json["checks"][1]["users"]["report"], "anthropics/claude-code#26658");
    }
}
