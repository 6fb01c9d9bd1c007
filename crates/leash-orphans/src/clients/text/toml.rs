//! TOML, parsed by `toml_edit`, which reports positions.

use toml_edit::{Document, Item, TableLike, Value as TomlValue};

use super::{MapMember, Node, TextError, Value};

/// Parses a text. The parser skips a leading byte order mark.
pub fn parse(text: &str) -> Result<Node, TextError> {
    let document = Document::parse(text).map_err(|error| {
        let what = error.message().lines().next().unwrap_or("it is not TOML").to_owned();
        TextError::at(text, error.span().map_or(0, |span| span.start), what)
    })?;
    Ok(Node { span: 0..text.len(), value: Value::Map(members(document.as_table())) })
}

fn members(table: &dyn TableLike) -> Vec<MapMember> {
    let keys = table.iter().filter_map(|(name, _)| table.get_key_value(name));
    keys.filter_map(|(key, item)| member(key, item)).collect()
}

fn member(key: &toml_edit::Key, item: &Item) -> Option<MapMember> {
    let node = node(item)?;
    // A table without its own header (`[a.b]` creates `a`) has its key in the header of another table.
    let key_span = key.span().unwrap_or(node.span.start..node.span.start);
    Some(MapMember { key: key.get().to_owned(), key_span, node })
}

fn node(item: &Item) -> Option<Node> {
    match item {
        Item::None => None,
        Item::Value(value) => Some(of_value(value)),
        Item::Table(found) => {
            let members = members(found);
            let start =
                found.span().map(|span| span.start).or_else(|| members.first().map(|first| first.key_span.start));
            let end = members.iter().map(|member| member.node.span.end).max();
            let span = start.unwrap_or_default()..end.or(found.span().map(|span| span.end)).unwrap_or_default();
            Some(Node { span, value: Value::Map(members) })
        }
        Item::ArrayOfTables(_) => Some(Node { span: item.span().unwrap_or_default(), value: Value::Other }),
    }
}

fn of_value(value: &TomlValue) -> Node {
    let span = value.span().unwrap_or_default();
    let value = match value {
        TomlValue::String(text) => Value::Text(text.value().clone()),
        TomlValue::Boolean(flag) => Value::Bool(*flag.value()),
        TomlValue::Array(items) => Value::List(items.iter().map(of_value).collect()),
        TomlValue::InlineTable(table) => Value::Map(members(table)),
        TomlValue::Integer(_) | TomlValue::Float(_) | TomlValue::Datetime(_) => Value::Other,
    };
    Node { span, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_those_of_the_text() {
        let text = "model = \"o\" # top\n\n[mcp_servers.a]\ncommand = 'npx' # c\nargs = [\n  \"-y\", # y\n]\n[mcp_servers.a.env]\nK = \"v\"\n";
        let root = parse(text).expect("valid TOML");
        let entry = root.get("mcp_servers").and_then(|map| map.get("a")).expect("there");
        let shown = |key: &str| entry.member(key).map(|member| &text[member.span()]);
        assert_eq!(shown("command"), Some("command = 'npx'"));
        assert_eq!(shown("args"), Some("args = [\n  \"-y\", # y\n]"));
        assert_eq!(entry.get("env").and_then(|env| env.get("K")).and_then(Node::text), Some("v"));
        assert_eq!(entry.get("args").and_then(Node::texts), Some(vec!["-y"]));
    }

    #[test]
    fn inline_and_dotted_tables_are_parsed() {
        let text = "mcp_servers.b.command = \"x\"\nmcp_servers.c = { command = \"y\", args = [] }\n";
        let root = parse(text).expect("valid TOML");
        let map = root.get("mcp_servers").expect("there");
        let command = |name: &str| map.get(name)?.get("command")?.text();
        assert_eq!((command("b"), command("c")), (Some("x"), Some("y")));
        assert_eq!(&text[map.get("c").expect("there").span.clone()], "{ command = \"y\", args = [] }");
    }

    #[test]
    fn invalid_toml_is_refused_with_its_line() {
        assert_eq!(parse("a = 1\nb = = 2\n").map_err(|error| error.line), Err(2));
        assert!(parse("a = 1\na = 2\n").is_err());
    }
}
