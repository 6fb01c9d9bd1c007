//! `leash logs`.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use leash_model::{clock, duration};
use leash_tree::ledger::logs::{self, LogEntry, LogHead, LogReader};
use leash_tree::platform::poll;
use rustix::event::{PollFd, PollFlags};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::Logs;
use crate::output::ids::{self, short};
use crate::output::printer::Printer;
use crate::output::text::Text;
use crate::{exit_code, places};

/// The time after which `-f` looks again without an event: a directory may be new, or the kernel gives no events.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(crate) fn logs(args: &Logs) -> u8 {
    let printer = Printer::new(false);
    match show(args, printer) {
        Ok(code) => code,
        Err(error) => {
            printer.error_text(format!("cannot read the logs: {error}"), Some("check XDG_STATE_HOME"));
            exit_code::LEASH_FAILED
        }
    }
}

fn show(args: &Logs, printer: Printer) -> io::Result<u8> {
    let dirs: BTreeSet<_> = places::receipts_files().iter().map(|file| logs::dir(file)).collect();
    let mut reader = LogReader::new(dirs);
    let heads = reader.heads()?;
    let wanted = match args.of.as_deref().map(|word| choose(word, &heads)) {
        None => Wanted::All,
        Some(Ok(wanted)) => wanted,
        // The server may not have written its first line.
        Some(Err(_)) if args.follow => Wanted::Word(args.of.clone().unwrap_or_default()),
        Some(Err(problem)) => {
            let hint = "leash keeps the stderr of servers behind `leash serve`, and of those under `leash run --log`";
            printer.error_text(problem, Some(hint));
            return Ok(exit_code::NOT_ALL);
        }
    };
    let since = args.since.map_or(0, |since| clock::unix_ms().saturating_sub(duration::as_ms(since)));
    reader.watch(args.follow);
    let mut entries = reader.news(&|head| wanted.has(head))?;
    entries.retain(|entry| entry.at_ms >= since);
    let shown = args.lines.unwrap_or(usize::MAX).min(entries.len());
    print(printer, args.json, &entries.split_off(entries.len() - shown));
    if shown == 0 && !args.follow {
        printer.note(nothing(args, &heads));
    }
    while args.follow && wait(&reader) {
        reader.watch(true);
        print(printer, args.json, &reader.news(&|head| wanted.has(head))?);
    }
    Ok(exit_code::OK)
}

/// The message when no line is shown.
fn nothing(args: &Logs, heads: &[LogHead]) -> &'static str {
    match heads {
        [] => "No log is kept here. `leash serve` keeps the stderr of its servers, `leash run --log` that of one.",
        _ if args.since.is_some() => "No server wrote a line in this time.",
        _ => "There is no line to show.",
    }
}

/// The logs to show.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    /// Those of these runs, and of later runs of the same session or server.
    Runs(BTreeSet<String>, String),
    /// Those of a session or a server that has no log yet.
    Word(String),
}

impl Wanted {
    fn has(&self, head: &LogHead) -> bool {
        match self {
            Wanted::All => true,
            Wanted::Runs(runs, word) => runs.contains(&head.run) || is_exactly(head, word),
            Wanted::Word(word) => is_exactly(head, word) || begins(head, word),
        }
    }
}

fn is_exactly(head: &LogHead, word: &str) -> bool {
    head.session == word || head.run == word || head.name == word
}

fn begins(head: &LogHead, word: &str) -> bool {
    ids::begins(&head.run, word) || (ids::is_made(&head.session) && ids::begins(&head.session, word))
}

/// The logs that a word names: those of the session, the run or the server of this name, else of the only session whose id
/// begins with it. The error describes the problem with the word.
fn choose(word: &str, heads: &[LogHead]) -> Result<Wanted, String> {
    let runs = |is_wanted: &dyn Fn(&LogHead) -> bool| -> BTreeSet<String> {
        heads.iter().filter(|head| is_wanted(head)).map(|head| head.run.clone()).collect()
    };
    let exact = runs(&|head| is_exactly(head, word));
    if !exact.is_empty() {
        return Ok(Wanted::Runs(exact, word.to_owned()));
    }
    let begun: BTreeSet<&str> =
        heads.iter().filter(|head| begins(head, word)).map(|head| head.session.as_str()).collect();
    match begun.len() {
        0 => Err(format!("`{word}` has no log: it wrote nothing to stderr, or leash does not keep it")),
        1 => Ok(Wanted::Runs(runs(&|head| begins(head, word)), word.to_owned())),
        _ => Err(ids::ambiguous(word, &begun.into_iter().collect::<Vec<_>>())),
    }
}

