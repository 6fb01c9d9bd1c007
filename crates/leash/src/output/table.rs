//! A table with aligned columns that fits into the terminal.

use unicode_width::UnicodeWidthStr as _;

use super::text::Text;
use super::{escape, palette, terminal};

/// The space between two columns.
const GAP: &str = "  ";

/// No table is narrower: less room shows nothing.
const NARROWEST: usize = 20;

/// A column. If the table is too wide, its columns are cut to their least widths, those that may be left out first; then
/// columns are left out, in their order; then the widest ones are cut further.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    least: usize,
    left_out: Option<u8>,
    is_verdict: bool,
}

impl Column {
    /// A column that stays whole while another one can give way.
    pub(crate) const fn new(title: &'static str) -> Column {
        Column { title, least: usize::MAX, left_out: None, is_verdict: false }
    }

    /// The width to which it may be cut.
    pub(crate) const fn cut(self, least: usize) -> Column {
        Column { least, ..self }
    }

    /// It may be left out: of such columns, the one with the lowest number first.
    pub(crate) const fn left_out(self, order: u8) -> Column {
        Column { left_out: Some(order), ..self }
    }

    /// Its words have the colours of results.
    pub(crate) const fn verdict(self) -> Column {
        Column { is_verdict: true, ..self }
    }

    /// Its title.
    pub(crate) const fn title(&self) -> &'static str {
        self.title
    }

    fn least(&self, natural: usize) -> usize {
        self.least.max(self.title.width()).min(natural)
    }
}

/// Formats rows under the titles, within the width of the output. The last column is not padded.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> Text {
    within(terminal::columns(), columns, rows)
}

/// The same within this many columns; without a limit, nothing is cut.
pub(crate) fn within(limit: Option<usize>, columns: &[Column], rows: &[Vec<String>]) -> Text {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| escape::line(cell).into_owned()).collect()).collect();
    let widths = layout(limit, columns, &rows);
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_owned()).collect();
    let mut text = Text::default();
    text.line(line(columns, &widths, &titles, true));
    rows.iter().for_each(|row| text.line(line(columns, &widths, row, false)));
    text
}

/// The width of each column for these cells, which are escaped; `None` if it is left out.
pub(crate) fn layout(limit: Option<usize>, columns: &[Column], rows: &[Vec<String>]) -> Vec<Option<usize>> {
    let natural = |(index, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.width());
        cells.chain([column.title.width()]).max().unwrap_or_default()
    };
    let natural: Vec<usize> = columns.iter().enumerate().map(natural).collect();
    widths(columns, &natural, limit.unwrap_or(usize::MAX).max(NARROWEST))
}

/// The columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The width of each column; `None` if it is left out.
fn widths(columns: &[Column], natural: &[usize], limit: usize) -> Vec<Option<usize>> {
    let mut give_way: Vec<usize> = (0..columns.len()).filter(|index| columns[*index].left_out.is_some()).collect();
    give_way.sort_by_key(|index| columns[*index].left_out);
    let others = (0..columns.len()).rev().filter(|index| columns[*index].left_out.is_none());
    let order: Vec<usize> = give_way.iter().copied().chain(others).collect();
    let mut dropped = 0;
    loop {
        let mut widths: Vec<Option<usize>> = natural.iter().copied().map(Some).collect();
        give_way[..dropped].iter().for_each(|index| widths[*index] = None);
        let mut over = total(&widths).saturating_sub(limit);
        for index in &order {
            if let Some(width) = &mut widths[*index] {
                let less = over.min(*width - columns[*index].least(*width));
                *width -= less;
                over -= less;
            }
        }
        if over == 0 || dropped == give_way.len() {
            cut_widest(&mut widths, over);
            return widths;
        }
        dropped += 1;
    }
}

fn total(widths: &[Option<usize>]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + GAP.len() * shown.count().saturating_sub(1)
}

fn cut_widest(widths: &mut [Option<usize>], over: usize) {
    for _ in 0..over {
        match widths.iter_mut().flatten().max() {
            Some(widest) if *widest > 1 => *widest -= 1,
            _ => return,
        }
    }
}

