//! JSON pointers to the mistakes of a text.

use serde_json::value::RawValue;

use super::json::{JsonType, entries, kind};

/// The JSON pointer to the value at a line and a column.
pub(super) fn at(text: &str, line: usize, column: usize) -> String {
    pointer(text, offset(text, line, column))
}

/// The offset of a line and a column.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    start + rest.chars().take(column.saturating_sub(1)).map(char::len_utf8).sum::<usize>()
}

/// The JSON pointer to the value at an offset of a text.
fn pointer(text: &str, offset: usize) -> String {
    let mut path = String::new();
    let Ok(mut value) = serde_json::from_str::<&RawValue>(text) else { return path };
    let begins = |part: &str| (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let holds = |from: &str, to: &str| (begins(from)..begins(to) + to.len()).contains(&offset);
    loop {
        let inside = match kind(value) {
            JsonType::Object => {
                let entries = entries(value);
                let entry = entries.into_iter().find(|(key, value)| holds(key.get(), value.get()));
                entry.map(|(key, value)| (serde_json::from_str::<String>(key.get()).unwrap_or_default(), value))
            }
            JsonType::Array => {
                let elements = serde_json::from_str::<Vec<&RawValue>>(value.get()).unwrap_or_default();
                let mut numbered = elements.into_iter().enumerate();
                let element = numbered.find(|(_, element)| holds(element.get(), element.get()));
                element.map(|(index, element)| (index.to_string(), element))
            }
            _ => None,
        };
        let Some((name, inner)) = inside else { return path };
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        value = inner;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_offset_has_a_pointer(offset in 0..80usize) {
            let text = r#"{"a": [1, {"b~/": "c"}], "d": {}}"#;
            let found = pointer(text, offset);
            let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
            proptest::prop_assert!(value.pointer(&found).is_some(), "{}", found);
        }
    }
}
