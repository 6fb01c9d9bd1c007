//! `leash release`.

use std::path::{Path, PathBuf};

use leash_orphans::adopt::AdoptError;
use leash_orphans::adopt::backups::{Backup, BackupError, BackupStore};
use leash_orphans::adopt::release::{self, ReleaseOutcome, Undo};
use leash_orphans::clients::places::read;
use leash_orphans::clients::{CLIENTS, Client, ConfigFile};
use schemars::JsonSchema;
use serde::Serialize;

use super::adopt::{Decision, and_list, backup_dir, chosen, clients_of, decide, near, shown_diff};
use crate::args::Release;
use crate::exit_code;
use crate::output::message::counted;
use crate::output::printer::Printer;
use crate::output::text::Text;
use leash_model::error::with_causes;

pub(crate) fn release(args: &Release) -> u8 {
    let printer = Printer::new(false);
    let Some(chosen) = chosen(&args.clients, printer) else { return exit_code::USAGE };
    match work(args, &chosen, printer) {
        Ok(code) => code,
        Err(error) => {
            printer.error(&error, Some("check XDG_STATE_HOME: it must be the one that `leash adopt` had"));
            exit_code::LEASH_FAILED
        }
    }
}

fn work(args: &Release, chosen: &[&str], printer: Printer) -> Result<u8, BackupError> {
    let store = BackupStore::open(&backup_dir())?;
    let wanted = |name: &str| args.servers.is_empty() || args.servers.iter().any(|server| server == name);
    let backups = store.list()?.into_iter().filter(|backup| chosen.contains(&backup.record.client.as_str()));
    let backups: Vec<Backup> = backups.collect();
    let known = backups.iter().flat_map(|backup| backup.record.adopted.iter().map(|adopted| adopted.name().to_owned()));
    let known: Vec<String> = known.collect();
    if let Some(missing) = args.servers.iter().find(|name| !known.contains(name)) {
        printer.error_text(format!("leash has not adopted a server `{missing}`"), Some(&near(missing, &known)));
        return Ok(exit_code::USAGE);
    }
    let mut files: Vec<FileUndo> =
        groups(backups.into_iter()).into_iter().map(|backups| prepare(backups, &wanted)).collect();
    // As `adopt` shows them; the backups of one `adopt` have no order.
    files.sort_by_key(|file| CLIENTS.iter().position(|client| client.id == file.client));
    if !args.json {
        files.iter().for_each(|file| show(file, &store, printer));
    }
    let decision = if files.is_empty() { Decision::No } else { decide(args.yes, args.diff || args.json, printer) };
    if decision == Decision::Yes {
        files.iter_mut().for_each(|file| write(file, &store));
    }
    if args.json {
        printer.json(ReleaseAnswer { files: files.iter().map(|file| ReleasedFile::new(file, &store)).collect() });
    } else {
        conclude(&files, decision, printer);
    }
    let failed = files
        .iter()
        .any(|file| file.error.is_some() || file.count(|outcome| matches!(outcome, ReleaseOutcome::Refused(_))) > 0);
    Ok(if failed { exit_code::NOT_ALL } else { exit_code::OK })
}

/// One file, and the result of undoing its changes.
struct FileUndo {
    path: PathBuf,
    client: &'static str,
    /// The newest first.
    backups: Vec<Backup>,
    /// `None` if the file no longer exists.
    undo: Option<(ConfigFile, Undo)>,
    written: bool,
    error: Option<(String, &'static str)>,
}

impl FileUndo {
    fn outcomes(&self) -> impl Iterator<Item = (&str, &ReleaseOutcome)> {
        let outcomes = self.undo.iter().flat_map(|(_, undo)| &undo.outcomes);
        outcomes.flatten().map(|(adopted, outcome)| (adopted.name(), outcome))
    }

    fn count(&self, is: impl Fn(&ReleaseOutcome) -> bool) -> usize {
        self.outcomes().filter(|(_, outcome)| is(outcome)).count()
    }

