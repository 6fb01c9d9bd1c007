//! YAML, parsed by `granit-parser`, which reports positions and limits the nesting. Forms that leash never changes
//! (block scalars, anchors, aliases, tags, strings over several lines) become [`Value::Other`]; a form that would
//! change the meaning of the rest is refused.

use std::ops::Range;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, StrInput, StructureStyle};

use super::{MapMember, Node, TextError, Value};

/// Parses a text with one document. The parser skips a leading byte order mark.
pub fn parse(text: &str) -> Result<Node, TextError> {
    let mut events = YamlEvents { text, parser: Parser::new_from_str(text), end: 0 };
    let mut root = Node { span: 0..text.len(), value: Value::Map(Vec::new()) };
    let mut documents = 0;
    loop {
        match events.next()? {
            (Event::StreamStart | Event::DocumentEnd, _) => {}
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentStart(..), span) if documents > 0 => {
                return Err(events.error(span.start, "there is more than one document"));
            }
            (Event::DocumentStart(..), _) => documents += 1,
            first => match events.node(first)? {
                // A document without content.
                Node { value: Value::Null, .. } => {}
                node @ Node { value: Value::Map(_) | Value::List(_), .. } => root = node,
                node => return Err(events.error(node.span.start, "a key and a colon are expected")),
            },
        }
    }
}

/// An event and its position in bytes.
type PlacedEvent<'a> = (Event<'a>, Range<usize>);

/// The events of the parser, which become nodes.
struct YamlEvents<'a> {
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    /// The end of the last event.
    end: usize,
}

impl<'a> YamlEvents<'a> {
    fn error(&self, at: usize, what: &str) -> TextError {
        TextError::at(self.text, at, what)
    }

    fn next(&mut self) -> Result<PlacedEvent<'a>, TextError> {
        let (text, last) = (self.text, self.end);
        let event = self.parser.next_event().ok_or_else(|| TextError::at(text, text.len(), "it ends too early"))?;
        let (event, span) = event.map_err(|error| refusal(text, last, &error))?;
        // A text in memory has a position for each event.
        let span = span.byte_range().unwrap_or(last..last);
        self.end = span.end;
        Ok((event, span))
    }

    /// The node that begins with this event.
    fn node(&mut self, (event, span): PlacedEvent<'a>) -> Result<Node, TextError> {
        let (value, end) = match event {
            Event::Scalar(word, style, 0, None) => {
                let source = self.text[span.clone()].trim_end();
                (scalar(&word, style, source), span.start + source.len())
            }
            Event::SequenceStart(style, anchor, tag) => {
                let (items, end) = self.list(style, span.end)?;
                (if anchor == 0 && tag.is_none() { Value::List(items) } else { Value::Other }, end)
            }
            Event::MappingStart(style, anchor, tag) => {
                let (members, end) = self.map(style, span.end)?;
                (if anchor == 0 && tag.is_none() { Value::Map(members) } else { Value::Other }, end)
            }
            _ => (Value::Other, span.end),
        };
        Ok(Node { span: span.start..end, value })
    }

    /// The items of a list, and its end: the bracket, or the end of the last item.
    fn list(&mut self, style: StructureStyle, start: usize) -> Result<(Vec<Node>, usize), TextError> {
        let mut items: Vec<Node> = Vec::new();
        loop {
            match (self.next()?, style) {
                ((Event::SequenceEnd, close), StructureStyle::Flow) => return Ok((items, close.end)),
                ((Event::SequenceEnd, _), StructureStyle::Block) => {
                    let end = items.last().map_or(start, |last| last.span.end);
                    return Ok((items, end));
                }
                (first, _) => items.push(self.node(first)?),
            }
        }
    }

    /// The members of a map, and its end: the brace, or the end of the last member.
    fn map(&mut self, style: StructureStyle, start: usize) -> Result<(Vec<MapMember>, usize), TextError> {
        let mut members: Vec<MapMember> = Vec::new();
        loop {
            match (self.next()?, style) {
                ((Event::MappingEnd, close), StructureStyle::Flow) => return Ok((members, close.end)),
                ((Event::MappingEnd, _), StructureStyle::Block) => {
                    let end = members.last().map_or(start, |last| last.node.span.end);
                    return Ok((members, end));
                }
                ((Event::Scalar(key, _, 0, None), key_span), _) if !key_span.is_empty() => {
                    let colon = self.colon(&key_span, style)?;
                    let first = self.next()?;
                    let mut node = self.node(first)?;
                    // The parser's position is that of the content, without a dash, `|`, anchor or tag in front of it.
                    let is_empty = node.value == Value::Null && node.span.is_empty();
                    let start = if is_empty { colon } else { self.content(colon) };
                    node.span = start..node.span.end.max(start);
                    members.push(MapMember { key: key.into_owned(), key_span, node });
                }
                ((_, span), _) => return Err(self.error(span.start, "a key of this kind is not understood")),
            }
        }
    }

    /// The position after the colon that follows a key. A key with a `?` in front of it has none on its line.
    fn colon(&self, key: &Range<usize>, style: StructureStyle) -> Result<usize, TextError> {
        let is_blank = |letter: char| match style {
            StructureStyle::Flow => letter.is_whitespace(),
            StructureStyle::Block => letter == ' ' || letter == '\t',
        };
        let rest = self.text[key.end..].trim_start_matches(is_blank);
        match rest.starts_with(':') && !self.text[key.clone()].contains('\n') {
            true => Ok(self.text.len() - rest.len() + 1),
            false => Err(self.error(key.start, "a key of this kind is not understood")),
        }
    }

    /// The position of the first character from `at` that is neither a blank nor in a comment.
    fn content(&self, at: usize) -> usize {
        let mut rest = self.text[at..].trim_start();
        while rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, below)| below.trim_start());
        }
        self.text.len() - rest.len()
    }
}

fn scalar(word: &str, style: ScalarStyle, source: &str) -> Value {
    match (style, word) {
        _ if source.contains('\n') => Value::Other,
        (ScalarStyle::Literal | ScalarStyle::Folded, _) => Value::Other,
        (ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted, _) => Value::Text(word.to_owned()),
        (ScalarStyle::Plain, "true" | "True" | "TRUE") => Value::Bool(true),
        (ScalarStyle::Plain, "false" | "False" | "FALSE") => Value::Bool(false),
        (ScalarStyle::Plain, "null" | "Null" | "NULL" | "~") => Value::Null,
        (ScalarStyle::Plain, _) if word.parse::<f64>().is_ok() || word.starts_with("0x") || word.starts_with("0o") => {
            Value::Other
        }
        (ScalarStyle::Plain, _) => Value::Text(word.to_owned()),
    }
}

/// The reason why the parser refuses a text. `last` is the end of the last event.
fn refusal(text: &str, last: usize, error: &ScanError) -> TextError {
    let line = error.marker().line();
    match error.kind() {
        // The parser reports where it gave up to find the quote; the user must look where the value begins.
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
            TextError::at(text, last, error.info())
        }
        // The parser reports the value in front of the tab.
        ErrorKind::TabInPlainScalar => TextError { line: line + 1, what: error.info() },
        _ => TextError { line, what: error.info() },
    }
}

#[cfg(test)]
mod tests;