fn line(columns: &[Column], widths: &[Option<usize>], cells: &[String], is_title: bool) -> Text {
    let mut line = Text::default();
    let mut pad = String::new();
    for ((column, width), cell) in columns.iter().zip(widths).zip(cells) {
        let Some(width) = *width else { continue };
        let shown = fit(cell, width);
        let style = match column.is_verdict {
            _ if is_title => palette::TITLE,
            true => palette::of_word(cell),
            false => anstyle::Style::new(),
        };
        let used = shown.width();
        if used > 0 {
            // Blanks come before a cell and not behind it, so no line ends with any.
            line = line.and(&pad).and(Text::painted(style, shown));
            pad.clear();
        }
        pad.push_str(&" ".repeat(width - used));
        pad.push_str(GAP);
    }
    line
}

/// A text that is cut to fit into this many columns.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let ends: Vec<usize> = text.char_indices().map(|(at, letter)| at + letter.len_utf8()).collect();
    // One column is for the ellipsis.
    let kept = ends.partition_point(|end| text[..*end].width() < columns);
    let end = kept.checked_sub(1).map_or(0, |last| ends[last]);
    format!("{}…", text[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COLUMNS: [Column; 5] = [
        Column::new("ID"),
        Column::new("SERVER").cut(10),
        Column::new("OWNER").cut(8).left_out(3),
        Column::new("MEMORY").left_out(1),
        Column::new("STATE").cut(9).verdict(),
    ];

    fn check(limit: impl Into<Option<usize>> + Copy, rows: &[[&str; 5]], expected: &str) {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        let text = within(limit.into(), &COLUMNS, &rows);
        assert_eq!(text.shown(false), expected);
        if let Some(limit) = limit.into() {
            assert!(text.shown(false).lines().all(|line| line.width() <= limit), "{expected}");
        }
    }

    const LONG: [[&str; 5]; 2] = [
        ["a1", "server-with-a-long-name", "node(4711),stdin", "12.5 MiB", "running"],
        ["b2", "files", "none", "1 B", "abandoned: the next `leash run` ends it"],
    ];

    #[test]
    fn columns_line_up() {
        check(
            None,
            &[["a", "long cell", "x", "", ""], ["öö", "", "", "y", "running"]],
            "ID  SERVER     OWNER  MEMORY  STATE\na   long cell  x\nöö                    y       running\n",
        );
    }

    #[test]
    fn columns_give_way_in_their_order() {
        check(
            200,
            &LONG,
            "ID  SERVER                   OWNER             MEMORY    STATE\n\
             a1  server-with-a-long-name  node(4711),stdin  12.5 MiB  running\n\
             b2  files                    none              1 B       abandoned: the next `leash run` ends it\n",
        );
        check(
            80,
            &LONG,
            "ID  SERVER                   OWNER     MEMORY    STATE\n\
             a1  server-with-a-long-name  node(47…  12.5 MiB  running\n\
             b2  files                    none      1 B       abandoned: the next `leash run…\n",
        );
        check(
            40,
            &LONG,
            "ID  SERVER           OWNER     STATE\n\
             a1  server-with-a-…  node(47…  running\n\
             b2  files            none      abandone…\n",
        );
        check(30, &LONG, "ID  SERVER           STATE\na1  server-with-a-…  running\nb2  files            abandone…\n");
        check(20, &LONG, "ID  SERVER   STATE\na1  server…  running\nb2  files    abando…\n");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        check(
            None,
            &[["a", "日本語", "x", "", ""], ["b", "🦀", "y", "", ""], ["c", "e\u{301}", "z", "", ""]],
            "ID  SERVER  OWNER  MEMORY  STATE\na   日本語  x\nb   🦀      y\nc   e\u{301}       z\n",
        );
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("größer", 5), "größ…");
        assert_eq!(fit("größer", 1), "…");
    }

    #[test]
    fn a_cell_ends_no_line_and_a_verdict_is_painted() {
        check(None, &[["a\nb", "\u{1b}[2J", "", "", ""]], "ID    SERVER     OWNER  MEMORY  STATE\na\\nb  \\u{1b}[2J\n");
        let row = ["a", "b", "c", "d", "running"].map(str::to_owned).to_vec();
        let painted = within(Some(80), &COLUMNS, &[row]);
        assert!(painted.shown(true).ends_with("d       \u{1b}[1m\u{1b}[32mrunning\u{1b}[0m\n"), "{painted:?}");
    }

    proptest! {
        #[test]
        fn no_row_is_wider_than_the_terminal(limit in 20_usize..120, rows in prop::collection::vec(prop::array::uniform5("\\PC{0,60}"), 0..5)) {
            let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.to_vec()).collect();
            let text = within(Some(limit), &COLUMNS, &rows);
            for line in text.shown(false).lines() {
                prop_assert!(line.width() <= limit, "{line:?}");
            }
        }
    }
}