    fn diff(&self) -> String {
        self.undo.as_ref().map(|(file, undo)| shown_diff(file, &undo.text)).unwrap_or_default()
    }
}

/// The backups of each file, the newest first.
fn groups(backups: impl Iterator<Item = Backup>) -> Vec<Vec<Backup>> {
    let mut groups: Vec<Vec<Backup>> = Vec::new();
    for backup in backups {
        match groups.iter_mut().find(|group| group[0].record.path == backup.record.path) {
            Some(group) => group.insert(0, backup),
            None => groups.push(vec![backup]),
        }
    }
    groups
}

fn prepare(backups: Vec<Backup>, wanted: &dyn Fn(&str) -> bool) -> FileUndo {
    let record = &backups[0].record;
    let (path, client) = (record.path.clone(), Client::find(&record.client));
    let mut file = FileUndo {
        path,
        client: client.map_or("", |client| client.id),
        backups,
        undo: None,
        written: false,
        error: None,
    };
    let place = client.and_then(|client| Some((client, client.places.get(file.backups[0].record.place)?)));
    let Some((client, place)) = place else {
        file.error = Some(("it was adopted by another version of leash".to_owned(), "use that version to release it"));
        return file;
    };
    match read(&file.path) {
        Ok(Some(text)) => {
            let config = ConfigFile { client, place, path: file.path.clone(), text };
            let undo = release::undo(&config, &file.backups, wanted);
            file.undo = Some((config, undo));
        }
        Ok(None) => {}
        Err(error) => file.error = Some((format!("it can't be read: {error}"), "nothing was changed in it")),
    }
    file
}

fn kept_at(file: &FileUndo, store: &BackupStore) -> String {
    file.backups.last().map(|oldest| store.place_of(oldest).display().to_string()).unwrap_or_default()
}

fn show(file: &FileUndo, store: &BackupStore, printer: Printer) {
    printer.data(&Text::patch(&file.diff()));
    let path = file.path.display();
    if file.undo.is_none() && file.error.is_none() {
        printer.note(format!("{path}: the file is gone, there is nothing to undo"));
    }
    if let Some((why, hint)) = &file.error {
        printer.error_text(format!("{path}: {why}"), Some(hint));
    }
    for (name, outcome) in file.outcomes() {
        match outcome {
            ReleaseOutcome::Refused(why) => printer.error_text(
                format!("{path}: `{name}`: {why}"),
                Some(&format!("edit it by hand; the old text is in {}", kept_at(file, store))),
            ),
            ReleaseOutcome::NotThere => printer.note(format!("{path}: `{name}` is not on the leash any more")),
            ReleaseOutcome::Released | ReleaseOutcome::Kept => {}
        }
    }
}

fn write(file: &mut FileUndo, store: &BackupStore) {
    let Some((config, undo)) = &file.undo else {
        // The file is deleted, so forget the changes; but not if the file is only unreachable now.
        if file.error.is_none() && !exists(&file.path) {
            let forgotten = file.backups.iter().try_for_each(|backup| store.forget(backup));
            file.error = forgotten.err().map(|error| unnoted(&error));
        }
        return;
    };
    match release::carry_out(store, config, &file.backups, undo) {
        Ok(()) => file.written = true,
        Err(AdoptError::Backup(error)) => {
            // The file was written before its record, so it counts as written.
            file.written = true;
            file.error = Some(unnoted(&error));
        }
        Err(error) => file.error = Some((with_causes(&error), error.hint())),
    }
}

fn unnoted(error: &BackupError) -> (String, &'static str) {
    (format!("it is done, but leash can't record it: {}", with_causes(error)), "run `leash release` again later")
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// What `leash release --json` prints.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReleaseAnswer<'a> {
    /// The files that leash has changed.
    files: Vec<ReleasedFile<'a>>,
}

/// A file, and the result of undoing its changes.
#[derive(Serialize, JsonSchema)]
struct ReleasedFile<'a> {
    /// The id of the client, as in the reference of clients.
    client: &'static str,
    /// The file.
    path: String,
    /// Its servers that were on the leash.
    servers: Vec<ReleasedServer<'a>>,
    /// The change as a unified diff, with secrets hidden.
    diff: String,
    /// The directory with the old text.
    kept: String,
    /// True if the file was written; without `--yes` it is not.
    written: bool,
    /// The reason why it could not be read or changed.
    error: Option<&'a str>,
    /// What to do about the error.
    hint: Option<&'static str>,
}

