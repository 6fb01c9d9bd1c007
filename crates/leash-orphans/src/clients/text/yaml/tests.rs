use super::*;

const GOOSE: &str = "\
# my goose
GOOSE_PROVIDER: openai
extensions:
  fetch:
    args:
    - mcp-server-fetch # the server
    - \"--x\"
    cmd: uvx
    enabled: true
    envs: {A: 'it''s', \"B\": b}
    name: fetch
    timeout: 300
    description: |
      cmd: not this
      # nor that
    type: stdio
  two: {type: stdio, cmd: node, args: [a b, 'c',
      \"d\"]}
  empty:
GOOSE_MODEL: gpt-4o
";

fn at<'a>(node: &'a Node, path: &[&str]) -> &'a Node {
    path.iter().fold(node, |node, key| node.get(key).unwrap_or_else(|| panic!("{key}")))
}

#[test]
fn a_real_configuration_is_parsed() {
    let root = parse(GOOSE).expect("valid YAML");
    let fetch = at(&root, &["extensions", "fetch"]);
    assert_eq!(at(fetch, &["args"]).texts(), Some(vec!["mcp-server-fetch", "--x"]));
    assert_eq!(at(fetch, &["cmd"]).text(), Some("uvx"));
    assert_eq!(at(fetch, &["enabled"]).value, Value::Bool(true));
    assert_eq!(at(fetch, &["envs", "A"]).text(), Some("it's"));
    assert_eq!(at(fetch, &["description"]).value, Value::Other);
    assert_eq!(at(&root, &["extensions", "two", "args"]).texts(), Some(vec!["a b", "c", "d"]));
    assert_eq!(at(&root, &["extensions", "empty"]).value, Value::Null);
    assert_eq!(at(&root, &["GOOSE_MODEL"]).text(), Some("gpt-4o"));
    let cmd = fetch.member("cmd").expect("there");
    assert_eq!(&GOOSE[cmd.span()], "cmd: uvx");
    let crlf = GOOSE.replace('\n', "\r\n");
    assert_eq!(at(&parse(&crlf).expect("valid YAML"), &["extensions", "fetch", "cmd"]).text(), Some("uvx"));
}

#[test]
fn rare_forms_are_skipped() {
    let root =
        parse("---\na: &x\n  b: 1\nc: one\n  two\nd: 'x\n  y'\nf:\n  - g: 1\n    h: 2\n  - [1]\nurl: http://a:1/#b\n");
    let root = root.expect("valid YAML");
    for key in ["a", "c", "d"] {
        assert_eq!(at(&root, &[key]).value, Value::Other, "{key}");
    }
    assert_eq!(at(&root, &["url"]).text(), Some("http://a:1/#b"));
    assert!(matches!(&at(&root, &["f"]).value, Value::List(items) if items.len() == 2));
    assert_eq!(parse("# nothing\n").expect("valid YAML").members(), Some(&[][..]));
}

#[test]
fn forms_that_change_the_meaning_of_the_rest_are_refused() {
    for (text, line) in [
        ("a: 1\n\tb: 2\n", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a:\n    b: 1\n  c: 2\n", 3),
        ("no colon\n", 1),
        ("a: 1\ne: - no\n", 2),
        ("? a\n: b\n", 1),
        ("a: \"x\n", 1),
        ("a: [1, 2\n", 1),
        ("a: \"x\" y\n", 1),
        ("a: {b: *c}\n", 1),
    ] {
        assert_eq!(parse(text).map_err(|error| error.line).err(), Some(line), "{text:?}");
    }
}

/// Users and editors indent brackets as they like, and the clients accept that.
#[test]
fn positions_do_not_depend_on_comments_and_indentation() {
    let text = "m:\n  args: [a, # it's\n  'b' ] # c\n  cmd : \"é\" # \"d\"\n\
        \x20 env: {\n    A: b # e\n}\n  last: # f\n  - x # g\n";
    let root = parse(text).expect("valid YAML");
    let part = |key: &str| &text[at(&root, &["m", key]).span.clone()];
    assert_eq!(part("args"), "[a, # it's\n  'b' ]");
    assert_eq!(part("cmd"), "\"é\"");
    assert_eq!(part("env"), "{\n    A: b # e\n}");
    assert_eq!(part("last"), "- x");
}
