//! Completion on the command line: the script of `leash completions` asks leash itself, which knows what is alive.

use std::collections::BTreeSet;
use std::env;

use clap::{Arg, Command, CommandFactory as _, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Shells};
use leash_gateway::control_client;
use leash_model::alive::AliveSession;
use leash_model::containment::Containment;
use leash_orphans::clients::entry::{EntryKind, entries};
use leash_orphans::clients::{self, CLIENTS, Client, ConfigEntry};
use leash_tree::ledger::receipts;
use leash_tree::session::alive;

use crate::args::Cli;
use crate::output::printer::Printer;
use crate::{exit_code, places};

/// The variable with which the script asks. Its value is the shell.
const VARIABLE: &str = "LEASH_COMPLETE";

/// The number of ended sessions that are offered.
const NEWEST: usize = 50;

/// Makes the candidates for an argument.
type Candidates = fn() -> Vec<CompletionCandidate>;

/// Writes the script for a shell.
pub(super) fn script(shell: &str) -> Vec<u8> {
    let program = places::program().map_or_else(|| "leash".to_owned(), |path| path.to_string_lossy().into_owned());
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(shell) {
        // Writing to memory does not fail.
        let _ = shell.write_registration(VARIABLE, "leash", "leash", &program, &mut script);
    }
    script
}

/// Answers the script. `None` if leash was not asked.
pub(super) fn complete() -> Option<u8> {
    let shell = env::var(VARIABLE).ok().filter(|shell| !shell.is_empty())?;
    let shells = Shells::builtins();
    let shell: &dyn EnvCompleter = shells.completer(&shell)?;
    // The words come after `--`.
    let words = env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let mut answer = Vec::new();
    let done = shell.write_complete(&mut command(), words, env::current_dir().ok().as_deref(), &mut answer);
    Printer::new(false).exact(String::from_utf8_lossy(&answer));
    // A shell falls back to its own completion if leash fails.
    Some(if done.is_ok() { exit_code::OK } else { exit_code::LEASH_FAILED })
}

/// The command line with candidates for its values.
fn command() -> Command {
    let mut command = Cli::command();
    command.build();
    let lists: [(&str, &str, Candidates); 15] = [
        ("ps", "session", sessions),
        ("end", "sessions", sessions),
        ("why", "target", sessions),
        ("end", "matching", labels),
        ("run", "session", sessions),
        ("connect", "session", sessions),
        ("history", "session", ended_sessions),
        ("logs", "of", sessions),
        ("attach", "target", targets),
        ("run", "contain", containments),
        ("run", "require", containments),
        ("adopt", "clients", clients),
        ("adopt", "servers", servers),
        ("release", "clients", adopted_clients),
        ("release", "servers", adopted_servers),
    ];
    for (name, arg, list) in lists {
        command = with(command, name, arg, |arg| arg.add(ArgValueCandidates::new(list)));
    }
    for name in ["run", "serve", "check"] {
        command = with(command, name, "command", |arg| arg.value_hint(ValueHint::AnyPath));
    }
    command
}

fn with(command: Command, name: &str, arg: &'static str, change: impl FnOnce(Arg) -> Arg) -> Command {
    command.mut_subcommand(name, |command| command.mut_arg(arg, change))
}

/// A candidate with a description. `None` for a text that means more than itself on a command line: it comes from other
/// programs.
fn candidate(value: &str, help: &str) -> Option<CompletionCandidate> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:@+/=%".contains(letter);
    if value.is_empty() || value.starts_with('-') || !value.chars().all(is_plain) {
        return None;
    }
    let help: String = help.chars().filter(|letter| !letter.is_control()).collect();
    Some(CompletionCandidate::new(value).help((!help.is_empty()).then(|| help.into())))
}

fn all(values: impl IntoIterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let mut seen = BTreeSet::new();
    let fresh = values.into_iter().filter(|(value, _)| seen.insert(value.clone()));
    fresh.filter_map(|(value, help)| candidate(&value, &help)).collect()
}

