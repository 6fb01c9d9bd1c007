//! JSON with comments and trailing commas, as clients write it, made into strict JSON.

use std::borrow::Cow;

/// Replaces comments and trailing commas by blanks, so that every value keeps its position. A text without them is
/// returned as it is; a text that is not JSON stays one that is not JSON.
pub(super) fn strict(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut blanks: Vec<(usize, usize)> = Vec::new();
    // A comma that only blanks and comments have followed so far, if a value is in front of it.
    let mut comma = None;
    let mut after_value = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let end = match byte {
            b'"' => end_of_string(bytes, at),
            b'/' => end_of_comment(text, at).unwrap_or(at + 1),
            _ => at + 1,
        };
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'/' if end > at + 1 => blanks.push((at, end)),
            b',' => {
                comma = after_value.then_some(at);
                after_value = false;
            }
            b'}' | b']' => {
                blanks.extend(comma.take().map(|comma| (comma, comma + 1)));
                after_value = true;
            }
            _ => {
                comma = None;
                after_value = !matches!(byte, b'{' | b'[' | b':');
            }
        }
        at = end;
    }
    if blanks.is_empty() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(blanked(text, &blanks))
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') => return at + 1,
            Some(_) => at += 1,
            None => return bytes.len(),
        }
    }
}

/// `None` if no comment begins here, or if it does not end.
fn end_of_comment(text: &str, start: usize) -> Option<usize> {
    let rest = &text[start..];
    if rest.starts_with("//") {
        return Some(start + rest.find('\n').unwrap_or(rest.len()));
    }
    rest.strip_prefix("/*")?.find("*/").map(|end| start + 2 + end + 2)
}

/// Writes one blank for each character, because positions count lines and characters.
fn blanked(text: &str, blanks: &[(usize, usize)]) -> String {
    let mut strict = String::with_capacity(text.len());
    let mut at = 0;
    let mut sorted = blanks.to_vec();
    sorted.sort_unstable();
    for (start, end) in sorted {
        strict.push_str(&text[at..start]);
        strict.extend(text[start..end].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    strict.push_str(&text[at..]);
    strict
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn comments_and_trailing_commas_become_blanks() {
        for (text, expected) in [
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("{ // ü\n\"a\": 1, /* x\n */ }", "{     \n\"a\": 1      \n    }"),
            ("[1, 2,\n]", "[1, 2 \n]"),
            ("[1, // x\n]", "[1      \n]"),
            ("{\"a//b\": \"/* \\\" */,}\"}", "{\"a//b\": \"/* \\\" */,}\"}"),
            ("[,]", "[,]"),
            ("[1,,]", "[1,,]"),
            ("/* never", "/* never"),
            ("1 / 2", "1 / 2"),
        ] {
            assert_eq!(strict(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn valid_json_stays_as_it_is(text in "[\\[\\]{}\",:/*1a\\\\ \n]{0,12}") {
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                prop_assert_eq!(strict(&text), text.as_str());
            }
        }

        #[test]
        fn every_value_keeps_its_line_and_column(text in "[\\[\\]{}\",:/*1ä\\\\ \n]{0,20}") {
            let strict = strict(&text);
            prop_assert_eq!(strict.chars().count(), text.chars().count());
            prop_assert_eq!(strict.lines().count(), text.lines().count());
        }
    }
}
