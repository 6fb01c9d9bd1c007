//! Text for people.

use std::borrow::Cow;
use std::fmt::{Arguments, Display};

use anstyle::Style;

use super::{escape, palette};

/// A text for people. It holds no control characters but the line ends and colours of leash itself: every other text is
/// escaped when it is added, so a name that another program chose moves no cursor and ends no line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// A part of a line.
    pub(crate) fn new(text: impl Display) -> Text {
        Text(escape::line(&text.to_string()).into_owned())
    }

    /// A part of a line, in a style.
    pub(crate) fn painted(style: Style, text: impl Display) -> Text {
        Text::new(text).paint(style)
    }

    fn paint(self, style: Style) -> Text {
        if style.is_plain() || self.0.is_empty() { self } else { Text(format!("{style}{}{style:#}", self.0)) }
    }

    /// The text with another part behind it.
    pub(crate) fn and(mut self, part: impl Into<Text>) -> Text {
        self.0.push_str(&part.into().0);
        self
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, line: impl Into<Text>) {
        self.0.push_str(&line.into().0);
        self.0.push('\n');
    }

    /// Adds several lines.
    pub(crate) fn append(&mut self, lines: Text) {
        self.0.push_str(&lines.0);
    }

    /// The same lines, each of them indented.
    pub(crate) fn indented(&self) -> Text {
        Text(self.0.lines().map(|line| format!("  {line}\n")).collect())
    }

    /// The diff of a user's file, in which tabs and line ends are part of the text.
    pub(crate) fn patch(diff: &str) -> Text {
        let mut text = Text::default();
        for line in diff.lines() {
            text.line(Text(escape::tabbed(line).into_owned()).paint(palette::of_diff(line)));
        }
        text
    }

    /// A line of a log, in which tabs are part of the text.
    pub(crate) fn tabbed(line: &str) -> Text {
        Text(escape::tabbed(line).into_owned())
    }

    /// A page of the command-line parser, without and with its own colours. If the plain page has a control character,
    /// it comes from another text, and the colours may as well.
    pub(crate) fn page(plain: &str, painted: String) -> Text {
        match escape::lines(plain) {
            Cow::Borrowed(_) => Text(painted),
            Cow::Owned(escaped) => Text(escaped),
        }
    }

    /// The characters to write.
    pub(crate) fn shown(&self, in_colour: bool) -> Cow<'_, str> {
        if in_colour { Cow::Borrowed(&self.0) } else { Cow::Owned(anstream::adapter::strip_str(&self.0).to_string()) }
    }
}

impl<D: Display> From<D> for Text {
    fn from(text: D) -> Text {
        Text::new(text)
    }
}

impl FromIterator<Text> for Text {
    fn from_iter<I: IntoIterator<Item = Text>>(parts: I) -> Text {
        Text(parts.into_iter().map(|part| part.0).collect())
    }
}

/// Appends a line to a text.
pub(crate) fn add(text: &mut Text, line: Arguments<'_>) {
    text.line(line);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::output::palette;

    #[test]
    fn only_the_colours_of_leash_are_left() {
        let text = Text::new("\u{1b}[31ma\n").and(Text::painted(palette::GOOD, "gone\u{1b}[0m")).and(" b");
        assert_eq!(text.shown(false), r"\u{1b}[31ma\ngone\u{1b}[0m b");
        assert_eq!(text.shown(true), "\\u{1b}[31ma\\n\u{1b}[1m\u{1b}[32mgone\\u{1b}[0m\u{1b}[0m b");
    }

    #[test]
    fn a_diff_keeps_tabs_and_line_ends() {
        let diff = Text::patch("--- a\n+++ a\n@@ -1 +1 @@\n-\told\r\n+\tne\u{1b}\rw\r\n same\n");
        assert_eq!(diff.shown(false), "--- a\n+++ a\n@@ -1 +1 @@\n-\told\n+\tne\\u{1b}\\rw\n same\n");
        assert!(diff.shown(true).contains("\u{1b}[31m-\told\u{1b}[0m\n"), "{diff:?}");
    }

    #[test]
    fn a_page_about_a_control_character_has_no_colours() {
        let painted = "\u{1b}[1merror\u{1b}[0m: x";
        assert_eq!(Text::page("error: x\ny", painted.to_owned()).shown(true), "\u{1b}[1merror\u{1b}[0m: x");
        assert_eq!(Text::page("error: \u{1b}[2J\ny", painted.to_owned()).shown(true), "error: \\u{1b}[2J\ny");
    }

    proptest! {
        #[test]
        fn a_plain_text_has_no_control_character(text in "\\PC{0,9}[\u{0}-\u{9f}]{0,20}\\PC{0,9}") {
            let plain = Text::new(&text);
            prop_assert!(!plain.shown(false).contains(char::is_control));
            prop_assert_eq!(plain.shown(false), plain.shown(true));
        }
    }
}
