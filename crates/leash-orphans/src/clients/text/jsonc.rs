//! JSON with comments and trailing commas, which includes strict JSON.

use super::{MapMember, Node, TextError, Value};

/// More than any configuration needs, and small enough for the stack.
const DEEPEST: usize = 128;

/// Parses a text. A leading byte order mark is skipped.
pub fn parse(text: &str) -> Result<Node, TextError> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut reader = JsoncReader { text, at: start };
    reader.blank()?;
    let node = reader.value(0)?;
    reader.blank()?;
    if reader.at < text.len() { Err(reader.error("something follows the end")) } else { Ok(node) }
}

struct JsoncReader<'a> {
    text: &'a str,
    at: usize,
}

impl JsoncReader<'_> {
    fn error(&self, what: impl Into<String>) -> TextError {
        TextError::at(self.text, self.at, what)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    /// Skips white space and comments.
    fn blank(&mut self) -> Result<(), TextError> {
        loop {
            let rest = &self.text[self.at..];
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or_else(|| self.error("a comment does not end"))?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, TextError> {
        if depth > DEEPEST {
            return Err(self.error("it is nested too deeply"));
        }
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(_) => self.word()?,
            None => return Err(self.error("it ends too early")),
        };
        Ok(Node { span: start..self.at, value })
    }

    fn map(&mut self, depth: usize) -> Result<Value, TextError> {
        self.at += 1;
        let mut members = Vec::new();
        loop {
            self.blank()?;
            if self.take(b'}') {
                return Ok(Value::Map(members));
            }
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.error("a key in quotes is expected"));
            }
            let key = self.string()?;
            let key_span = start..self.at;
            self.blank()?;
            if !self.take(b':') {
                return Err(self.error("a `:` is expected"));
            }
            self.blank()?;
            members.push(MapMember { key, key_span, node: self.value(depth + 1)? });
            self.blank()?;
            if !self.take(b',') && self.peek() != Some(b'}') {
                return Err(self.error("a `,` or `}` is expected"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, TextError> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.blank()?;
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            items.push(self.value(depth + 1)?);
            self.blank()?;
            if !self.take(b',') && self.peek() != Some(b']') {
                return Err(self.error("a `,` or `]` is expected"));
            }
        }
    }

    fn string(&mut self) -> Result<String, TextError> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break self.at += 1,
                Some(b'\\') => self.at += 2,
                Some(b'\n') | None => return Err(self.error("a text does not end")),
                Some(_) => self.at += 1,
            }
        }
        let source = self.text.get(start..self.at).ok_or_else(|| self.error("a text does not end"))?;
        serde_json::from_str(source).map_err(|_| TextError::at(self.text, start, "a string is not valid JSON"))
    }

    fn word(&mut self) -> Result<Value, TextError> {
        let rest = &self.text[self.at..];
        let end =
            rest.find(|letter: char| !letter.is_ascii_alphanumeric() && !"+-.".contains(letter)).unwrap_or(rest.len());
        let word = &rest[..end];
        let value = match word {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            _ if serde_json::from_str::<serde_json::Number>(word).is_ok() => Value::Other,
            _ => return Err(self.error("a value is expected")),
        };
        self.at += end;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_those_of_the_text() {
        let text = "\u{feff}// first\n{ \"a\": /* x */ [\"\\u00e9\", 1,], \"ü\":{\"b\":true,}, }\n// last";
        let node = parse(text).expect("valid JSONC");
        let list = node.get("a").expect("there");
        assert_eq!(&text[list.span.clone()], "[\"\\u00e9\", 1,]");
        let Value::List(items) = &list.value else { panic!("a list") };
        assert_eq!((items[0].text(), &items[1].value), (Some("é"), &Value::Other));
        let member = node.member("ü").expect("there");
        assert_eq!(&text[member.span()], "\"ü\":{\"b\":true,}");
    }

    #[test]
    fn invalid_json_is_refused_with_its_line() {
        for (text, line, what) in [
            ("", 1, "it ends too early"),
            ("{\n\"a\" 1}", 2, "a `:` is expected"),
            ("{\"a\": 1 \"b\": 2}", 1, "a `,` or `}` is expected"),
            ("{,}", 1, "a key in quotes is expected"),
            ("{\"a\": \"x\n\"}", 1, "a text does not end"),
            ("{\"a\": \"x\\", 1, "a text does not end"),
            ("{\"a\": \"\\x\"}", 1, "a string is not valid JSON"),
            ("{\"a\": nope}", 1, "a value is expected"),
            ("{} {}", 1, "something follows the end"),
            ("{ /* ", 1, "a comment does not end"),
        ] {
            assert_eq!(parse(text), Err(TextError { line, what: what.to_owned() }), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }
}
