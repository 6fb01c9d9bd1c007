//! Undoes the changes of `adopt`: byte by byte if nothing else changed since, else entry by entry.

use super::backups::{Backup, BackupRecord, BackupStore};
use super::{AdoptError, Adopted, Prefix, TextSplice, apply, file};
use crate::clients::ConfigFile;
use crate::clients::entry::{ConfigEntry, entries};
use crate::clients::text::{Node, Value, write};

/// The result of undoing changes in a file.
#[derive(Clone, Debug)]
pub struct Undo {
    /// Its new text.
    pub text: String,
    /// The outcome for each server, in the order of the given backups.
    pub outcomes: Vec<Vec<(Adopted, ReleaseOutcome)>>,
}

/// The outcome for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// Its entry is as it was before.
    Released,
    /// leash does not start it any more, or it is not in the file.
    NotThere,
    /// The user did not ask for it.
    Kept,
    /// Another program changed it in a way that can't be undone safely.
    Refused(&'static str),
}

/// Undoes the changes of one file, the newest first. `wanted` selects the servers.
pub fn undo(file: &ConfigFile, backups: &[Backup], wanted: &dyn Fn(&str) -> bool) -> Undo {
    let mut text = file.text.clone();
    let mut outcomes = Vec::new();
    for backup in backups {
        let adopted = &backup.record.adopted;
        let all = adopted.iter().all(|adopted| wanted(adopted.name()));
        let every =
            |outcome: ReleaseOutcome| adopted.iter().map(|adopted| (adopted.clone(), outcome.clone())).collect();
        if all && backup.after().as_deref() == Some(&text) {
            text.clone_from(&backup.before);
            outcomes.push(every(ReleaseOutcome::Released));
        } else if backup.before == text {
            // leash was killed before it changed the file, or another program restored it.
            outcomes.push(every(ReleaseOutcome::NotThere));
        } else {
            let mut outcome_list = Vec::new();
            for adopted in adopted {
                let outcome =
                    if wanted(adopted.name()) { undo_entry(file, &mut text, adopted) } else { ReleaseOutcome::Kept };
                outcome_list.push((adopted.clone(), outcome));
            }
            outcomes.push(outcome_list);
        }
    }
    Undo { text, outcomes }
}

/// Changes the file, then deletes the undone records. If leash is killed in between, the next `release` finds the file
/// as it was.
pub fn carry_out(store: &BackupStore, file: &ConfigFile, backups: &[Backup], undo: &Undo) -> Result<(), AdoptError> {
    if undo.text != file.text {
        file::replace(&file.path, &file.text, &undo.text)?;
    }
    for (backup, outcomes) in backups.iter().zip(&undo.outcomes) {
        let stays = |outcome: &ReleaseOutcome| matches!(outcome, ReleaseOutcome::Kept | ReleaseOutcome::Refused(_));
        let adopted: Vec<Adopted> =
            outcomes.iter().filter(|(_, outcome)| stays(outcome)).map(|(adopted, _)| adopted.clone()).collect();
        match adopted.is_empty() {
            true => store.forget(backup)?,
            false if adopted.len() < outcomes.len() => {
                store.keep_only(backup, &BackupRecord { adopted, ..backup.record.clone() })?
            }
            false => {}
        }
    }
    Ok(())
}

/// Undoes one entry in a text that other programs have changed.
fn undo_entry(file: &ConfigFile, text: &mut String, adopted: &Adopted) -> ReleaseOutcome {
    let now = ConfigFile { text: text.clone(), ..file.clone() };
    let Ok(entries) = entries(&now) else { return ReleaseOutcome::Refused("leash can't parse the file any more") };
    let here = entries.iter().find(|entry| entry.path == adopted.path);
    let splices = match here {
        Some(entry) => exactly(text, entry, adopted).or_else(|| by_words(text, file, entry, adopted)),
        // The entry has another name, but is otherwise as leash wrote it.
        None => entries
            .iter()
            .filter(|entry| {
                entry.path.split_last().map(|(_, map)| map) == adopted.path.split_last().map(|(_, map)| map)
            })
            .find_map(|entry| exactly(text, entry, adopted)),
    };
    match (splices.and_then(|splices| apply(text, &splices)), here) {
        (Some(undone), _) => {
            *text = undone;
            ReleaseOutcome::Released
        }
        (None, Some(entry)) if is_leashed(entry) => {
            ReleaseOutcome::Refused("its entry was changed since, and its old text can't be found in it any more")
        }
        (None, _) => ReleaseOutcome::NotThere,
    }
}

