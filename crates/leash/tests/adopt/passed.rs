//! Files that `adopt` passes over, its warnings, names on the command line that do not exist, and the last lines.

use expect_test::{Expect, expect};

use crate::Home;

fn servers(entries: &str) -> String {
    format!("{{\"mcpServers\": {{{entries}}}}}\n")
}

/// Compares the messages, without the diff.
#[track_caller]
fn check(home: &Home, words: &[&str], expected: &Expect) {
    let answer = home.leash(words);
    let dir = home.scene.dir().display().to_string();
    expected.assert_eq(&format!("{}[{}]\n", answer.stderr.replace(&dir, "DIR"), answer.code));
}

#[test]
fn a_project_file_in_this_directory_is_named() {
    let home = Home::new();
    home.put(".cursor/mcp.json", &servers(r#""a": {"command": "x"}"#));
    home.put(".mcp.json", &servers(r#""b": {"command": "x"}, "c": {"command": "y"}, "d": {"url": "https://h/mcp"}"#));
    // Nothing in it could be put on the leash.
    home.put(".vscode/mcp.json", r#"{"servers": {"e": {"url": "https://h/mcp"}}}"#);
    check(
        &home,
        &["adopt", "--leash", "leash"],
        &expect![[r#"
            Claude Code: 2 servers in DIR/.mcp.json are left alone: the file belongs to the project in this directory, and others may share it (add --project .)
            1 server in 1 file would be put on the leash; nothing was written: --yes writes the changes
            [0]
        "#]],
    );
    let json = home.well(&["adopt", "--json", "--leash", "leash"]).json();
    assert_eq!(json["passed_over"][0]["servers"], serde_json::json!(["b", "c"]));
    assert_eq!(json["passed_over"][0]["hint"], "add --project .");
    let json = home.well(&["adopt", "--json", "--leash", "leash", "--project", "."]).json();
    assert_eq!(json["passed_over"], serde_json::json!([]));
}

/// The user did not ask for it.
#[test]
fn a_project_file_that_cannot_be_read_is_ignored() {
    let home = Home::new();
    home.put(".cursor/mcp.json", &servers(r#""a": {"command": "x"}"#));
    std::fs::create_dir(home.path(".mcp.json")).expect("a directory");
    home.put(".vscode/mcp.json", "{");
    home.adopt(&[]);
}

#[test]
fn clients_to_restart_are_named() {
    let home = Home::new();
    home.put(".cursor/mcp.json", &servers(r#""a": {"command": "x"}"#));
    let end = |home: &Home, words: &[&str]| home.well(words).stderr.lines().last().unwrap_or_default().to_owned();
    assert_eq!(end(&home, &["adopt", "--yes"]), "restart Cursor; then `leash ps` shows its servers");
    home.put(".claude.json", &servers(r#""a": {"command": "x"}"#));
    home.put(".gemini/settings.json", &servers(r#""a": {"command": "x"}"#));
    assert_eq!(
        end(&home, &["adopt", "--yes"]),
        "restart Claude Code and Gemini CLI; then `leash ps` shows their servers"
    );
    assert_eq!(
        end(&home, &["release", "--yes"]),
        "3 servers in 3 files taken off the leash; restart Claude Code, Cursor and Gemini CLI"
    );
}

#[test]
fn a_second_run_says_why_there_is_nothing_to_do() {
    let home = Home::new();
    let entries = r#""a": {"command": "x"}, "b": {"command": "y"}, "c": {"url": "https://h/mcp"}, "d": {"command": "x", "disabled": true}"#;
    home.put(".cursor/mcp.json", &servers(entries));
    home.put(".mcp.json", &servers(r#""e": {"command": "x"}"#));
    home.adopt(&[]);
    check(
        &home,
        &["adopt"],
        &expect![[r#"
            Cursor: `c` is left alone: it is an HTTP server (add --server c, or --all for every HTTP server)
            Cursor: `d` is left alone: it is disabled
            Claude Code: 1 server in DIR/.mcp.json is left alone: the file belongs to the project in this directory, and others may share it (add --project .)
            nothing to do: 2 servers on the leash already, 3 left alone (why: 1 over HTTP, 1 disabled, 1 in a project's file)
            [0]
        "#]],
    );
}

#[test]
fn without_a_configuration_there_is_nothing_to_do() {
    check(
        &Home::new(),
        &["adopt"],
        &expect![[r#"
            nothing to do: leash found no MCP server in the configuration files of MCP clients
            [0]
        "#]],
    );
}

#[test]
fn changes_for_sign_in_and_containers_are_warned_about() {
    let home = Home::new();
    let entries = r#""git": {"command": "docker", "args": ["run", "-i", "x"]}, "pod": {"command": "podman", "args": ["run", "x"]},
        "web": {"url": "https://h/mcp"}, "key": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${T}"}}"#;
    home.put(".claude.json", &servers(entries));
    check(
        &home,
        &["adopt", "--leash", "leash", "--all"],
        &expect![[r#"
            warning: Claude Code: `git`: a daemon runs its container: leash ends the command, but can't check that the container is gone (keep `-i --rm` in its arguments)
            warning: Claude Code: `pod`: podman's own processes are in its tree: leash ends them with it, also the pause process that other containers of yours may need
            warning: Claude Code: `web`: it goes through `leash connect`, where the client can't sign in (OAuth); if it must, `leash release --server web` undoes it
            4 servers in 1 file would be put on the leash; nothing was written: --yes writes the changes
            [0]
        "#]],
    );
    let json = home.well(&["adopt", "--json", "--leash", "leash"]).json();
    assert_eq!(json["files"][0]["warnings"][0]["server"], "git");
}

/// Each of these is an error, and nothing is written.
#[test]
fn names_that_do_not_exist_are_errors() {
    let home = Home::new();
    let text = servers(r#""everything": {"command": "x"}"#);
    home.put(".cursor/mcp.json", &text);
    home.put(".mcp.json", &servers(r#""here": {"command": "x"}"#));
    for (words, error, hint) in [
        (&["--server", "evrything"][..], "there is no server `evrything`", "did you mean `everything`?"),
        (&["--server", "nothing-like-it"], "there is no server `nothing-like-it`", "the servers are everything"),
        (&["--server", "here"], "there is no server `here`", "it is in DIR/.mcp.json: add --project ."),
        (&["zed"], "Zed has no configuration file here", "leash looked for ~/.config/zed/settings.json"),
        (&["claude-code"], "Claude Code has no configuration file here", "it is in DIR/.mcp.json: add --project ."),
        (
            &["--project", "nowhere"],
            "there is no directory `nowhere`",
            "name the directory of a project with --project",
        ),
        (
            &["--leash", "/nowhere/leash"],
            "there is no program `/nowhere/leash`",
            "name the program that clients shall start, or leave --leash out",
        ),
    ] {
        let answer = home.leash(&[&["adopt", "--yes"], words].concat());
        let dir = home.scene.dir().display().to_string();
        let said = answer.stderr.replace(&dir, "DIR");
        assert_eq!(
            (said.as_str(), answer.code),
            (format!("error: {error}\n\nhint: {hint}\n").as_str(), 2),
            "{words:?}"
        );
        assert_eq!(home.text(".cursor/mcp.json"), text);
    }
    home.adopt(&["--server", "here", "--project", "."]);
    let answer = home.leash(&["release", "--yes", "--server", "her"]);
    let expected = "error: leash has not adopted a server `her`\n\nhint: did you mean `here`?\n";
    assert_eq!((answer.stderr.as_str(), answer.code), (expected, 2));
    assert!(home.text(".mcp.json").contains("--name=here"));
}
