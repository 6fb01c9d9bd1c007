//! `leash adopt`.

mod answer;
mod named;
mod program;
mod said;
mod words;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use leash_orphans::adopt::backups::{BackupError, BackupStore};
use leash_orphans::adopt::{self, AdoptPlan, AdoptRequest, diff, secrets};
use leash_orphans::clients::{self, CLIENTS, Client, ConfigFile, Note, Scope};

pub(super) use answer::AdoptAnswer;

use crate::args::Adopt;
use crate::output::printer::Printer;
use crate::{exit_code, places};
use leash_model::error::with_causes;

pub(super) use named::near;
use program::ClientWords;
pub(super) use words::{and_list, clients_of};

pub(crate) fn adopt(args: &Adopt) -> u8 {
    let printer = Printer::new(false);
    let Some(chosen) = chosen(&args.clients, printer) else { return exit_code::USAGE };
    let refuse = |(text, hint): (String, String)| {
        printer.error_text(text, Some(&hint));
        exit_code::USAGE
    };
    if let Err(refusal) = named::check_paths(args) {
        return refuse(refusal);
    }
    let Some((files, unshared, mut notes)) = read(&args.projects, &chosen) else {
        printer.error_text("there is no home directory to look for configurations in", Some("set HOME"));
        return exit_code::LEASH_FAILED;
    };
    let words = ClientWords::find(args);
    if Path::new(&words.own).file_name().is_none_or(|name| name != "leash") {
        // Under another name, leash would not recognise its own entries later.
        let text = format!("this program is not called `leash` but `{}`", words.own);
        let hint = "give it the name `leash`, or name the program that clients shall start with --leash PATH";
        return refuse((text, hint.to_owned()));
    }
    // A file that can't be read may be the one that is meant.
    let unread = notes.len();
    if let Err(refusal) = named::check(args, &files, &unshared)
        && unread == 0
    {
        return refuse(refusal);
    }
    let wish = AdoptRequest {
        program: &words.own,
        shared_program: &words.shared,
        servers: &args.servers,
        with_urls: args.all,
    };
    let (mut changes, mut passed) = plans(files, &wish, &mut notes);
    let uses_own = |change: &FileChange| change.is_change() && change.program == words.own;
    if changes.iter().any(uses_own)
        && let Err(refusal) = words.check_own()
    {
        return refuse(refusal);
    }
    passed.extend(unshared.into_iter().filter_map(|file| PassedOver::project(&file, &wish)));
    if !args.json {
        changes.iter().for_each(|change| said::show(change, printer));
        passed.iter().for_each(|passed| said::show_passed(passed, printer));
        notes.iter().for_each(|note| printer.warning(note_line(note)));
    }
    let wanted = changes.iter().any(FileChange::is_change);
    let decision = if wanted { decide(args.yes, args.diff || args.json, printer) } else { Decision::No };
    if decision == Decision::Yes
        && let Err(error) = write(&mut changes)
    {
        printer.error(&error, Some("check XDG_STATE_HOME: leash saves the old text of a file before it changes it"));
        return exit_code::LEASH_FAILED;
    }
    let failed = unread > 0 || changes.iter().any(|change| change.result.is_err());
    if args.json {
        printer.json(AdoptAnswer::new(&changes, &passed, &notes));
    } else {
        said::conclude(&changes, &passed, decision, printer);
    }
    if failed { exit_code::NOT_ALL } else { exit_code::OK }
}

/// The files of the chosen clients that leash may change, the files of the project in this directory that the user did
/// not ask for, and notes. `None` without a home directory.
fn read(projects: &[PathBuf], chosen: &[&str]) -> Option<(Vec<ConfigFile>, Vec<ConfigFile>, Vec<Note>)> {
    let (mut files, notes) = clients::configs(&places::roots(projects)?);
    let mut unshared = std::env::current_dir().map(|here| clients::project_configs(&here)).unwrap_or_default();
    unshared.retain(|file| !files.iter().any(|other| other.path == file.path));
    for files in [&mut files, &mut unshared] {
        files.retain(|file| chosen.contains(&file.client.id));
    }
    Some((files, unshared, notes))
}

/// The requested ids, or all. `None` if one is unknown; the error was printed.
pub(super) fn chosen(typed: &[String], printer: Printer) -> Option<Vec<&'static str>> {
    if typed.is_empty() {
        return Some(CLIENTS.iter().map(|client| client.id).collect());
    }
    let find = |id: &String| match Client::find(id) {
        Some(client) => Some(client.id),
        None => {
            let known: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
            printer.error_text(
                format!("there is no client `{id}`"),
                Some(&format!("known clients: {}", known.join(", "))),
            );
            None
        }
    };
    typed.iter().map(find).collect()
}

/// The planned change of one file.
struct FileChange {
    file: ConfigFile,
    /// The word with which the client starts leash.
    program: String,
    plan: AdoptPlan,
    /// True after it was written.
    written: bool,
    result: Result<(), String>,
    hint: Option<&'static str>,
}

impl FileChange {
    fn is_change(&self) -> bool {
        !self.plan.splices.is_empty()
    }

