//! `leash ps --watch`.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;

use leash_model::clock;
use leash_model::feed::{FeedDocument, FeedRow, LiveFeed, RowKind};
use leash_tree::platform::linux;
use rustix::event::PollFlags;
use rustix::process::Signal;

use super::super::attach;
use super::super::feed::{Looker, follow};
use super::COLUMNS;
use crate::args::Ps;
use crate::exit_code;
use crate::output::answer::VersionedAnswer;
use crate::output::ids::ShortIds;
use crate::output::printer::{Printer, bytes, span};
use crate::output::table::{Column, table};
use crate::output::terminal;
use crate::output::text::{Text, add};

const OTHERS: [Column; 7] = [
    Column::new("PID"),
    Column::new("NOT LEASHED").cut(16),
    Column::new("CLIENT").cut(16),
    Column::new("PROCS").left_out(1),
    Column::new("MEMORY").left_out(2),
    Column::new("AGE").left_out(3),
    Column::new("VERDICT").verdict(),
];

/// The signals that end the watch.
const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Prints every change until a signal comes or the reader has exited.
pub(super) fn watch(args: &Ps, printer: Printer) -> u8 {
    let signals = match linux::listen(&ENDING.map(Signal::as_raw)) {
        Ok(signals) => signals,
        Err(error) => {
            printer.error_text(format!("cannot wait for signals: {error}"), None);
            return exit_code::LEASH_FAILED;
        }
    };
    let stdout = io::stdout();
    // Asked for no event, a pipe still says that its reader has exited.
    let stop = [(signals.as_fd(), PollFlags::IN), (stdout.as_fd(), PollFlags::empty())];
    let on_screen = !args.json && stdout.is_terminal();
    let (mut feed, mut warned) = (LiveFeed::default(), Vec::new());
    follow(Looker::new(!args.leashed, attach::socket(None)), &stop, |look| {
        if look.warnings != warned {
            warned.clone_from(&look.warnings);
            warned.iter().for_each(|warning| printer.warning(warning));
        }
        let document = feed.take(look);
        let text = match (document, args.json) {
            (Some(document), true) => json_line(document),
            // On a screen, the ages change as well.
            (Some(_), false) => shown(&feed, on_screen),
            (None, false) if on_screen => shown(&feed, on_screen),
            (None, _) => return true,
        };
        printer.try_exact(text).is_ok()
    });
    exit_code::OK
}

fn json_line(document: FeedDocument) -> String {
    // A document consists of texts and numbers, so this can't fail.
    serde_json::to_string(&VersionedAnswer::new(document)).unwrap_or_default() + "\n"
}

/// The tables as they are printed: over those before on a screen, below them in a file.
fn shown(feed: &LiveFeed, on_screen: bool) -> String {
    let text = tables(feed);
    let text = text.shown(terminal::in_colour(&io::stdout()));
    if on_screen { frame(&text, terminal::rows()) } else { format!("{text}\n") }
}

/// A frame that is drawn over the one before, in one write, without clearing the screen first: so it does not flicker.
fn frame(text: &str, rows: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // The cursor stays below the last line.
    let room = rows.unwrap_or(usize::MAX).saturating_sub(1).max(1);
    let (fitting, rest) = match lines.len() > room {
        true => (room - 1, format!("... and {} more lines\u{1b}[K\n", lines.len() + 1 - room)),
        false => (lines.len(), String::new()),
    };
    let drawn: String = lines[..fitting].iter().map(|line| format!("{line}\u{1b}[K\n")).collect();
    format!("\u{1b}[H{drawn}{rest}\u{1b}[J")
}

/// The same columns as those of `leash ps`.
fn tables(feed: &LiveFeed) -> Text {
    let rows = feed.rows();
    let ids = ShortIds::new(rows.iter().flat_map(|row| row.session.as_deref().into_iter().chain(row.run.as_deref())));
    let (others, ours): (Vec<&FeedRow>, Vec<&FeedRow>) = rows.iter().partition(|row| row.kind == RowKind::Other);
    let mut text = Text::default();
    if ours.is_empty() {
        let place = if others.is_empty() { "here" } else { "under leash" };
        add(&mut text, format_args!("No MCP server runs {place}."));
    } else {
        let mut inside = None;
        let cells: Vec<Vec<String>> = ours.iter().map(|row| our_cells(row, &mut inside, &ids)).collect();
        text.append(table(&COLUMNS, &cells));
    }
    if !others.is_empty() {
        text.line("");
        text.append(table(&OTHERS, &others.iter().map(|row| other_cells(row)).collect::<Vec<_>>()));
    }
    text
}

/// The cells of a row of leash. `inside` is the session whose members follow its own row.
fn our_cells<'f>(row: &'f FeedRow, inside: &mut Option<&'f str>, ids: &ShortIds) -> Vec<String> {
    let session = row.session.as_deref().unwrap_or_default();
    let id = match row.kind {
        RowKind::Session => {
            *inside = Some(session);
            ids.of(session)
        }
        _ if *inside == Some(session) => format!("  {}", ids.of(row.run.as_deref().unwrap_or_default())),
        _ => ids.of(session),
    };
    let of_tree = row.memory_bytes.is_some() && row.kind != RowKind::Session;
    let kind = match row.kind {
        RowKind::Session => "-",
        RowKind::Connection => "connection",
        RowKind::Upstream => "upstream",
        RowKind::Tree | RowKind::Other => row.containment.map_or("-", |containment| containment.name()),
    };
    vec![
        id,
        if row.kind == RowKind::Session && row.name == session { "-".to_owned() } else { row.name.clone() },
        row.owner.clone().unwrap_or_else(|| "-".to_owned()),
        kind.to_owned(),
        if of_tree { row.processes.len().to_string() } else { "-".to_owned() },
        row.memory_bytes.map_or_else(|| "-".to_owned(), bytes),
        age(row),
        row.state.clone(),
    ]
}

fn other_cells(row: &FeedRow) -> Vec<String> {
    vec![
        row.root.map_or_else(|| "-".to_owned(), |root| root.pid.to_string()),
        row.name.clone(),
        row.client.clone().unwrap_or_else(|| "-".to_owned()),
        row.processes.len().to_string(),
        row.memory_bytes.map_or_else(|| "-".to_owned(), bytes),
        age(row),
        row.state.clone(),
    ]
}

fn age(row: &FeedRow) -> String {
    span(clock::unix_ms().saturating_sub(row.started_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_fits_the_screen_and_erases_the_one_before() {
        assert_eq!(frame("a\nb\n", Some(24)), "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n\u{1b}[J");
        assert_eq!(
            frame("a\nb\nc\nd\n", Some(4)),
            "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n... and 2 more lines\u{1b}[K\n\u{1b}[J"
        );
        assert_eq!(frame("a\nb\nc\n", Some(4)), "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\nc\u{1b}[K\n\u{1b}[J");
        assert_eq!(frame("a\nb\n", None), "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n\u{1b}[J");
    }
}
