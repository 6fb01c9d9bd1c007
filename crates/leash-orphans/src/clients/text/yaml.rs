//! YAML as configurations use it: block maps and lists, scalars, and flow lists and maps. Rarer forms (block scalars,
//! anchors, tags, strings over several lines) become [`Value::Other`]; a form that would change the meaning of the
//! rest is refused.

mod flow;

use super::{Member, Node, TextError, Value};
use flow::Flow;

/// More than any configuration needs, and small enough for the stack.
const DEEPEST: usize = 512;

/// Parses a text with one document.
pub fn parse(text: &str) -> Result<Node, TextError> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut reader = Reader { text, lines: lines(text, start)?, next: 0 };
    if reader.line().is_some_and(|line| reader.content(line) == "---") {
        reader.next += 1;
    }
    let node = match reader.line() {
        None => Node { span: start..text.len(), value: Value::Map(Vec::new()) },
        Some(line) => reader.block(line.indent)?,
    };
    match reader.line() {
        Some(line) if matches!(reader.content(line), "---" | "...") => {
            Err(reader.error(line.start, "there is more than one document"))
        }
        Some(line) => Err(reader.error(line.start, "the indentation is not understood")),
        None => Ok(node),
    }
}

/// A line that is neither blank nor a comment.
#[derive(Clone, Copy)]
struct Line {
    /// The position of its first character that is not a blank.
    start: usize,
    /// The end without the line ending and trailing blanks.
    end: usize,
    indent: usize,
}

fn lines(text: &str, from: usize) -> Result<Vec<Line>, TextError> {
    let mut found = Vec::new();
    let mut at = from;
    for whole in text[from..].split_inclusive('\n') {
        let trimmed = whole.trim_end_matches(['\n', '\r', ' ', '\t']);
        let content = trimmed.trim_start_matches(' ');
        let indent = trimmed.len() - content.len();
        if content.starts_with('\t') {
            return Err(TextError::at(text, at, "a tab is no indentation in YAML"));
        }
        if !content.is_empty() && !content.starts_with('#') {
            found.push(Line { start: at + indent, end: at + trimmed.len(), indent });
        }
        at += whole.len();
    }
    Ok(found)
}

