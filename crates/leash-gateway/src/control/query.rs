//! The query of a request.

use super::problem::Mistake;
use super::routes::{Parameter, ParameterType};

/// The parameters that were given, in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query, or returns every mistake in it.
    pub(super) fn read(known: &[Parameter], text: &str) -> Result<Query, Vec<Mistake>> {
        let (mut query, mut mistakes) = (Query::default(), Vec::new());
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (decode(name), decode(value));
            match check(known, &query, &name, &value) {
                Ok(()) => query.0.push((name, value)),
                Err(what) => mistakes.push(Mistake::parameter(&name, what)),
            }
        }
        if mistakes.is_empty() { Ok(query) } else { Err(mistakes) }
    }

    /// The value of a boolean parameter.
    pub(super) fn is(&self, name: &str, default: bool) -> bool {
        self.text(name).map_or(default, |value| value == "true")
    }

    /// The value of a text parameter.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All labels that are asked for.
    pub(super) fn labels(&self) -> Vec<(String, String)> {
        let labels = self.0.iter().filter(|(name, _)| name == "label");
        let pair = |(_, label): &(String, String)| {
            label.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        labels.filter_map(pair).collect()
    }
}

fn check(known: &[Parameter], query: &Query, name: &str, value: &str) -> Result<(), String> {
    let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
        let all: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
        let known = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        return Err(format!("unknown parameter `{}`; known here: {known}", name.escape_debug()));
    };
    match parameter.is {
        ParameterType::Boolean if !matches!(value, "true" | "false") => {
            Err(format!("`{name}` must be `true` or `false`"))
        }
        ParameterType::Texts if !value.contains('=') => Err(format!("`{name}` must be `NAME=VALUE`")),
        ParameterType::Boolean | ParameterType::Text if query.text(name).is_some() => {
            Err(format!("`{name}` is given twice"))
        }
        _ => Ok(()),
    }
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

    const KNOWN: [Parameter; 3] = [
        Parameter { name: "wait", is: ParameterType::Boolean, about: "" },
        Parameter { name: "session", is: ParameterType::Text, about: "" },
        Parameter { name: "label", is: ParameterType::Texts, about: "" },
    ];

    #[test]
    fn parameters_are_decoded() {
        let query = Query::read(&KNOWN, "wait=false&label=a%3Db%26c&session=x+y&&label=d=").expect("fine");
        assert!(!query.is("wait", true) && query.is("force", true));
        assert_eq!(query.text("session"), Some("x y"));
        assert_eq!(query.labels(), [("a".to_owned(), "b&c".to_owned()), ("d".to_owned(), String::new())]);
    }

    #[test]
    fn every_mistake_is_reported() {
        let mistakes = Query::read(&KNOWN, "wait=no&wait&force=true&label=x&session=a&session=b").expect_err("five");
        assert_eq!(mistakes.len(), 5, "{mistakes:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            let _ = Query::read(&KNOWN, &text);
        }
    }
}
