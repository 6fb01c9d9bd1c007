//! JSON with positions: objects as lists of entries in their order, and the line of every value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{mistake::ConfigMistake, settings::FilePosition, terms::ServerTerms};

/// The text that is read, and every mistake found in it so far.
pub(super) struct ConfigReader<'a> {
    pub(super) text: &'a str,
    pub(super) file: &'a str,
    /// The environment.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// True if the address or the token comes from elsewhere.
    pub(super) overridden: bool,
    /// True if a mistake in a server refuses only this server.
    pub(super) tolerant: bool,
    /// True if variables are expanded.
    pub(super) expands: bool,
    /// The terms of a server that gives none of its own.
    pub(super) defaults: ServerTerms,
    pub(super) found: Vec<ConfigMistake>,
}

/// A value with its name, the position of that name, and the object that contains it: `idle` in server `files`.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) name: String,
    /// The name as it is written in the text.
    pub(super) key: &'a str,
    pub(super) place: String,
    pub(super) value: &'a RawValue,
}

impl<'a> Field<'a> {
    /// Another value under the same name: an element of an array.
    pub(super) fn with(&self, value: &'a RawValue) -> Field<'a> {
        Field { value, ..self.clone() }
    }

    pub(super) fn is_null(&self) -> bool {
        kind(self.value) == JsonType::Null
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in {}", self.name, self.place)
    }
}

/// The entries of an object as they were written.
pub(super) struct Object<'a>(pub(super) Vec<Field<'a>>);

impl<'a> Object<'a> {
    /// The fields of a value that was read before: reports no mistake, and has no fields if it is not an object.
    pub(super) fn again(field: &Field<'a>) -> Object<'a> {
        let named = |(key, value): (&'a RawValue, &'a RawValue)| {
            let name = serde_json::from_str(key.get()).ok()?;
            Some(Field { name, key: key.get(), place: field.place.clone(), value })
        };
        Object(entries(field.value).into_iter().filter_map(named).collect())
    }

    /// The field of that name. A `null` counts as absent, because some programs write it for "none".
    pub(super) fn get(&self, name: &str) -> Option<&Field<'a>> {
        self.0.iter().find(|field| field.name == name && !field.is_null())
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.get(name).is_some())
    }
}

impl<'a> ConfigReader<'a> {
    /// A reader that expands variables.
    pub(super) fn new(text: &'a str, file: &'a str, variable: &'a dyn Fn(&str) -> Option<String>) -> ConfigReader<'a> {
        let (defaults, found) = (ServerTerms::default(), Vec::new());
        ConfigReader { text, file, variable, overridden: false, tolerant: false, expands: true, defaults, found }
    }

    /// Records a mistake. `at` is a part of the text.
    pub(super) fn say(&mut self, at: &str, what: impl Into<String>, hint: impl Into<Option<String>>) {
        let FilePosition { file, line, column } = self.origin(at);
        self.found.push(ConfigMistake { file, line, column, what: what.into(), hint: hint.into() });
    }

    /// The position of a part of the text.
    pub(super) fn origin(&self, part: &str) -> FilePosition {
        // A value keeps no position, but it is a slice of the text: the distance of their addresses is its offset.
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        self.place(offset)
    }

    fn place(&self, offset: usize) -> FilePosition {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FilePosition {
            file: self.file.to_owned(),
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The whole text as one value. If it is not JSON, records the mistake.
    pub(super) fn root(&mut self) -> Option<&'a RawValue> {
        match serde_json::from_str(self.text) {
            Ok(root) => Some(root),
            Err(error) => {
                self.not_json(&error);
                None
            }
        }
    }

    fn not_json(&mut self, error: &serde_json::Error) {
        let line_start: usize =
            self.text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let told_at = (line_start + error.column().saturating_sub(1)).min(self.text.len());
        // For a text that ends too early, serde_json names the last character and not the end.
        let mut offset = if error.is_eof() { self.text.len() } else { told_at };
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let (before, after) = self.text.split_at(offset);
        let told = error.to_string();
        let why = told.split(" at line ").next().unwrap_or_default();
        let hint = if self.text.trim().is_empty() {
            Some("the file is empty; it needs at least `{\"mcpServers\": {...}}`")
        } else if after.starts_with('/') || after.starts_with('#') {
            Some("JSON has no comments: remove them")
        } else if after.starts_with(['}', ']']) && before.trim_end().ends_with(',') {
            Some("JSON has no trailing commas: remove the comma before this")
        } else if after.starts_with('\'') {
            Some("JSON has double quotes only")
        } else {
            Some("correct the file at this place")
        };
        let FilePosition { file, line, column } = self.place(offset);
        let what = format!("this is not JSON: {why}");
        self.found.push(ConfigMistake { file, line, column, what, hint: hint.map(str::to_owned) });
    }

    /// The entries of an object. In mistakes, `what` names the value itself and `place` names it as the container of
    /// its fields.
    pub(super) fn object(&mut self, value: &'a RawValue, what: &str, place: &str) -> Option<Object<'a>> {
        let Ok(RawEntries(entries)) = serde_json::from_str::<RawEntries<'a>>(value.get()) else {
            self.say(value.get(), format!("{what} must be an object, not {}", kind(value)), None);
            return None;
        };
        let mut fields: Vec<Field<'a>> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let Ok(name) = serde_json::from_str::<String>(key.get()) else {
                self.say(key.get(), format!("a key in {place} is not a valid text"), None);
                continue;
            };
            let twice = fields.iter().find(|field| field.name == name).map(|field| self.origin(field.key).line);
            if let Some(first) = twice {
                let hint = format!("the first one is on line {first}; remove one of them");
                self.say(key.get(), format!("`{name}` is given twice in {place}"), hint);
            }
            fields.push(Field { name, key: key.get(), place: place.to_owned(), value });
        }
        Some(Object(fields))
    }

