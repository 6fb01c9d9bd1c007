//! Puts leash in front of the servers in other programs' configurations, and undoes that.
//!
//! [`plan`] is pure: it computes the new text of a file, and lists the servers that stay unchanged with the reason.
//! [`backups::BackupStore`] saves the old text before the file is changed; [`file::replace`] changes it atomically;
//! [`release`] undoes it. Texts are spliced at the positions that the parser found, so that comments, order and layout
//! stay as they are.

pub mod backups;
mod caution;
pub mod diff;
pub mod file;
mod name;
pub mod release;
pub mod rewrite;
pub mod secrets;
#[cfg(test)]
mod tests;
pub mod upstream;

use std::io;

use serde::{Deserialize, Serialize};

pub use caution::Caution;

use crate::clients::entry::{ConfigEntry, EntryKind, entries};
use crate::clients::text::TextError;
use crate::clients::{Client, ConfigFile, Scope, ServerLaunch};

/// The user's request.
#[derive(Clone, Debug)]
pub struct AdoptRequest<'a> {
    /// The word with which clients start leash: a name on their PATH, or a path.
    pub program: &'a str,
    /// The same for files that others share, on whose machines leash may be at another place.
    pub shared_program: &'a str,
    /// The names of the servers to adopt; empty means all.
    pub servers: &'a [String],
    /// True to adopt HTTP servers as well. Servers in `servers` are adopted in any case.
    pub with_urls: bool,
}

impl AdoptRequest<'_> {
    /// The word with which a client starts leash in this file.
    pub fn program_for(&self, file: &ConfigFile) -> &str {
        if file.place.scope == Scope::Project { self.shared_program } else { self.program }
    }
}

/// The planned change of a file.
#[derive(Clone, Debug)]
pub struct AdoptPlan {
    /// Its new text.
    pub after: String,
    /// The changes, in the order of the text.
    pub splices: Vec<TextSplice>,
    /// Servers that leash would start.
    pub adopted: Vec<Adopted>,
    /// Servers that stay unchanged.
    pub left: Vec<UnchangedServer>,
    /// Warnings about servers that leash would start.
    pub cautions: Vec<Caution>,
}

impl AdoptPlan {
    /// A plan that changes nothing.
    pub fn none(text: String) -> AdoptPlan {
        AdoptPlan { after: text, splices: Vec::new(), adopted: Vec::new(), left: Vec::new(), cautions: Vec::new() }
    }
}

/// A change to a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextSplice {
    /// The position in bytes in the text before all changes.
    pub at: usize,
    /// The old text at that position.
    pub before: String,
    /// The new text.
    pub after: String,
}

/// Applies the changes. `None` if they do not fit this text.
pub fn apply(text: &str, splices: &[TextSplice]) -> Option<String> {
    let mut changed = String::with_capacity(text.len());
    let mut done = 0;
    for splice in splices {
        let rest = text.get(splice.at..)?;
        changed.push_str(text.get(done..splice.at)?);
        rest.strip_prefix(splice.before.as_str())?;
        changed.push_str(&splice.after);
        done = splice.at + splice.before.len();
    }
    changed.push_str(text.get(done..)?);
    Some(changed)
}

/// A server that was adopted, with the data to undo it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The keys that lead to its entry.
    pub path: Vec<String>,
    /// The changes in its entry.
    pub changes: Vec<EntryChange>,
    /// The words in front of the server's own; `None` for an HTTP server.
    pub prefix: Option<Prefix>,
}

impl Adopted {
    /// The name of the server.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }
}

/// A change in an entry: the old and new text of its members from `first` to `last`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryChange {
    /// The map inside the entry that contains them.
    pub inside: Vec<String>,
    /// The key of the first one, after the change.
    pub first: String,
    /// The key of the last one, after the change.
    pub last: String,
    /// The text before.
    pub before: String,
    /// The text after.
    pub after: String,
}

/// The words in front of a server's own. They are used to undo an entry that another program has changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// The map inside the entry that contains command and list.
    pub inside: Vec<String>,
    /// The key of the list.
    pub list: String,
    /// The words at the beginning of the list after the change.
    pub words: Vec<String>,
    /// The old text of the list, if there was one.
    pub list_before: Option<String>,
    /// The key of the program, its new value, and its old text. `None` if the program is the list's first word.
    pub command: Option<(String, String, String)>,
}

