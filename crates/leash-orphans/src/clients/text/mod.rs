//! Configuration text as a tree that knows where everything stands, the same for every format. It is only read: changes are made
//! to the text itself, between the places that the tree names, so that whatever was not changed keeps its bytes.

pub mod jsonc;
pub mod toml;
pub mod write;
pub mod yaml;

use std::ops::Range;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON, read strictly by its client; comments are understood here and never added.
    Json,
    /// JSON with comments and trailing commas.
    Jsonc,
    /// TOML.
    Toml,
    /// YAML, as far as configurations use it.
    Yaml,
}

impl Format {
    /// Reads a text.
    pub fn parse(self, text: &str) -> Result<Node, TextError> {
        match self {
            Format::Json | Format::Jsonc => jsonc::parse(text),
            Format::Toml => toml::parse(text),
            Format::Yaml => yaml::parse(text),
        }
    }
}

/// Why a text can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

impl TextError {
    fn at(text: &str, offset: usize, what: impl Into<String>) -> TextError {
        let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
        TextError { line: before.iter().filter(|byte| **byte == b'\n').count() + 1, what: what.into() }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its place in the text, in bytes. A TOML table or a YAML block ends where its last part ends.
    pub span: Range<usize>,
    /// What it is.
    pub value: Value,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// True or false.
    Bool(bool),
    /// Nothing.
    Null,
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the text.
    Map(Vec<Member>),
    /// Something whose meaning is of no interest here: a number, a date, an anchor.
    Other,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key, unquoted.
    pub key: String,
    /// Where the key stands, with its quotes.
    pub key_span: Range<usize>,
    /// The value.
    pub node: Node,
}

impl Member {
    /// From the beginning of the key to the end of the value.
    pub fn span(&self) -> Range<usize> {
        self.key_span.start..self.node.span.end
    }
}

impl Node {
    /// The members, if it is a map.
    pub fn members(&self) -> Option<&[Member]> {
        if let Value::Map(members) = &self.value { Some(members) } else { None }
    }

    /// The members of that key. More than one means that the file says two things.
    pub fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Member> {
        self.members().unwrap_or_default().iter().filter(move |member| member.key == key)
    }

    /// The member of that key, if there is exactly one.
    pub fn member(&self, key: &str) -> Option<&Member> {
        let mut all = self.all(key);
        let first = all.next()?;
        if all.next().is_some() { None } else { Some(first) }
    }

    /// The value of that key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.member(key).map(|member| &member.node)
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The texts, if it is a list of nothing else.
    pub fn texts(&self) -> Option<Vec<&str>> {
        let Value::List(items) = &self.value else { return None };
        items.iter().map(Node::text).collect()
    }
}

/// A key that is written more than once in a map on the way to, or in, `node`.
pub fn written_twice(node: &Node) -> Option<&str> {
    let members = node.members()?;
    let twice = |(index, member): (usize, &'_ Member)| members[..index].iter().any(|other| other.key == member.key);
    members.iter().enumerate().find(|pair| twice(*pair)).map(|(_, member)| member.key.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces that mean something in one of the formats.
    const PIECES: &[&str] = &[
        "{", "}", "[", "]", ":", ": ", ",", "\"", "'", "\\", "\n", "\r\n", "  ", "\t", "- ", "-", "# ", "//", "/*",
        "*/", "a", "b = ", "é", "\u{feff}", "\"k\": ", "key: ", "[t]", "[[t]]", "true", "null", "1e5", "|", ">", "&x ",
        "*x", "!t ", "---\n", "\"\"\"", "''", "\\u00", "?", "%",
    ];

    fn check_spans(text: &str, node: &Node) -> Result<(), TestCaseError> {
        prop_assert!(text.get(node.span.clone()).is_some(), "{:?} in {text:?}", node.span);
        let members = node.members().unwrap_or_default();
        for member in members {
            prop_assert!(text.get(member.key_span.clone()).is_some(), "{:?} in {text:?}", member.key_span);
            check_spans(text, &member.node)?;
        }
        if let Value::List(items) = &node.value {
            items.iter().try_for_each(|item| check_spans(text, item))?;
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// No text makes a reader panic, and what it finds is in the text.
        #[test]
        fn any_text_is_read_or_refused(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
            let text = pieces.concat();
            for format in [Format::Jsonc, Format::Toml, Format::Yaml] {
                if let Ok(node) = format.parse(&text) {
                    check_spans(&text, &node)?;
                }
            }
        }

        /// What JSON is, this reader takes for the same.
        #[test]
        fn json_is_read_as_others_read_it(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
            let text = pieces.concat();
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                prop_assert!(Format::Json.parse(&text).is_ok(), "{text:?}");
            }
        }
    }
}
