//! Writes words into a text in the style of its format and of the neighbouring entries.

use super::{Format, MapMember, Node};

/// A string in the syntax of the format.
pub fn word(format: Format, text: &str) -> String {
    let quoted = || serde_json::Value::from(text).to_string();
    match format {
        Format::Json => quoted(),
        Format::Toml => escaped(&quoted()),
        Format::Yaml if is_plain(text) => text.to_owned(),
        Format::Yaml => escaped(&quoted()),
    }
}

/// Escapes the characters that JSON allows in a string, and TOML or YAML do not.
fn escaped(quoted: &str) -> String {
    quoted.chars().fold(String::new(), |mut text, letter| {
        match letter {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            _ => text.push(letter),
        }
        text
    })
}

/// True if YAML certainly reads it as a string without quotes.
fn is_plain(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '/')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || "_./@+-".contains(letter))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str())
}

/// A list on one line, with brackets. All formats have this.
pub fn list(format: Format, words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|text| word(format, text)).collect();
    format!("[{}]", words.join(", "))
}

/// A key in the syntax of the format, with the separator between key and value.
pub fn key(format: Format, name: &str) -> String {
    match format {
        Format::Json => format!("{}: ", word(format, name)),
        Format::Toml => format!("{name} = "),
        Format::Yaml => format!("{name}: "),
    }
}

/// The line ending of this text.
pub fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The position and the text to insert so that the list begins with `words`. `list` is a list node.
pub fn in_front(text: &str, format: Format, list: &Node, items: &[Node], words: &[String]) -> (usize, String) {
    let words: Vec<String> = words.iter().map(|text| word(format, text)).collect();
    let Some(first) = items.first().map(|item| item.span.start) else {
        return (list.span.start + 1, words.join(", "));
    };
    if !text[list.span.start..].starts_with('[') {
        let dash = dash_of(text, first);
        let between = format!("{}{}", newline(text), indentation(text, dash));
        return (dash, words.iter().map(|word| format!("- {word}{between}")).collect());
    }
    // One word per line if the first item is on its own line, else all on the same line.
    let gap = &text[list.span.start + 1..first];
    let gap = if gap.contains('\n') && gap.trim().is_empty() { gap } else { " " };
    (first, words.iter().map(|word| format!("{word},{gap}")).collect())
}

/// The position of the dash of a block list's item.
pub fn dash_of(text: &str, item: usize) -> usize {
    text[..item].rfind('-').unwrap_or(item)
}

/// The text to insert right after `member` so that a further member follows it; `None` if the layout can't be
/// determined. `added` is the new member on one line, in the syntax of the format.
pub fn sibling(text: &str, map: &Node, member: &MapMember, added: &str) -> Option<String> {
    let start = member.key_span.start;
    let in_braces = text[map.span.start..].starts_with('{');
    if in_braces {
        let before = text[..start].trim_end_matches([' ', '\t', '\r', '\n']);
        let gap = &text[before.len()..start];
        // After a comment, the member's own line does not show the layout of the map.
        let gap = if before.ends_with(['{', ',']) && gap.contains('\n') { gap } else { " " };
        return Some(format!(",{gap}{added}"));
    }
    // The new member needs its own line, so this member must have one too: `a.b = 1` has its map in front.
    let line = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let lead = text[line..start].trim_start_matches('\u{feff}');
    lead.trim().is_empty().then(|| format!("{}{lead}{added}", newline(text)))
}

/// Blanks up to the column of `at`: as many as there are characters before it on its line.
fn indentation(text: &str, at: usize) -> String {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    " ".repeat(text[line..at].chars().count())
}

#[cfg(test)]
mod tests {
    use super::super::Value;
    use super::*;

