//! The few SVG elements that plots need: boxes, lines, text, and the numbers at an axis. By hand: `plotters` rounds to
//! whole pixels, draws a line for every digit of a logarithmic axis, and has neither a title for screen readers nor a
//! column of numbers beside the bars.

use std::fmt::Write as _;

/// Grey for frames and grids.
pub(crate) const GRID: &str = "#ddd";

/// A picture that is being drawn. Its background is white, so that it is readable on a dark page too.
#[derive(Debug)]
pub(crate) struct Picture {
    text: String,
}

/// The position of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// It starts there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// A box with its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Picture {
    /// An empty picture of this size, with a title for screen readers.
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            escaped(title)
        );
        Self { text }
    }

    /// A filled box.
    pub(crate) fn fill(&mut self, area: Area, color: &str) {
        let Area { x, y, width, height } = area;
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>"
        ));
    }

    /// A line.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str) {
        self.add(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A line through many points.
    pub(crate) fn curve(&mut self, points: impl IntoIterator<Item = (f64, f64)>, color: &str) {
        let points: Vec<String> = points.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.add(format_args!("<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.2\" points=\"{points}\"/>"));
    }

    /// Words.
    pub(crate) fn words(&mut self, at: (f64, f64), anchor: Anchor, words: &str) {
        self.sized(at, anchor, 12.0, words);
    }

    /// Words of another size.
    pub(crate) fn sized(&mut self, at: (f64, f64), anchor: Anchor, size: f64, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.add(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
            at.0,
            at.1,
            escaped(words)
        ));
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{element}").expect("a string can be written to");
    }
}

/// Escapes text between two tags.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Round numbers from zero to `most` or a little more, about `count` of them: the marks at an axis. The axis ends at
/// the last.
pub(crate) fn ticks(most: f64, count: usize) -> Vec<f64> {
    let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
    let rough = most / count.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= rough * (1.0 - 1e-9));
    let step = step.unwrap_or(10.0 * power);
    let steps = (most / step * (1.0 - 1e-9)).ceil() as usize;
    (0..=steps).map(|at| at as f64 * step).collect()
}

/// Formats a number at an axis: no more digits than needed, with separated thousands.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{:.4}", value.abs());
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let rest = rest.trim_end_matches('0');
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{grouped}{point}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_reach_the_end() {
        assert_eq!(ticks(10_200.0, 4), [0.0, 5_000.0, 10_000.0, 15_000.0]);
        assert_eq!(ticks(1.0, 4), [0.0, 0.5, 1.0]);
        assert_eq!(ticks(100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.0, 2), [0.0, 0.5, 1.0]);
        for most in [1e-6, 0.3, 7.0, 99.9, 123_456.7] {
            let marks = ticks(most, 4);
            let end = marks[marks.len() - 1];
            assert!(end >= most * (1.0 - 1e-6) && end < 2.1 * most && marks.len() <= 6, "{most}: {marks:?}");
        }
    }

    #[test]
    fn numbers_as_people_write_them() {
        let cases = [(0.0, "0"), (999.0, "999"), (1_000.0, "1,000"), (1_234_567.5, "1,234,567.5"), (0.05, "0.05")];
        for (value, expected) in cases {
            assert_eq!(short(value), expected);
        }
        assert_eq!(short(-1_500.0), "-1,500");
    }

    #[test]
    fn text_is_escaped() {
        let mut picture = Picture::new(10.0, 10.0, "<&>");
        picture.words((1.0, 2.0), Anchor::End, "a </text> & b");
        let text = picture.finish();
        assert!(text.contains("<title>&lt;&amp;&gt;</title>"));
        assert!(text.contains("text-anchor=\"end\" font-size=\"12\">a &lt;/text&gt; &amp; b</text>"));
        assert!(text.ends_with("</svg>\n"));
    }
}
