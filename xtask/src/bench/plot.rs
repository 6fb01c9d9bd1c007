//! The plot of a table: a bar for each row, with its interval, and a line for the target. The same numbers give the
//! same picture.

use super::stats::Estimate;
use crate::svg::{Anchor, Area, GRID, Picture, short, ticks};

/// Bars with a common axis.
#[derive(Debug)]
pub(crate) struct Panel {
    title: String,
    bars: Vec<Bar>,
    goal: Option<Goal>,
    /// The value at which bars begin.
    base: Base,
}

/// The kind of a bar, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// The baseline of the comparison.
    Floor,
    Leash,
    Peer,
}

/// The target of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Zero,
    One,
}

#[derive(Debug)]
struct Bar {
    label: String,
    tone: Tone,
    /// `None` if it could not be measured.
    length: Option<Estimate>,
}

impl Panel {
    /// A panel of numbers with a unit, which the title names.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), bars: Vec::new(), goal: None, base: Base::Zero }
    }

    /// A panel of ratios: on a logarithmic axis, bars below 1 go to the left.
    pub(crate) fn ratios(title: impl Into<String>) -> Self {
        Self { base: Base::One, ..Self::new(title) }
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    pub(crate) fn bar(&mut self, label: impl Into<String>, tone: Tone, length: Estimate) {
        self.bars.push(Bar { label: label.into(), tone, length: Some(length) });
    }

    pub(crate) fn missing(&mut self, label: impl Into<String>, tone: Tone) {
        self.bars.push(Bar { label: label.into(), tone, length: None });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bars.is_empty()
    }

    fn height(&self) -> f64 {
        HEAD + ROW * self.bars.len() as f64 + FOOT
    }
}

impl Tone {
    /// The colours also differ in brightness, so that they can be told apart without colours.
    fn color(self) -> &'static str {
        match self {
            Self::Floor => "#b8b8b8",
            Self::Leash => "#1465b0",
            Self::Peer => "#e0a458",
        }
    }
}

impl Goal {
    pub(crate) fn value(self) -> f64 {
        match self {
            Self::AtMost(value) | Self::AtLeast(value) => value,
        }
    }

    pub(crate) fn words(self) -> String {
        match self {
            Self::AtMost(value) => format!("at most {}", short(value)),
            Self::AtLeast(value) => format!("at least {}", short(value)),
        }
    }
}

const BARS: f64 = 420.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 34.0;
const FOOT: f64 = 34.0;
const TOP: f64 = 34.0;
const MARGIN: f64 = 12.0;

/// The average width of a letter at most; no font is measured.
const LETTER: f64 = 6.6;

/// The ratio of the longest to the shortest bar above which a linear axis shows too little.
const WIDE: f64 = 30.0;

/// The most decades of a logarithmic axis, for very small numbers.
const DECADES: i32 = 5;

/// Draws the panels one below the other.
pub(crate) fn svg(title: &str, panels: &[Panel]) -> String {
    let bars = || panels.iter().flat_map(|panel| &panel.bars);
    let widest = |text: &dyn Fn(&Bar) -> String| bars().map(|bar| text(bar).chars().count()).max().unwrap_or(0) as f64;
    let left = MARGIN + LETTER * widest(&|bar| bar.label.clone()) + 8.0;
    let width = left + BARS + 8.0 + LETTER * widest(&shown) + MARGIN;
    let width = width.max(2.0 * MARGIN + 15.0 / 12.0 * LETTER * title.chars().count() as f64);
    let height = TOP + panels.iter().map(Panel::height).sum::<f64>();
    // Markdown marks have no meaning here.
    let title = &title.replace('`', "");
    let mut picture = Picture::new(width.ceil(), height, title);
    picture.sized((MARGIN, 22.0), Anchor::Start, 15.0, title);
    let mut top = TOP;
    for panel in panels {
        panel.draw(&mut picture, left, top);
        top += panel.height();
    }
    picture.finish()
}

