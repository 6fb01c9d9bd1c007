//! `leash adopt`.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use leash_orphans::adopt::backups::{BackupError, BackupStore};
use leash_orphans::adopt::{self, AdoptPlan, AdoptRequest, diff};
use leash_orphans::clients::{self, CLIENTS, Client, ConfigFile, Note, Scope};
use serde_json::{Value, json};

use crate::args::Adopt;
use crate::output::message::counted;
use crate::output::printer::Printer;
use crate::{exit_code, places};
use leash_model::error::with_causes;

pub(crate) fn adopt(args: &Adopt) -> u8 {
    let printer = Printer::new(false);
    let Some(chosen) = chosen(&args.clients, printer) else { return exit_code::USAGE };
    let Some(roots) = places::roots(&args.projects) else {
        printer.error_text("there is no home directory to look for configurations in", Some("set HOME"));
        return exit_code::LEASH_FAILED;
    };
    let program = args.leash.clone().unwrap_or_else(program);
    if Path::new(&program).file_name().is_none_or(|name| name != "leash") {
        // Under another name, leash would not recognise its own entries later.
        let text = format!("this program is not called `leash` but `{program}`");
        printer.error_text(
            text,
            Some("give it the name `leash`, or name the program that clients shall start with --leash PATH"),
        );
        return exit_code::USAGE;
    }
    let wish = AdoptRequest { program: &program, servers: &args.servers, with_urls: args.all };
    let (files, mut notes) = clients::configs(&roots);
    let files: Vec<ConfigFile> = files.into_iter().filter(|file| chosen.contains(&file.client.id)).collect();
    let unread = notes.len();
    let mut changes = plans(files, &wish, &mut notes);
    let wanted = changes.iter().any(|change| change.is_change());
    if !args.json {
        changes.iter().for_each(|change| show(change, printer));
        notes.iter().for_each(|note| printer.warning(note_line(note)));
    }
    let decision = if wanted { decide(args.yes, args.diff || args.json, printer) } else { Decision::No };
    if decision == Decision::Yes
        && let Err(error) = write(&mut changes)
    {
        printer.error(&error, Some("check XDG_STATE_HOME: leash saves the old text of a file before it changes it"));
        return exit_code::LEASH_FAILED;
    }
    let failed = unread > 0 || changes.iter().any(|change| change.result.is_err());
    if args.json {
        let files: Vec<Value> = changes.iter().map(as_json).collect();
        printer.exact(format!("{:#}\n", json!({ "version": 1, "files": files, "notes": notes })));
    } else {
        conclude(&changes, decision, printer);
    }
    if failed { exit_code::NOT_ALL } else { exit_code::OK }
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

/// The word with which clients start leash. Their PATH differs from that of this shell: a name is used only if it is
/// in a directory that every session has.
fn program() -> String {
    let Some(program) = places::program() else { return "leash".to_owned() };
    let first =
        ["/usr/local/bin/leash", "/usr/bin/leash", "/bin/leash"].into_iter().find(|name| Path::new(name).exists());
    let is_first = first.is_some_and(|name| fs::canonicalize(name).ok() == fs::canonicalize(&program).ok());
    if is_first { "leash".to_owned() } else { program.to_string_lossy().into_owned() }
}

/// The planned change of one file.
struct FileChange {
    file: ConfigFile,
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

    fn diff(&self) -> String {
        let path = self.file.path.display().to_string();
        diff::unified(&self.file.text, &self.plan.after, &path, &path)
    }
}

fn plans(files: Vec<ConfigFile>, wish: &AdoptRequest<'_>, notes: &mut Vec<Note>) -> Vec<FileChange> {
    let mut seen: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut changes = Vec::new();
    for file in files {
        let target = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        let note = |text: String| Note { path: file.path.clone(), server: None, text };
        if let Some((_, other)) = seen.iter().find(|(path, _)| *path == target) {
            notes.push(note(format!("it is the same file as {}", other.display())));
            continue;
        }
        seen.push((target, file.path.clone()));
        let empty =
            || AdoptPlan { after: file.text.clone(), splices: Vec::new(), adopted: Vec::new(), left: Vec::new() };
        match adopt::plan(&file, wish) {
            Ok(plan) if !file.place.scope.is_ours_to_edit() => {
                if !plan.adopted.is_empty() {
                    notes.push(note(not_ours(file.place.scope, plan.adopted.len())));
                }
            }
            Ok(plan) => changes.push(FileChange { file, plan, written: false, result: Ok(()), hint: None }),
            Err(error) => {
                let (plan, result) = (empty(), Err(format!("leash can't parse it: {error}")));
                changes.push(FileChange {
                    file,
                    plan,
                    written: false,
                    result,
                    hint: Some("nothing was changed in it"),
                });
            }
        }
    }
    changes
}

fn not_ours(scope: Scope, servers: usize) -> String {
    let whose = if scope == Scope::Plugin { "a plugin's package" } else { "this machine's administrator" };
    format!("{}, but the file belongs to {whose} and is left alone", counted(servers, "server"))
}

pub(super) fn note_line(note: &Note) -> String {
    let server = note.server.as_ref().map(|server| format!("server `{server}`: ")).unwrap_or_default();
    format!("{}: {server}{}", note.path.display(), note.text)
}

fn show(change: &FileChange, printer: Printer) {
    printer.patch(&change.diff());
    if let Err(why) = &change.result {
        printer.error_text(format!("{}: {why}", change.file.path.display()), change.hint);
    }
    for left in &change.plan.left {
        let hint = left.why.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        printer.note(format!("{}: `{}` is left alone: {}{hint}", change.file.client.name, left.name(), left.why));
    }
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

fn as_json(change: &FileChange) -> Value {
    let left = |left: &adopt::UnchangedServer| json!({ "server": left.name(), "why": left.why.to_string(), "hint": left.why.hint() });
    json!({
        "client": change.file.client.id,
        "scope": change.file.place.scope,
        "path": change.file.path,
        "adopted": change.plan.adopted.iter().map(adopt::Adopted::name).collect::<Vec<_>>(),
        "left": change.plan.left.iter().map(left).collect::<Vec<_>>(),
        "diff": change.diff(),
        "written": change.written,
        "error": change.result.as_ref().err(),
        "hint": change.hint,
    })
}

fn conclude(changes: &[FileChange], decision: Decision, printer: Printer) {
    for change in changes.iter().filter(|change| change.is_change()) {
        if let Err(why) = &change.result {
            printer.error_text(why, change.hint);
        }
    }
    let of = |chosen: &dyn Fn(&FileChange) -> bool| {
        let chosen: Vec<_> = changes.iter().filter(|change| chosen(change)).collect();
        let servers = chosen.iter().map(|change| change.plan.adopted.len()).sum();
        (servers, chosen.len())
    };
    match decision {
        Decision::Yes => {
            let (servers, files) = of(&|change| change.written);
            if files == 0 {
                return printer.note("no server was put on the leash");
            }
            let text = format!("{} in {} put on the leash", counted(servers, "server"), counted(files, "file"));
            printer.note(format!("{text}; restart the clients, and `leash release` undoes it"));
        }
        Decision::DryRun => {
            let (servers, files) = of(&FileChange::is_change);
            let text =
                format!("{} in {} would be put on the leash", counted(servers, "server"), counted(files, "file"));
            printer.note(format!("{text}; nothing was written: `leash adopt --yes` does it"));
        }
        Decision::No if of(&FileChange::is_change).0 > 0 => printer.note("nothing was written"),
        Decision::No => printer.note("there is no server to put on the leash"),
    }
}
