//! The colours of leash. A colour adds and never informs: the words say the same.

use anstyle::{AnsiColor, Effects, Style};
use clap::builder::Styles;

const fn bold(colour: AnsiColor) -> Style {
    colour.on_default().effects(Effects::BOLD)
}

/// A good result, and the verb of an event.
pub(crate) const GOOD: Style = bold(AnsiColor::Green);
/// A bad result, and `error`.
pub(crate) const BAD: Style = bold(AnsiColor::Red);
/// A result that needs attention, and `warning`.
pub(crate) const ATTENTION: Style = bold(AnsiColor::Yellow);
/// Advice: `hint`.
pub(crate) const ADVICE: Style = bold(AnsiColor::Cyan);
/// The titles of a table.
pub(crate) const TITLE: Style = Style::new().bold();
/// Text that matters less.
const FAINT: Style = Style::new().dimmed();

/// The help pages and errors of the command-line parser.
pub(crate) const PARSER: Styles = Styles::styled()
    .header(TITLE)
    .usage(TITLE)
    .literal(bold(AnsiColor::Cyan))
    .placeholder(AnsiColor::Cyan.on_default())
    .error(BAD)
    .valid(GOOD)
    .invalid(ATTENTION);

/// The style of a verdict, a fate, a state or a result; plain for all other words.
pub(crate) fn of_word(word: &str) -> Style {
    match word {
        "gone" | "all gone" | "pass" | "fine" | "works" | "running" | "live" => GOOD,
        "LEFT" | "NOT all gone" | "FAIL" | "NO" | "ALIVE" | "orphan" => BAD,
        "likely" | "stale-host" | "warn" | "starting" | "ending" => ATTENTION,
        "skip" | "no" | "unknown" => FAINT,
        word if word.starts_with("abandoned") => BAD,
        _ => Style::new(),
    }
}

/// The style of the verb of an event.
pub(crate) fn of_verb(verb: &str) -> Style {
    match verb {
        "Left" => BAD,
        "Killed" | "Ending" | "Stopping" | "Spared" => ATTENTION,
        _ => GOOD,
    }
}

/// The style of a line of a diff.
pub(crate) fn of_diff(line: &str) -> Style {
    match line.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => TITLE,
        [b'+', ..] => AnsiColor::Green.on_default(),
        [b'-', ..] => AnsiColor::Red.on_default(),
        [b'@', b'@', ..] => AnsiColor::Cyan.on_default(),
        _ => Style::new(),
    }
}
