//! Translations of files, checked as JSON values.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::super::Client;
use super::*;

fn file(client: &str, text: &str) -> ConfigFile {
    let client = Client::find(client).expect("a known client");
    ConfigFile { client, place: &client.places[0], path: PathBuf::from("/f"), text: text.to_owned() }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "mcp" && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn made_from(client: &str, text: &str) -> Translation {
    translate(&file(client, text), Some(Path::new("/p")), &is_name).expect("it can be parsed")
}

#[track_caller]
fn check(client: &str, text: &str, expected: Json) {
    let made = made_from(client, text);
    let json: Json = serde_json::from_str(&made.text).unwrap_or_else(|error| panic!("{error}: {}", made.text));
    assert_eq!(json, json!({ "mcpServers": expected }), "{text}");
}

#[test]
fn servers_of_every_shape_are_translated() {
    check(
        "codex",
        "model = \"m\"\n[mcp_servers.a]\ncommand = \"npx\"\nargs = [\"x\", \"${Y}\"]\nenabled_tools = [\"t\"]\n[mcp_servers.a.env]\nN = \"1\"\n\
         [mcp_servers.b]\nurl = \"https://h/mcp\"\nbearer_token_env_var = \"T\"\n[mcp_servers.off]\ncommand = \"x\"\nenabled = false\n\
         [mcp_servers.c]\nurl = \"https://h/mcp\"\nenv_http_headers = { X = \"V\" }\n",
        json!({
            "a": {"command": "npx", "args": ["x", "${LEASH_DOLLAR_SIGN}{Y}"], "env": {"N": "1"}},
            "b": {"url": "https://h/mcp", "type": "http", "headers": {"Authorization": "Bearer ${T}"}},
            "c": {"url": "https://h/mcp", "type": "http", "headers": {"X": "${V}"}},
        }),
    );
    check(
        "vscode",
        r#"{"inputs": [], "servers": {"a": {"type": "stdio", "command": "x", "env": {"A": "${env:B}", "N": 1}, "cwd": "/d"},
            // mine
            "b": {"type": "sse", "url": "https://h/x"},}}"#,
        json!({
            "a": {"command": "x", "args": [], "env": {"A": "${B}", "N": "1"}, "cwd": "/d"},
            "b": {"url": "https://h/x", "type": "sse"},
        }),
    );
    check(
        "zed",
        r#"{"context_servers": {"a": {"command": {"path": "p", "args": ["x"], "env": {"A": "b"}}}, "b": {"source": "extension"}}}"#,
        json!({ "a": {"command": "p", "args": ["x"], "env": {"A": "b"}} }),
    );
    check(
        "goose",
        "extensions:\n  dev:\n    type: builtin\n  a:\n    type: stdio\n    cmd: uvx\n    args:\n    - x\n    envs:\n      A: b\n",
        json!({ "a": {"command": "uvx", "args": ["x"], "env": {"A": "b"}} }),
    );
    check(
        "opencode",
        r#"{"mcp": {"a": {"type": "local", "command": ["bun", "x"], "environment": {"A": "{env:B}"}}}}"#,
        json!({ "a": {"command": "bun", "args": ["x"], "env": {"A": "${B:-}"}} }),
    );
    check(
        "gemini",
        r#"{"mcpServers": {"a": {"httpUrl": "https://h/m", "headers": {"K": "$V"}}, "b": {"url": "https://h/m"}}}"#,
        json!({
            "a": {"url": "https://h/m", "type": "http", "headers": {"K": "${V}"}},
            "b": {"url": "https://h/m", "type": "sse"},
        }),
    );
    check(
        "cursor",
        r#"{"mcpServers": {"a": {"url": "https://h/sse"}, "b": {"command": "x", "leash": {"idle": "1m", "spare": ["a", "b"], "pids": 5}}}}"#,
        json!({
            "a": {"url": "https://h/sse", "type": "sse"},
            "b": {"command": "x", "args": [], "leash": {"idle": "1m", "spare": ["a", "b"], "pids": 5}},
        }),
    );
}

#[test]
fn only_servers_of_this_project_are_served() {
    let text = r#"{"mcpServers": {"a": {"command": "user"}, "b": {"command": "x"}}, "projects": {
        "/p": {"mcpServers": {"a": {"command": "here"}}}, "/q": {"mcpServers": {"c": {"command": "there"}}}}}"#;
    check("claude-code", text, json!({ "a": {"command": "here", "args": []}, "b": {"command": "x", "args": []} }));
    assert_eq!(made_from("claude-code", text).elsewhere, 1);
}

#[test]
fn leash_is_removed_from_adopted_entries() {
    check(
        "claude-code",
        r#"{"mcpServers": {
            "a": {"command": "/usr/bin/leash", "args": ["run", "--session-env=S", "--name=a", "--", "npx", "x"]},
            "b": {"command": "leash", "args": ["run", "--memory=1G", "--", "x"]}}}"#,
        json!({
            "a": {"command": "npx", "args": ["x"]},
            "b": {"command": "leash", "args": ["run", "--memory=1G", "--", "x"]},
        }),
    );
}

#[test]
fn names_become_parts_of_a_path() {
    let text = r#"{"mcpServers": {"my server": {"command": "x"}, "my/server": {"command": "x"}, "mcp": {"command": "x"},
        "über": {"command": 1}, "": {"command": "x"}}}"#;
    let made = made_from("cline", text);
    let json: Json = serde_json::from_str(&made.text).expect("JSON");
    let names: Vec<&String> = json["mcpServers"].as_object().expect("a map").keys().collect();
    assert_eq!(names, ["mcp-2", "my-server", "my-server-2", "server"]);
    assert_eq!(made.renamed.len(), 5);
    assert_eq!((made.unknown[0].name.as_str(), made.unknown[0].why.as_str()), ("ber", "its command is not a string"));
    assert!(text[made.unknown[0].at..].starts_with("{\"command\": 1}"));
}

#[test]
fn positions_lead_back_to_the_file() {
    let text = "{\"mcpServers\": {\n  \"a\": {\"command\": \"x\",\n    \"env\": {\"K\": \"${V}\"}}}}";
    let made = made_from("claude-code", text);
    let source = |part: &str| &text[made.source(made.text.find(part).expect("it is there"))..];
    assert!(source("\"${V}\"").starts_with("\"${V}\"}}}}"));
    assert!(source("\"x\"").starts_with("\"x\","));
    assert!(source("\"a\"").starts_with("{\"command\""));
    assert_eq!(made.source(0), 0);
}