fn is_leashed(entry: &ConfigEntry) -> bool {
    use crate::clients::entry::EntryKind;
    matches!(&entry.kind, EntryKind::Server { launch, .. } if launch.is_leashed())
}

fn inside<'a>(node: &'a Node, path: &[String]) -> Option<&'a Node> {
    path.iter().try_fold(node, |node, key| node.get(key))
}

/// If the changed members are as leash wrote them, their old bytes are restored.
fn exactly(text: &str, entry: &ConfigEntry, adopted: &Adopted) -> Option<Vec<TextSplice>> {
    let mut splices = Vec::new();
    for change in &adopted.changes {
        let map = inside(&entry.node, &change.inside)?;
        let (first, last) = (map.member(&change.first)?.span(), map.member(&change.last)?.span());
        let now = text.get(first.start..last.end)?;
        if now != change.after {
            return None;
        }
        splices.push(TextSplice { at: first.start, before: now.to_owned(), after: change.before.clone() });
    }
    splices.sort_by_key(|splice| splice.at);
    Some(splices)
}

/// The entry was rewritten (Claude Code rewrites its whole file) or extended, but still begins with leash's words:
/// only these are removed.
fn by_words(text: &str, file: &ConfigFile, entry: &ConfigEntry, adopted: &Adopted) -> Option<Vec<TextSplice>> {
    let prefix = adopted.prefix.as_ref()?;
    let map = inside(&entry.node, &prefix.inside)?;
    let list = map.member(&prefix.list)?;
    let Value::List(items) = &list.node.value else { return None };
    let starts = items.len() >= prefix.words.len()
        && items.iter().zip(&prefix.words).all(|(item, word)| item.text() == Some(word.as_str()));
    if !starts {
        return None;
    }
    let mut splices = Vec::new();
    let mut end_of_command = None;
    if let Some((key, program, source)) = &prefix.command {
        let command = map.member(key)?;
        if command.node.text() != Some(program.as_str()) {
            return None;
        }
        end_of_command = Some(command.node.span.end);
        splices.push(cut(text, command.node.span.start, command.node.span.end, source));
    }
    splices.push(shorten(text, file, items, &list.node, (prefix, list.key_span.start, end_of_command))?);
    splices.sort_by_key(|splice| splice.at);
    Some(splices)
}

/// Removes leash's words from the list, or the list from the entry.
fn shorten(
    text: &str,
    file: &ConfigFile,
    items: &[Node],
    list: &Node,
    (prefix, key, command): (&Prefix, usize, Option<usize>),
) -> Option<TextSplice> {
    let is_block = !text[list.span.start..].starts_with('[');
    if let (Some(first), Some(rest)) = (items.first(), items.get(prefix.words.len())) {
        let begin = |item: &Node| if is_block { write::dash_of(text, item.span.start) } else { item.span.start };
        return Some(cut(text, begin(first), begin(rest), ""));
    }
    match (&prefix.list_before, command) {
        // The list had no words of the server before leash changed it.
        (Some(before), _) if !before.is_empty() => Some(cut(text, list.span.start, list.span.end, before)),
        (Some(_), _) => Some(cut(text, list.span.start, list.span.end, &write::list(file.place.format, &[]))),
        // There was no list: remove it with its separator, if it still follows the command.
        (None, Some(end)) if end < key && !text[end..key].contains(['{', '}', '[']) => {
            let gap = text[end..key].trim_matches([',', ' ', '\t', '\r', '\n', '"']);
            gap.is_empty().then(|| cut(text, end, list.span.end, ""))
        }
        (None, _) => Some(cut(text, list.span.start, list.span.end, &write::list(file.place.format, &[]))),
    }
}

fn cut(text: &str, from: usize, to: usize, after: &str) -> TextSplice {
    TextSplice { at: from, before: text[from..to].to_owned(), after: after.to_owned() }
}
