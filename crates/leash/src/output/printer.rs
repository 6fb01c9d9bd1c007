//! The only code that writes to stdout and stderr. In `run`, stdout belongs to the protocol and is not written here.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use leash_model::clock::Moment;
use leash_model::duration;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use serde::Serialize;

use super::answer::VersionedAnswer;
use super::text::Text;
use super::{escape, palette, terminal, waiting};

/// The most that a pipe takes in one write without mixing it with the lines of other processes.
const LONGEST_LINE: usize = 4096;

/// Writes messages to stderr, and data to stdout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    began: Moment,
    verbose: bool,
}

impl Printer {
    /// A printer; with `verbose` it prints progress lines.
    pub(crate) fn new(verbose: bool) -> Printer {
        Printer { began: Moment::now(), verbose: verbose || log_wanted() }
    }

    /// Prints lines for people on stdout.
    pub(crate) fn data(self, lines: &Text) {
        self.exact(lines.shown(terminal::in_colour(&io::stdout())));
    }

    /// Prints a line for people on stdout.
    pub(crate) fn say(self, line: impl Into<Text>) {
        let mut lines = Text::default();
        lines.line(line);
        self.data(&lines);
    }

    /// Prints data for programs (JSON) on stdout, unchanged. A reader that has exited (`| head`) is not an error.
    pub(crate) fn exact(self, text: impl Display) {
        let _ = self.try_exact(text);
    }

    /// The same for a command that continues: the error says that the reader has exited.
    pub(crate) fn try_exact(self, text: impl Display) -> io::Result<()> {
        waiting::clear();
        write!(io::stdout(), "{text}").and_then(|()| io::stdout().flush())
    }

    /// Prints the answer of a command as JSON, with the version of its format.
    pub(crate) fn json(self, answer: impl Serialize) {
        self.versioned(&VersionedAnswer::new(answer));
    }

    /// Prints one of several answers as JSON, on one line.
    pub(crate) fn json_line(self, answer: impl Serialize) {
        self.exact(serde_json::to_string(&VersionedAnswer::new(answer)).unwrap_or_default() + "\n");
    }

    /// The same for an answer that has a version of its own.
    pub(crate) fn versioned(self, answer: &impl Serialize) {
        // Answers consist of texts and numbers, so this can't fail.
        self.exact(serde_json::to_string_pretty(answer).unwrap_or_default() + "\n");
    }

    /// True if it prints progress lines.
    pub(crate) fn is_verbose(self) -> bool {
        self.verbose
    }

    /// Prints a progress line: a verb in a column of twelve, the time, the subject.
    pub(crate) fn progress(self, verb: &str, subject: impl Into<Text>) {
        if self.verbose {
            let spent = Moment::now().since(self.began).as_secs_f64();
            let verb = Text::painted(palette::of_verb(verb), format_args!("{verb:>12}"));
            self.line(verb.and(format_args!(" [{spent:>8.3}s] ")).and(subject));
        }
    }

    /// Prints a line that is always shown, verbose or not.
    pub(crate) fn note(self, text: impl Into<Text>) {
        self.line(text.into());
    }

    /// Prints a warning; leash continues.
    pub(crate) fn warning(self, text: impl Into<Text>) {
        self.line(Text::painted(palette::ATTENTION, "warning").and(": ").and(text));
    }

    /// Prints an error of the command-line parser, with our hint.
    pub(crate) fn usage(self, page: Text, hint: &str) {
        self.line(page);
        self.hint(Some(hint));
    }

    /// Prints an error, its causes, and a hint.
    pub(crate) fn error(self, error: &dyn std::error::Error, hint: Option<&str>) {
        self.error_with(error, &[], hint);
    }

    /// The same with further facts, one per line.
    pub(crate) fn error_with(self, error: &dyn std::error::Error, facts: &[String], hint: Option<&str>) {
        self.error_text(error, None);
        let mut cause = error.source();
        while let Some(error) = cause {
            self.note(format_args!("  Caused by: {error}"));
            cause = error.source();
        }
        facts.iter().for_each(|fact| self.note(format_args!("  {fact}")));
        self.hint(hint);
    }

    /// Prints an error that is only a sentence.
    pub(crate) fn error_text(self, text: impl Into<Text>, hint: Option<&str>) {
        self.line(Text::painted(palette::BAD, "error").and(": ").and(text));
        self.hint(hint);
    }

    fn hint(self, hint: Option<&str>) {
        if let Some(hint) = hint {
            let mut lines = Text::default();
            lines.line("");
            self.line(lines.and(Text::painted(palette::ADVICE, "hint")).and(": ").and(hint));
        }
    }

    /// Prints a line of a server's stderr after the server's name. Returns false if stderr takes nothing now. A terminal
    /// gets no control characters but tabs; a file or a pipe gets the bytes as they are.
    pub(crate) fn server_line(self, server: &str, line: &[u8]) -> bool {
        if !takes_a_line() {
            return false;
        }
        let mut text = format!("{server}: ").into_bytes();
        if io::stderr().is_terminal() {
            text.extend_from_slice(escape::tabbed(&String::from_utf8_lossy(line)).as_bytes());
        } else {
            text.extend_from_slice(line);
        }
        text.push(b'\n');
        // One write, so that lines of several servers do not mix. If stderr is closed, the line is lost.
        let _ = io::stderr().write_all(&text);
        true
    }

    fn line(self, text: Text) {
        // A host that does not read stderr must not block leash: a line that does not fit is dropped.
        if takes_a_line() {
            waiting::clear();
            let text = text.shown(terminal::in_colour(&io::stderr()));
            let end = text.floor_char_boundary(LONGEST_LINE - 1);
            // One write, so that lines of several processes do not mix. If stderr is closed, the line is lost.
            let _ = io::stderr().write_all(format!("{}\n", &text[..end]).as_bytes());
        }
    }
}

/// True if a write to stderr does not block. The open file description is shared with the host, so it can't be made
/// non-blocking; but a pipe that is writable at all takes 4 KiB. A stderr that cannot be polled takes every line, too.
fn takes_a_line() -> bool {
    let mut fds = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut fds, Some(&at_once)), Ok(0))
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
