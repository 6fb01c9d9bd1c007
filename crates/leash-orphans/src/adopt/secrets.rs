//! Hides secrets in a configuration that is shown. The file itself is always written complete.
//!
//! Inside the entries of servers, leash hides the values of variables and headers, and keys and tokens in arguments
//! and addresses. Outside of them it hides every text: a client keeps histories and accounts beside its servers.

use crate::clients::ConfigFile;
use crate::clients::entry::entries_in;
use crate::clients::text::{Format, Node, Value, write};

mod words;

pub(super) use words::{HARMLESS, holds_secret, refers};
use words::{arguments, comment, is_secret_name, value};

/// The text that stands for a secret.
pub const HIDDEN: &str = "***";

/// Keys of the environment of a server.
const ENVIRONMENTS: [&str; 3] = ["env", "environment", "envs"];
/// Keys of the headers for a server.
const HEADERS: [&str; 2] = ["headers", "http_headers"];

/// The text of a file with its secrets hidden. `None` if the text can't be parsed.
pub fn hidden(file: &ConfigFile, text: &str) -> Option<String> {
    let root = file.place.format.parse(text).ok()?;
    let entries: Vec<Vec<String>> = entries_in(&root, file).into_iter().map(|entry| entry.path).collect();
    let mut shown = Shown { text, format: file.place.format, entries: &entries, pieces: Vec::new() };
    shown.around(&root, &mut Vec::new());
    Some(shown.joined())
}

/// A text, and its keys and scalars as they are shown.
struct Shown<'a> {
    text: &'a str,
    format: Format,
    /// The paths of the entries.
    entries: &'a [Vec<String>],
    /// Start, end and shown text.
    pieces: Vec<(usize, usize, String)>,
}

impl Shown<'_> {
    /// Everything around the entries.
    fn around(&mut self, node: &Node, path: &mut Vec<String>) {
        if self.entries.contains(path) {
            return self.inside(node);
        }
        match &node.value {
            Value::Map(members) => {
                for member in members {
                    self.show(member.key_span.start, member.key_span.end);
                    path.push(member.key.clone());
                    self.around(&member.node, path);
                    path.pop();
                }
            }
            Value::List(items) => {
                for item in items {
                    path.push(String::new());
                    self.around(item, path);
                    path.pop();
                }
            }
            _ => self.scalar(node, |_| HIDDEN.to_owned()),
        }
    }

    /// An entry of a server, or a part of one.
    fn inside(&mut self, node: &Node) {
        match &node.value {
            Value::Map(members) => {
                for member in members {
                    self.show(member.key_span.start, member.key_span.end);
                    let name = member.key.as_str();
                    match name {
                        _ if ENVIRONMENTS.contains(&name) => self.all(&member.node),
                        _ if HEADERS.contains(&name) => self.headers(&member.node),
                        _ if is_secret_name(name) => self.all(&member.node),
                        _ => self.inside(&member.node),
                    }
                }
            }
            Value::List(items) => {
                let words: Vec<&str> = items.iter().map(|item| item.text().unwrap_or_default()).collect();
                for (item, shown) in items.iter().zip(arguments(&words)) {
                    match item.text() {
                        Some(_) => self.scalar(item, |_| shown),
                        None => self.inside(item),
                    }
                }
            }
            _ => self.scalar(node, |text| arguments(&[text]).concat()),
        }
    }

    /// Headers: some of them never hold a secret.
    fn headers(&mut self, node: &Node) {
        for member in node.members().unwrap_or_default() {
            self.show(member.key_span.start, member.key_span.end);
            if HARMLESS.contains(&member.key.to_ascii_lowercase().as_str()) {
                self.show(member.node.span.start, member.node.span.end);
            } else {
                self.all(&member.node);
            }
        }
    }

    /// Hides every scalar.
    fn all(&mut self, node: &Node) {
        match &node.value {
            Value::Map(members) => {
                for member in members {
                    self.show(member.key_span.start, member.key_span.end);
                    self.all(&member.node);
                }
            }
            Value::List(items) => items.iter().for_each(|item| self.all(item)),
            Value::Other => self.push(node, write::word(self.format, HIDDEN)),
            _ => self.scalar(node, value),
        }
    }

    /// Shows a text as `hide` makes it. A value that leash does not understand (a date, an anchor, a text of several
    /// lines) is hidden; numbers, true and false stay.
    fn scalar(&mut self, node: &Node, hide: impl FnOnce(&str) -> String) {
        let source = &self.text[node.span.clone()];
        let shown = match &node.value {
            Value::Text(text) => {
                let shown = hide(text);
                if shown == *text { source.to_owned() } else { write::word(self.format, &shown) }
            }
            Value::Other if source.trim().parse::<f64>().is_err() => write::word(self.format, HIDDEN),
            _ => source.to_owned(),
        };
        self.push(node, shown);
    }

    fn push(&mut self, node: &Node, shown: String) {
        self.pieces.push((node.span.start, node.span.end, shown));
    }

    fn show(&mut self, start: usize, end: usize) {
        self.pieces.push((start, end, self.text[start..end].to_owned()));
    }

    /// The whole text. Only punctuation and comments are between the pieces.
    fn joined(mut self) -> String {
        self.pieces.sort();
        let mut shown = String::with_capacity(self.text.len());
        let mut at = 0;
        for (start, end, piece) in &self.pieces {
            // A value without a text, or a TOML table that is written in parts and has its key in several headers.
            if *start < at || start >= end {
                continue;
            }
            shown.push_str(&comment(self.format, &self.text[at..*start]));
            shown.push_str(piece);
            at = *end;
        }
        shown.push_str(&comment(self.format, &self.text[at..]));
        shown
    }
}
