//! The one door to stdout and stderr. In `run`, stdout belongs to the protocol and nothing here touches it.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use leash_model::clock::Moment;
use leash_model::duration;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use super::escape;

/// Speaks on stderr, and on stdout for data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    began: Moment,
    verbose: bool,
    colour: bool,
}

impl Printer {
    /// A printer; `verbose` shows the course of things.
    pub(crate) fn new(verbose: bool) -> Printer {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && io::stderr().is_terminal();
        Printer { began: Moment::now(), verbose: verbose || log_wanted(), colour }
    }

    /// Lines for people, on stdout. What others wrote must not end a line: it goes through [`escape::line`] before it gets here.
    pub(crate) fn data(self, text: impl Display) {
        self.exact(escape::lines(&text.to_string()));
    }

    /// Data for programs (JSON), on stdout to the byte. A reader that has gone away (`| head`) is not an error.
    pub(crate) fn exact(self, text: impl Display) {
        let _ = write!(io::stdout(), "{text}").and_then(|()| io::stdout().flush());
    }

    /// A change to somebody's file: to the byte for a program, harmless for a person.
    pub(crate) fn patch(self, text: &str) {
        self.exact(if io::stdout().is_terminal() { escape::patch(text) } else { text.into() });
    }

    /// A line about the course of things: a verb in a column of twelve, the time, the subject.
    pub(crate) fn progress(self, verb: &str, subject: impl Display) {
        if self.verbose {
            let spent = Moment::now().since(self.began).as_secs_f64();
            let (verb, subject) = (self.paint("1;32", &format!("{verb:>12}")), subject.to_string());
            self.line(&format!("{verb} [{spent:>8.3}s] {}", escape::line(&subject)));
        }
    }

    /// A line that people wait for, verbose or not.
    pub(crate) fn note(self, text: impl Display) {
        self.line(&escape::line(&text.to_string()));
    }

    /// Something that is not as it should be, while leash goes on.
    pub(crate) fn warning(self, text: impl Display) {
        self.line(&format!("{}: {}", self.paint("1;33", "warning"), escape::line(&text.to_string())));
    }

    /// A mistake on the command line, as the parser words it.
    pub(crate) fn usage(self, text: impl Display) {
        // The parser's own pointer to --help says less than ours.
        let text = text.to_string().replace("For more information, try '--help'.", "");
        self.line(&escape::lines(text.trim_end()));
        self.hint(Some("leash --help lists the commands, leash COMMAND --help explains one"));
    }

    /// What failed, its causes, and what to do.
    pub(crate) fn error(self, error: &dyn std::error::Error, hint: Option<&str>) {
        self.error_with(error, &[], hint);
    }

    /// The same with further facts, one a line.
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

    /// An error that is only a sentence.
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
        // A host that does not read stderr must not hold leash up: what does not fit is not said. The description is shared
        // with the host, so it can't be made non-blocking; but a pipe that can be written at all takes 4 KiB.
        let mut fds = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if matches!(rustix::event::poll(&mut fds, Some(&at_once)), Ok(1)) {
            let text = format!("{text}\n");
            // One write, so that lines of several processes do not mix; a closed stderr is nobody's problem.
            let _ = io::stderr().write_all(text.as_bytes().get(..4096).unwrap_or(text.as_bytes()));
        }
    }
}

/// `LEASH_LOG` set to anything but `0`, `off` or nothing is `-v`.
fn log_wanted() -> bool {
    std::env::var_os("LEASH_LOG").is_some_and(|value| !value.is_empty() && value != "0" && value != "off")
}

/// `1.5 MiB` and the like.
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

/// Milliseconds as a person reads them.
pub(crate) fn span(ms: u64) -> String {
    duration::rough(std::time::Duration::from_millis(ms))
}
