//! The report of `leash check` as text.

use leash_check::{CheckReport, Row, Status};

use super::palette;
use super::printer::span;
use super::table::{Column, table};
use super::text::Text;

const COLUMNS: [Column; 5] = [
    Column::new("RESULT").verdict(),
    Column::new("CHECK"),
    Column::new("WHAT").cut(30),
    Column::new("TIME").left_out(2),
    // What a failed check saw is below the table as well.
    Column::new("SEEN").cut(16).left_out(1),
];

/// The table, followed by each finding with its meaning.
pub(crate) fn text(report: &CheckReport) -> Text {
    let time = |row: &Row| if row.took_ms == 0 { String::new() } else { span(row.took_ms) };
    let rows: Vec<Vec<String>> = report
        .checks
        .iter()
        .map(|row| vec![row.status.word().to_owned(), row.id.clone(), row.title.clone(), time(row), brief(row)])
        .collect();
    let mut text = Text::default();
    text.line(format_args!("{} {}", report.kind, report.target));
    text.line("");
    text.append(table(&COLUMNS, &rows));
    for row in report.checks.iter().filter(|row| matches!(row.status, Status::Fail | Status::Warn)) {
        finding(row, &mut text);
    }
    text.line("");
    text.line(summary(report));
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

fn finding(row: &Row, text: &mut Text) {
    let (asks, users, word) = (row.rule.specification, row.rule.users, row.status.word());
    text.line("");
    text.line(Text::painted(palette::of_word(word), word).and(format_args!(" {}: {}", row.id, row.detail)));
    text.line(format_args!("  MCP {}, {}: {}", asks.revision, asks.section, asks.text));
    text.line(format_args!("  {}: {}", users.report, users.text));
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
