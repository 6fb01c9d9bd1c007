//! The width of the output, and whether it gets colours.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ValueEnum;

/// The choice for the whole program, from its command line.
static CHOICE: OnceLock<ColorWhen> = OnceLock::new();

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless NO_COLOR, CLICOLOR=0 or TERM=dumb is set; with CLICOLOR_FORCE=1 also into a pipe.
    #[default]
    Auto,
    /// Also into a pipe.
    Always,
    /// Never.
    Never,
}

impl ColorWhen {
    /// The choice for the whole program.
    pub(crate) fn set(self) {
        // The command line is parsed once.
        let _ = CHOICE.set(self);
    }

    /// True if a stream gets colours. The command line beats variables, and NO_COLOR beats CLICOLOR_FORCE.
    fn allows(self, variable: &dyn Fn(&str) -> Option<OsString>, is_terminal: bool) -> bool {
        let is = |name: &str, value: &str| variable(name).is_some_and(|found| found == value);
        let is_set = |name: &str| variable(name).is_some_and(|found| !found.is_empty());
        match self {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto if is_set("NO_COLOR") => false,
            ColorWhen::Auto if is_set("CLICOLOR_FORCE") && !is("CLICOLOR_FORCE", "0") => true,
            ColorWhen::Auto => is_terminal && !is("CLICOLOR", "0") && is_set("TERM") && !is("TERM", "dumb"),
        }
    }
}

/// True if a stream gets colours.
pub(crate) fn in_colour(stream: &impl IsTerminal) -> bool {
    CHOICE.get().copied().unwrap_or_default().allows(&|name| env::var_os(name), stream.is_terminal())
}

/// The columns of the output: `COLUMNS`, else those of the terminal. `None` if stdout is no terminal: a pipe gets
/// everything.
pub(crate) fn columns() -> Option<usize> {
    let named = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let size = || rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok().map(|size| size.ws_col.into());
    named.or_else(size).filter(|columns| *columns > 0)
}

/// True if the locale says that the terminal shows UTF-8.
pub(crate) fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    locale.is_some_and(|locale| ["utf-8", "utf8"].iter().any(|word| locale.to_lowercase().contains(word)))
}

/// The rows of the terminal; `None` if stdout is no terminal.
pub(crate) fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(size.ws_row.into()).filter(|rows| *rows > 0)
}

/// The columns of stderr, if it is a terminal.
pub(crate) fn columns_of_stderr() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// True if the terminal can write over a line.
pub(crate) fn moves_cursor() -> bool {
    env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_beats_variables_and_these_beat_the_terminal() {
        let check = |when: ColorWhen, variables: &str, expected: [bool; 2]| {
            let pairs: Vec<(&str, &str)> =
                variables.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
            let variable = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            assert_eq!([false, true].map(|is_terminal| when.allows(&variable, is_terminal)), expected, "{variables}");
        };
        check(ColorWhen::Auto, "TERM=linux", [false, true]);
        check(ColorWhen::Auto, "TERM=xterm CLICOLOR=1 NO_COLOR= CLICOLOR_FORCE=0", [false, true]);
        for never in ["NO_COLOR=1 TERM=xterm", "NO_COLOR=1 CLICOLOR_FORCE=1", "CLICOLOR=0 TERM=xterm", "TERM=dumb", ""]
        {
            check(ColorWhen::Auto, never, [false, false]);
        }
        check(ColorWhen::Auto, "CLICOLOR_FORCE=1 TERM=dumb CLICOLOR=0", [true, true]);
        check(ColorWhen::Always, "NO_COLOR=1", [true, true]);
        check(ColorWhen::Never, "CLICOLOR_FORCE=1", [false, false]);
    }
}
