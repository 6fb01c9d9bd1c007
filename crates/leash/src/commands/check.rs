//! `leash check`: the leak test kit.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

use leash_check::host::HostCheck;
use leash_check::http::HttpCheck;
use leash_check::stdio::StdioCheck;
use leash_check::{CheckError, CheckReport, StopSignals};
use leash_model::error::at;
use leash_model::start_failure::CommandOrigin;
use leash_tree::places::Places;
use leash_tree::tree::first_look::FirstLook;

use super::stand_in;
use crate::args::Check;
use crate::output::check as output;
use crate::output::printer::Printer;
use crate::output::waiting::Waiting;
use crate::{exit_code, places};

pub(crate) fn check(args: &Check, first: FirstLook) -> u8 {
    if let (Some(part), Some(journal)) = (args.part, &args.journal) {
        return stand_in::play(part, journal, args, first);
    }
    let printer = Printer::new(args.verbose);
    let bearer = match args.token_env.as_deref().map(token) {
        Some(Err(problem)) => {
            printer.error_text(problem, Some("export it, or name another variable"));
            return exit_code::USAGE;
        }
        Some(Ok(token)) => Some(token),
        None => None,
    };
    let junit = match args.junit.as_deref().map(Junit::open).transpose() {
        Ok(junit) => junit,
        Err(error) => return unwritable(printer, &error),
    };
    // Before anything is started: from here on, a signal stops the check and leaves nothing behind.
    let checked = StopSignals::by_signal(first).map_err(CheckError::Io).and_then(|stop| {
        // Its thread must not get these signals, so it begins after they are blocked.
        let waiting = Waiting::begin("for the check to begin", None);
        run(args, bearer, &stop, &mut |what| {
            waiting.now(&format!("for the check: {what}"));
            printer.progress("Checking", what);
        })
    });
    match checked {
        Ok(report) => tell(printer, args, &report, junit),
        Err(error) => refuse(printer, args, &error),
    }
}

/// Runs the requested test.
fn run(
    args: &Check,
    bearer: Option<String>,
    stop: &StopSignals,
    progress: &mut dyn FnMut(&str),
) -> Result<CheckReport, CheckError> {
    let dir = CheckDir::new()?;
    let program = env::current_exe()?;
    if let Some(url) = args.url.clone() {
        let (ready, expect_idle, pid, strict) = (args.ready, args.expect_idle, args.pid, args.strict);
        let check = HttpCheck { url, bearer, ready, program, expect_idle, pid, strict };
        return check.run(&dir.places(), stop, progress);
    }
    if args.host {
        let check = HostCheck {
            command: args.command.clone(),
            program,
            dir: dir.path().to_owned(),
            grace: args.grace,
            ready: args.ready,
            shares_stderr: args.verbose,
            strict: args.strict,
        };
        return check.run(&dir.places(), stop, progress);
    }
    let check = StdioCheck {
        command: args.command.clone(),
        grace: args.grace,
        ready: args.ready,
        call: args.call.clone(),
        shares_stderr: args.verbose,
        strict: args.strict,
    };
    check.run(&dir.places(), stop, progress)
}

/// Prints the report, and writes it to the requested file.
fn tell(printer: Printer, args: &Check, report: &CheckReport, junit: Option<Junit>) -> u8 {
    if args.json {
        printer.versioned(report);
    } else {
        printer.data(&output::text(report));
    }
    if let Some(Err(error)) = junit.map(|junit| junit.write(&report.junit())) {
        return unwritable(printer, &error);
    }
    if report.passed { exit_code::OK } else { exit_code::NOT_ALL }
}

fn unwritable(printer: Printer, error: &io::Error) -> u8 {
    printer.error(error, Some("name a file that can be written with --junit"));
    exit_code::LEASH_FAILED
}

/// The file for the report as JUnit XML. It is opened before the check: a check takes minutes.
struct Junit {
    path: PathBuf,
    file: fs::File,
    /// True if it holds nothing that should stay without a report.
    is_new: bool,
}

