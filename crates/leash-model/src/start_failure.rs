//! The reason why a server was not started. Keeper, supervisor, handle, gateway and control API pass this value on.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::{Cause, with_causes};
use crate::{containment::Refusal, owner::OwnerError};

/// The reason why a server was not started. Nothing of it was left behind. Each text has at most 4096 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StartFailure {
    /// The command line is empty.
    #[error("no command was given")]
    NoCommand,
    /// The program does not exist.
    #[error("command `{command}` was not found")]
    NotFound {
        /// The command that was looked for.
        command: String,
        /// The PATH that was searched; absent if the command has a slash and PATH does not matter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// The command names a directory.
    #[error("`{path}` cannot be executed: it is a directory")]
    IsDirectory {
        /// The directory.
        path: String,
    },
    /// The file exists and may not be executed.
    #[error("`{path}` cannot be executed: permission denied")]
    NotExecutable {
        /// The file.
        path: String,
    },
    /// The kernel did not execute the program.
    #[error("cannot execute `{path}`")]
    Exec {
        /// The program.
        path: String,
        /// The cause.
        #[source]
        cause: Cause,
    },
    /// The working directory cannot be entered.
    #[error("cannot change to the directory `{dir}`")]
    WorkingDirectory {
        /// The directory.
        dir: String,
        /// The cause.
        #[source]
        cause: Cause,
    },
    /// An owner is already gone, or never existed.
    #[error(transparent)]
    Owner {
        /// The failure.
        owner: OwnerError,
    },
    /// The ledger cannot be written.
    #[error("{what}")]
    Ledger {
        /// The step that failed.
        what: String,
        /// The cause.
        #[source]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
    /// Another user owns the runtime directory, or may write to it.
    #[error("{what}")]
    SharedLedger {
        /// The directory, and its owner or mode.
        what: String,
    },
    /// No acceptable containment works here.
    #[error("no acceptable containment works here")]
    Contain {
        /// The refused containments, with reasons.
        refused: Vec<Refusal>,
    },
    /// A limit of processes, descriptors or memory is used up.
    #[error("{what}")]
    Resources {
        /// The step that failed.
        what: String,
        /// The cause.
        #[source]
        cause: Cause,
    },
    /// A step of leash itself failed.
    #[error("{what}")]
    Internal {
        /// The step that failed.
        what: String,
        /// The cause.
        #[source]
        cause: Cause,
    },
    /// The server is an address, and leash cannot reach it.
    #[error("{why}")]
    Unreachable {
        /// The reason.
        why: String,
    },
    /// The server was ended before it was ready, or the gateway is shutting down.
    #[error("the server was ended before it was ready")]
    Ended,
}

/// The place where a user wrote the command of a server. A hint names the options of that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOrigin {
    /// The command line of `leash run`.
    Run,
    /// The command line of `leash check`.
    Check,
    /// A configuration file.
    File,
    /// A request to the control API.
    Request,
}

impl StartFailure {
    /// The failure with its causes and facts, on one line.
    pub fn line(&self) -> String {
        std::iter::once(with_causes(self)).chain(self.facts()).collect::<Vec<_>>().join("; ")
    }

    /// Further facts about the failure: the refusal of each containment.
    pub fn facts(&self) -> Vec<String> {
        let StartFailure::Contain { refused } = self else { return Vec::new() };
        refused.iter().map(|refusal| format!("not {}: {}", refusal.containment, refusal.why)).collect()
    }

    /// The one thing to do about it.
    pub fn hint(&self, origin: CommandOrigin) -> String {
        let hint = match self {
            StartFailure::NoCommand => no_command_hint(origin),
            StartFailure::NotFound { command, path } => return not_found_hint(command, path.as_deref(), origin),
            StartFailure::IsDirectory { .. } => "name a program, not a directory",
            StartFailure::NotExecutable { path } => return format!("make it executable: chmod +x {path}"),
            StartFailure::Exec { .. } => {
                "the file is not a program this machine can run, or its interpreter is missing"
            }
            StartFailure::WorkingDirectory { .. } => match origin {
                CommandOrigin::Run | CommandOrigin::Check => "check --cwd",
                CommandOrigin::File | CommandOrigin::Request => {
                    "check its `cwd`; it is taken relative to where leash was started"
                }
            },
            StartFailure::Owner { owner } => owner.hint().unwrap_or("nothing was started"),
            StartFailure::SharedLedger { .. } => "set LEASH_RUNTIME_DIR to a directory of your own with mode 0700",
            StartFailure::Ledger { .. } => {
                "set LEASH_RUNTIME_DIR to a directory that can be written; the ledger must exist before a server does"
            }
            StartFailure::Contain { .. } => contain_hint(origin),
            StartFailure::Resources { .. } => {
                "a limit of processes, open files or memory is used up (ulimit -u, ulimit -n, pids.max); nothing was started"
            }
            StartFailure::Internal { .. } => {
                "run `leash doctor` to see what works here; leash needs Linux 5.3 or later"
            }
            StartFailure::Unreachable { .. } => "check its `url`, and that the server runs",
            StartFailure::Ended => "start it again; nothing of it is left",
        };
        hint.to_owned()
    }
}

fn no_command_hint(origin: CommandOrigin) -> &'static str {
    match origin {
        CommandOrigin::Run => "leash run -- COMMAND [ARGUMENTS...]",
        CommandOrigin::Check => "leash check -- COMMAND [ARGUMENTS...]",
        CommandOrigin::File | CommandOrigin::Request => "name a program in `command`",
    }
}

