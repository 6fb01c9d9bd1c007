//! Lists and maps in brackets, which may span several lines.

use super::super::{Member, Node, TextError, Value};
use super::{quoted_length, scalar, unquote};

/// `[a, "b"]` and `{a: b}`.
pub(super) struct Flow<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl Flow<'_> {
    fn error(&self, what: &str) -> TextError {
        TextError::at(self.text, self.at, what)
    }

    fn blank(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            self.at += rest.len() - rest.trim_start().len();
            match self.text[self.at..].starts_with('#') {
                true => self.at += self.text[self.at..].find('\n').unwrap_or(self.text.len() - self.at),
                false => return,
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn value(&mut self, depth: usize) -> Result<Node, TextError> {
        if depth > 64 {
            return Err(self.error("it is nested too deeply"));
        }
        let start = self.at;
        let value = match self.peek() {
            Some(b'[') => {
                let mut items = Vec::new();
                while self.go_on(b']')? {
                    items.push(self.value(depth + 1)?);
                }
                Value::List(items)
            }
            Some(b'{') => {
                let mut members = Vec::new();
                while self.go_on(b'}')? {
                    members.push(self.member(depth)?);
                }
                Value::Map(members)
            }
            Some(b'"' | b'\'') => {
                let length = quoted_length(&self.text[start..]).ok_or_else(|| self.error("a text does not end"))?;
                self.at += length;
                unquote(&self.text[start..self.at]).map_or(Value::Other, Value::Text)
            }
            Some(b'&' | b'*' | b'!') => return Err(self.error("anchors and tags are not understood here")),
            Some(_) => self.plain(),
            None => return Err(self.error("it ends too early")),
        };
        Ok(Node { span: start..self.at, value })
    }

    /// Skips the opening bracket or a comma. Returns false at the end of the list or map, after skipping the closing
    /// bracket.
    fn go_on(&mut self, close: u8) -> Result<bool, TextError> {
        self.blank();
        match self.peek() {
            Some(byte) if byte == close => {}
            Some(b'[' | b'{' | b',') => {
                self.at += 1;
                self.blank();
                if self.peek() != Some(close) {
                    return Ok(true);
                }
            }
            _ => return Err(self.error("a `,` or the end of a list or map is expected")),
        }
        self.at += 1;
        Ok(false)
    }

    fn member(&mut self, depth: usize) -> Result<Member, TextError> {
        let start = self.at;
        let key = match self.value(depth + 1)?.value {
            Value::Text(key) => key,
            _ => return Err(self.error("a key of this kind is not understood")),
        };
        let key_span = start..self.at;
        self.blank();
        if self.peek() != Some(b':') {
            return Err(self.error("a `:` is expected"));
        }
        self.at += 1;
        self.blank();
        Ok(Member { key, key_span, node: self.value(depth + 1)? })
    }

    fn plain(&mut self) -> Value {
        let rest = &self.text[self.at..];
        let ends = |(at, letter): &(usize, char)| match letter {
            ',' | ']' | '}' | '[' | '{' | '\n' => true,
            ':' => matches!(rest.as_bytes().get(at + 1), None | Some(b' ' | b',' | b']' | b'}' | b'\n' | b'\r')),
            '#' => rest[..*at].ends_with([' ', '\t']),
            _ => false,
        };
        let end = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        let word = rest[..end].trim_end();
        self.at += word.len();
        scalar(word)
    }
}