/// A server that stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnchangedServer {
    /// The keys that lead to its entry.
    pub path: Vec<String>,
    /// The reason.
    pub why: UnchangedReason,
}

impl UnchangedServer {
    /// The name of the server.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }
}

/// The reason why a server stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnchangedReason {
    /// leash already starts it.
    #[error("it is on the leash already")]
    Leashed,
    /// The client does not use it.
    #[error("it is disabled")]
    Disabled,
    /// leash does not understand its entry.
    #[error("{0}")]
    Unknown(String),
    /// It sets PATH, and the client would look for leash there.
    #[error("its environment sets PATH, where `leash` may not be found")]
    OwnPath,
    /// The user did not ask for HTTP servers.
    #[error("it is an HTTP server")]
    Url,
    /// It contains a secret that other users could read on the command line.
    #[error("{0} holds a secret")]
    Secret(String),
    /// The client does something for it that leash can't do.
    #[error("{0}")]
    NeedsClient(String),
}

impl UnchangedReason {
    /// The advice for the user about this server, if there is any.
    pub fn hint(&self, server: &str) -> Option<String> {
        match self {
            UnchangedReason::Leashed
            | UnchangedReason::Disabled
            | UnchangedReason::Unknown(_)
            | UnchangedReason::NeedsClient(_) => None,
            UnchangedReason::OwnPath => Some("give the whole path of leash: --leash PATH".to_owned()),
            UnchangedReason::Url => Some(format!("add --server {server}, or --all for every HTTP server")),
            UnchangedReason::Secret(_) => {
                Some("put it into a variable that the client expands, such as `Bearer ${TOKEN}`".to_owned())
            }
        }
    }

    /// The reason in two or three words, for a count of servers.
    pub fn short(&self) -> &'static str {
        match self {
            UnchangedReason::Leashed => "on the leash already",
            UnchangedReason::Disabled => "disabled",
            UnchangedReason::Unknown(_) => "of an unknown form",
            UnchangedReason::OwnPath => "with a PATH of its own",
            UnchangedReason::Url => "over HTTP",
            UnchangedReason::Secret(_) => "with a secret",
            UnchangedReason::NeedsClient(_) => "dependent on the client",
        }
    }
}

/// The reason why a plan was not carried out. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The old text can't be saved, so the file is not changed.
    #[error("the old text of the file can't be saved")]
    Backup(#[from] backups::BackupError),
    /// The file can't be changed.
    #[error(transparent)]
    Write(#[from] file::WriteError),
}

impl AdoptError {
    /// The advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            AdoptError::Backup(error)
                if matches!(error.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                "make room on the disk of XDG_STATE_HOME: leash saves the old text of a file before it changes it"
            }
            AdoptError::Backup(_) => "check XDG_STATE_HOME: leash saves the old text of a file before it changes it",
            AdoptError::Write(error) => error.hint(),
        }
    }
}

/// Saves the old text, then changes the file. If leash is killed in between, the file is as it was, and the next
/// `adopt` or `release` detects that.
pub fn carry_out(store: &backups::BackupStore, file: &ConfigFile, plan: &AdoptPlan) -> Result<(), AdoptError> {
    let backups = store.list()?;
    if let Some(last) =
        backups.iter().rfind(|backup| backup.record.path == file.path).filter(|backup| backup.before == file.text)
    {
        store.forget(last)?;
    }
    let place = file.client.places.iter().position(|place| place == file.place).unwrap_or_default();
    let record = backups::BackupRecord {
        splices: plan.splices.clone(),
        adopted: plan.adopted.clone(),
        ..backups::BackupRecord::new(file.client.id, place, &file.path)
    };
    let backup = store.keep(&file.text, record)?;
    let written = file::replace(&file.path, &file.text, &plan.after);
    if written.is_err() {
        // If this fails, the next `adopt` or `release` finds that the file is as it was.
        let _ = store.forget(&backup);
    }
    Ok(written?)
}

