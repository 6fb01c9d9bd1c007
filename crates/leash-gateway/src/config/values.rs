//! Reads the values of fields: durations, sizes, counts, and texts with variables.

use std::{collections::BTreeSet, time::Duration};

use schemars::{Schema, SchemaGenerator};
use serde_json::value::RawValue;

use super::expand;
use super::json::{ConfigReader, Field, JsonType, kind};
use super::table::{KeySchema, shapes};
use leash_model::{containment::Containment, duration, limits};
use leash_tree::contain::caps::{CpuCap, parse_bytes, parse_cpu};

const DURATION_HINT: &str = "write a number and a unit, as in \"500ms\", \"30s\", \"30m\", \"12h\" or \"7d\"";
const CPU_HINT: &str = "write \"50%\" for half of a processor, or a weight from 1 to 10000 (others have 100)";
const SIZE_HINT: &str = "write a number and a unit, as in \"64K\", \"4M\" or \"2G\"";

impl<'a> ConfigReader<'a> {
    /// A duration that may be zero.
    pub(super) fn span(&mut self, field: &Field<'a>) -> Option<Duration> {
        if kind(field.value) != JsonType::Text {
            let what = format!("{field} must be a duration in double quotes, not {}", kind(field.value));
            self.say(field.value.get(), what, DURATION_HINT.to_owned());
            return None;
        }
        let text = self.string(field)?;
        match duration::parse(&text) {
            Ok(span) if span > limits::LONGEST => {
                let hint = format!("at most {}", duration::exact(limits::LONGEST));
                self.say(field.value.get(), format!("{field}: `{text}` is too long"), hint);
                None
            }
            Ok(span) => Some(span),
            Err(error) => {
                self.say(field.value.get(), format!("{field}: {error}"), DURATION_HINT.to_owned());
                None
            }
        }
    }

    /// A duration that may not be zero.
    pub(super) fn some_span(&mut self, field: &Field<'a>, hint: &str) -> Option<Duration> {
        let span = self.span(field)?;
        if span.is_zero() {
            self.say(field.value.get(), format!("{field} cannot be 0"), hint.to_owned());
            return None;
        }
        Some(span)
    }

    /// The time after which a session ends.
    pub(super) fn lifetime(&mut self, field: &Field<'a>) -> Option<Duration> {
        self.some_span(field, "leave it out for no limit")
    }

    /// A duration or `"never"`.
    pub(super) fn span_or_never(&mut self, field: &Field<'a>) -> Option<Option<Duration>> {
        if field.value.get() == "\"never\"" {
            return Some(None);
        }
        self.some_span(field, "write \"never\" to switch it off").map(Some)
    }

    /// A size in bytes, at least 1.
    pub(super) fn size(&mut self, field: &Field<'a>) -> Option<u64> {
        let text = match kind(field.value) {
            JsonType::Number => field.value.get().to_owned(),
            JsonType::Text => self.string(field)?,
            other => {
                self.say(field.value.get(), format!("{field} must be a size, not {other}"), SIZE_HINT.to_owned());
                return None;
            }
        };
        match parse_bytes(&text) {
            Ok(bytes) => Some(bytes),
            Err(why) => {
                self.say(field.value.get(), format!("{field}: {why}"), SIZE_HINT.to_owned());
                None
            }
        }
    }

    /// The processor time of a tree.
    pub(super) fn cpu(&mut self, field: &Field<'a>) -> Option<CpuCap> {
        let text = match kind(field.value) {
            JsonType::Number => field.value.get().to_owned(),
            JsonType::Text => self.string(field)?,
            other => {
                let what = format!("{field} must be a percentage or a weight, not {other}");
                self.say(field.value.get(), what, CPU_HINT.to_owned());
                return None;
            }
        };
        match parse_cpu(&text) {
            Ok(cap) => Some(cap),
            Err(why) => {
                self.say(field.value.get(), format!("{field}: {why}"), CPU_HINT.to_owned());
                None
            }
        }
    }

    /// A size of a buffer in leash itself, which has an upper limit.
    pub(super) fn buffer(&mut self, field: &Field<'a>) -> Option<usize> {
        let bytes = self.size(field)?;
        let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= limits::LARGEST_BUFFER);
        if fits.is_none() {
            let hint = format!("at most {}G", limits::LARGEST_BUFFER >> 30);
            self.say(field.value.get(), format!("{field} is too large"), hint);
        }
        fits
    }

    /// A whole number, at least 1.
    pub(super) fn count<N: TryFrom<u64>>(&mut self, field: &Field<'a>) -> Option<N> {
        let count = field.value.get().parse::<u64>().ok().filter(|count| *count > 0);
        let count = count.and_then(|count| N::try_from(count).ok());
        if count.is_none() {
            let shown = match kind(field.value) {
                JsonType::Number => field.value.get().to_owned(),
                other => other.to_string(),
            };
            self.say(field.value.get(), format!("{field} must be a whole number, at least 1, not {shown}"), None);
        }
        count
    }

    /// The name of a containment.
    pub(super) fn containment(&mut self, field: &Field<'a>) -> Option<Containment> {
        let text = self.string(field)?;
        match text.parse() {
            Ok(containment) => Some(containment),
            Err(why) => {
                self.say(field.value.get(), format!("{field}: {why}"), None);
                None
            }
        }
    }

    /// A list of texts, none of them empty.
    pub(super) fn strings(&mut self, field: &Field<'a>) -> Option<Vec<(&'a RawValue, String)>> {
        let mut texts = Vec::new();
        for element in self.array(field, "texts")? {
            let Some(text) = self.string(&element) else { continue };
            if text.is_empty() {
                self.say(element.value.get(), format!("{field} has an empty text in it"), None);
            } else {
                texts.push((element.value, text));
            }
        }
        Some(texts)
    }

    /// The variables that a text names. Reports no mistake: [`ConfigReader::expanded`] does.
    pub(super) fn variables(&self, field: &Field<'a>) -> BTreeSet<String> {
        let text = serde_json::from_str::<String>(field.value.get()).unwrap_or_default();
        expand::names(&text).map(str::to_owned).collect()
    }

    /// A text with its variables expanded.
    pub(super) fn expanded(&mut self, field: &Field<'a>) -> Option<String> {
        let text = self.string(field)?;
        let expanded = if self.expands { expand::expand(&text, self.variable) } else { Ok(text) };
        match expanded {
            Ok(text) if text.contains('\0') => {
                self.say(field.value.get(), format!("{field} has a NUL character in it"), None);
                None
            }
            Ok(text) => Some(text),
            Err(failed) => {
                for why in failed {
                    self.say(field.value.get(), format!("{field}: {}", why.what()), why.hint());
                }
                None
            }
        }
    }
}

shapes! {
    span: {"type": "string", "examples": ["500ms", "30s", "0"]},
    lifetime: {"type": "string", "examples": ["30s", "10m", "1h"]},
    span_or_never: {"type": "string", "examples": ["30m", "never"]},
    size: {"type": ["integer", "string"], "minimum": 1, "examples": ["512M", 1_048_576]},
    cpu: {"type": ["integer", "string"], "minimum": 1, "maximum": 10_000, "examples": ["50%", 20]},
    count: {"type": "integer", "minimum": 1},
    boolean: {"type": "boolean"},
}

impl KeySchema {
    pub(super) fn containment(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Containment>()
    }
}
