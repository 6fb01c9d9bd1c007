//! Exit codes: their numbers, and what they mean for each command.

use std::fmt;

use leash_model::start_failure::StartFailure;

/// Success.
pub(crate) const OK: u8 = 0;
/// The command ran, but some results are not as they should be.
pub(crate) const NOT_ALL: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// leash itself failed.
pub(crate) const LEASH_FAILED: u8 = 125;
/// The command may not be executed.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// An exit code in the documents.
pub(crate) enum ExitCode {
    /// Always this number.
    Number(u8),
    /// 128 + n.
    Signal,
    /// The exit code of the server.
    Server,
}

impl fmt::Display for ExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitCode::Number(code) => code.fmt(f),
            ExitCode::Signal => f.write_str("128 + n"),
            ExitCode::Server => f.write_str("other"),
        }
    }
}

/// An exit code and its meaning.
type Meaning = (ExitCode, &'static str);

const fn number(code: u8, meaning: &'static str) -> Meaning {
    (ExitCode::Number(code), meaning)
}

const fn signal(meaning: &'static str) -> Meaning {
    (ExitCode::Signal, meaning)
}

const BAD_USAGE: Meaning = number(USAGE, "The command line is wrong.");
const FAILED: Meaning = number(LEASH_FAILED, "leash itself failed.");
const NO_LEDGER: Meaning = number(LEASH_FAILED, "leash itself failed, for example because it cannot read its ledger.");

/// The exit codes of every command.
const COMMANDS: &[(&str, &[Meaning])] = &[
    (
        "run",
        &[
            (ExitCode::Server, "The server's own exit code."),
            number(USAGE, "The command line, a variable `LEASH_*` or leash.json is wrong; the server was not started."),
            number(LEASH_FAILED, "leash itself failed; the server was not started."),
            number(CANNOT_EXECUTE, "The server's command cannot be executed."),
            number(NOT_FOUND, "The server's command was not found."),
            signal("Signal n ended the server."),
        ],
    ),
    (
        "connect",
        &[
            number(OK, "The host is done, and the session at the server is ended."),
            number(NOT_ALL, "The session at the server was lost (`--no-revive`), or could not be ended."),
            BAD_USAGE,
            FAILED,
            signal("leash received signal n; the session at the server is ended."),
        ],
    ),
    (
        "attach",
        &[
            number(OK, "The host is done."),
            number(NOT_ALL, "The session or the server is not known, or the session has ended."),
            BAD_USAGE,
            number(LEASH_FAILED, "leash itself failed, for example because no `leash serve` answers."),
            signal("leash received signal n."),
        ],
    ),
    (
        "guard",
        &[
            number(OK, "The program is done, and its sessions at the server are ended."),
            number(NOT_ALL, "A session at the server could not be ended."),
            BAD_USAGE,
            FAILED,
            signal("leash received signal n; the sessions at the server are ended."),
        ],
    ),
    (
        "serve",
        &[
            number(OK, "A signal ended it, and all sessions are ended; with `--check`: there is no mistake."),
            number(USAGE, "The command line or the configuration is wrong."),
            number(LEASH_FAILED, "leash itself failed, for example because the address is in use."),
        ],
    ),
    (
        "ps",
        &[
            number(OK, "The list was printed, even if it is empty."),
            number(NOT_ALL, "No such session is alive."),
            BAD_USAGE,
            NO_LEDGER,
        ],
    ),
    (
        "top",
        &[
            number(OK, "The user quit, or a signal or a closed terminal ended it."),
            number(USAGE, "The command line is wrong, or stdin or stdout is no terminal."),
            number(LEASH_FAILED, "leash itself failed, for example because the terminal cannot be used."),
        ],
    ),
    (
        "why",
        &[
            number(OK, "The answer was printed."),
            number(NOT_ALL, "No such process, session or server is alive, or several have the name."),
            BAD_USAGE,
            NO_LEDGER,
        ],
    ),
    (
        "reap",
        &[
            number(OK, "Without `--yes`: the plan was printed. With it: leash finds no process of the ended servers."),
            number(NOT_ALL, "A process is left, or a named process belongs to no orphan and no likely one."),
            BAD_USAGE,
            NO_LEDGER,
        ],
    ),
    (
        "watch",
        &[
            number(
                OK,
                "With `--once`: leash finds no process of the ended servers. With `--install` and `--uninstall`: it is done.",
            ),
            number(
                NOT_ALL,
                "With `--once`: a process is left. With `--install`: the user manager did not start the unit.",
            ),
            BAD_USAGE,
            NO_LEDGER,
        ],
    ),
    (
        "end",
        &[
            number(OK, "Everything is proved to be gone, or `--match`, `--all` or `--hook` found nothing to end."),
            number(NOT_ALL, "Something is left, or a session is not known."),
            number(USAGE, "The command line is wrong, a variable is not set, or the hook's input is not readable."),
            NO_LEDGER,
        ],
    ),
    (
        "history",
        &[
            number(OK, "The receipts were printed, even if there are none."),
            number(NOT_ALL, "No such session has ended here."),
            BAD_USAGE,
            NO_LEDGER,
        ],
    ),
    (
        "logs",
        &[
            number(OK, "The lines were printed, even if there are none."),
            number(NOT_ALL, "The session or server has no log."),
            BAD_USAGE,
            number(LEASH_FAILED, "leash itself failed, for example because it cannot read the logs."),
            signal("Signal n ended it: `-f` goes on until then."),
        ],
    ),
    (
        "status",
        &[
            number(OK, "The gateway answered."),
            number(NOT_ALL, "No gateway runs."),
            BAD_USAGE,
            number(LEASH_FAILED, "leash itself failed, for example because the gateway did not answer properly."),
        ],
    ),
    (
        "adopt",
        &[
            number(OK, "It is done, there is nothing to do, or the user said no."),
            number(NOT_ALL, "A file could not be read or changed."),
            number(USAGE, "The command line is wrong, or it names a client, server or path that is not there."),
            FAILED,
        ],
    ),
    (
        "release",
        &[
            number(OK, "It is done, there is nothing to do, or the user said no."),
            number(NOT_ALL, "A file could not be read or changed, or a server was edited by hand since."),
            number(USAGE, "The command line is wrong, or it names a server that leash has not adopted."),
            FAILED,
        ],
    ),
    (
        "check",
        &[
            number(OK, "There is no finding."),
            number(NOT_ALL, "There is a finding."),
            BAD_USAGE,
            number(LEASH_FAILED, "leash itself failed, or it cannot write the file of `--junit`."),
            number(CANNOT_EXECUTE, "The tested command cannot be executed."),
            number(NOT_FOUND, "The tested command was not found."),
            signal("leash received signal n; everything that it started has ended."),
        ],
    ),
    (
        "doctor",
        &[
            number(OK, "leash can keep its promise here."),
            number(NOT_ALL, "A requirement is not met, or only a containment below `reaper` works."),
            BAD_USAGE,
        ],
    ),
    (
        "upgrade",
        &[
            number(OK, "The command was named."),
            BAD_USAGE,
            number(LEASH_FAILED, "leash cannot find its own executable."),
        ],
    ),
    (
        "demo",
        &[
            number(OK, "With leash, everything was gone."),
            number(NOT_ALL, "With leash, a process was left."),
            BAD_USAGE,
            FAILED,
        ],
    ),
    ("completions", &[number(OK, "The script was printed."), BAD_USAGE]),
    (
        "man",
        &[
            number(OK, "The page was printed, or the pages were written."),
            BAD_USAGE,
            number(LEASH_FAILED, "The pages cannot be written."),
        ],
    ),
];

/// The exit codes of a command.
pub(crate) fn of_command(command: &str) -> &'static [Meaning] {
    COMMANDS.iter().find(|(name, _)| *name == command).map_or(&[], |(_, meanings)| meanings)
}

/// The exit code of a command that could not start its server.
pub(crate) fn of_failed_start(failure: &StartFailure) -> u8 {
    match failure {
        StartFailure::NoCommand => USAGE,
        StartFailure::NotFound { .. } => NOT_FOUND,
        StartFailure::IsDirectory { .. } | StartFailure::NotExecutable { .. } | StartFailure::Exec { .. } => {
            CANNOT_EXECUTE
        }
        StartFailure::WorkingDirectory { .. }
        | StartFailure::Owner { .. }
        | StartFailure::Ledger { .. }
        | StartFailure::SharedLedger { .. }
        | StartFailure::Contain { .. }
        | StartFailure::Resources { .. }
        | StartFailure::Internal { .. }
        | StartFailure::Unreachable { .. }
        | StartFailure::Ended => LEASH_FAILED,
    }
}
