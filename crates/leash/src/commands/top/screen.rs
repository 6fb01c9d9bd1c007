//! Draws the state of `leash top`.

use leash_model::feed::{FeedRow, FeedTotals, RowKind};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _, Wrap};

use super::lines::{TopLine, lines};
use super::state::{Mode, TopState};
use crate::output::escape;
use crate::output::ids::ShortIds;
use crate::output::message::counted;
use crate::output::printer::{bytes, span};
use crate::output::table::{self, Column};

/// The columns. Those with the lowest numbers are left out first on a narrow screen.
const COLUMNS: [Column; 10] = [
    Column::new("NAME").cut(18),
    Column::new("PROCS"),
    Column::new("   MEMORY"),
    Column::new("60 S").left_out(4),
    Column::new("  AGE").left_out(6),
    Column::new("CALLS").left_out(2),
    Column::new("CONTAINMENT").left_out(3),
    Column::new("OWNER").cut(10).left_out(5),
    Column::new("STATE").cut(9),
    Column::new("EVIDENCE").cut(24).left_out(1),
];

/// The place of the state among the columns, which has a colour.
const STATE: usize = 8;

/// The characters of the sparkline.
const SPARK: usize = 10;

/// The marks of the sparkline.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The same for a terminal without UTF-8.
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// How the terminal can show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScreenLooks {
    pub(super) in_colour: bool,
    pub(super) utf8: bool,
}

impl ScreenLooks {
    fn colour(self, style: Style, colour: Color) -> Style {
        if self.in_colour { style.fg(colour) } else { style }
    }

