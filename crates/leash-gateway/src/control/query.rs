//! The queries of requests: each operation reads its parameters into a type of its own.

use serde_json::{Value, json};

use super::problem::{Mistake, Problem};

/// A parameter of a query that is read into a `T`. The OpenAPI document describes it by the same value.
pub(super) struct Parameter<T> {
    name: &'static str,
    about: &'static str,
    slot: Slot<T>,
}

/// The type of a parameter, and the place of its value.
enum Slot<T> {
    Boolean(fn(&mut T) -> &mut bool),
    Text(fn(&mut T) -> &mut Option<String>),
    /// `NAME=VALUE`; it may be given several times.
    Labels(fn(&mut T) -> &mut Vec<(String, String)>),
}

/// The query of an operation without parameters.
pub(super) const NONE: [Parameter<()>; 0] = [];

/// The query of a list of sessions.
#[derive(Default)]
pub(super) struct Filter {
    pub(super) all: bool,
    pub(super) labels: Vec<(String, String)>,
}

pub(super) const FILTER: [Parameter<Filter>; 2] = [
    Parameter::new("all", "`true`: also the last 100 that have ended.", Slot::Boolean(|filter| &mut filter.all)),
    Parameter::new("label", "`NAME=VALUE`: only those with this label.", Slot::Labels(|filter| &mut filter.labels)),
];

/// The query of an end.
pub(super) struct EndOptions {
    pub(super) wait: bool,
    pub(super) force: bool,
}

impl Default for EndOptions {
    fn default() -> EndOptions {
        EndOptions { wait: true, force: false }
    }
}

pub(super) const ENDING: [Parameter<EndOptions>; 2] = [
    Parameter::new(
        "wait",
        "`false`: the answer comes at once, and the end goes on.",
        Slot::Boolean(|how| &mut how.wait),
    ),
    Parameter::new("force", "`true`: no grace, processes are killed at once.", Slot::Boolean(|how| &mut how.force)),
];

/// The query of an event stream.
#[derive(Default)]
pub(super) struct Only {
    pub(super) session: Option<String>,
}

pub(super) const ONLY: [Parameter<Only>; 1] =
    [Parameter::new("session", "Only of this one; the stream ends with it.", Slot::Text(|only| &mut only.session))];

impl<T> Parameter<T> {
    const fn new(name: &'static str, about: &'static str, slot: Slot<T>) -> Parameter<T> {
        Parameter { name, about, slot }
    }
}

impl<T: Default> Parameter<T> {
    /// Its description in the OpenAPI document.
    pub(super) fn document(&self) -> Value {
        let schema = match self.slot {
            Slot::Boolean(slot) => json!({"type": "boolean", "default": *slot(&mut T::default())}),
            Slot::Text(_) => json!({"type": "string"}),
            Slot::Labels(_) => json!({"type": "array", "items": {"type": "string", "pattern": "="}}),
        };
        json!({"name": self.name, "in": "query", "description": self.about, "schema": schema})
    }

    /// Reads a value; the error says what is wrong with it.
    fn read(&self, value: String, into: &mut T) -> Result<(), String> {
        let name = self.name;
        match self.slot {
            Slot::Boolean(slot) => match value.as_str() {
                "true" => *slot(into) = true,
                "false" => *slot(into) = false,
                _ => return Err(format!("`{name}` must be `true` or `false`")),
            },
            Slot::Text(slot) => *slot(into) = Some(value),
            Slot::Labels(slot) => match value.split_once('=') {
                Some((name, value)) => slot(into).push((name.to_owned(), value.to_owned())),
                None => return Err(format!("`{name}` must be `NAME=VALUE`")),
            },
        }
        Ok(())
    }
}

/// Reads a query, or returns every mistake in it.
pub(super) fn read<T: Default>(known: &[Parameter<T>], text: &str) -> Result<T, Problem> {
    let (mut query, mut given, mut mistakes) = (T::default(), Vec::new(), Vec::new());
    for part in text.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (decode(name), decode(value));
        let read = match known.iter().find(|parameter| parameter.name == name) {
            None => Err(unknown(known, &name)),
            Some(parameter) if given.contains(&name) && !matches!(parameter.slot, Slot::Labels(_)) => {
                Err(format!("`{name}` is given twice"))
            }
            Some(parameter) => parameter.read(value, &mut query),
        };
        match read {
            Ok(()) => given.push(name),
            Err(what) => mistakes.push(Mistake::parameter(&name, what)),
        }
    }
    if mistakes.is_empty() { Ok(query) } else { Err(Problem::invalid(mistakes)) }
}

fn unknown<T>(known: &[Parameter<T>], name: &str) -> String {
    let all: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
    let known = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    format!("unknown parameter `{}`; known here: {known}", name.escape_debug())
}

/// Decodes percent encoding. An invalid encoding stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let byte = match bytes[at] {
            b'+' => b' ',
            b'%' => {
                let digits = text.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()));
                match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) => {
                        at += 2;
                        byte
                    }
                    None => b'%',
                }
            }
            byte => byte,
        };
        decoded.push(byte);
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_are_decoded() {
        let filter = read(&FILTER, "label=a%3Db%26c&&label=d=&all=true").expect("fine");
        assert!(filter.all);
        assert_eq!(filter.labels, [("a".to_owned(), "b&c".to_owned()), ("d".to_owned(), String::new())]);
        assert_eq!(read(&ONLY, "session=x+y").expect("fine").session.as_deref(), Some("x y"));
        let ending = read(&ENDING, "wait=false").expect("fine");
        assert!(!ending.wait && !ending.force);
    }

    #[test]
    fn every_mistake_is_reported() {
        let count = |problem: Problem| serde_json::to_value(problem).expect("JSON")["errors"].as_array().map(Vec::len);
        assert_eq!(read(&ENDING, "wait=no&wait&label=x&force=true&force=false").err().and_then(count), Some(4));
        assert_eq!(read(&FILTER, "label=x&wait=true").err().and_then(count), Some(2));
        assert_eq!(read(&ONLY, "session=a&session=b").err().and_then(count), Some(1));
        assert_eq!(read(&NONE, "a=b").err().and_then(count), Some(1));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            let _ = read(&FILTER, &text);
        }
    }
}
