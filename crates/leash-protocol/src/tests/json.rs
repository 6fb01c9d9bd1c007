//! Strategies for unusual but valid JSON: odd escapes, huge numbers, duplicate keys, blanks everywhere.

use proptest::prelude::*;
use proptest::sample::select;

/// A text, and one of the many ways to write it.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) meant: String,
    pub(super) written: String,
}

/// Writes a text with some of its characters escaped.
pub(super) fn written(meant: String) -> impl Strategy<Value = Text> {
    let length = meant.chars().count();
    proptest::collection::vec(0..4_u8, length).prop_map(move |ways| {
        let mut written = String::from('"');
        for (character, way) in meant.chars().zip(ways) {
            let must = matches!(character, '"' | '\\') || character < ' ';
            match (way, character) {
                (0, _) => {
                    written.extend(character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")))
                }
                (1, _) => {
                    written.extend(character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")))
                }
                (_, '/') => written.push_str("\\/"),
                (_, '"' | '\\') => written.extend(['\\', character]),
                _ if must => written.push_str(&format!("\\u{:04x}", u32::from(character))),
                _ => written.push(character),
            }
        }
        written.push('"');
        Text { meant: meant.clone(), written }
    })
}

pub(super) fn any_text() -> impl Strategy<Value = Text> {
    let plain = "[a-z/]{0,8}".boxed();
    let odd = proptest::collection::vec(any::<char>(), 0..6).prop_map(String::from_iter).boxed();
    prop_oneof![plain, odd].prop_flat_map(written)
}

/// A number; most do not fit into any machine type.
pub(super) fn number() -> impl Strategy<Value = String> {
    "-?(0|[1-9][0-9]{0,29})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?"
}

/// Blanks between tokens.
pub(super) fn blank() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "", " ", "\t", "\r", "\n", "\r\n  "])
}

/// Any value.
pub(super) fn value() -> impl Strategy<Value = String> {
    let constant = select(vec!["null", "true", "false", "[]", "{}", r#""\ud800""#, r#"{"\udc00":0}"#]);
    let leaf = prop_oneof![constant.prop_map(str::to_owned), number(), any_text().prop_map(|text| text.written)];
    let nested = leaf.prop_recursive(5, 40, 5, |inner| {
        let element =
            (blank(), inner, blank()).prop_map(|(before, value, after)| format!("{before}{value}{after}")).boxed();
        let entry = (any_text(), blank(), element.clone())
            .prop_map(|(key, blank, value)| format!("{blank}{}{blank}:{value}", key.written));
        prop_oneof![
            proptest::collection::vec(element, 0..5).prop_map(|elements| format!("[{}]", elements.join(","))),
            proptest::collection::vec(entry, 0..5).prop_map(|entries| format!("{{{}}}", entries.join(","))),
        ]
    });
    // One in twenty is nested more deeply than recursive parsers accept.
    prop_oneof![19 => nested, 1 => (129..1_500_usize).prop_map(deep)]
}

/// Arrays in arrays.
pub(super) fn deep(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

/// A field whose name is written with random escapes.
pub(super) fn entry(name: &str, value: impl Strategy<Value = String> + 'static) -> BoxedStrategy<(Text, String)> {
    (written(name.to_owned()), value).boxed()
}

/// One object with these entries, in their order.
pub(super) fn object(entries: &[(Text, String)], blank: &str) -> String {
    let entries = entries.iter().map(|(key, value)| format!("{blank}{}{blank}:{blank}{value}{blank}", key.written));
    format!("{blank}{{{}}}{blank}", entries.collect::<Vec<_>>().join(","))
}