impl Junit {
    fn open(path: &Path) -> io::Result<Junit> {
        let is_new = !path.exists();
        let file = fs::File::options().create(true).write(true).truncate(false).open(path);
        let file = file.map_err(|error| Junit::refused(path, &error))?;
        Ok(Junit { path: path.to_owned(), file, is_new })
    }

    fn write(mut self, report: &str) -> io::Result<()> {
        self.is_new = false;
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(report.as_bytes()));
        written.map_err(|error| Junit::refused(&self.path, &error))
    }

    fn refused(path: &Path, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("cannot write `{}`: {error}", path.display()))
    }
}

impl Drop for Junit {
    fn drop(&mut self) {
        if self.is_new {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reports that nothing could be tested.
fn refuse(printer: Printer, args: &Check, error: &CheckError) -> u8 {
    let is_url =
        |word: &OsString| word.to_str().is_some_and(|word| word.starts_with("http://") || word.starts_with("https://"));
    let (hint, code) = match error {
        CheckError::Stopped { signal } => {
            printer.note(format!("{error}: everything that it started has ended"));
            return u8::try_from(128 + signal).unwrap_or(exit_code::LEASH_FAILED);
        }
        CheckError::Url { .. } => ("leash check --url http://127.0.0.1:3000/mcp", exit_code::USAGE),
        CheckError::Start { .. } if args.command.first().is_some_and(is_url) => {
            ("an HTTP server is named with --url", exit_code::USAGE)
        }
        CheckError::Start { source, .. } => {
            printer.error_with(error, &source.facts(), Some(&source.hint(CommandOrigin::Check)));
            return exit_code::of_failed_start(source);
        }
        _ => ("run `leash doctor` to see what works here", exit_code::LEASH_FAILED),
    };
    printer.error(error, Some(hint));
    code
}

/// The token in a variable.
fn token(variable: &str) -> Result<String, String> {
    match env::var(variable) {
        Ok(token) if !token.is_empty() => Ok(token),
        _ => Err(format!("the variable `{variable}` of --token-env is not set")),
    }
}

/// A directory for one check; receipts of tested programs do not belong into the user's history.
struct CheckDir {
    path: PathBuf,
    /// The directory itself, locked for the life of the check.
    _lock: fs::File,
}

/// The prefix of a directory's name; an id follows.
const PREFIX: &str = "leash-check-";

/// Only this user may use it.
const MODE: u32 = 0o700;

/// An unlocked directory may belong to a check that is about to lock it.
const SETTLING: Duration = Duration::from_secs(60);

impl CheckDir {
    fn new() -> io::Result<CheckDir> {
        let parent = env::temp_dir();
        sweep(&parent);
        let path = parent.join(format!("{PREFIX}{}", leash_model::id::random()));
        fs::DirBuilder::new().mode(MODE).create(&path).map_err(at(&path))?;
        let lock = fs::File::open(&path).map_err(at(&path))?;
        lock.try_lock()?;
        Ok(CheckDir { path, _lock: lock })
    }

    fn places(&self) -> Places {
        Places { receipts: self.path().join("receipts.jsonl"), ..places::places() }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for CheckDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// True if a directory of this name belongs to a check. Users choose similar names: `leash-check-results`.
fn is_check_dir(name: &OsStr) -> bool {
    name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(leash_model::id::is_random)
}

/// Removes our directories of checks that were killed: no other program removes them.
fn sweep(parent: &Path) {
    let me = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_check_dir(&entry.file_name())) {
        let settled =
            |facts: &fs::Metadata| facts.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= SETTLING));
        let made = |facts: &fs::Metadata| facts.is_dir() && facts.uid() == me && facts.mode() & 0o777 == MODE;
        let ours = entry.metadata().is_ok_and(|facts| made(&facts) && settled(&facts));
        if ours && fs::File::open(entry.path()).is_ok_and(|dir| dir.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_name_identifies_a_check_directory() {
        assert!(is_check_dir(format!("{PREFIX}{}", leash_model::id::random()).as_ref()));
        for name in
            ["leash-check-", "leash-check-results", "leash-check-2026-07-28", "leash-check-0123456789abcdefghijklmnop"]
        {
            assert!(!is_check_dir(name.as_ref()), "{name}");
        }
    }
}
