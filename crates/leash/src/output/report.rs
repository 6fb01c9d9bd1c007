//! The reports of `leash run --report-fd`, for the program that started it: one line of JSON when the server has started
//! or could not be started, and one with the receipt at the end.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;

use leash_model::event::Event;
use leash_model::receipt::Receipt;
use leash_model::start_failure::{CommandOrigin, StartFailure};
use leash_tree::platform::linux;
use serde::Serialize;
use serde_json::json;

/// A descriptor that the parent reads.
#[derive(Debug)]
pub(crate) struct ParentReport(File);

/// Closes the descriptors that this process inherited, but the one that `--report-fd` names. It runs before the command
/// line is parsed, so that leash has opened none of its own.
pub(crate) fn take_inherited(words: impl Iterator<Item = OsString>) -> Option<ParentReport> {
    let Some(number) = report_fd(words) else {
        linux::close_inherited();
        return None;
    };
    linux::close_inherited_but(number).map(|fd| ParentReport(fd.into()))
}

/// The number in `--report-fd=3` or `--report-fd 3`. If it is an argument of the server, leash keeps a descriptor open for
/// nothing; the server never gets it.
fn report_fd(words: impl Iterator<Item = OsString>) -> Option<i32> {
    let mut words = words.map_while(|word| word.into_string().ok()).take_while(|word| word != "--");
    words
        .find_map(|word| match word.strip_prefix("--report-fd")? {
            "" => Some(None),
            rest => Some(rest.strip_prefix('=')?.parse().ok()),
        })?
        .or_else(|| words.next()?.parse().ok())
}

impl ParentReport {
    /// Reports that the server has started. Other events are not reported.
    pub(crate) fn event(&mut self, event: &Event) {
        if let Event::Started { name, leader, containment, .. } = event {
            self.line(&json!({ "started": { "name": name, "pid": leader, "containment": containment } }));
        }
    }

    /// Reports that the server could not be started.
    pub(crate) fn failed(&mut self, failure: &StartFailure) {
        let message = leash_model::error::with_causes(failure);
        let hint = failure.hint(CommandOrigin::Run);
        self.line(&json!({ "failed": { "message": message, "hint": hint, "why": failure } }));
    }

    /// Reports the end.
    pub(crate) fn ended(&mut self, receipt: &Receipt) {
        self.line(&json!({ "ended": receipt }));
    }

    /// One write, so that the parent never sees half a line of a leash that was killed. A parent that is gone needs none.
    fn line(&mut self, value: &impl Serialize) {
        let text = serde_json::to_string(value).unwrap_or_default() + "\n";
        let _ = self.0.write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_the_descriptor() {
        for (line, number) in [
            ("leash run --report-fd=3 -- x", Some(3)),
            ("leash run --report-fd 4 --grace 1s x", Some(4)),
            ("leash run -- x --report-fd=3", None),
            ("leash run --report-fd", None),
            ("leash run --report-fd=x x", None),
            ("leash run --report-fds=3 x", None),
            ("leash ps", None),
        ] {
            assert_eq!(report_fd(line.split(' ').map(OsString::from)), number, "{line}");
        }
    }
}
