//! Rewrites the entry of a stdio server, with leash in front of its command.

use super::{Adopted, EntryChange, Prefix, TextSplice, UnchangedReason};
use crate::clients::ConfigFile;
use crate::clients::entry::ConfigEntry;
use crate::clients::text::{Format, MapMember, Node, Value, write};

/// The rewritten entry.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The changes to the text.
    pub splices: Vec<TextSplice>,
    /// The data to undo them.
    pub adopted: Adopted,
}

/// The reason for an entry of an unexpected shape.
pub(super) fn unexpected_shape() -> UnchangedReason {
    UnchangedReason::Unknown("it is written in a way that can't be changed safely".to_owned())
}

/// Puts leash in front. `options` are the leash command and its options.
pub fn stdio(
    file: &ConfigFile,
    entry: &ConfigEntry,
    options: &[String],
    program: &str,
) -> Result<Rewritten, UnchangedReason> {
    let shape = &file.client.shape;
    let command = entry.node.member(shape.command).ok_or_else(unexpected_shape)?;
    let mut words = options.to_vec();
    words.push("--".to_owned());
    let ground = StdioEntryText { text: &file.text, format: file.place.format, list: shape.args, program };
    let (changes, prefix) = match &command.node.value {
        Value::List(items) => ground.one_list(command, items, words)?,
        Value::Map(_) => ground.two_members(&command.node, &[shape.command], "path", words)?,
        _ => ground.two_members(&entry.node, &[], shape.command, words)?,
    };
    Ok(Rewritten::new(entry, changes, Some(prefix)))
}

/// A change and the position of its text.
pub(super) type PlacedChange = (usize, EntryChange);

/// A change of `member` in the map at `inside`. Afterwards it reaches from the first of the keys to the last.
pub(super) fn change(
    text: &str,
    inside: &[&str],
    member: &MapMember,
    (first, last): (&str, &str),
    after: String,
) -> PlacedChange {
    let span = member.span();
    let change = EntryChange {
        inside: inside.iter().map(|key| (*key).to_owned()).collect(),
        first: first.to_owned(),
        last: last.to_owned(),
        before: text[span.clone()].to_owned(),
        after,
    };
    (span.start, change)
}

impl Rewritten {
    pub(super) fn new(entry: &ConfigEntry, changes: Vec<PlacedChange>, prefix: Option<Prefix>) -> Rewritten {
        let splice = |(at, change): &PlacedChange| TextSplice {
            at: *at,
            before: change.before.clone(),
            after: change.after.clone(),
        };
        let splices = changes.iter().map(splice).collect();
        let changes = changes.into_iter().map(|(_, change)| change).collect();
        Rewritten { splices, adopted: Adopted { path: entry.path.clone(), changes, prefix } }
    }
}

/// The text to change, with the values that all changes share.
struct StdioEntryText<'a> {
    text: &'a str,
    format: Format,
    /// The key of the arguments.
    list: &'a str,
    program: &'a str,
}

impl StdioEntryText<'_> {
    /// `"command": ["npx", "x"]`: leash and its words become the first items of the list.
    fn one_list(
        &self,
        command: &MapMember,
        items: &[Node],
        words: Vec<String>,
    ) -> Result<(Vec<PlacedChange>, Prefix), UnchangedReason> {
        let words: Vec<String> = std::iter::once(self.program.to_owned()).chain(words).collect();
        let change = self.prepended(command, items, &words, &[]);
        let prefix = Prefix {
            inside: Vec::new(),
            list: command.key.clone(),
            words,
            list_before: Some(self.text[command.node.span.clone()].to_owned()),
            command: None,
        };
        Ok((vec![change], prefix))
    }

    /// `"command": "npx", "args": ["x"]`: leash becomes the program, and the old program moves into the list.
    fn two_members(
        &self,
        map: &Node,
        inside: &[&str],
        key: &str,
        mut words: Vec<String>,
    ) -> Result<(Vec<PlacedChange>, Prefix), UnchangedReason> {
        let command = map.member(key).ok_or_else(unexpected_shape)?;
        words.push(command.node.text().ok_or_else(unexpected_shape)?.to_owned());
        let source = &self.text[command.node.span.clone()];
        let list = map.member(self.list);
        let mut head = self.text[command.key_span.start..command.node.span.start].to_owned();
        head.push_str(&write::word(self.format, self.program));
        let (changes, list_before) = match list.map(|list| (list, &list.node.value)) {
            Some((list, Value::List(items))) => {
                let change = self.change(inside, (command, &command.key), head);
                (
                    vec![change, self.prepended(list, items, &words, inside)],
                    Some(self.text[list.node.span.clone()].to_owned()),
                )
            }
            // `args:` without a value, which YAML and JSON allow.
            Some((list, _)) => {
                let gap = if list.node.span.is_empty() { " " } else { "" };
                let key = &self.text[list.key_span.start..list.node.span.start];
                let after = format!("{key}{gap}{}", write::list(self.format, &words));
                let changes = vec![
                    self.change(inside, (command, &command.key), head),
                    self.change(inside, (list, &list.key), after),
                ];
                (changes, Some(self.text[list.node.span.clone()].to_owned()))
            }
            None => {
                let list = format!("{}{}", write::key(self.format, self.list), write::list(self.format, &words));
                let added = write::sibling(self.text, map, command, &list).ok_or_else(unexpected_shape)?;
                (vec![self.change(inside, (command, self.list), head + &added)], None)
            }
        };
        let prefix = Prefix {
            inside: inside.iter().map(|key| (*key).to_owned()).collect(),
            list: self.list.to_owned(),
            words,
            list_before,
            command: Some((command.key.clone(), self.program.to_owned(), source.to_owned())),
        };
        Ok((changes, prefix))
    }

    fn prepended(&self, list: &MapMember, items: &[Node], words: &[String], inside: &[&str]) -> PlacedChange {
        let (at, added) = write::in_front(self.text, self.format, &list.node, items, words);
        let span = list.span();
        let after = format!("{}{added}{}", &self.text[span.start..at], &self.text[at..span.end]);
        self.change(inside, (list, &list.key), after)
    }

    fn change(&self, inside: &[&str], (member, last): (&MapMember, &str), after: String) -> PlacedChange {
        change(self.text, inside, member, (&member.key, last), after)
    }
}