fn not_found_hint(command: &str, path: Option<&str>, origin: CommandOrigin) -> String {
    let hint = match origin {
        CommandOrigin::Check => "the command is started as it is written, without a shell",
        CommandOrigin::File if command.starts_with("~/") => "write `${HOME}` instead of `~`",
        CommandOrigin::Request if command.starts_with("~/") => "write the whole path: leash does not expand `~`",
        CommandOrigin::File | CommandOrigin::Request if command.contains(' ') => {
            "a command is one program: write its arguments into `args`"
        }
        CommandOrigin::Run if command.contains(char::is_whitespace) => {
            return format!("command and arguments are separate words: leash run -- {command}");
        }
        CommandOrigin::Run if path.is_none() => "check the path; it is taken relative to --cwd",
        CommandOrigin::Run | CommandOrigin::File | CommandOrigin::Request => match path {
            Some(path) => return format!("it is in none of the directories of PATH: {path}"),
            None => "check the path; it is taken relative to `cwd`",
        },
    };
    hint.to_owned()
}

fn contain_hint(origin: CommandOrigin) -> &'static str {
    match origin {
        CommandOrigin::Run => {
            "run `leash doctor` to see what works here, or ask for less (--contain, --require, --spare, --memory, --pids, --cpu, --session-memory, `budget` in leash.json)"
        }
        CommandOrigin::Check => "run `leash doctor` to see what works here",
        CommandOrigin::File | CommandOrigin::Request => {
            "run `leash doctor` to see what works here, or ask for less (`contain`, `require`, `spare`, `memory`, `pids`, `cpu`, `budget`)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{containment::Containment, error::shown, limits};

    /// One failure of each kind, with texts of `text`.
    fn every_kind(text: &str) -> Vec<StartFailure> {
        let (what, cause) = (shown(text), Cause::new(text));
        let refused = Containment::ALL.map(|containment| Refusal::new(containment, what.clone())).to_vec();
        vec![
            StartFailure::NoCommand,
            StartFailure::NotFound { command: what.clone(), path: Some(what.clone()) },
            StartFailure::NotFound { command: what.clone(), path: None },
            StartFailure::IsDirectory { path: what.clone() },
            StartFailure::NotExecutable { path: what.clone() },
            StartFailure::Exec { path: what.clone(), cause: cause.clone() },
            StartFailure::WorkingDirectory { dir: what.clone(), cause: cause.clone() },
            StartFailure::Owner { owner: OwnerError::NoSuchProcess { pid: i32::MAX } },
            StartFailure::Owner { owner: OwnerError::Watch { what: what.clone(), cause: cause.clone() } },
            StartFailure::Ledger { what: what.clone(), cause: Some(cause.clone()) },
            StartFailure::SharedLedger { what: what.clone() },
            StartFailure::Contain { refused },
            StartFailure::Resources { what: what.clone(), cause: cause.clone() },
            StartFailure::Internal { what: what.clone(), cause },
            StartFailure::Unreachable { why: what },
            StartFailure::Ended,
        ]
    }

    #[test]
    fn every_kind_is_read_back_unchanged() {
        for failure in every_kind("x") {
            let text = serde_json::to_string(&failure).expect("it can be written");
            assert_eq!(serde_json::from_str::<StartFailure>(&text).expect("it can be read"), failure, "{text}");
        }
    }

    /// A socket takes 208 KiB by default, and JSON needs six bytes for a control character.
    #[test]
    fn the_longest_failure_fits_into_a_message() {
        for failure in every_kind(&"\u{1}".repeat(1024 * 1024)) {
            let text = serde_json::to_string(&failure).expect("it can be written");
            assert!(text.len() <= 5 * 6 * limits::FAILURE_TEXT + 1024, "{} bytes", text.len());
        }
    }

    #[test]
    fn every_kind_has_a_hint_for_every_origin() {
        for failure in every_kind("x") {
            for origin in [CommandOrigin::Run, CommandOrigin::Check, CommandOrigin::File, CommandOrigin::Request] {
                assert!(!failure.hint(origin).is_empty(), "{failure:?}, {origin:?}");
            }
        }
    }

    #[test]
    fn hints_name_the_options_of_the_origin() {
        use CommandOrigin::{Check, File, Request, Run};
        let check = |command: &str, origin, expected: &str| {
            let path = (!command.contains('/')).then(|| "/bin".to_owned());
            assert_eq!(StartFailure::NotFound { command: command.to_owned(), path }.hint(origin), expected);
        };
        check("a", Run, "it is in none of the directories of PATH: /bin");
        check("a", File, "it is in none of the directories of PATH: /bin");
        check("a", Check, "the command is started as it is written, without a shell");
        check("/a", Run, "check the path; it is taken relative to --cwd");
        check("/a", Request, "check the path; it is taken relative to `cwd`");
        check("~/a", File, "write `${HOME}` instead of `~`");
        check("~/a", Request, "write the whole path: leash does not expand `~`");
        check("a b", Run, "command and arguments are separate words: leash run -- a b");
        check("a b", Request, "a command is one program: write its arguments into `args`");
    }

    #[test]
    fn a_line_has_the_causes_and_the_refusals() {
        let exec = StartFailure::Exec { path: "x".to_owned(), cause: Cause::new("no") };
        assert_eq!(exec.line(), "cannot execute `x`: no");
        let refused = vec![Refusal::new(Containment::Unit, "no bus"), Refusal::new(Containment::Leaf, "no cgroup2")];
        let contain = StartFailure::Contain { refused };
        assert_eq!(contain.line(), "no acceptable containment works here; not unit: no bus; not leaf: no cgroup2");
    }
}