fn print(printer: Printer, as_json: bool, entries: &[LogEntry]) {
    if as_json {
        return entries.iter().for_each(|entry| printer.json_line(LogLineAnswer::new(entry)));
    }
    let mut text = Text::default();
    entries.iter().for_each(|entry| text.line(line(entry)));
    printer.data(&text);
}

/// A line for people. The server wrote it, so it is escaped.
pub(super) fn line(entry: &LogEntry) -> Text {
    let LogEntry { at_ms, session, name, .. } = entry;
    Text::new(format_args!("{} {name} [{}]: ", clock::utc(*at_ms), short(session)))
        .and(Text::tabbed(&String::from_utf8_lossy(&entry.line)))
}

/// What `leash logs --json` prints for each line.
#[derive(Serialize, JsonSchema)]
pub(super) struct LogLineAnswer<'a> {
    /// The time at which it arrived, milliseconds since 1970.
    at_ms: u64,
    /// The server's name.
    name: &'a str,
    /// The session of the run.
    session: &'a str,
    /// The id of the run.
    run: &'a str,
    /// The line, without its end. It is the text of the server as it was: control characters are in it.
    text: String,
    /// The bytes of the line in hexadecimal, if it is not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

impl LogLineAnswer<'_> {
    fn new(entry: &LogEntry) -> LogLineAnswer<'_> {
        let LogEntry { at_ms, run, session, name, line } = entry;
        let hex = || line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = String::from_utf8_lossy(line).into_owned();
        let hex = std::str::from_utf8(line).is_err().then(hex);
        LogLineAnswer { at_ms: *at_ms, name, session, run, text, hex }
    }
}

/// Waits until there may be new lines. Returns false if the reader of our output is gone.
fn wait(reader: &LogReader) -> bool {
    // For these flags the kernel says whether the other end is closed, and nothing else.
    let stdout = rustix::stdio::stdout();
    let mut fds = vec![PollFd::from_borrowed_fd(stdout, PollFlags::empty())];
    fds.extend(reader.changes().map(|changes| PollFd::from_borrowed_fd(changes, PollFlags::IN)));
    let now = clock::Moment::now();
    let _ = poll::poll(&mut fds, Some(&clock::timeout_until(now + LOOK_AGAIN, now)));
    !fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0123456789abcdefghjkmnpqrs";
    const LATER: &str = "0123zzzzzzzzzzzzzzzzzzzzzz";

    fn heads() -> Vec<LogHead> {
        let head = |run: &str, session: &str, name: &str| LogHead {
            version: logs::LOG_VERSION,
            run: run.to_owned(),
            session: session.to_owned(),
            name: name.to_owned(),
        };
        vec![
            head(RUN, RUN, "files"),
            head(LATER, LATER, "files"),
            head("aa1", "job-1", "web"),
            head("aa2", "job-10", "web"),
        ]
    }

    #[test]
    fn a_word_names_a_session_a_run_a_server_or_the_beginning_of_an_id() {
        let check = |word: &str, expected: &[&str]| {
            let wanted = choose(word, &heads());
            let shown: Vec<String> = match &wanted {
                Ok(wanted) => heads().into_iter().filter(|head| wanted.has(head)).map(|head| head.run).collect(),
                Err(_) => Vec::new(),
            };
            assert_eq!(shown, expected, "{word}: {wanted:?}");
        };
        check("files", &[RUN, LATER]);
        check("job-1", &["aa1"]);
        check("aa2", &["aa2"]);
        check("01234", &[RUN]);
        check("0123", &[]);
        check("job", &[]);
        check("none", &[]);
        assert_eq!(choose("0123", &heads()).unwrap_err(), "`0123` is the beginning of 2 sessions: 01234567, 0123zzzz");
    }

    #[test]
    fn a_line_is_escaped_and_json_has_it_exactly() {
        let entry = LogEntry {
            at_ms: 1_763_416_149_123,
            run: RUN.to_owned(),
            session: RUN.to_owned(),
            name: "fi\nles".to_owned(),
            line: b"\x1b[2Ja\tb\rc".to_vec(),
        };
        assert_eq!(line(&entry).shown(true), "2025-11-17T21:49:09.123Z fi\\nles [01234567]: \\u{1b}[2Ja\tb\\rc");
        let answer = LogLineAnswer::new(&entry);
        assert_eq!((&*answer.text, answer.hex), ("\u{1b}[2Ja\tb\rc", None));
        let broken = LogEntry { line: vec![b'a', 0xff], ..entry };
        let answer = LogLineAnswer::new(&broken);
        assert_eq!((&*answer.text, answer.hex.as_deref()), ("a\u{fffd}", Some("61ff")));
    }
}
