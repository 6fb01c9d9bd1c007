//! A line on the terminal that says what leash waits for, for how long, and how long at most. It appears after a second, and
//! only if stderr is a terminal: a file or a pipe gets nothing of it.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use leash_model::clock::Moment;
use leash_model::duration;

use super::{escape, palette, table, terminal};

/// Shorter waits say nothing.
const SILENT: Duration = Duration::from_secs(1);

/// The time between two updates of the line.
const TICK: Duration = Duration::from_millis(200);

/// The width that is assumed if the terminal does not say its own.
const WIDTH: usize = 80;

/// True while the line is on the terminal. There is one line for the whole program.
static IS_SHOWN: Mutex<bool> = Mutex::new(false);

/// A wait. The line disappears when it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Option<ShownLine>);

#[derive(Debug)]
struct ShownLine {
    /// Takes another text for the line; closed at the end.
    texts: Sender<String>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Begins a wait: `what` follows the word "waiting". With `most`, the line says how much of it is left.
    pub(crate) fn begin(what: impl Into<String>, most: Option<Duration>) -> Waiting {
        if !io::stderr().is_terminal() || !terminal::moves_cursor() {
            return Waiting(None);
        }
        let (texts, next) = mpsc::channel::<String>();
        let (began, mut what) = (Moment::now(), what.into());
        let show = move || {
            let mut pause = SILENT;
            loop {
                match next.recv_timeout(pause) {
                    Ok(text) => what = text,
                    Err(RecvTimeoutError::Disconnected) => return clear(),
                    Err(RecvTimeoutError::Timeout) => pause = TICK,
                }
                if pause == TICK {
                    let columns = terminal::columns_of_stderr().unwrap_or(WIDTH);
                    write(&line(&what, Moment::now().since(began), most, columns));
                }
            }
        };
        let thread = std::thread::Builder::new().name("waiting-line".to_owned()).spawn(show).ok();
        Waiting(Some(ShownLine { texts, thread }))
    }

    /// Changes the text.
    pub(crate) fn now(&self, what: &str) {
        if let Some(shown) = &self.0 {
            // A thread that could not be started shows nothing.
            let _ = shown.texts.send(what.to_owned());
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(ShownLine { texts, thread }) = self.0.take() {
            drop(texts);
            let _ = thread.map(JoinHandle::join);
        }
    }
}

/// The line, which fits into the terminal: a longer one would be written below itself again and again.
fn line(what: &str, elapsed: Duration, most: Option<Duration>, columns: usize) -> String {
    let left = most.map_or_else(String::new, |most| match most.saturating_sub(elapsed) {
        Duration::ZERO => ", a moment more".to_owned(),
        left => format!(", at most {} more", duration::rough(Duration::from_secs(left.as_secs() + 1))),
    });
    let line = format!("{:>12} [{:>8.1}s] {}{left}", "Waiting", elapsed.as_secs_f64(), escape::line(what));
    table::fit(&line, columns.saturating_sub(1))
}

fn write(line: &str) {
    let mut is_shown = IS_SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let style = palette::of_verb("Waiting");
    let painted = if terminal::in_colour(&io::stderr()) {
        line.replacen("Waiting", &format!("{style}Waiting{style:#}"), 1)
    } else {
        line.to_owned()
    };
    // The cursor stays at the beginning, so that other output overwrites the line.
    let _ = io::stderr().write_all(format!("\r{painted}\u{1b}[K\r").as_bytes());
    *is_shown = true;
}

/// Removes the line before other output.
pub(super) fn clear() {
    let mut is_shown = IS_SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_shown) {
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_what_is_awaited_and_how_long() {
        let check = |what: &str, ms: u64, most: Option<u64>, columns: usize, expected: &str| {
            let line = line(what, Duration::from_millis(ms), most.map(Duration::from_secs), columns);
            assert_eq!(line, expected);
        };
        check("for 2 sessions to end", 1234, None, 80, "     Waiting [     1.2s] for 2 sessions to end");
        check("for x", 1500, Some(4), 80, "     Waiting [     1.5s] for x, at most 3.0s more");
        check("for x", 9000, Some(4), 80, "     Waiting [     9.0s] for x, a moment more");
        check("for a\nb", 0, None, 80, "     Waiting [     0.0s] for a\\nb");
        check("for a long text", 0, None, 32, "     Waiting [     0.0s] for a…");
    }
}
