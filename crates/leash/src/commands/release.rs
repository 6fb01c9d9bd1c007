//! `leash release`.

use std::path::{Path, PathBuf};

use leash_orphans::adopt::AdoptError;
use leash_orphans::adopt::release::{self, ReleaseOutcome, Undo};
use leash_orphans::adopt::shelf::{Layer, Shelf, ShelfError};
use leash_orphans::clients::places::read;
use leash_orphans::clients::{Client, ConfigFile};
use serde_json::{Value, json};

use super::adopt::{Decision, and_list, chosen, clients_of, count, decide, near, shelf_dir, shown_diff};
use crate::args::Release;
use crate::exit_code;
use crate::output::printer::Printer;
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

fn work(args: &Release, chosen: &[&str], printer: Printer) -> Result<u8, ShelfError> {
    let shelf = Shelf::open(&shelf_dir())?;
    let wanted = |name: &str| args.servers.is_empty() || args.servers.iter().any(|server| server == name);
    let layers = shelf.layers()?.into_iter().filter(|layer| chosen.contains(&layer.what.client.as_str()));
    let layers: Vec<Layer> = layers.collect();
    let known = layers.iter().flat_map(|layer| layer.what.adopted.iter().map(|adopted| adopted.name().to_owned()));
    let known: Vec<String> = known.collect();
    if let Some(missing) = args.servers.iter().find(|name| !known.contains(name)) {
        printer.error_text(format!("leash has not adopted a server `{missing}`"), Some(&near(missing, &known)));
        return Ok(exit_code::USAGE);
    }
    let mut files: Vec<FileUndo> =
        groups(layers.into_iter()).into_iter().map(|layers| prepare(layers, &wanted)).collect();
    if !args.json {
        files.iter().for_each(|file| show(file, &shelf, printer));
    }
    let decision = if files.is_empty() { Decision::No } else { decide(args.yes, args.diff || args.json, printer) };
    if decision == Decision::Yes {
        files.iter_mut().for_each(|file| write(file, &shelf));
    }
    if args.json {
        let files: Vec<Value> = files.iter().map(|file| as_json(file, &shelf)).collect();
        printer.exact(format!("{:#}\n", json!({ "version": 1, "files": files })));
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
    layers: Vec<Layer>,
    /// `None` if the file no longer exists.
    undo: Option<(ConfigFile, Undo)>,
    written: bool,
    error: Option<(String, &'static str)>,
}

impl FileUndo {
    fn outcomes(&self) -> impl Iterator<Item = (&str, &ReleaseOutcome)> {
        let layers = self.undo.iter().flat_map(|(_, undo)| &undo.layers);
        layers.flatten().map(|(adopted, outcome)| (adopted.name(), outcome))
    }

    fn count(&self, is: impl Fn(&ReleaseOutcome) -> bool) -> usize {
        self.outcomes().filter(|(_, outcome)| is(outcome)).count()
    }

    fn diff(&self) -> String {
        self.undo.as_ref().map(|(file, undo)| shown_diff(file, &undo.text)).unwrap_or_default()
    }
}

/// The layers of each file, the newest first.
fn groups(layers: impl Iterator<Item = Layer>) -> Vec<Vec<Layer>> {
    let mut groups: Vec<Vec<Layer>> = Vec::new();
    for layer in layers {
        match groups.iter_mut().find(|group| group[0].what.path == layer.what.path) {
            Some(group) => group.insert(0, layer),
            None => groups.push(vec![layer]),
        }
    }
    groups
}

fn prepare(layers: Vec<Layer>, wanted: &dyn Fn(&str) -> bool) -> FileUndo {
    let what = &layers[0].what;
    let (path, client) = (what.path.clone(), Client::find(&what.client));
    let mut file = FileUndo {
        path,
        client: client.map_or("", |client| client.id),
        layers,
        undo: None,
        written: false,
        error: None,
    };
    let place = client.and_then(|client| Some((client, client.places.get(file.layers[0].what.place)?)));
    let Some((client, place)) = place else {
        file.error = Some(("it was adopted by another version of leash".to_owned(), "use that version to release it"));
        return file;
    };
    match read(&file.path) {
        Ok(Some(text)) => {
            let config = ConfigFile { client, place, path: file.path.clone(), text };
            let undo = release::undo(&config, &file.layers, wanted);
            file.undo = Some((config, undo));
        }
        Ok(None) => {}
        Err(error) => file.error = Some((format!("it can't be read: {error}"), "nothing was changed in it")),
    }
    file
}

fn kept_at(file: &FileUndo, shelf: &Shelf) -> String {
    file.layers.last().map(|oldest| shelf.place_of(oldest).display().to_string()).unwrap_or_default()
}

fn show(file: &FileUndo, shelf: &Shelf, printer: Printer) {
    printer.patch(&file.diff());
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
                Some(&format!("edit it by hand; the old text is in {}", kept_at(file, shelf))),
            ),
            ReleaseOutcome::NotThere => printer.note(format!("{path}: `{name}` is not on the leash any more")),
            ReleaseOutcome::Released | ReleaseOutcome::Kept => {}
        }
    }
}

fn write(file: &mut FileUndo, shelf: &Shelf) {
    let Some((config, undo)) = &file.undo else {
        // The file is deleted, so forget the changes; but not if the file is only unreachable now.
        if file.error.is_none() && !exists(&file.path) {
            let forgotten = file.layers.iter().try_for_each(|layer| shelf.forget(layer));
            file.error = forgotten.err().map(|error| unnoted(&error));
        }
        return;
    };
    match release::carry_out(shelf, config, &file.layers, undo) {
        Ok(()) => file.written = true,
        Err(AdoptError::Shelf(error)) => {
            // The file was written before its record, so it counts as written.
            file.written = true;
            file.error = Some(unnoted(&error));
        }
        Err(error) => file.error = Some((with_causes(&error), error.hint())),
    }
}

fn unnoted(error: &ShelfError) -> (String, &'static str) {
    (format!("it is done, but leash can't record it: {}", with_causes(error)), "run `leash release` again later")
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn as_json(file: &FileUndo, shelf: &Shelf) -> Value {
    let servers: Vec<Value> = file
        .outcomes()
        .map(|(name, outcome)| {
            let (word, why) = match outcome {
                ReleaseOutcome::Released => ("released", None),
                ReleaseOutcome::NotThere => ("not-there", None),
                ReleaseOutcome::Kept => ("kept", None),
                ReleaseOutcome::Refused(why) => ("refused", Some(*why)),
            };
            json!({ "server": name, "outcome": word, "why": why })
        })
        .collect();
    json!({
        "client": file.client,
        "path": file.path,
        "servers": servers,
        "diff": file.diff(),
        "kept": kept_at(file, shelf),
        "written": file.written,
        "error": file.error.as_ref().map(|(why, _)| why),
        "hint": file.error.as_ref().map(|(_, hint)| hint),
    })
}

fn conclude(files: &[FileUndo], decision: Decision, printer: Printer) {
    let of = |chosen: &dyn Fn(&FileUndo) -> bool| {
        let released = |file: &&FileUndo| file.count(|outcome| *outcome == ReleaseOutcome::Released);
        let chosen: Vec<_> = files.iter().filter(|file| chosen(file) && released(file) > 0).collect();
        let servers: usize = chosen.iter().map(released).sum();
        (servers > 0).then(|| format!("{} in {}", count(servers, "server"), count(chosen.len(), "file")))
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
        (Decision::DryRun, Some(text)) => printer
            .note(format!("{text} would be taken off the leash; nothing was written: `leash release --yes` does it")),
    }
}