struct Reader<'a> {
    text: &'a str,
    lines: Vec<Line>,
    next: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, at: usize, what: &str) -> TextError {
        TextError::at(self.text, at, what)
    }

    fn line(&self) -> Option<Line> {
        self.lines.get(self.next).copied()
    }

    fn content(&self, line: Line) -> &'a str {
        &self.text[line.start..line.end]
    }

    fn is_item(&self, line: Line) -> bool {
        let content = self.content(line);
        content == "-" || content.starts_with("- ")
    }

    /// Parses a map or list whose lines have this indentation.
    fn block(&mut self, indent: usize) -> Result<Node, TextError> {
        let Some(first) = self.line() else { return Err(self.error(self.text.len(), "it ends too early")) };
        if indent > DEEPEST {
            return Err(self.error(first.start, "it is nested too deeply"));
        }
        if self.is_item(first) { self.list(indent) } else { self.map(indent) }
    }

    fn map(&mut self, indent: usize) -> Result<Node, TextError> {
        let mut members: Vec<Member> = Vec::new();
        while let Some(line) = self.line().filter(|line| line.indent == indent && !self.is_item(*line)) {
            if matches!(self.content(line), "---" | "...") {
                break;
            }
            let (key, key_end, value_at) = self.key(line)?;
            let node = self.value(value_at, line, indent)?;
            members.push(Member { key, key_span: line.start..key_end, node });
        }
        let start = members.first().map_or(0, |first| first.key_span.start);
        let end = members.last().map_or(start, |last| last.node.span.end);
        match members.is_empty() {
            true => Err(self.error(self.line().map_or(0, |line| line.start), "a key is expected")),
            false => Ok(Node { span: start..end, value: Value::Map(members) }),
        }
    }

    /// The key at the beginning of a line, its end, and the position after the colon.
    fn key(&self, line: Line) -> Result<(String, usize, usize), TextError> {
        let content = self.content(line);
        let refuse = || self.error(line.start, "a key and a colon are expected");
        if content.starts_with(['?', '[', '{', '&', '*', '!', '|', '>', '%', '@', '`']) {
            return Err(self.error(line.start, "a key of this kind is not understood"));
        }
        let (key, length) = if content.starts_with(['"', '\'']) {
            let length = quoted_length(content).ok_or_else(refuse)?;
            (unquote(&content[..length]).ok_or_else(refuse)?, length)
        } else {
            let ends = |(at, _): &(usize, &str)| matches!(content.as_bytes().get(at + 1), None | Some(b' ' | b'\t'));
            let (colon, _) = content.match_indices(':').find(ends).ok_or_else(refuse)?;
            (content[..colon].trim_end().to_owned(), content[..colon].trim_end().len())
        };
        let rest = &content[length..];
        let colon = rest.len() - rest.trim_start().len();
        if !rest[colon..].starts_with(':') {
            return Err(refuse());
        }
        Ok((key, line.start + length, line.start + length + colon + 1))
    }

    fn list(&mut self, indent: usize) -> Result<Node, TextError> {
        let mut items: Vec<Node> = Vec::new();
        let start = self.line().map_or(0, |line| line.start);
        while let Some(line) = self.line().filter(|line| line.indent == indent && self.is_item(*line)) {
            let after = line.start + 1;
            let content = self.text[after..line.end].trim_start();
            let is_compound = content == "-" || content.starts_with("- ") || looks_like_map(content);
            if is_compound {
                let end = self.skip_deeper(line, indent);
                items.push(Node { span: line.end - content.len()..end, value: Value::Other });
            } else {
                items.push(self.value(after, line, indent)?);
            }
        }
        let end = items.last().map_or(start, |last| last.span.end);
        Ok(Node { span: start..end, value: Value::List(items) })
    }

    /// Parses the value at `at`, on the line of its key or dash, or below it.
    fn value(&mut self, at: usize, line: Line, indent: usize) -> Result<Node, TextError> {
        let rest = self.text.get(at..line.end).unwrap_or_default();
        let content = rest.trim_start_matches([' ', '\t']);
        let start = at + (rest.len() - content.len());
        // A comment needs a blank in front of it; without one, `#` is part of the scalar.
        let is_comment = content.starts_with('#') && rest.len() > content.len();
        match content.as_bytes().first() {
            None => self.below(at, indent),
            Some(_) if is_comment => self.below(at, indent),
            Some(b'[' | b'{') => self.flow(start),
            Some(b'"' | b'\'') => self.quoted(start, line, indent),
            Some(b'|' | b'>' | b'&' | b'*' | b'!' | b'%' | b'@' | b'`') => {
                Ok(Node { span: start..self.skip_deeper(line, indent), value: Value::Other })
            }
            Some(_) => {
                let end = start + content.find(" #").unwrap_or(content.len());
                let end = start + self.text[start..end].trim_end().len();
                let last = self.skip_deeper(line, indent);
                // Lines that are indented further belong to the scalar.
                match last == line.end {
                    true => Ok(Node { span: start..end, value: scalar(&self.text[start..end]) }),
                    false => Ok(Node { span: start..last, value: Value::Other }),
                }
            }
        }
    }

    /// Parses the block below a key without a value on its line.
    fn below(&mut self, at: usize, indent: usize) -> Result<Node, TextError> {
        self.next += 1;
        match self.line() {
            Some(line) if line.indent > indent => self.block(line.indent),
            // A list may have the same indentation as its key.
            Some(line) if line.indent == indent && self.is_item(line) => self.list(indent),
            _ => Ok(Node { span: at..at, value: Value::Null }),
        }
    }

    /// Skips `line` and all following lines that are indented further than `indent`. Returns the end of the last one.
    fn skip_deeper(&mut self, line: Line, indent: usize) -> usize {
        let mut end = line.end;
        self.next += 1;
        while let Some(line) = self.line().filter(|line| line.indent > indent) {
            end = line.end;
            self.next += 1;
        }
        end
    }

    fn quoted(&mut self, start: usize, line: Line, indent: usize) -> Result<Node, TextError> {
        let rest = &self.text[start..];
        let length = quoted_length(rest).ok_or_else(|| self.error(start, "a text does not end"))?;
        let end = start + length;
        if end > line.end {
            self.pass(end)?;
            return Ok(Node { span: start..end, value: Value::Other });
        }
        self.only_comment(end, line.end)?;
        self.next += 1;
        if self.line().is_some_and(|line| line.indent > indent) {
            return Err(self.error(end, "the indentation is not understood"));
        }
        Ok(Node { span: start..end, value: unquote(&rest[..length]).map_or(Value::Other, Value::Text) })
    }

    fn flow(&mut self, start: usize) -> Result<Node, TextError> {
        let mut flow = Flow { text: self.text, at: start };
        let node = flow.value(0)?;
        self.pass(node.span.end)?;
        Ok(node)
    }

    /// Continues after the line that contains `end`.
    fn pass(&mut self, end: usize) -> Result<(), TextError> {
        while let Some(line) = self.line().filter(|line| line.start < end) {
            self.only_comment(end.min(line.end), if end <= line.end { line.end } else { end.min(line.end) })?;
            self.next += 1;
        }
        Ok(())
    }

    fn only_comment(&self, from: usize, to: usize) -> Result<(), TextError> {
        let rest = &self.text[from..to];
        let fine = rest.trim().is_empty() || (rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#'));
        if fine { Ok(()) } else { Err(self.error(from, "something follows the end of a value")) }
    }
}

/// The length of a quoted string with its quotes.
fn quoted_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = *bytes.first()?;
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if quote == b'"' => at += 2,
            b'\'' if quote == b'\'' && bytes.get(at + 1) == Some(&b'\'') => at += 2,
            byte if *byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

fn unquote(source: &str) -> Option<String> {
    match source.strip_prefix('\'') {
        Some(rest) => Some(rest.strip_suffix('\'')?.replace("''", "'")),
        // A string with an escape that YAML has and JSON does not have becomes [`Value::Other`].
        None => serde_json::from_str(source).ok(),
    }
}

fn scalar(word: &str) -> Value {
    match word {
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        "null" | "Null" | "NULL" | "~" => Value::Null,
        _ if word.parse::<f64>().is_ok() || word.starts_with("0x") || word.starts_with("0o") => Value::Other,
        _ => Value::Text(word.to_owned()),
    }
}

/// True if a list's item is a map that begins on the line of the dash.
fn looks_like_map(content: &str) -> bool {
    let rest = match content.as_bytes().first() {
        Some(b'"' | b'\'') => quoted_length(content).map_or("", |length| content[length..].trim_start()),
        Some(b'[' | b'{' | b'#') | None => "",
        Some(_) => content.split(" #").next().unwrap_or_default(),
    };
    rest.ends_with(':') || rest.contains(": ")
}

#[cfg(test)]
mod tests;
