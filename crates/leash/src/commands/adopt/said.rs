//! The messages of `leash adopt`: about each file, and at the end.

use leash_orphans::adopt::{UnchangedReason, UnchangedServer};

use super::program::is_on_path;
use super::words::{and_list, clients_of};
use super::{Decision, FileChange, PassedOver};
use crate::output::message::counted;
use crate::output::printer::Printer;
use crate::output::text::Text;

/// Prints the planned change of a file, its warnings, and the servers that stay unchanged.
pub(super) fn show(change: &FileChange, printer: Printer) {
    printer.data(&Text::patch(&change.diff()));
    if let Err(why) = &change.result {
        printer.error_text(format!("{}: {why}", change.file.path.display()), change.hint);
    }
    let client = change.file.client.name;
    for caution in &change.plan.cautions {
        printer.warning(format!("{client}: `{}`: {}", caution.server, caution.text));
    }
    if change.is_shared_by_name() {
        let path = change.file.path.display();
        printer.note(format!(
            "{client}: others share {path}: it starts `leash` by name, which each of them needs on the PATH"
        ));
        if !is_on_path() {
            printer
                .warning("there is no `leash` on your PATH (add its directory, or set another command with --leash)");
        }
    }
    // Servers that are on the leash already are only counted.
    for left in change.plan.left.iter().filter(|left| left.why != UnchangedReason::Leashed) {
        let hint = left.why.hint(left.name()).map(|hint| format!(" ({hint})")).unwrap_or_default();
        printer.note(format!("{client}: `{}` is left alone: {}{hint}", left.name(), left.why));
    }
}

/// Prints a file that leash does not change.
pub(super) fn show_passed(passed: &PassedOver, printer: Printer) {
    let hint = passed.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    let (servers, path) = (counted(passed.servers.len(), "server"), passed.path.display());
    let verb = if passed.servers.len() == 1 { "is" } else { "are" };
    printer.note(format!("{}: {servers} in {path} {verb} left alone: {}{hint}", passed.client.name, passed.why));
}

/// Prints what was done, or why there is nothing to do.
pub(super) fn conclude(changes: &[FileChange], passed: &[PassedOver], decision: Decision, printer: Printer) {
    for change in changes.iter().filter(|change| change.is_change()) {
        if let Err(why) = &change.result {
            printer.error_text(why, change.hint);
        }
    }
    let of = |chosen: &dyn Fn(&FileChange) -> bool| {
        let chosen: Vec<_> = changes.iter().filter(|change| chosen(change)).collect();
        let servers = chosen.iter().map(|change| change.plan.adopted.len()).sum();
        format!("{} in {}", counted(servers, "server"), counted(chosen.len(), "file"))
    };
    match decision {
        Decision::Yes => {
            let written = || changes.iter().filter(|change| change.written);
            if written().count() == 0 {
                return printer.note("no server was put on the leash");
            }
            printer.note(format!("{} put on the leash; `leash release` undoes it", of(&|change| change.written)));
            let clients = clients_of(written().map(|change| change.file.client.name));
            let whose = if clients.len() == 1 { "its" } else { "their" };
            printer.note(format!("restart {}; then `leash ps` shows {whose} servers", and_list(&clients)));
        }
        Decision::DryRun => {
            let text = format!("{} would be put on the leash", of(&FileChange::is_change));
            printer.note(format!("{text}; nothing was written: --yes writes the changes"));
        }
        Decision::No if changes.iter().any(FileChange::is_change) => printer.note("nothing was written"),
        Decision::No => printer.note(nothing_to_do(changes, passed)),
    }
}

/// The reason why there is nothing to do, with the numbers of servers.
fn nothing_to_do(changes: &[FileChange], passed: &[PassedOver]) -> String {
    let left = || changes.iter().flat_map(|change| &change.plan.left);
    let leashed = left().filter(|left| left.why == UnchangedReason::Leashed).count();
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    let mut add = |short, servers| match reasons.iter_mut().find(|(known, _)| *known == short) {
        Some((_, number)) => *number += servers,
        None => reasons.push((short, servers)),
    };
    left()
        .filter(|left| left.why != UnchangedReason::Leashed)
        .for_each(|left: &UnchangedServer| add(left.why.short(), 1));
    passed.iter().for_each(|passed| add(passed.short, passed.servers.len()));
    let alone: usize = reasons.iter().map(|(_, number)| number).sum();
    if leashed + alone == 0 {
        return "nothing to do: leash found no MCP server in the configuration files of MCP clients".to_owned();
    }
    let mut text = format!("nothing to do: {} on the leash already", counted(leashed, "server"));
    if alone > 0 {
        let reasons: Vec<String> = reasons.iter().map(|(short, number)| format!("{number} {short}")).collect();
        text.push_str(&format!(", {alone} left alone (why: {})", reasons.join(", ")));
    }
    text
}