    /// The style of a state or a verdict. The word says the same.
    fn of_state(self, word: &str) -> Style {
        match word {
            "running" | "live" => self.colour(Style::new(), Color::Green),
            "orphan" => self.colour(Style::new().add_modifier(Modifier::BOLD), Color::Red),
            "likely" | "stale-host" | "starting" | "ending" => self.colour(Style::new(), Color::Yellow),
            word if word.starts_with("abandoned") => self.colour(Style::new().add_modifier(Modifier::BOLD), Color::Red),
            _ => Style::new(),
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState, looks: ScreenLooks, now_ms: u64) {
    let area = frame.area();
    if area.height < 4 || area.width < 20 {
        put(frame.buffer_mut(), area, 0, "too small", Style::new());
        return;
    }
    // A quarter of the screen is for events.
    let events = (area.height / 4).clamp(1, 12);
    let list = Rect { y: area.y + 1, height: area.height - events - 3, ..area };
    let below = Rect { y: list.y + list.height, height: events + 1, ..area };
    totals(frame.buffer_mut(), area, state, now_ms);
    draw_list(frame.buffer_mut(), list, state, looks, now_ms);
    draw_events(frame.buffer_mut(), below, state, now_ms);
    bottom_line(frame.buffer_mut(), area, state);
    match &state.mode {
        Mode::List | Mode::Filter { .. } => {}
        Mode::Help => overlay(frame, "Keys", &HELP.map(str::to_owned), 0, "Esc closes"),
        Mode::Details { title, lines, scroll, .. } => {
            overlay(frame, title, lines, *scroll, "Esc closes, arrows scroll")
        }
        Mode::Confirm { question, .. } => overlay(frame, "Confirm", question, 0, "y does it, n does not"),
    }
}

/// Writes a line of an area, as much as fits.
fn put(buffer: &mut Buffer, area: Rect, line: u16, text: &str, style: Style) {
    if line < area.height {
        buffer.set_stringn(area.x, area.y + line, escape::line(text), area.width.into(), style);
    }
}

fn totals(buffer: &mut Buffer, area: Rect, state: &TopState, now_ms: u64) {
    let FeedTotals { trees, processes, memory_bytes, others, others_memory_bytes, orphans, given_back_bytes, .. } =
        state.feed.totals();
    let mut text = format!("{}, {processes} procs, {}", counted(trees, "tree"), bytes(memory_bytes));
    if others > 0 {
        let (others, orphans) = (counted(others, "other"), counted(orphans, "orphan"));
        text.push_str(&format!(" | {others}, {orphans}, {}", bytes(others_memory_bytes)));
    }
    text.push_str(&format!(" | given back {}", bytes(given_back_bytes)));
    put(buffer, area, 0, &text, BOLD);
    let mut marks = Vec::new();
    if state.read_only {
        marks.push("read-only".to_owned());
    }
    if state.pending > 0 {
        marks.push(format!("ending {}", state.pending));
    }
    let look = state.feed.last_look();
    if state.feed.is_old(now_ms) {
        marks.push(format!("OLD: {} ago", span(now_ms.saturating_sub(look.at_ms))));
    }
    let marks = marks.into_iter().map(|mark| format!(" {mark} ")).collect::<String>();
    let width = u16::try_from(marks.len()).unwrap_or(area.width).min(area.width);
    let right = Rect { x: area.x + area.width - width, width, ..area };
    put(buffer, right, 0, &marks, REVERSED);
}

fn draw_list(buffer: &mut Buffer, area: Rect, state: &TopState, looks: ScreenLooks, now_ms: u64) {
    let lines = lines(state.feed.rows(), &state.view);
    let ids = state.feed.rows().iter().filter_map(|row| row.session.as_deref());
    let ids = ShortIds::new(ids);
    let room = usize::from(area.height.saturating_sub(1));
    let is_selected =
        |line: &TopLine<'_>| matches!(line, TopLine::Row { row, .. } if Some(&row.key) == state.selected.as_ref());
    let selected = lines.iter().position(is_selected);
    let first = first_line(selected.unwrap_or_default(), lines.len(), room);
    // Cells are made for lines that are shown: with many servers, most are not.
    let shown = &lines[first..lines.len().min(first + room)];
    let cells: Vec<Vec<String>> = shown.iter().map(|line| cells(line, state, looks, &ids, now_ms)).collect();
    let widths = table::layout(Some(area.width.into()), &COLUMNS, &cells);
    let titles: Vec<String> = COLUMNS.iter().map(|column| column.title().to_owned()).collect();
    draw_cells(buffer, Rect { height: 1, ..area }, &titles, &widths, [BOLD, BOLD]);
    if lines.is_empty() {
        let text = match (state.feed.last_look().at_ms, state.view.filter.is_empty()) {
            (0, _) => "Looking...",
            (_, true) => "No MCP server runs here. `leash adopt` puts the servers of your MCP clients on the leash.",
            (_, false) => "Nothing matches the filter. Esc clears it.",
        };
        return put(buffer, area, 1, text, Style::new());
    }
    let selected = selected.map(|at| at - first);
    for (at, line) in shown.iter().enumerate() {
        let style = match line {
            _ if selected == Some(at) => REVERSED,
            TopLine::Client { .. } | TopLine::Others => BOLD,
            TopLine::Process { .. } => DIM,
            TopLine::Row { .. } => Style::new(),
        };
        let state_style = match line {
            TopLine::Row { row, .. } => style.patch(looks.of_state(&row.state)),
            _ => style,
        };
        let place = Rect { y: area.y + at as u16 + 1, height: 1, ..area };
        if selected == Some(at) {
            buffer.set_style(place, style);
        }
        draw_cells(buffer, place, &cells[at], &widths, [style, state_style]);
    }
}

/// The first line to show, so that the selected one is near the middle of the room.
fn first_line(selected: usize, count: usize, room: usize) -> usize {
    selected.saturating_sub(room / 2).min(count.saturating_sub(room))
}

/// Draws cells in the columns of a line: the state in the second style, the others in the first.
fn draw_cells(buffer: &mut Buffer, line: Rect, cells: &[String], widths: &[Option<usize>], styles: [Style; 2]) {
    let mut x = line.x;
    let end = line.x + line.width;
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let Some(width) = *width else { continue };
        let room = width.min((end - x).into());
        let style = styles[usize::from(at == STATE)];
        buffer.set_stringn(x, line.y, table::fit(cell, room), room, style);
        x = (x + width as u16 + 2).min(end);
    }
}

fn cells(line: &TopLine<'_>, state: &TopState, looks: ScreenLooks, ids: &ShortIds, now_ms: u64) -> Vec<String> {
    let cells = match line {
        TopLine::Client { name, servers, processes, memory } => {
            let name = format!("{name}: {}", counted(*servers, "server"));
            vec![name, format!("{processes:>5}"), format!("{:>9}", bytes(*memory))]
        }
        TopLine::Others => match state.feed.old_verdicts(now_ms) {
            Some(age) => vec![format!("other programs, judged {} ago", span(age))],
            None => vec!["other programs".to_owned()],
        },
        TopLine::Process { process, depth } => {
            let name = format!("{}{} {}", "  ".repeat(*depth), process.pid, process.command);
            vec![name, String::new(), format!("{:>9}", bytes(process.memory_bytes))]
        }
        TopLine::Row { row, depth, processes } => row_cells(row, (*depth, *processes), state, (looks, ids), now_ms),
    };
    cells.into_iter().map(|cell| escape::line(&cell).into_owned()).collect()
}

fn row_cells(
    row: &FeedRow,
    (depth, processes): (usize, usize),
    state: &TopState,
    (looks, ids): (ScreenLooks, &ShortIds),
    now_ms: u64,
) -> Vec<String> {
    let marks = if looks.utf8 { &BLOCKS } else { &ASCII };
    let id = match (&row.session, row.root) {
        _ if row.kind == RowKind::Other => row.root.map(|root| root.pid.to_string()),
        // The line above has the session.
        _ if depth > 1 => None,
        (Some(session), _) if *session != row.name => Some(ids.of(session)),
        (Some(_), _) | (None, _) => None,
    };
    let name = if row.session.as_ref() == Some(&row.name) { ids.of(&row.name) } else { row.name.clone() };
    let kind = match row.kind {
        RowKind::Session | RowKind::Other => "-",
        RowKind::Connection => "connection",
        RowKind::Upstream => "upstream",
        RowKind::Tree => row.containment.map_or("-", |containment| containment.name()),
    };
    let owner = if row.kind == RowKind::Other { &row.client } else { &row.owner };
    vec![
        format!("{}{name}{}", "  ".repeat(depth), id.map(|id| format!(" {id}")).unwrap_or_default()),
        if row.kind == RowKind::Upstream { "    -".to_owned() } else { format!("{processes:>5}") },
        format!("{:>9}", row.memory_bytes.map_or_else(|| "-".to_owned(), bytes)),
        state.memory.line(&row.key, SPARK, marks),
        format!("{:>5}", span(now_ms.saturating_sub(row.started_ms))),
        calls(row),
        kind.to_owned(),
        owner.clone().unwrap_or_else(|| "-".to_owned()),
        // The details have the rest of the sentence.
        row.state.split(':').next().unwrap_or_default().to_owned(),
        row.evidence.join("; "),
    ]
}

/// All requests, and those that were not answered yet.
fn calls(row: &FeedRow) -> String {
    match (row.calls, row.in_flight) {
        (Some(all), Some(0) | None) => all.to_string(),
        (Some(all), Some(open)) => format!("{all} ({open} open)"),
        (None, Some(open)) => open.to_string(),
        (None, None) => "-".to_owned(),
    }
}

fn draw_events(buffer: &mut Buffer, area: Rect, state: &TopState, now_ms: u64) {
    let look = state.feed.last_look();
    let title = format!("{:-<width$}", "-- events ", width = usize::from(area.width));
    put(buffer, area, 0, &title, DIM);
    let warnings = look.warnings.iter().map(|warning| format!("warning: {warning}"));
    let events = state.events.iter().map(|event| {
        let ago = span(now_ms.saturating_sub(event.at_ms));
        format!("{ago:>6} ago  {}", event.text)
    });
    for (at, text) in warnings.chain(events).take(usize::from(area.height) - 1).enumerate() {
        put(buffer, area, at as u16 + 1, &text, Style::new());
    }
}

fn bottom_line(buffer: &mut Buffer, area: Rect, state: &TopState) {
    let line = area.height - 1;
    let order = state.view.order.word();
    let filter = &state.view.filter;
    match (&state.mode, &state.notice) {
        (Mode::Filter { .. }, _) => put(buffer, area, line, &format!("/{filter}_  Enter keeps it, Esc does not"), BOLD),
        (_, Some(notice)) => put(buffer, area, line, notice, REVERSED),
        _ => {
            let filter = if filter.is_empty() { String::new() } else { format!("  filter: {filter}") };
            let ends = if state.read_only { "" } else { "  e end  r reap" };
            let keys = format!("Enter why  l logs  / filter  t tree  s by {order}{ends}  ? help  q quit{filter}");
            put(buffer, area, line, &keys, Style::new());
        }
    }
}

/// The help page.
const HELP: [&str; 13] = [
    "Up, Down, k, j    move; PageUp, PageDown, Home and End as well",
    "Enter             show why the selected server is alive",
    "l                 show the last lines of its stderr, if leash keeps them",
    "/                 filter: Enter keeps it, Esc does not",
    "Esc               close this, or clear the filter",
    "t                 show or hide the processes of each server",
    "s                 sort by age, memory, processes or name",
    "e                 end the selected session or server, after a question",
    "r                 reap the selected orphan, after a question",
    "q, Ctrl-C         quit",
    "",
    "60 S is the memory of the last minute. CALLS: all requests (those open).",
    "Given back is the memory of all sessions that ended since boot.",
];

/// Draws lines in a frame over everything else.
fn overlay(frame: &mut Frame<'_>, title: &str, lines: &[String], scroll: usize, keys: &str) {
    let area = frame.area();
    let width = area.width.saturating_sub(4).min(100);
    let inner = usize::from(width.saturating_sub(2)).max(1);
    let lines: Vec<String> = lines.iter().map(|line| escape::line(line).into_owned()).collect();
    let text: Vec<Line<'_>> = lines.iter().map(|line| Line::raw(&**line)).collect();
    let paragraph = Paragraph::new(text).wrap(Wrap { trim: false });
    let wrapped: usize = lines.iter().map(|line| table::width(line).div_ceil(inner).max(1)).sum();
    let height = u16::try_from(wrapped + 2).unwrap_or(u16::MAX).min(area.height.saturating_sub(2));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let block = Block::bordered().title(format!(" {} ", escape::line(title))).title_bottom(format!(" {keys} "));
    let buffer = frame.buffer_mut();
    Clear.render(place, buffer);
    let scroll = u16::try_from(scroll).unwrap_or(u16::MAX);
    paragraph.scroll((scroll, 0)).block(block).render(place, buffer);
}

#[cfg(test)]
mod tests;