/// A server that was on the leash.
#[derive(Serialize, JsonSchema)]
struct ReleasedServer<'a> {
    /// Its name.
    server: &'a str,
    /// The result.
    outcome: OutcomeWord,
    /// The reason, if leash refused.
    why: Option<&'static str>,
}

/// The result for one server.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ReleaseOutcome")]
enum OutcomeWord {
    /// It is off the leash, or would be with `--yes`.
    Released,
    /// It is not in the file any more, or not on the leash.
    NotThere,
    /// It stays on the leash: another server was named.
    Kept,
    /// It was edited by hand since, and stays as it is.
    Refused,
}

impl<'a> ReleasedFile<'a> {
    fn new(file: &'a FileUndo, store: &BackupStore) -> ReleasedFile<'a> {
        let server = |(server, outcome): (&'a str, &ReleaseOutcome)| {
            let (outcome, why) = match outcome {
                ReleaseOutcome::Released => (OutcomeWord::Released, None),
                ReleaseOutcome::NotThere => (OutcomeWord::NotThere, None),
                ReleaseOutcome::Kept => (OutcomeWord::Kept, None),
                ReleaseOutcome::Refused(why) => (OutcomeWord::Refused, Some(*why)),
            };
            ReleasedServer { server, outcome, why }
        };
        ReleasedFile {
            client: file.client,
            path: file.path.display().to_string(),
            servers: file.outcomes().map(server).collect(),
            diff: file.diff(),
            kept: kept_at(file, store),
            written: file.written,
            error: file.error.as_ref().map(|(why, _)| why.as_str()),
            hint: file.error.as_ref().map(|(_, hint)| *hint),
        }
    }
}

fn conclude(files: &[FileUndo], decision: Decision, printer: Printer) {
    let of = |chosen: &dyn Fn(&FileUndo) -> bool| {
        let released = |file: &&FileUndo| file.count(|outcome| *outcome == ReleaseOutcome::Released);
        let chosen: Vec<_> = files.iter().filter(|file| chosen(file) && released(file) > 0).collect();
        let servers: usize = chosen.iter().map(released).sum();
        (servers > 0).then(|| format!("{} in {}", counted(servers, "server"), counted(chosen.len(), "file")))
    };
    for (why, hint) in files.iter().filter(|file| file.undo.is_some()).filter_map(|file| file.error.as_ref()) {
        printer.error_text(why, Some(hint));
    }
    match (decision, of(&|file| decision == Decision::DryRun || file.written)) {
        (Decision::No, _) if files.is_empty() => printer.note("nothing to do: leash has adopted nothing here"),
        (Decision::No, _) => printer.note("nothing was written"),
        (Decision::Yes, None) => printer.note("nothing was taken off the leash"),
        (Decision::DryRun, None) => {
            printer.note("there is nothing to take off the leash; `leash release --yes` forgets it")
        }
        (Decision::Yes, Some(text)) => {
            let written = files.iter().filter(|file| file.written).filter_map(|file| Client::find(file.client));
            let clients = and_list(&clients_of(written.map(|client| client.name)));
            printer.note(format!("{text} taken off the leash; restart {clients}"));
        }
        (Decision::DryRun, Some(text)) => {
            printer.note(format!("{text} would be taken off the leash; nothing was written: --yes writes the changes"))
        }
    }
}
