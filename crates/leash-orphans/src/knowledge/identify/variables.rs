//! Variables in a client's configuration: `${workspaceFolder}/server.py`. Their values are taken from the process that
//! may be the server, because the client started it in that directory and with that environment.

use super::Agreement;
use crate::facts::Process;

/// True if the client replaces a part of this word.
pub(super) fn has_variables(word: &str) -> bool {
    pieces(word).any(|piece| matches!(piece, WordPart::Variable(_)))
}

/// True if a word without its variables names nothing.
pub(super) fn is_all_variable(word: &str) -> bool {
    let says = |piece: WordPart<'_>| matches!(piece, WordPart::Text(text) if !text.trim_matches(['/', '.']).is_empty());
    !pieces(word).any(says)
}

/// The environment variables that a word names.
pub(in crate::knowledge) fn named(word: &str) -> impl Iterator<Item = &str> {
    pieces(word).filter_map(|piece| match piece {
        WordPart::Variable("userHome") => Some("HOME"),
        WordPart::Variable(name) => environment(name).map(|(name, _)| name),
        WordPart::Text(_) => None,
    })
}

/// The word with all known variables replaced; unknown variables stay as written.
pub(super) fn expand(word: &str, process: &Process, workspace: Option<&str>) -> String {
    let mut text = String::new();
    for piece in pieces(word) {
        match piece {
            WordPart::Text(literal) => text.push_str(literal),
            WordPart::Variable(name) => match value(name, process, workspace) {
                Some(value) => text.push_str(&value),
                None => text.push_str(&format!("${{{name}}}")),
            },
        }
    }
    text
}

/// Compares a word with the declared one. An unknown variable matches any text, so such a match is not certain.
pub(super) fn fits(word: &str, declared: &str) -> Agreement {
    if word == declared {
        return Agreement::Certain;
    }
    if !has_variables(declared) {
        return Agreement::No;
    }
    // The earliest match of each text leaves the most for the texts that follow.
    let mut rest = word;
    let mut after_variable = false;
    let mut pieces = pieces(declared).peekable();
    while let Some(piece) = pieces.next() {
        let WordPart::Text(text) = piece else {
            after_variable = true;
            continue;
        };
        let found = match (after_variable, pieces.peek()) {
            (false, _) => rest.strip_prefix(text),
            (true, None) => rest.strip_suffix(text).map(|_| ""),
            (true, Some(_)) => rest.split_once(text).map(|(_, after)| after),
        };
        match found {
            Some(after) => rest = after,
            None => return Agreement::No,
        }
        after_variable = false;
    }
    if rest.is_empty() || after_variable { Agreement::Likely } else { Agreement::No }
}

enum WordPart<'a> {
    Text(&'a str),
    /// The text between the braces.
    Variable(&'a str),
}

fn pieces(word: &str) -> impl Iterator<Item = WordPart<'_>> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let variable = rest.find("${").and_then(|open| Some((open, open + rest[open..].find('}')?)));
        let (piece, after) = match variable {
            Some((0, close)) => (WordPart::Variable(&rest[2..close]), &rest[close + 1..]),
            Some((open, _)) => (WordPart::Text(&rest[..open]), &rest[open..]),
            None => (WordPart::Text(rest), ""),
        };
        rest = after;
        Some(piece)
    })
}

/// The value of a variable, if it can be known. A question to the user (`input:`), a setting or a command can't be
/// known.
fn value(name: &str, process: &Process, workspace: Option<&str>) -> Option<String> {
    let variables = || process.variables.as_ref();
    match name {
        "workspaceFolder" | "workspaceRoot" | "cwd" => workspace.map(str::to_owned),
        "workspaceFolderBasename" => workspace.map(|dir| super::base(dir).to_owned()),
        "pathSeparator" | "/" => Some("/".to_owned()),
        "userHome" => variables()?.get("HOME").cloned(),
        _ => {
            let (name, default) = environment(name)?;
            let set = variables()?.get(name).filter(|value| !value.is_empty());
            set.cloned().or_else(|| default.map(str::to_owned))
        }
    }
}

/// `env:NAME`, `NAME` and `NAME:-DEFAULT`.
fn environment(inner: &str) -> Option<(&str, Option<&str>)> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let name = name.strip_prefix("env:").unwrap_or(name);
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    (starts && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')).then_some((name, default))
}
