//! Configuration text as a tree with byte positions, the same for every format. The tree is only read: changes splice
//! the text itself at these positions, so that every unchanged byte stays.

pub mod jsonc;
pub mod toml;
pub mod write;
pub mod yaml;

use std::ops::Range;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON. This reader accepts comments and trailing commas, which some clients allow, but leash never adds any.
    Json,
    /// TOML.
    Toml,
    /// YAML, as far as configurations use it.
    Yaml,
}

impl Format {
    /// Parses a text.
    pub fn parse(self, text: &str) -> Result<Node, TextError> {
        match self {
            Format::Json => jsonc::parse(text),
            Format::Toml => toml::parse(text),
            Format::Yaml => yaml::parse(text),
        }
    }
}

/// The reason why a text can't be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The problem on that line.
    pub what: String,
}

impl TextError {
    fn at(text: &str, offset: usize, what: impl Into<String>) -> TextError {
        let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
        TextError { line: before.iter().filter(|byte| **byte == b'\n').count() + 1, what: what.into() }
    }
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its position in the text, in bytes. A TOML table or a YAML block ends where its last part ends.
    pub span: Range<usize>,
    /// The value.
    pub value: Value,
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Text(String),
    /// True or false.
    Bool(bool),
    /// Nothing.
    Null,
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the text.
    Map(Vec<MapMember>),
    /// A value that leash does not need: a number, a date, an anchor.
    Other,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapMember {
    /// The key, unquoted.
    pub key: String,
    /// The position of the key, with its quotes.
    pub key_span: Range<usize>,
    /// The value.
    pub node: Node,
}

impl MapMember {
    /// The range from the beginning of the key to the end of the value.
    pub fn span(&self) -> Range<usize> {
        self.key_span.start..self.node.span.end
    }
}

impl Node {
    /// The members, if the value is a map.
    pub fn members(&self) -> Option<&[MapMember]> {
        if let Value::Map(members) = &self.value { Some(members) } else { None }
    }

    /// The members with this key. A file with more than one is ambiguous.
    pub fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a MapMember> {
        self.members().unwrap_or_default().iter().filter(move |member| member.key == key)
    }

    /// The member with this key, if there is exactly one.
    pub fn member(&self, key: &str) -> Option<&MapMember> {
        let mut all = self.all(key);
        let first = all.next()?;
        if all.next().is_some() { None } else { Some(first) }
    }

    /// The value of this key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.member(key).map(|member| &member.node)
    }

    /// The string, if the value is one.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The strings, if the value is a list of strings only.
    pub fn texts(&self) -> Option<Vec<&str>> {
        let Value::List(items) = &self.value else { return None };
        items.iter().map(Node::text).collect()
    }
}

/// A key that occurs more than once in `node` or in a map inside it.
pub fn written_twice(node: &Node) -> Option<&str> {
    let members = node.members()?;
    let twice = |(index, member): (usize, &'_ MapMember)| members[..index].iter().any(|other| other.key == member.key);
    members.iter().enumerate().find(|pair| twice(*pair)).map(|(_, member)| member.key.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces with a meaning in one of the formats.
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

        /// No text makes a parser panic, and all positions are inside the text.
        #[test]
        fn any_text_is_parsed_or_refused(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
            let text = pieces.concat();
            for format in [Format::Json, Format::Toml, Format::Yaml] {
                if let Ok(node) = format.parse(&text) {
                    check_spans(&text, &node)?;
                }
            }
        }

        /// This parser accepts every text that serde_json accepts.
        #[test]
        fn every_valid_json_text_is_accepted(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
            let text = pieces.concat();
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                prop_assert!(Format::Json.parse(&text).is_ok(), "{text:?}");
            }
        }
    }
}