    #[track_caller]
    fn check_front(format: Format, text: &str, expected: &str) {
        let root = format.parse(text).expect("a valid text");
        let list = root.get("a").expect("there");
        let Value::List(items) = &list.value else { panic!("a list") };
        let (at, added) = in_front(text, format, list, items, &["run".to_owned(), "--".to_owned()]);
        let changed = format!("{}{added}{}", &text[..at], &text[at..]);
        assert_eq!(changed, expected);
        let words = format.parse(&changed).expect("still a valid text");
        assert_eq!(words.get("a").and_then(Node::texts).expect("texts")[..2], ["run", "--"]);
    }

    #[test]
    fn lists_keep_their_layout() {
        check_front(Format::Json, "{\"a\": [\"x\"]}", "{\"a\": [\"run\", \"--\", \"x\"]}");
        check_front(Format::Json, "{\"a\": []}", "{\"a\": [\"run\", \"--\"]}");
        check_front(Format::Json, "{\"a\":[\n\t\"x\"\n]}", "{\"a\":[\n\t\"run\",\n\t\"--\",\n\t\"x\"\n]}");
        check_front(Format::Json, "{\"a\": [ // c\n \"x\"]}", "{\"a\": [ // c\n \"run\", \"--\", \"x\"]}");
        check_front(Format::Toml, "a = [\n  'x', # c\n]", "a = [\n  \"run\",\n  \"--\",\n  'x', # c\n]");
        check_front(Format::Yaml, "a:\n  - x # c\n", "a:\n  - run\n  - \"--\"\n  - x # c\n");
        check_front(Format::Yaml, "a:\r\n- x\r\n", "a:\r\n- run\r\n- \"--\"\r\n- x\r\n");
        check_front(Format::Yaml, "a: [x]\n", "a: [run, \"--\", x]\n");
    }

    #[test]
    fn words_are_quoted_where_the_format_requires_it() {
        for text in [
            "plain",
            "/a/b.c",
            "",
            "--x",
            "a b",
            "true",
            "12",
            "é\"\\\n",
            "{x}",
            "a: b",
            "#c",
            "\u{7f}",
            "~",
            "\u{85}\u{90}",
            "\u{feff}x\u{2028}",
        ] {
            for format in [Format::Json, Format::Toml, Format::Yaml] {
                let source = format!("{}{}", key(format, "a"), word(format, text));
                let source = if format == Format::Json { format!("{{{source}}}") } else { source };
                let read = format.parse(&source).unwrap_or_else(|error| panic!("{format:?} {source}: {error}"));
                assert_eq!(read.get("a").and_then(Node::text), Some(text), "{format:?} {source}");
            }
        }
    }

    #[track_caller]
    fn check_sibling(format: Format, text: &str, expected: Option<&str>) {
        let root = format.parse(text).expect("a valid text");
        let map = root.get("m").expect("there");
        let member = map.member("c").expect("there");
        let added = sibling(text, map, member, &format!("{}[]", key(format, "args")));
        let end = member.node.span.end;
        assert_eq!(added.map(|added| format!("{}{added}{}", &text[..end], &text[end..])).as_deref(), expected);
    }

    #[test]
    fn a_new_member_gets_the_layout_of_its_neighbour() {
        check_sibling(Format::Json, "{\"m\": {\"c\": 1}}", Some("{\"m\": {\"c\": 1, \"args\": []}}"));
        check_sibling(Format::Json, "{\"m\": {\n  \"c\": 1,\n}}", Some("{\"m\": {\n  \"c\": 1,\n  \"args\": [],\n}}"));
        check_sibling(Format::Toml, "[m]\n  c = 1 # c\n", Some("[m]\n  c = 1\n  args = [] # c\n"));
        check_sibling(Format::Toml, "m = { c = 1 }\n", Some("m = { c = 1, args = [] }\n"));
        check_sibling(Format::Toml, "m.c = 1\n", None);
        check_sibling(Format::Yaml, "m:\n  c: 1\n", Some("m:\n  c: 1\n  args: []\n"));
        check_sibling(Format::Yaml, "m: {c: 1}\n", Some("m: {c: 1, args: []}\n"));
    }
}