/// The sessions that are alive: those in the ledger, and those of a daemon.
fn alive() -> Vec<AliveSession> {
    let members = alive::members(&places::places()).unwrap_or_default();
    let held = control_client::sessions(&places::control_socket()).unwrap_or_default();
    AliveSession::join(members, held)
}

/// The names of the servers of a session.
fn server_names(session: &AliveSession) -> Vec<&str> {
    match &session.held {
        Some(held) => held.servers.iter().map(|server| &*server.name).collect(),
        None => session.members.iter().map(|member| &*member.name).collect(),
    }
}

fn sessions() -> Vec<CompletionCandidate> {
    let sessions = alive().into_iter().filter(AliveSession::can_be_ended);
    all(sessions.map(|session| (session.id.clone(), server_names(&session).join(", "))))
}

fn labels() -> Vec<CompletionCandidate> {
    let members = alive().into_iter().flat_map(|session| session.members);
    let labels = members.flat_map(|member| {
        let name = member.name;
        member.labels.into_iter().map(move |(key, value)| (format!("{key}={value}"), name.clone()))
    });
    all(labels)
}

fn ended_sessions() -> Vec<CompletionCandidate> {
    let files = places::receipts_files();
    let mut receipts: Vec<_> =
        files.iter().flat_map(|file| receipts::read(file).map(|(receipts, _)| receipts).unwrap_or_default()).collect();
    receipts.sort_by_key(|receipt| receipt.ended_ms);
    all(receipts.into_iter().rev().take(NEWEST).map(|receipt| (receipt.session, receipt.name)))
}

fn targets() -> Vec<CompletionCandidate> {
    let held = alive().into_iter().filter_map(|session| session.held);
    let target = |id: &str, server: &str| (format!("{id}/{server}"), String::new());
    all(held.flat_map(|held| held.servers.iter().map(|server| target(&held.id, &server.name)).collect::<Vec<_>>()))
}

fn containments() -> Vec<CompletionCandidate> {
    all(Containment::ALL.map(|containment| (containment.name().to_owned(), containment.promise().to_owned())))
}

fn clients() -> Vec<CompletionCandidate> {
    all(CLIENTS.iter().map(|client| (client.id.to_owned(), client.name.to_owned())))
}

/// The servers in the files of clients that are on the leash, or those that are not.
fn declared(is_leashed: bool) -> Vec<(String, &'static Client)> {
    let here = env::current_dir().ok();
    let Some(roots) = places::roots(here.as_slice()) else { return Vec::new() };
    let mut found = Vec::new();
    for file in clients::configs(&roots).0 {
        let is_wanted = |entry: &ConfigEntry| matches!(&entry.kind, EntryKind::Server { launch, .. } if launch.is_leashed() == is_leashed);
        let entries = entries(&file).unwrap_or_default().into_iter().filter(is_wanted);
        found.extend(entries.map(|entry| (entry.name().to_owned(), file.client)));
    }
    found
}

fn servers() -> Vec<CompletionCandidate> {
    all(declared(false).into_iter().map(|(server, client)| (server, client.name.to_owned())))
}

fn adopted_servers() -> Vec<CompletionCandidate> {
    all(declared(true).into_iter().map(|(server, client)| (server, client.name.to_owned())))
}

fn adopted_clients() -> Vec<CompletionCandidate> {
    all(declared(true).into_iter().map(|(_, client)| (client.id.to_owned(), client.name.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_completed_argument_exists() {
        command().debug_assert();
    }

    #[test]
    fn texts_that_a_shell_would_interpret_are_not_offered() {
        for text in ["job-1", "a:b", "team=red", "x/y", "%3"] {
            assert!(candidate(text, "").is_some(), "{text}");
        }
        for text in ["", "-x", "a b", "$(x)", "a;b", "`x`", "a\nb", "*", "~x", "'"] {
            assert!(candidate(text, "").is_none(), "{text}");
        }
    }
}
