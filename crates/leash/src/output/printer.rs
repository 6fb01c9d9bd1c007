//! The only code that writes to stdout and stderr. In `run`, stdout belongs to the protocol and is not written here.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use leash_model::clock::Moment;
use leash_model::duration;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use serde::Serialize;

use super::answer::VersionedAnswer;
use super::escape;

/// Writes messages to stderr, and data to stdout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    began: Moment,
    verbose: bool,
    colour: bool,
}

impl Printer {
    /// A printer; with `verbose` it prints progress lines.
    pub(crate) fn new(verbose: bool) -> Printer {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && io::stderr().is_terminal();
        Printer { began: Moment::now(), verbose: verbose || log_wanted(), colour }
    }

    /// Prints lines for people on stdout. Text from other programs must not end a line: the caller passes it through
    /// [`escape::line`] first.
    pub(crate) fn data(self, text: impl Display) {
        self.exact(escape::lines(&text.to_string()));
    }

    /// Prints data for programs (JSON) on stdout, unchanged. A reader that has exited (`| head`) is not an error.
    pub(crate) fn exact(self, text: impl Display) {
        let _ = write!(io::stdout(), "{text}").and_then(|()| io::stdout().flush());
    }

    /// Prints the answer of a command as JSON, with the version of its format.
    pub(crate) fn json(self, answer: impl Serialize) {
        self.versioned(&VersionedAnswer::new(answer));
    }

    /// The same for an answer that has a version of its own.
    pub(crate) fn versioned(self, answer: &impl Serialize) {
        // Answers consist of texts and numbers, so this can't fail.
        self.exact(serde_json::to_string_pretty(answer).unwrap_or_default() + "\n");
    }

    /// Prints a diff of a user's file: unchanged for a program, escaped for a terminal.
    pub(crate) fn patch(self, text: &str) {
        self.exact(if io::stdout().is_terminal() { escape::patch(text) } else { text.into() });
    }

    /// Prints a progress line: a verb in a column of twelve, the time, the subject.
    pub(crate) fn progress(self, verb: &str, subject: impl Display) {
        if self.verbose {
            let spent = Moment::now().since(self.began).as_secs_f64();
            let (verb, subject) = (self.paint("1;32", &format!("{verb:>12}")), subject.to_string());
            self.line(&format!("{verb} [{spent:>8.3}s] {}", escape::line(&subject)));
        }
    }

    /// Prints a line that is always shown, verbose or not.
    pub(crate) fn note(self, text: impl Display) {
        self.line(&escape::line(&text.to_string()));
    }

    /// Prints a warning; leash continues.
    pub(crate) fn warning(self, text: impl Display) {
        self.line(&format!("{}: {}", self.paint("1;33", "warning"), escape::line(&text.to_string())));
    }

    /// Prints an error of the command-line parser, with our hint instead of the parser's own.
    pub(crate) fn usage(self, text: impl Display, hint: &str) {
        let text = text.to_string().replace("For more information, try '--help'.", "");
        self.line(&escape::lines(text.trim_end()));
        self.hint(Some(hint));
    }

    /// Prints an error, its causes, and a hint.
    pub(crate) fn error(self, error: &dyn std::error::Error, hint: Option<&str>) {
        self.error_with(error, &[], hint);
    }

    /// The same with further facts, one per line.
    pub(crate) fn error_with(self, error: &dyn std::error::Error, facts: &[String], hint: Option<&str>) {
        self.line(&format!("{}: {}", self.paint("1;31", "error"), escape::line(&error.to_string())));
        let mut cause = error.source();
        while let Some(error) = cause {
            self.line(&format!("  Caused by: {}", escape::line(&error.to_string())));
            cause = error.source();
        }
        facts.iter().for_each(|fact| self.line(&format!("  {}", escape::line(fact))));
        self.hint(hint);
    }

    /// Prints an error that is only a sentence.
    pub(crate) fn error_text(self, text: impl Display, hint: Option<&str>) {
        self.line(&format!("{}: {}", self.paint("1;31", "error"), escape::line(&text.to_string())));
        self.hint(hint);
    }

    fn hint(self, hint: Option<&str>) {
        if let Some(hint) = hint {
            self.line(&format!("\n{}: {}", self.paint("1;36", "hint"), escape::line(hint)));
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn line(self, text: &str) {
        // A host that does not read stderr must not block leash: a line that does not fit is dropped. The open file
        // description is shared with the host, so it can't be made non-blocking; but a pipe that is writable at all
        // takes 4 KiB.
        let mut fds = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if matches!(rustix::event::poll(&mut fds, Some(&at_once)), Ok(1)) {
            let text = format!("{text}\n");
            // One write, so that lines of several processes do not mix. If stderr is closed, the line is lost.
            let _ = io::stderr().write_all(text.as_bytes().get(..4096).unwrap_or(text.as_bytes()));
        }
    }
}

/// True if `LEASH_LOG` is set to anything but `0`, `off` or an empty text; it then acts as `-v`.
fn log_wanted() -> bool {
    std::env::var_os("LEASH_LOG").is_some_and(|value| !value.is_empty() && value != "0" && value != "off")
}

/// A size such as `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// A duration for people.
pub(crate) fn span(ms: u64) -> String {
    duration::rough(std::time::Duration::from_millis(ms))
}
