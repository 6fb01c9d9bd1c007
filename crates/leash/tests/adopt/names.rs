//! Names of servers that `leash run` or a client would not accept as they are.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Home;

#[test]
fn every_written_name_is_one_that_run_accepts() {
    let long = ["x".repeat(300), "x".repeat(301)];
    let names = ["", "plain", "with space", "a/b", "größe", "nul\0", "line\nend", "\u{1b}[2J", "${NOT_SET}", "-x"];
    let names: Vec<&str> = names.into_iter().chain(long.iter().map(String::as_str)).collect();
    let entry = |name: &&str| ((*name).to_owned(), json!({ "command": "true", "args": [] }));
    let servers: serde_json::Map<String, Value> = names.iter().map(entry).collect();
    let home = Home::new();
    let before = serde_json::to_string_pretty(&json!({ "mcpServers": servers })).expect("it is JSON");
    home.put(".cursor/mcp.json", &before);
    home.adopt(&[]);
    let after: Value = serde_json::from_str(&home.text(".cursor/mcp.json")).expect("it is JSON");
    let mut written = BTreeSet::new();
    for name in &names {
        let args = after["mcpServers"][name]["args"].as_array().expect("it was adopted");
        let words: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
        let option = words.iter().find_map(|word| word.strip_prefix("--name="));
        let option = option.unwrap_or_else(|| panic!("{name:?} has no name: {words:?}"));
        assert!(!option.contains(['$', '\0', '\n', '\u{1b}']), "{option:?}");
        assert!(written.insert(option.to_owned()), "{option:?} is written twice");
        home.well(&words);
    }
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".cursor/mcp.json"), before);
}
