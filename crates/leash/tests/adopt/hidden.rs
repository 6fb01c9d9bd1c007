//! No output shows a secret of a configuration; the files themselves are complete.

use crate::Home;

const CLAUDE: &str = r#"{
  "history": ["s3cret of a conversation"],
  "mcpServers": {
    "a": {
      "command": "x",
      "args": ["--token", "s3cret1", "--api-key=s3cret2", "postgres://u:s3cret3@h/db", "-e", "KEY=s3cret4"],
      "env": { "ANY": "s3cret5", "NUMBER": 7777777 }
    },
    "b": { "command": "y", "args": ["https://h/?key=s3cret6", "--header", "X: Bearer s3cret7"] },
    "c": { "url": "https://h/mcp", "headers": { "Authorization": "Bearer s3cret8" } }
  },
  "oauthAccount": { "refresh": "s3cret9" }
}
"#;

const CURSOR: &str = r#"{
  // the old key: s3cret1
  "mcpServers": {
    "a": { "command": "x", "env": { "K": "s3cret2" } }, // "token": "s3cret3"
  },
}
"#;

const CODEX: &str = r#"api_key = "s3cret1"
[[hooks]]
say = "s3cret2"
[mcp_servers.a]
command = "x" # token = s3cret3
args = ["--password", 's3cret4']
env = { K = "s3cret5", N = 7777777 }
[mcp_servers.b]
command = "y"
[mcp_servers.b.env]
L = '''s3cret6
s3cret7'''
"#;

const GOOSE: &str = "provider: s3cret1
extensions:
  a:
    type: stdio
    cmd: x # token: s3cret2
    args: [--secret=s3cret3]
    envs:
      K: s3cret4
      L: |
        s3cret5
        s3cret6
";

#[track_caller]
fn check(path: &str, text: &str) {
    let home = Home::new();
    home.put(path, text);
    let secrets = |text: &str| text.matches("s3cret").count() + text.matches("7777777").count();
    let said = |words: &[&str]| {
        let answer = home.well(words);
        let said = answer.stdout + &answer.stderr;
        assert!(said.contains("--name=a"), "there is no diff: {said}");
        assert_eq!(secrets(&said), 0, "{words:?}: {said}");
    };
    said(&["adopt", "--leash", "leash", "--diff"]);
    said(&["adopt", "--leash", "leash", "--json"]);
    said(&["adopt", "--leash", "leash", "--yes"]);
    assert_eq!(secrets(&home.text(path)), secrets(text), "{}", home.text(path));
    said(&["release", "--diff"]);
    said(&["release", "--json"]);
    said(&["release", "--yes"]);
    assert_eq!(home.text(path), text);
}

#[test]
fn secrets_in_json_are_hidden() {
    check(".claude.json", CLAUDE);
}

#[test]
fn secrets_in_json_with_comments_are_hidden() {
    check(".cursor/mcp.json", CURSOR);
}

#[test]
fn secrets_in_toml_are_hidden() {
    check(".codex/config.toml", CODEX);
}

#[test]
fn secrets_in_yaml_are_hidden() {
    check(".config/goose/config.yaml", GOOSE);
}

#[test]
fn the_rest_of_an_entry_is_shown() {
    let home = Home::new();
    home.put(".claude.json", CLAUDE);
    let diff = home.well(&["adopt", "--leash", "leash", "--diff"]).stdout;
    for shown in [
        r#""--", "x", "--token", "***", "--api-key=***", "postgres://u:***@h/db", "-e", "KEY=***"]"#,
        r#""env": { "ANY": "***", "NUMBER": "***" }"#,
        r#""--", "y", "https://h/?key=***", "--header", "X: ***"]"#,
        r#""history": ["***"],"#,
    ] {
        assert!(diff.contains(shown), "{shown}\n{diff}");
    }
}