impl Panel {
    fn draw(&self, picture: &mut Picture, left: f64, top: f64) {
        let title = match self.goal {
            Some(goal) => format!("{} (target: {})", self.title, goal.words()),
            None => self.title.clone(),
        };
        picture.sized((left, top + 22.0), Anchor::Start, 13.0, &title);
        let axis = Axis::of(self);
        let (first, last) = (top + HEAD, top + HEAD + ROW * self.bars.len() as f64);
        let x = |value: f64| left + BARS * axis.place(value);
        for mark in &axis.marks {
            picture.line((x(*mark), first), (x(*mark), last), GRID);
            picture.words((x(*mark), last + 15.0), Anchor::Middle, &short(*mark));
        }
        for (row, bar) in self.bars.iter().enumerate() {
            let middle = first + ROW * (row as f64 + 0.5);
            picture.words((left - 8.0, middle + 4.0), Anchor::End, &bar.label);
            picture.words((left + BARS + 8.0, middle + 4.0), Anchor::Start, &shown(bar));
            let Some(Estimate { value, low, high }) = bar.length else {
                continue;
            };
            let (from, to) = (x(axis.base).min(x(value)), x(axis.base).max(x(value)));
            let area = Area { x: from, y: middle - 6.0, width: (to - from).max(1.0), height: 12.0 };
            picture.fill(area, bar.tone.color());
            picture.line((x(low), middle), (x(high), middle), "#000");
            for end in [low, high] {
                picture.line((x(end), middle - 3.0), (x(end), middle + 3.0), "#000");
            }
        }
        picture.line((x(axis.base), first), (x(axis.base), last), "#666");
        if let Some(goal) = self.goal {
            picture.line((x(goal.value()), first - 3.0), (x(goal.value()), last + 3.0), "#c22");
        }
    }
}

/// The text beside a bar.
fn shown(bar: &Bar) -> String {
    match bar.length {
        Some(Estimate { value, low, high }) => format!("{} [{}, {}]", digits(value), digits(low), digits(high)),
        None => "not measured".to_owned(),
    }
}

/// Formats three significant digits, without useless decimals.
pub(crate) fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return short(value);
    }
    let power = value.abs().log10().floor() as i32;
    let unit = 10_f64.powi((power - 2).max(-3));
    short((value / unit).round() * unit)
}

/// The positions of numbers, from 0 at the left to 1 at the right.
#[derive(Debug)]
struct Axis {
    scale: Scale,
    marks: Vec<f64>,
    /// The value at which bars begin.
    base: f64,
}

#[derive(Debug)]
enum Scale {
    Even {
        most: f64,
    },
    /// Logarithmic.
    Long {
        from: i32,
        to: i32,
    },
}

impl Axis {
    fn of(panel: &Panel) -> Self {
        let lengths = || panel.bars.iter().filter_map(|bar| bar.length);
        let largest =
            |values: &mut dyn Iterator<Item = f64>| values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let smallest =
            |values: &mut dyn Iterator<Item = f64>| values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let goal = || panel.goal.map(Goal::value).into_iter();
        let most = largest(&mut lengths().map(|length| length.high).chain(goal()));
        // The bars decide, not their intervals, which outliers may widen.
        let longest = largest(&mut lengths().map(|length| length.value).chain(goal()));
        let shortest = smallest(&mut lengths().map(|length| length.value));
        if longest <= WIDE * shortest || longest <= 0.0 {
            let marks = ticks(most, 5);
            let most = marks[marks.len() - 1];
            return Self { scale: Scale::Even { most }, marks, base: 0.0 };
        }
        let least = smallest(&mut lengths().map(|length| length.low)).min(shortest);
        // A value at the end of a decade does not need another decade.
        let to = ((most * 0.999_999).log10().ceil() as i32).max(if panel.base == Base::One { 1 } else { i32::MIN });
        let from = (least.log10().floor() as i32).clamp(to - DECADES, to - 1);
        let marks = (from..=to).map(|power| 10_f64.powi(power)).collect();
        let base = match panel.base {
            Base::One => 1.0,
            Base::Zero => 10_f64.powi(from),
        };
        Self { scale: Scale::Long { from, to }, marks, base }
    }

    fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Even { most } => value / most,
            // Zero has no logarithm, and is less than every value on the axis.
            Scale::Long { .. } if value <= 0.0 => 0.0,
            Scale::Long { from, to } => (value.log10() - f64::from(from)) / f64::from(to - from),
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn estimate(low: f64, value: f64, high: f64) -> Estimate {
        Estimate { value, low, high }
    }

    fn sample() -> Vec<Panel> {
        let mut even = Panel::new("ms <of> \"a & b\"").goal(Goal::AtMost(5.0));
        even.bar("bare", Tone::Floor, estimate(0.9, 1.0, 1.2));
        even.bar("leash <run>", Tone::Leash, estimate(3.0, 3.5, 4.0));
        even.missing("peer & co", Tone::Peer);
        let mut long = Panel::ratios("to the floor");
        long.bar("direct", Tone::Floor, estimate(0.01, 0.02, 0.03));
        long.bar("peer", Tone::Peer, estimate(20.0, 24.7, 31.0));
        vec![even, long]
    }

    /// Reads the picture with a parser that is not ours: `x`, `width` and `fill` of every box.
    fn boxes(text: &str) -> Vec<(f64, f64, String)> {
        const PARSER: &str = "import sys, xml.etree.ElementTree as tree\n\
            for node in tree.fromstring(sys.stdin.buffer.read()).iter('{http://www.w3.org/2000/svg}rect'):\n\
            \x20   if 'x' in node.attrib: print(node.get('x'), node.get('width'), node.get('fill'))";
        let mut python = Command::new("python3")
            .args(["-c", PARSER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is here");
        python.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
        let output = python.wait_with_output().expect("it ends");
        assert!(output.status.success(), "not well-formed:\n{text}");
        let said = String::from_utf8(output.stdout).expect("text");
        let parse = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].parse().expect("a number"), words[1].parse().expect("a number"), words[2].to_owned())
        };
        said.lines().map(parse).collect()
    }

    #[test]
    fn xml_parser_finds_a_bar_for_each_number() {
        let found = boxes(&svg("a < b & \"c\"", &sample()));
        let colors: Vec<&str> = found.iter().map(|(_, _, fill)| fill.as_str()).collect();
        assert_eq!(colors, ["#b8b8b8", "#1465b0", "#b8b8b8", "#e0a458"]);
        // On a linear axis from zero, the length is the value.
        assert!((found[1].1 / found[0].1 - 3.5).abs() < 0.01, "{found:?}");
        // A bar below 1 ends where a bar above 1 begins.
        assert!((found[2].0 + found[2].1 - found[3].0).abs() < 0.11, "{found:?}");
    }

    #[test]
    fn the_same_numbers_give_the_same_picture() {
        assert_eq!(svg("a", &sample()), svg("a", &sample()));
    }

    #[test]
    fn empty_and_zero_panels_can_be_drawn() {
        let mut zeros = Panel::new("KiB");
        zeros.bar("floor", Tone::Floor, estimate(0.0, 0.0, 0.0));
        let mut lost = Panel::ratios("x");
        lost.bar("peer", Tone::Peer, estimate(f64::NAN, f64::NAN, f64::NAN));
        let text = svg("empty", &[Panel::new("nothing"), zeros, lost]);
        assert_eq!(boxes(&text).len(), 2);
        assert!(!text.contains("x=\"NaN\"") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn axis_is_logarithmic_only_if_needed() {
        let axis = |values: &[f64]| {
            let mut panel = Panel::new("x");
            values.iter().for_each(|value| panel.bar("", Tone::Peer, estimate(*value, *value, *value)));
            Axis::of(&panel)
        };
        assert_eq!(axis(&[1.0, 25.0]).marks, [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!(axis(&[0.5, 25.0]).marks, [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(axis(&[1.0, 1e9]).marks.len(), 6);
        let long = axis(&[0.5, 0.0, 50.0]);
        assert_eq!((long.place(0.0), long.place(0.1), long.place(100.0)), (0.0, 0.0, 1.0));
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        for (value, expected) in
            [(1.1934, "1.19"), (34.77, "34.8"), (60_312.0, "60,300"), (0.0166, "0.017"), (0.0, "0")]
        {
            assert_eq!(digits(value), expected);
        }
    }
}
