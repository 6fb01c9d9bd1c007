//! The report of `leash check` as text.

use leash_check::{CheckReport, Row, Status};

use super::escape;
use super::printer::span;
use super::table::table;

/// The table, followed by each finding with its meaning.
pub(crate) fn text(report: &CheckReport) -> String {
    let time = |row: &Row| if row.took_ms == 0 { String::new() } else { span(row.took_ms) };
    let rows: Vec<Vec<String>> = report
        .checks
        .iter()
        .map(|row| vec![row.status.word().to_owned(), row.id.clone(), row.title.clone(), time(row), brief(row)])
        .collect();
    let mut text = format!("{} {}\n\n", report.kind, escape::line(&report.target));
    text.push_str(&table(&["RESULT", "CHECK", "WHAT", "TIME", "SEEN"], &rows));
    for row in report.checks.iter().filter(|row| matches!(row.status, Status::Fail | Status::Warn)) {
        text.push_str(&finding(row));
    }
    text.push_str(&format!("\n{}\n", summary(report)));
    text
}

/// The observation, shortened to the width of the table; the full text of a finding follows below.
fn brief(row: &Row) -> String {
    const WIDTH: usize = 60;
    let told_below = matches!(row.status, Status::Fail | Status::Warn);
    match row.detail.char_indices().nth(WIDTH) {
        Some((end, _)) if told_below => format!("{}...", row.detail[..end].trim_end()),
        _ => row.detail.clone(),
    }
}

fn finding(row: &Row) -> String {
    let (asks, users) = (row.rule.specification, row.rule.users);
    format!(
        "\n{} {}: {}\n  MCP {}, {}: {}\n  {}: {}\n",
        row.status.word(),
        row.id,
        escape::line(&row.detail),
        asks.revision,
        asks.section,
        asks.text,
        users.report,
        users.text
    )
}

fn summary(report: &CheckReport) -> String {
    let count = |status| report.count(status);
    let mut parts = vec![format!("{} passed", count(Status::Pass))];
    for (status, word) in [(Status::Fail, "failed"), (Status::Warn, "warned"), (Status::Skip, "skipped")] {
        if count(status) > 0 {
            parts.push(format!("{} {word}", count(status)));
        }
    }
    parts.join(", ")
}