    /// True if others share the file, and start leash by its name.
    fn is_shared_by_name(&self) -> bool {
        self.is_change() && self.file.place.scope == Scope::Project && !self.program.contains('/')
    }

    fn diff(&self) -> String {
        shown_diff(&self.file, &self.plan.after)
    }
}

/// The change of a file for people: its secrets are hidden, so it is not for `patch`.
pub(super) fn shown_diff(file: &ConfigFile, after: &str) -> String {
    if file.text == after {
        return String::new();
    }
    let path = file.path.display().to_string();
    let hidden = |text: &str| secrets::hidden(file, text);
    hidden(&file.text)
        .zip(hidden(after))
        .map(|(before, after)| diff::unified(&before, &after, &path, &path))
        .unwrap_or_default()
}

/// A file with servers that leash does not change.
struct PassedOver {
    client: &'static Client,
    path: PathBuf,
    /// The servers that leash would start if it changed the file.
    servers: Vec<String>,
    why: &'static str,
    hint: Option<&'static str>,
    /// The reason in a few words, for a count of servers.
    short: &'static str,
}

impl PassedOver {
    /// `None` if no server in it would be put on the leash.
    fn new(file: &ConfigFile, plan: &AdoptPlan, why: &'static str, short: &'static str) -> Option<PassedOver> {
        let servers: Vec<String> = plan.adopted.iter().map(|adopted| adopted.name().to_owned()).collect();
        let passed = PassedOver { client: file.client, path: file.path.clone(), servers, why, hint: None, short };
        (!passed.servers.is_empty()).then_some(passed)
    }

    /// A file of a project that the user did not name.
    fn project(file: &ConfigFile, wish: &AdoptRequest<'_>) -> Option<PassedOver> {
        let plan = adopt::plan(file, wish).ok()?;
        let why = "the file belongs to the project in this directory, and others may share it";
        let passed = PassedOver::new(file, &plan, why, "in a project's file")?;
        Some(PassedOver { hint: Some("add --project ."), ..passed })
    }

    /// A file of a plugin or of the administrator.
    fn foreign(file: &ConfigFile, plan: &AdoptPlan) -> Option<PassedOver> {
        match file.place.scope {
            Scope::Plugin => {
                PassedOver::new(file, plan, "the file belongs to a plugin's package", "in a plugin's file")
            }
            _ => PassedOver::new(
                file,
                plan,
                "the file belongs to this machine's administrator",
                "in an administrator's file",
            ),
        }
    }
}

fn plans(files: Vec<ConfigFile>, wish: &AdoptRequest<'_>, notes: &mut Vec<Note>) -> (Vec<FileChange>, Vec<PassedOver>) {
    let mut seen: Vec<(PathBuf, PathBuf)> = Vec::new();
    let (mut changes, mut passed) = (Vec::new(), Vec::new());
    for file in files {
        let target = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        if let Some((_, other)) = seen.iter().find(|(path, _)| *path == target) {
            let text = format!("it is the same file as {}", other.display());
            notes.push(Note { path: file.path, server: None, text });
            continue;
        }
        seen.push((target, file.path.clone()));
        let (plan, result, hint) = match adopt::plan(&file, wish) {
            Ok(plan) if !file.place.scope.is_ours_to_edit() => {
                passed.extend(PassedOver::foreign(&file, &plan));
                continue;
            }
            Ok(plan) => (plan, Ok(()), None),
            Err(error) => {
                let result = Err(format!("leash can't parse it: {error}"));
                (AdoptPlan::none(file.text.clone()), result, Some("nothing was changed in it"))
            }
        };
        let program = wish.program_for(&file).to_owned();
        changes.push(FileChange { file, program, plan, written: false, result, hint });
    }
    (changes, passed)
}

pub(super) fn note_line(note: &Note) -> String {
    let server = note.server.as_ref().map(|server| format!("server `{server}`: ")).unwrap_or_default();
    format!("{}: {server}{}", note.path.display(), note.text)
}

/// The decision whether to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Yes,
    No,
    /// No terminal to ask the user.
    DryRun,
}

pub(super) fn decide(yes: bool, never: bool, printer: Printer) -> Decision {
    if yes {
        return Decision::Yes;
    }
    if never || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Decision::DryRun;
    }
    printer.note("Write these changes? [y/N]");
    let mut answer = String::new();
    let _ = io::stdin().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") { Decision::Yes } else { Decision::No }
}

/// Writes the changes. Fails if the directory of the old texts can't be opened; errors of single files are stored with
/// the files.
fn write(changes: &mut [FileChange]) -> Result<(), BackupError> {
    let store = BackupStore::open(&backup_dir())?;
    for change in changes.iter_mut().filter(|change| !change.plan.splices.is_empty()) {
        match adopt::carry_out(&store, &change.file, &change.plan) {
            Ok(()) => change.written = true,
            Err(error) => {
                change.hint = Some(error.hint());
                change.result = Err(with_causes(&error));
            }
        }
    }
    Ok(())
}

/// The directory with the saved texts.
pub(super) fn backup_dir() -> PathBuf {
    places::state_dir().join("adopt")
}
