//! Entries and files that leash does not touch, and the messages about them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use testkit::or_skip;
use testkit::user::Who;

use crate::Home;

/// Checks that leash leaves everything in the file alone, with this reason for `a`.
#[track_caller]
fn check(path: &str, text: &str, why: &str) {
    let home = Home::new();
    home.put(path, text);
    let answer = home.adopt(&["--all"]);
    assert!(answer.stderr.contains(&format!("`a` is left alone: {why}")), "{text}: {}", answer.stderr);
    assert_eq!(home.text(path), text);
}

fn entry(entry: &str) -> String {
    format!("{{\"mcpServers\": {{\"a\": {entry}}}}}\n")
}

#[test]
fn leashed_entries_are_left_alone() {
    for text in [
        r#"{"command": "leash", "args": ["run", "--", "x"]}"#,
        r#"{"command": "/opt/bin/leash", "args": ["connect", "http://h"]}"#,
        r#"{"command": "env", "args": ["A=1", "leash", "run", "--", "x"]}"#,
    ] {
        let home = Home::new();
        home.put(".claude.json", &entry(text));
        let answer = home.adopt(&["--all"]);
        assert_eq!(answer.stderr, "nothing to do: 1 server on the leash already\n", "{text}");
        assert_eq!(home.text(".claude.json"), entry(text));
        let json = home.well(&["adopt", "--json"]).json();
        assert_eq!(json["files"][0]["left"][0]["why"], "it is on the leash already", "{text}");
    }
}

