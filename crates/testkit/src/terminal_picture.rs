//! A picture of a terminal's screen, as SVG: text with the sequences for colours, as `tmux capture-pane -e` prints it.

use std::fmt::Write as _;

/// The size of a cell.
const CELL: (f64, f64) = (7.8, 17.0);
const MARGIN: f64 = 14.0;
const GROUND: &str = "#10161d";
const INK: &str = "#d7dee6";

/// The usual colours, of which terminals have eight, and these as their bright ones.
const COLOURS: [&str; 8] = ["#5b6672", "#ff7b72", "#4fc38a", "#e3b341", "#79b8ff", "#d2a8ff", "#56d4dd", "#d7dee6"];

/// The way in which text is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Look {
    bold: bool,
    dim: bool,
    reversed: bool,
    colour: Option<usize>,
}

impl Look {
    /// Applies the numbers of one sequence.
    fn apply(&mut self, numbers: &str) {
        let mut numbers = numbers.split([';', ':']).map(|number| number.parse::<usize>().unwrap_or(0));
        while let Some(number) = numbers.next() {
            match number {
                0 => *self = Look::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                7 => self.reversed = true,
                22 => (self.bold, self.dim) = (false, false),
                27 => self.reversed = false,
                30..=37 => self.colour = Some(number - 30),
                90..=97 => self.colour = Some(number - 90),
                // One of 256 colours.
                38 if numbers.next() == Some(5) => self.colour = numbers.next().map(|colour| colour % 8),
                39 => self.colour = None,
                _ => {}
            }
        }
    }
}

/// The screen as a picture with this title, for screen readers.
pub fn svg(screen: &str, columns: usize, title: &str) -> String {
    let lines: Vec<&str> = screen.lines().collect();
    let (width, height) = (columns as f64 * CELL.0 + 2.0 * MARGIN, lines.len() as f64 * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-size=\"13\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{GROUND}\"/>\n",
        escaped(title)
    );
    let mut look = Look::default();
    for (number, line) in lines.iter().enumerate() {
        let top = MARGIN + number as f64 * CELL.1;
        let mut column = 0;
        for (at, part) in line.split("\u{1b}[").enumerate() {
            let (numbers, text) = if at == 0 { ("", part) } else { part.split_once('m').unwrap_or(("", "")) };
            if at > 0 {
                look.apply(numbers);
            }
            let length = text.chars().count();
            run(&mut svg, (MARGIN + column as f64 * CELL.0, top), (text, length), look);
            column += length;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws characters with the same look.
fn run(svg: &mut String, (x, top): (f64, f64), (text, length): (&str, usize), look: Look) {
    let width = length as f64 * CELL.0;
    let colour = look.colour.map_or(INK, |colour| COLOURS[colour]);
    let (ink, ground) = if look.reversed { (GROUND, Some(colour)) } else { (colour, None) };
    if let Some(ground) = ground {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{ground}\"/>",
            CELL.1
        );
    }
    // Blanks need no text; each word has its own place, so that any font keeps the columns.
    let mut at = 0;
    for word in text.split(' ') {
        let letters = word.chars().count();
        if letters > 0 {
            let (left, base) = (x + at as f64 * CELL.0, top + 13.0);
            let weight = if look.bold { " font-weight=\"bold\"" } else { "" };
            let faint = if look.dim { " opacity=\"0.6\"" } else { "" };
            let _ = writeln!(
                svg,
                "<text x=\"{left:.1}\" y=\"{base:.1}\" fill=\"{ink}\" textLength=\"{:.1}\"{weight}{faint}>{}</text>",
                letters as f64 * CELL.0,
                escaped(word)
            );
        }
        at += letters + 1;
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_columns_and_colours() {
        let found = svg("a \u{1b}[1;32mb<\u{1b}[0m  c\n\u{1b}[7m d\u{1b}[39;27m", 10, "A & B");
        assert!(found.contains("<title>A &amp; B</title>"), "{found}");
        let text = |x: f64, y: f64, rest: &str| format!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{rest}</text>");
        assert!(found.contains(&text(14.0, 27.0, "#d7dee6\" textLength=\"7.8\">a")), "{found}");
        let bold = "#4fc38a\" textLength=\"15.6\" font-weight=\"bold\">b&lt;";
        assert!(found.contains(&text(14.0 + 2.0 * CELL.0, 27.0, bold)), "{found}");
        assert!(found.contains(&text(14.0 + 6.0 * CELL.0, 27.0, "#d7dee6\" textLength=\"7.8\">c")), "{found}");
        assert!(found.contains("width=\"15.6\" height=\"17\" fill=\"#d7dee6\"/>"), "a reversed blank is seen: {found}");
        assert!(found.contains(&text(14.0 + CELL.0, 44.0, "#10161d\" textLength=\"7.8\">d")), "{found}");
    }
}
