//! The width of the output, and whether it gets colours.

use std::io;

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;

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
        match self {
            ColorWhen::Auto => ColorChoice::Auto,
            ColorWhen::Always => ColorChoice::Always,
            ColorWhen::Never => ColorChoice::Never,
        }
        .write_global();
    }
}

/// True if stdout gets colours.
pub(crate) fn stdout_in_colour() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// True if stderr gets colours.
pub(crate) fn stderr_in_colour() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

/// The columns of the output: `COLUMNS`, else those of the terminal. `None` if stdout is no terminal: a pipe gets
/// everything.
pub(crate) fn columns() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let size = || rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok().map(|size| size.ws_col.into());
    named.or_else(size).filter(|columns| *columns > 0)
}