#[test]
fn disabled_and_unknown_entries_are_left_alone() {
    for (text, why) in [
        (r#"{"command": "x", "disabled": true}"#, "it is disabled"),
        (r#"{"command": "x", "enabled": false}"#, "it is disabled"),
        (r#"{"command": ["x", 1]}"#, "its command is not a list of strings"),
        (r#"{"command": "x", "args": "y z"}"#, "its arguments are not a list of strings"),
        (r#"{"command": "x", "command": "y"}"#, "`command` is written twice in it"),
        (r#"{"command": "x", "url": "http://h"}"#, "it has both a command and an address"),
        (r#"{"kind": "magic"}"#, "it has neither a command nor an address"),
        ("\"x\"", "it is not a map"),
    ] {
        check(".claude.json", &entry(text), why);
    }
}

#[test]
fn entries_with_secrets_are_left_alone() {
    let hint = "(put it into a variable that the client expands, such as `Bearer ${TOKEN}`)";
    for (text, why) in [
        (
            r#"{"url": "https://h/mcp", "headers": {"Authorization": "Bearer sk-123"}}"#,
            "its header `Authorization` holds a secret",
        ),
        (
            r#"{"url": "https://h/mcp", "headers": {"Accept": "x", "X-Api-Key": "123"}}"#,
            "its header `X-Api-Key` holds a secret",
        ),
        (r#"{"url": "https://user:pw@h/mcp"}"#, "its address holds a secret"),
        (r#"{"url": "https://h/mcp?api_key=123"}"#, "its address holds a secret"),
        (r#"{"url": "https://h/sse/ab12cd34ef56ab12cd34ef56"}"#, "its address holds a secret"),
    ] {
        check(".claude.json", &entry(text), &format!("{why} {hint}"));
    }
}

#[test]
fn entries_that_need_the_client_are_left_alone() {
    for (path, text, why) in [
        (".claude.json", entry(r#"{"url": "https://${HOST}/mcp"}"#), "the client replaces variables in its address"),
        (
            ".claude.json",
            entry(r#"{"url": "https://h/mcp", "oauth": {"clientId": "x"}}"#),
            "the client signs in for it (`oauth`)",
        ),
        (
            ".cline/data/settings/cline_mcp_settings.json",
            entry(r#"{"url": "https://h/mcp", "headers": {"A": "${B}"}}"#),
            "its header `A` has variables that only the client replaces",
        ),
        (
            ".codex/config.toml",
            "[mcp_servers.a]\nurl = \"https://h/mcp\"\nenv_http_headers = { X = \"Y\" }\n".to_owned(),
            "its headers come from `env_http_headers`",
        ),
        (
            ".codex/config.toml",
            "mcp_servers.a.command = \"x\"\n".to_owned(),
            "it is written in a way that can't be changed safely",
        ),
    ] {
        check(path, &text, why);
    }
}

/// Clients interpret these differently. Behind leash they would be taken literally.
#[test]
fn commands_that_are_not_programs_are_left_alone() {
    let line = "its command is a whole command line, which the client may split";
    let tilde = "its command begins with `~`, which the client may replace";
    for (command, why) in
        [("npx -y server", line), ("/usr/bin/npx -y server", line), ("npx server", line), ("~/bin/server", tilde)]
    {
        check(".cursor/mcp.json", &entry(&format!(r#"{{"command": "{command}"}}"#)), why);
    }
    let home = Home::new();
    home.put(".cursor/mcp.json", &entry(r#"{"command": "/opt/My App/server"}"#));
    home.adopt(&[]);
    assert!(home.text(".cursor/mcp.json").contains(r#""--name=a", "--", "/opt/My App/server"]"#));
}

/// The client looks for leash in the PATH of the entry.
#[test]
fn a_path_of_its_own_needs_the_whole_path_of_leash() {
    let text = entry(r#"{"command": "x", "env": {"PATH": "/opt/x/bin"}}"#);
    let why = "its environment sets PATH, where `leash` may not be found (give the whole path of leash: --leash PATH)";
    check(".claude.json", &text, why);
    let home = Home::new();
    home.put(".claude.json", &text);
    let leash = home.scene.leash_path().display().to_string();
    home.well(&["adopt", "--yes", "--leash", &leash]);
    assert!(home.text(".claude.json").contains(&format!(r#""command": "{leash}""#)));
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".claude.json"), text);
}

#[test]
fn http_servers_need_an_option() {
    let home = Home::new();
    let text = entry(r#"{"type": "http", "url": "https://h/mcp"}"#);
    home.put(".claude.json", &text);
    let answer = home.adopt(&[]);
    let left = "`a` is left alone: it is an HTTP server (add --server a, or --all for every HTTP server)";
    assert!(answer.stderr.contains(left), "{}", answer.stderr);
    assert_eq!(home.text(".claude.json"), text);
    home.adopt(&["--server", "a"]);
    let session = "\"--session-env=CLAUDE_CODE_SESSION_ID\"";
    let args = format!("[\"connect\", {session}, \"--name=a\", \"--transport=http\", \"https://h/mcp\"]");
    assert_eq!(
        home.text(".claude.json"),
        entry(&format!(r#"{{"type": "stdio", "command": "leash", "args": {args}}}"#))
    );
}

#[test]
fn one_broken_file_does_not_stop_the_others() {
    let home = Home::new();
    home.put(".claude.json", "{ \"mcpServers\": { broken\n");
    home.put(".cursor/mcp.json", &entry(r#"{"command": "x"}"#));
    let answer = home.leash(&["adopt", "--yes", "--leash", "leash"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.stderr.contains(".claude.json: leash can't parse it: line 1: a key in quotes is expected"),
        "{answer:?}"
    );
    assert!(home.text(".cursor/mcp.json").contains("--name=a"));
    assert_eq!(home.text(".claude.json"), "{ \"mcpServers\": { broken\n");
}

#[test]
fn path_that_is_not_a_file_is_reported() {
    let home = Home::new();
    fs::create_dir_all(home.path(".claude.json")).expect("a directory");
    let answer = home.leash(&["adopt"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains(".claude.json: it can't be read: it is not a regular file"), "{answer:?}");
}

#[test]
fn files_of_plugins_and_projects_are_not_touched_unasked() {
    let home = Home::new();
    let text = entry(r#"{"command": "x"}"#);
    let plugin = ".claude/plugins/cache/market/tool/1.0/.mcp.json";
    home.put(plugin, &text);
    home.put(".mcp.json", &text);
    home.put(".vscode/mcp.json", &text);
    let answer = home.adopt(&[]);
    assert!(
        answer.stderr.contains("1.0/.mcp.json is left alone: the file belongs to a plugin's package"),
        "{answer:?}"
    );
    for path in [plugin, ".mcp.json", ".vscode/mcp.json"] {
        assert_eq!(home.text(path), text, "{path}");
    }
    home.adopt(&["--project", "."]);
    assert!(home.text(".mcp.json").contains("--name=a"));
}

#[test]
fn a_directory_that_cannot_be_written_is_a_clear_error() {
    let home = or_skip!(Home::of(Who::User));
    let text = entry(r#"{"command": "x"}"#);
    home.put(".cursor/mcp.json", &text);
    home.put(".claude.json", &text);
    let dir = home.path(".cursor");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o500)).expect("its mode");
    let answer = home.leash(&["adopt", "--yes", "--leash", "leash"]);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("its mode");
    assert_eq!(answer.code, 1, "{answer:?}");
    let error = format!("error: a new file can't be written in `{}`: Permission denied", dir.display());
    assert!(
        answer.stderr.contains(&error) && answer.stderr.contains("hint: make the directory writable"),
        "{answer:?}"
    );
    assert_eq!(home.text(".cursor/mcp.json"), text);
    // The other file is on the leash, and no copy is kept for this one.
    assert!(home.text(".claude.json").contains("--name=a"));
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".claude.json"), text);
    assert_eq!(home.well(&["release"]).stderr, "nothing to do: leash has adopted nothing here\n");
}

#[test]
fn a_file_with_two_names_is_refused() {
    let home = Home::new();
    let text = entry(r#"{"command": "x"}"#);
    home.put(".claude.json", &text);
    fs::hard_link(home.path(".claude.json"), home.path("other")).expect("a link");
    let answer = home.leash(&["adopt", "--yes", "--leash", "leash"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("has 2 names (hard links)"), "{answer:?}");
    assert_eq!(home.text("other"), text);
}

#[test]
fn without_a_place_for_the_copy_nothing_is_changed() {
    let home = Home::new();
    let text = entry(r#"{"command": "x"}"#);
    home.put(".claude.json", &text);
    home.put("state/leash/adopt", "a file where the directory should be");
    let answer = home.leash(&["adopt", "--yes", "--leash", "leash"]);
    assert_eq!(answer.code, 125, "{answer:?}");
    assert!(answer.stderr.contains("hint: check XDG_STATE_HOME"), "{answer:?}");
    assert_eq!(home.text(".claude.json"), text);
}
