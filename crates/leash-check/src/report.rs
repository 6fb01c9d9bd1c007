//! What a check found out: rows with a status each, as values, JSON and JUnit XML.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::rule::Rule;

/// Version of the report's JSON; raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// How one check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Pass,
    /// Users are hurt, and the one who was checked could have known.
    Fail,
    /// Users are hurt, and the specification leaves the one who was checked free to do it.
    Warn,
    /// It could not be found out.
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

/// One check and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// A name that stays: `stdio.eof`.
    pub id: String,
    /// What was done, in a few words.
    pub title: String,
    /// How it went.
    pub status: Status,
    /// What was seen.
    pub detail: String,
    /// What the specification asks for, and who is hurt.
    #[serde(flatten)]
    pub rule: Rule,
    /// How long it took.
    pub took_ms: u64,
}

impl Row {
    /// A row; the time is added by [`Row::took`].
    pub fn new(id: impl Into<String>, title: impl Into<String>, rule: Rule, (status, detail): Seen) -> Row {
        Row { id: id.into(), title: title.into(), status, detail, rule, took_ms: 0 }
    }

    /// The time it took.
    #[must_use]
    pub fn took(mut self, time: Duration) -> Row {
        self.took_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self
    }
}

/// A status and what was seen.
pub type Seen = (Status, String);

/// As it should be.
pub(crate) fn pass(detail: impl Into<String>) -> Seen {
    (Status::Pass, detail.into())
}

/// A finding.
pub(crate) fn fail(detail: impl Into<String>) -> Seen {
    (Status::Fail, detail.into())
}

/// A finding that the specification allows.
pub(crate) fn warn(detail: impl Into<String>) -> Seen {
    (Status::Warn, detail.into())
}

/// Not found out.
pub(crate) fn skip(detail: impl Into<String>) -> Seen {
    (Status::Skip, detail.into())
}

/// All that a check found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Version of this shape.
    pub version: u32,
    /// `stdio`, `http` or `host`.
    pub kind: &'static str,
    /// The command or the address.
    pub target: String,
    /// Whether there is no finding.
    pub passed: bool,
    /// The checks, in their order.
    pub checks: Vec<Row>,
}

impl Report {
    /// A report. With `strict`, a warning is a finding.
    pub fn new(kind: &'static str, target: impl Into<String>, mut checks: Vec<Row>, strict: bool) -> Report {
        for row in checks.iter_mut().filter(|row| strict && row.status == Status::Warn) {
            row.status = Status::Fail;
        }
        let passed = checks.iter().all(|row| row.status != Status::Fail);
        Report { version: VERSION, kind, target: target.into(), passed, checks }
    }

    /// How many rows have this status.
    pub fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|row| row.status == status).count()
    }

    /// As JUnit XML, which most CI systems read.
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

/// Text that may stand in XML. What XML has no way to write (most control characters) becomes U+FFFD.
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
            Report::new("host", "x", rows, strict).passed
        };
        assert!(without_failure(false));
        assert!(!without_failure(true));
        assert!(!Report::new("host", "x", rows(), false).passed);
    }

    #[test]
    fn junit_says_what_json_says() {
        let report = Report::new("stdio", "run <me>", rows(), false);
        let xml = report.junit();
        assert!(xml.contains("tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"1.500\""), "{xml}");
        assert!(xml.contains("<testsuite name=\"stdio run &lt;me&gt;\""), "{xml}");
        assert!(xml.contains("classname=\"leash.check.stdio\" name=\"eof: end of input\" time=\"1.500\"/>"), "{xml}");
        assert!(xml.contains("message=\"still there: `a &lt;b&gt; &amp; &quot;c&quot;`\u{fffd}\""), "{xml}");
        assert!(xml.contains("MCP 2025-11-25, basic/lifecycle, Shutdown: "), "{xml}");
        assert!(xml.contains("anthropics/claude-code#26658: "), "{xml}");
        assert!(xml.contains("<system-out>warning: 1 survived</system-out>"), "{xml}");
        let json = serde_json::to_value(&report).expect("it is plain");
        assert_eq!(json["checks"][1]["status"], "fail");
        assert_eq!(json["checks"][1]["specification"]["revision"], "2025-11-25");
        assert_eq!(json["checks"][1]["users"]["report"], "anthropics/claude-code#26658");
    }
}
