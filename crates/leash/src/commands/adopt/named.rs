//! Checks that everything that the user named on the command line exists.

use leash_orphans::clients::entry::entries;
use leash_orphans::clients::{Client, ConfigFile, ConfigPlace, Root, Scope};

use super::words::and_list;
use crate::args::Adopt;

/// An error and one thing to do about it.
pub(super) type Refusal = (String, String);

/// Checks directories and programs, before anything is read.
pub(super) fn check_paths(args: &Adopt) -> Result<(), Refusal> {
    if let Some(dir) = args.projects.iter().find(|dir| !dir.is_dir()) {
        let text = format!("there is no directory `{}`", dir.display());
        return Err((text, "name the directory of a project with --project".to_owned()));
    }
    if let Some(leash) =
        args.leash.as_deref().filter(|leash| leash.contains('/') && !std::path::Path::new(leash).is_file())
    {
        let text = format!("there is no program `{leash}`");
        return Err((text, "name the program that clients shall start, or leave --leash out".to_owned()));
    }
    Ok(())
}

/// Checks clients and servers. `files` are the files that leash may change, `passed` those that it passes over.
pub(super) fn check(args: &Adopt, files: &[ConfigFile], passed: &[ConfigFile]) -> Result<(), Refusal> {
    for client in args.clients.iter().filter_map(|id| Client::find(id)) {
        if files.iter().any(|file| file.client == client) {
            continue;
        }
        let hint = match passed.iter().find(|file| file.client == client) {
            Some(file) => in_project(file),
            None => {
                format!("leash looked for {}", and_list(&client.places.iter().filter_map(shown).collect::<Vec<_>>()))
            }
        };
        return Err((format!("{} has no configuration file here", client.name), hint));
    }
    check_servers(&args.servers, files, passed)
}

fn check_servers(wanted: &[String], files: &[ConfigFile], passed: &[ConfigFile]) -> Result<(), Refusal> {
    let names_in = |file: &ConfigFile| {
        let entries = entries(file).unwrap_or_default();
        entries.iter().map(|entry| entry.name().to_owned()).collect::<Vec<_>>()
    };
    // If nothing is named, or the file that can't be parsed may hold the server, which is an error of its own.
    if wanted.is_empty() || files.iter().any(|file| entries(file).is_err()) {
        return Ok(());
    }
    let known: Vec<String> = files.iter().flat_map(names_in).collect();
    let Some(missing) = wanted.iter().find(|name| !known.contains(name)) else { return Ok(()) };
    let hint = match passed.iter().find(|file| names_in(file).contains(missing)) {
        Some(file) => in_project(file),
        None => near(missing, &known),
    };
    Err((format!("there is no server `{missing}`"), hint))
}

fn in_project(file: &ConfigFile) -> String {
    format!("it is in {}: add --project .", file.path.display())
}

/// The nearest of the known names, or some of them.
pub(in crate::commands) fn near(word: &str, known: &[String]) -> String {
    let mut names: Vec<&str> = known.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let nearest = names.iter().map(|name| (strsim::osa_distance(word, name), *name)).min();
    match nearest {
        Some((distance, name)) if distance <= 2 => format!("did you mean `{name}`?"),
        Some(_) if names.len() > 12 => format!("the servers are {}...", names[..12].join(", ")),
        Some(_) => format!("the servers are {}", and_list(&names)),
        None => "there are no servers at all".to_owned(),
    }
}

/// The usual path of a user's file.
fn shown(place: &ConfigPlace) -> Option<String> {
    if place.scope != Scope::User || place.path.contains(['*']) || place.path.starts_with("Library/") {
        return None;
    }
    match place.root {
        Root::Home | Root::Variable(_, "") => Some(format!("~/{}", place.path)),
        Root::Config => Some(format!("~/.config/{}", place.path)),
        Root::Variable(_, dir) => Some(format!("~/{dir}/{}", place.path)),
        Root::Project | Root::System => None,
    }
}