/// Plans the change of a file. Fails if the text can't be parsed.
pub fn plan(file: &ConfigFile, request: &AdoptRequest<'_>) -> Result<AdoptPlan, TextError> {
    let mut plan = AdoptPlan::none(String::new());
    let entries = entries(file)?;
    let names: Vec<&str> = entries.iter().map(ConfigEntry::name).collect();
    for entry in &entries {
        let is_named = request.servers.iter().any(|name| name == entry.name());
        if !request.servers.is_empty() && !is_named {
            continue;
        }
        let wanted = AdoptRequest { with_urls: request.with_urls || is_named, ..request.clone() };
        match rewrite_entry(file, entry, &names, &wanted) {
            Ok(None) => {}
            Ok(Some(rewritten)) => {
                plan.cautions.extend(caution::caution(entry));
                plan.splices.extend(rewritten.splices);
                plan.adopted.push(rewritten.adopted);
            }
            Err(why) => plan.left.push(UnchangedServer { path: entry.path.clone(), why }),
        }
    }
    plan.splices.sort_by_key(|splice| splice.at);
    match apply(&file.text, &plan.splices).filter(|after| is_as_planned(file, after, &plan.adopted)) {
        Some(after) => plan.after = after,
        None => give_up(&mut plan, &file.text),
    }
    Ok(plan)
}

/// True if leash starts every adopted server in the new text. A new text is parsed before it is written to another
/// program's file.
fn is_as_planned(file: &ConfigFile, after: &str, adopted: &[Adopted]) -> bool {
    let file = ConfigFile { text: after.to_owned(), ..file.clone() };
    let Ok(entries) = entries(&file) else { return false };
    adopted.iter().all(|adopted| {
        entries.iter().any(|entry| {
            entry.path == adopted.path && matches!(&entry.kind, EntryKind::Server { launch, .. } if launch.is_leashed())
        })
    })
}

/// Changes nothing, because the result would not be the intended one.
fn give_up(plan: &mut AdoptPlan, text: &str) {
    text.clone_into(&mut plan.after);
    plan.splices.clear();
    plan.cautions.clear();
    let why = || UnchangedReason::Unknown("the file is written in a way that can't be changed safely".to_owned());
    plan.left.extend(plan.adopted.drain(..).map(|adopted| UnchangedServer { path: adopted.path, why: why() }));
}

fn rewrite_entry(
    file: &ConfigFile,
    entry: &ConfigEntry,
    names: &[&str],
    request: &AdoptRequest<'_>,
) -> Result<Option<rewrite::Rewritten>, UnchangedReason> {
    let (launch, enabled) = match &entry.kind {
        EntryKind::BuiltIn => return Ok(None),
        EntryKind::Unknown(why) => return Err(UnchangedReason::Unknown(why.clone())),
        EntryKind::Server { launch, enabled } => (launch, *enabled),
    };
    if launch.is_leashed() {
        return Err(UnchangedReason::Leashed);
    }
    if !enabled {
        return Err(UnchangedReason::Disabled);
    }
    let name = name::name_for(entry.name(), names);
    let program = request.program_for(file);
    let rewritten = match launch {
        ServerLaunch::Stdio { command, env, .. } => {
            check_command(command)?;
            if !program.contains('/') && env.iter().any(|(name, _)| name == "PATH") {
                return Err(UnchangedReason::OwnPath);
            }
            rewrite::stdio(file, entry, &run_words(file.client, &name, "run"), program)?
        }
        ServerLaunch::Url { .. } if !request.with_urls => return Err(UnchangedReason::Url),
        ServerLaunch::Url { url } => upstream::url(file, entry, &name, url, program)?,
    };
    Ok(Some(rewritten))
}

/// Refuses a command that needs its client's interpretation: leash would pass it on as a plain argument.
fn check_command(command: &str) -> Result<(), UnchangedReason> {
    let refuse = |why: &str| Err(UnchangedReason::NeedsClient(why.to_owned()));
    if command.starts_with('~') {
        return refuse("its command begins with `~`, which the client may replace");
    }
    // `npx -y x` is a whole line; `/opt/My App/server` is a path.
    let is_line = command.split_once(char::is_whitespace).is_some_and(|(first, rest)| {
        !first.contains(['/', '\\']) || rest.split_whitespace().any(|word| word.starts_with('-'))
    });
    if is_line {
        return refuse("its command is a whole command line, which the client may split");
    }
    Ok(())
}

/// The leash command and its options for a server of this client.
pub(crate) fn run_words(client: &Client, name: &str, command: &str) -> Vec<String> {
    let mut words = vec![command.to_owned()];
    // If the variable is not set, leash uses a session of its own, so older clients work as before.
    words.extend(client.session_variable().map(|variable| format!("--session-env={variable}")));
    words.push(format!("--name={name}"));
    words
}
