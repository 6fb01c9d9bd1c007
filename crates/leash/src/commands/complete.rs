//! Completion on the command line: the script of `leash completions` asks leash itself, which knows what is alive.

use std::collections::BTreeSet;
use std::env;

use clap::{Arg, Command, CommandFactory as _, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Shells};
use leash_gateway::control_client;
use leash_model::containment::Containment;
use leash_model::record::Record;
use leash_orphans::clients::{self, CLIENTS, DeclaredServer};
use leash_tree::ledger::book::Book;
use leash_tree::ledger::receipts;
use leash_tree::ledger::store::{Store, is_of_this_place};

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
    let lists: [(&str, &str, Candidates); 12] = [
        ("end", "sessions", sessions),
        ("end", "matching", labels),
        ("run", "session", sessions),
        ("connect", "session", sessions),
        ("history", "session", ended_sessions),
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

/// The records of living runs.
fn records() -> Vec<Record> {
    let store = Store::look(&places::runtime_dir()).ok().flatten();
    let found = store.and_then(|store| store.list().ok()).unwrap_or_default();
    found.into_iter().filter_map(|found| found.record).filter(is_of_this_place).collect()
}

/// Sessions of a daemon, with their servers.
fn daemon_sessions() -> Vec<(String, Vec<String>)> {
    let sessions = control_client::sessions(&control_client::socket_path(&places::runtime_dir())).unwrap_or_default();
    let alive = sessions.iter().filter(|session| session["state"] != "ended");
    alive
        .filter_map(|session| {
            let servers = session["servers"].as_array().into_iter().flatten();
            let names = servers.filter_map(|server| server["name"].as_str().map(str::to_owned)).collect();
            Some((session["id"].as_str()?.to_owned(), names))
        })
        .collect()
}

fn sessions() -> Vec<CompletionCandidate> {
    let runs = records().into_iter().map(|record| (record.session, record.name));
    let books = Book::list(&places::runtime_dir()).unwrap_or_default();
    let connections: Vec<(String, String)> =
        books.iter().filter_map(|book| Some((book.session()?.to_owned(), "leash connect".to_owned()))).collect();
    let held = daemon_sessions().into_iter().map(|(id, servers)| (id, servers.join(", ")));
    all(runs.chain(connections).chain(held))
}

fn labels() -> Vec<CompletionCandidate> {
    let runs = records().into_iter();
    let labels = runs.flat_map(|record| {
        let name = record.name;
        record.labels.into_iter().map(move |(key, value)| (format!("{key}={value}"), name.clone()))
    });
    all(labels)
}

fn ended_sessions() -> Vec<CompletionCandidate> {
    let (receipts, _) = receipts::read(&places::places().receipts).unwrap_or_default();
    all(receipts.into_iter().rev().take(NEWEST).map(|receipt| (receipt.session, receipt.name)))
}

fn targets() -> Vec<CompletionCandidate> {
    let sessions = daemon_sessions().into_iter();
    all(sessions.flat_map(|(id, servers)| servers.into_iter().map(move |name| (format!("{id}/{name}"), String::new()))))
}

fn containments() -> Vec<CompletionCandidate> {
    all(Containment::ALL.map(|containment| (containment.name().to_owned(), containment.promise().to_owned())))
}

fn clients() -> Vec<CompletionCandidate> {
    all(CLIENTS.iter().map(|client| (client.id.to_owned(), client.name.to_owned())))
}

/// The servers in the files of clients.
fn declared() -> Vec<DeclaredServer> {
    let here = env::current_dir().ok();
    let Some(roots) = places::roots(here.as_slice()) else { return Vec::new() };
    clients::configs(&roots).0.iter().flat_map(|file| clients::servers(file).0).collect()
}

fn servers() -> Vec<CompletionCandidate> {
    let free = declared().into_iter().filter(|server| !server.launch.is_leashed());
    all(free.map(|server| (server.name, server.client.name.to_owned())))
}

fn adopted_servers() -> Vec<CompletionCandidate> {
    let adopted = declared().into_iter().filter(|server| server.launch.is_leashed());
    all(adopted.map(|server| (server.name, server.client.name.to_owned())))
}

fn adopted_clients() -> Vec<CompletionCandidate> {
    let adopted = declared().into_iter().filter(|server| server.launch.is_leashed());
    all(adopted.map(|server| (server.client.id.to_owned(), server.client.name.to_owned())))
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