    /// The elements of an array.
    pub(super) fn array(&mut self, field: &Field<'a>, of: &str) -> Option<Vec<Field<'a>>> {
        match serde_json::from_str::<Vec<&'a RawValue>>(field.value.get()) {
            Ok(values) => Some(values.into_iter().map(|value| field.with(value)).collect()),
            Err(_) => {
                self.wrong_type(field, &format!("an array of {of}"));
                None
            }
        }
    }

    /// A text.
    pub(super) fn string(&mut self, field: &Field<'a>) -> Option<String> {
        if kind(field.value) != JsonType::Text {
            self.wrong_type(field, "a text in double quotes");
            return None;
        }
        // Half of a surrogate pair is valid JSON but not a valid text.
        let text = serde_json::from_str(field.value.get());
        if text.is_err() {
            self.say(field.value.get(), format!("{field} is not a valid text"), None);
        }
        text.ok()
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, field: &Field<'a>) -> Option<bool> {
        match field.value.get() {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.wrong_type(field, "`true` or `false`");
                None
            }
        }
    }

    /// Reports a value of the wrong type.
    pub(super) fn wrong_type(&mut self, field: &Field<'a>, must: &str) {
        self.say(field.value.get(), format!("{field} must be {must}, not {}", kind(field.value)), None);
    }
}

/// The type of a value, by its first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonType {
    Object,
    Array,
    Text,
    Boolean,
    Null,
    Number,
}

pub(super) fn kind(value: &RawValue) -> JsonType {
    match value.get().bytes().next() {
        Some(b'{') => JsonType::Object,
        Some(b'[') => JsonType::Array,
        Some(b'"') => JsonType::Text,
        Some(b't' | b'f') => JsonType::Boolean,
        Some(b'n') => JsonType::Null,
        _ => JsonType::Number,
    }
}

impl fmt::Display for JsonType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JsonType::Object => "an object",
            JsonType::Array => "an array",
            JsonType::Text => "a text",
            JsonType::Boolean => "a boolean",
            JsonType::Null => "null",
            JsonType::Number => "a number",
        })
    }
}

/// The keys and values of an object, as they were written; none if it is not an object.
pub(super) fn entries(value: &RawValue) -> Vec<(&RawValue, &RawValue)> {
    serde_json::from_str::<RawEntries<'_>>(value.get()).map(|RawEntries(entries)| entries).unwrap_or_default()
}

/// An object as it was written: in order, with duplicate keys.
struct RawEntries<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawEntries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawEntries<'a>, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = RawEntries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawEntries<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(RawEntries(entries))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
