//! `leash check`: the leak test kit.

use std::env;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use leash_core::check::host::HostCheck;
use leash_core::check::http::HttpCheck;
use leash_core::check::stdio::StdioCheck;
use leash_core::check::{CheckError, Report};
use leash_core::tree::{Places, TreeError};

use super::stand_in;
use crate::args::Check;
use crate::exit_code;
use crate::output::check as output;
use crate::output::printer::Printer;
use crate::places;

pub(crate) fn check(args: &Check) -> u8 {
    if let (Some(part), Some(journal)) = (args.part, &args.journal) {
        return stand_in::play(part, journal);
    }
    let printer = Printer::new(args.verbose);
    let bearer = match args.token_env.as_deref().map(token) {
        Some(Err(problem)) => {
            printer.usage(problem);
            return exit_code::USAGE;
        }
        Some(Ok(token)) => Some(token),
        None => None,
    };
    let mut progress = |what: &str| printer.progress("Checking", what);
    let checked = match &args.url {
        Some(url) => {
            HttpCheck { url: url.clone(), bearer, expect_idle: args.expect_idle, pid: args.pid, strict: args.strict }
                .run(&mut progress)
        }
        None if args.host => Room::new()
            .and_then(|room| Ok((env::current_exe()?, room)))
            .map_err(CheckError::Stage)
            .and_then(|(program, room)| {
                let check = HostCheck {
                    command: args.command.clone(),
                    program,
                    dir: room.path().to_owned(),
                    grace: args.grace,
                    ready: args.ready,
                    aloud: args.verbose,
                    strict: args.strict,
                };
                check.run(&room.places(), &mut progress)
            }),
        None => Room::new().map_err(CheckError::Stage).and_then(|room| {
            let check = StdioCheck {
                command: args.command.clone(),
                grace: args.grace,
                ready: args.ready,
                call: args.call.clone(),
                aloud: args.verbose,
                strict: args.strict,
            };
            check.run(&room.places(), &mut progress)
        }),
    };
    match checked {
        Ok(report) => tell(printer, args, &report),
        Err(error) => refuse(printer, &error),
    }
}

/// Prints the report and writes it where it was asked for.
fn tell(printer: Printer, args: &Check, report: &Report) -> u8 {
    printer.data(if args.json {
        // It is made of texts and numbers.
        serde_json::to_string_pretty(report).unwrap_or_default() + "\n"
    } else {
        output::text(report)
    });
    if let Some(path) = &args.junit
        && let Err(error) = fs::write(path, report.junit())
    {
        let error = std::io::Error::new(error.kind(), format!("cannot write `{}`: {error}", path.display()));
        printer.error(&error, Some("name a file that can be written with --junit"));
        return exit_code::LEASH_FAILED;
    }
    if report.passed { exit_code::OK } else { exit_code::NOT_ALL }
}

/// Nothing could be tested.
fn refuse(printer: Printer, error: &CheckError) -> u8 {
    let (hint, code) = match error {
        CheckError::Url { .. } => ("leash check --url http://127.0.0.1:3000/mcp", exit_code::USAGE),
        CheckError::Start { source: TreeError::Start { refused, .. }, .. } if refused.is_empty() => {
            ("the command is started as it is written, without a shell", exit_code::NOT_FOUND)
        }
        _ => ("run `leash doctor` to see what works here", exit_code::LEASH_FAILED),
    };
    printer.error(error, Some(hint));
    code
}

/// The token that a variable holds.
fn token(variable: &str) -> Result<String, String> {
    match env::var(variable) {
        Ok(token) if !token.is_empty() => Ok(token),
        _ => Err(format!("error: the variable `{variable}` of --token-env is not set")),
    }
}

/// A directory for one check; the receipts of what was tested are nobody's history.
struct Room(PathBuf);

impl Room {
    fn new() -> std::io::Result<Room> {
        let dir = env::temp_dir().join(format!("leash-check-{}", leash_core::id::random()));
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Room(dir))
    }

    fn places(&self) -> Places {
        Places { receipts: self.path().join("receipts.jsonl"), ..places::places() }
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
