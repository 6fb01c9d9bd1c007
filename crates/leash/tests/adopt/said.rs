//! The output for people and programs, and the check that nothing is written without consent.

use std::process::Stdio;

use expect_test::{Expect, expect};
use testkit::or_skip;
use testkit::pty::Pty;
use testkit::user::{User, Who};
use testkit::wait::LIMIT;

use crate::Home;

const TEXT: &str =
    "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" },\n    \"b\": { \"url\": \"https://h/mcp\" }\n  }\n}\n";

fn home() -> Home {
    let home = Home::new();
    home.put(".cursor/mcp.json", TEXT);
    home
}

#[track_caller]
fn check(home: &Home, words: &[&str], expected: &Expect) {
    expected.assert_eq(&home.scene.transcript(words));
}

#[test]
fn without_a_terminal_nothing_is_written() {
    let home = home();
    check(
        &home,
        &["adopt", "--leash", "leash"],
        &expect![[r#"
        $ leash adopt --leash leash
        --- DIR/.cursor/mcp.json
        +++ DIR/.cursor/mcp.json
        @@ -1,6 +1,6 @@
         {
           "mcpServers": {
        -    "a": { "command": "x" },
        +    "a": { "command": "leash", "args": ["run", "--name=a", "--", "x"] },
             "b": { "url": "https://h/mcp" }
           }
         }
        Cursor: `b` is left alone: it is an HTTP server (add --server b, or --all for every HTTP server)
        1 server in 1 file would be put on the leash; nothing was written: --yes writes the changes
        [0]
    "#]],
    );
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
    assert!(!home.path("state/leash/adopt").exists());
    home.adopt(&[]);
    let adopted = home.text(".cursor/mcp.json");
    check(
        &home,
        &["release"],
        &expect![[r#"
        $ leash release
        --- DIR/.cursor/mcp.json
        +++ DIR/.cursor/mcp.json
        @@ -1,6 +1,6 @@
         {
           "mcpServers": {
        -    "a": { "command": "leash", "args": ["run", "--name=a", "--", "x"] },
        +    "a": { "command": "x" },
             "b": { "url": "https://h/mcp" }
           }
         }
        1 server in 1 file would be taken off the leash; nothing was written: --yes writes the changes
        [0]
    "#]],
    );
    assert_eq!(home.text(".cursor/mcp.json"), adopted);
    check(
        &home,
        &["release", "--yes"],
        &expect![[r#"
        $ leash release --yes
        --- DIR/.cursor/mcp.json
        +++ DIR/.cursor/mcp.json
        @@ -1,6 +1,6 @@
         {
           "mcpServers": {
        -    "a": { "command": "leash", "args": ["run", "--name=a", "--", "x"] },
        +    "a": { "command": "x" },
             "b": { "url": "https://h/mcp" }
           }
         }
        1 server in 1 file taken off the leash; restart Cursor
        [0]
    "#]],
    );
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
}

#[test]
fn programs_get_json() {
    let home = home();
    let plan = home.well(&["adopt", "--json", "--leash", "leash"]).json();
    let file = &plan["files"][0];
    assert_eq!((&plan["version"], &file["client"], &file["scope"]), (&1.into(), &"cursor".into(), &"user".into()));
    assert_eq!((&file["adopted"], &file["written"]), (&serde_json::json!(["a"]), &false.into()));
    assert_eq!((&file["left"][0]["server"], &file["left"][0]["why"]), (&"b".into(), &"it is an HTTP server".into()));
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
    let done = home.well(&["adopt", "--json", "--yes", "--leash", "leash"]).json();
    assert_eq!(done["files"][0]["written"], true);
    assert_ne!(home.text(".cursor/mcp.json"), TEXT);
    let released = home.well(&["release", "--json", "--yes"]).json();
    assert_eq!(
        released["files"][0]["servers"][0],
        serde_json::json!({"server": "a", "outcome": "released", "why": null})
    );
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
}

/// A diff hides secrets, so it is not meant for `patch`; but it has the format, and this file has no secrets.
#[test]
fn the_diff_of_a_file_without_secrets_can_be_applied_by_others() {
    let home = home();
    let diff = home.well(&["adopt", "--diff", "--leash", "leash"]).stdout;
    home.adopt(&[]);
    let adopted = home.text(".cursor/mcp.json");
    home.well(&["release", "--yes"]);
    home.put("change.patch", &diff);
    // git is available where this repository is.
    let mut git = home.scene.command("git");
    git.args(["apply", "--unsafe-paths", "-p1"]).arg(home.path("change.patch")).current_dir("/");
    let applied = git.output().expect("cannot start git");
    assert!(applied.status.success(), "{applied:?}\n{diff}");
    assert_eq!(home.text(".cursor/mcp.json"), adopted);
}

#[track_caller]
fn check_answer(answer: &str, written: bool) {
    let home = home();
    let pty = Pty::open().expect("a terminal");
    let end = || Stdio::from(pty.terminal().expect("its other side"));
    let mut command = home.scene.leash(["adopt", "--leash", "leash"]);
    command.stdin(end()).stdout(Stdio::null()).stderr(end());
    let mut child = command.spawn().expect("cannot start leash");
    drop(command);
    pty.wait_shown("Write these changes? [y/N]", 1).expect("it asks");
    pty.enter(answer).expect("it is typed");
    let gone = testkit::wait::within(LIMIT, || child.try_wait().expect("it is ours"));
    assert!(gone.expect("it ends").success());
    assert_eq!(home.text(".cursor/mcp.json") != TEXT, written, "{answer:?}");
}

#[test]
fn at_a_terminal_it_asks() {
    check_answer("y\n", true);
    check_answer("\n", false);
    check_answer("nope\n", false);
}

#[test]
fn mistakes_on_the_command_line() {
    let home = home();
    check(
        &home,
        &["adopt", "emacs"],
        &expect![[r#"
        $ leash adopt emacs
        error: there is no client `emacs`

        hint: known clients: claude-code, claude-desktop, cursor, vscode, vscode-insiders, windsurf, codex, gemini, copilot, opencode, zed, goose, cline
        [2]
    "#]],
    );
    check(
        &home,
        &["adopt", "--leash", "/opt/other"],
        &expect![[r#"
        $ leash adopt --leash /opt/other
        error: invalid value '/opt/other' for '--leash <PATH>': write leash, or an absolute path that ends in /leash

        hint: `leash adopt --help` explains the command and its options
        [2]
    "#]],
    );
    assert_eq!(home.text(".cursor/mcp.json"), TEXT);
}

#[test]
fn help() {
    let home = Home::new();
    check(
        &home,
        &["adopt", "--help"],
        &expect![[r#"
            $ leash adopt --help
            Put the servers of MCP clients on the leash, in their own configurations

            Finds the configurations of Claude Code, Claude Desktop, Cursor, VS Code,
            Windsurf, Codex CLI, Gemini CLI, Copilot CLI, opencode, Zed, goose and Cline,
            and shows what would change: stdio servers get `leash run` in front of their
            command. Comments, order and layout stay. HTTP servers become `leash connect`
            where asked for. `leash release` undoes it.

            What is shown hides secrets (***); the files are written complete. Nothing is
            written without --yes or a yes at the terminal. The exit code is 1 when a file
            could not be read or changed, and 2 when a client, a server, a directory or a
            program that was named is not there.

            Usage: leash adopt [OPTIONS] [CLIENT]...

            Arguments:
              [CLIENT]...
                      Only these clients, such as claude-code, cursor or codex [default: all
                      that are found]

            Options:
                  --server <NAME>
                      Only the server of this name, also if it is an HTTP server; may be
                      repeated

                  --all
                      HTTP servers as well

                      A client that signs in to an HTTP server by itself (OAuth) can't do so
                      with leash in between.

                  --project <DIR>
                      Also the files of the project in this directory, which others may
                      share; may be repeated

                  --leash <PATH>
                      The command with which clients start leash [default: its path; its
                      name in the files of a project]

                  --yes
                      Write the changes without asking

                  --diff
                      Only show the changes, and ask nothing

                  --json
                      Print JSON

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
    check(
        &home,
        &["release", "--help"],
        &expect![[r#"
            $ leash release --help
            Undo what `leash adopt` did

            If a file was not changed since, leash restores it byte by byte. Otherwise leash
            restores each entry that it changed and keeps everything else; it reports the
            entries that it can't restore safely and does not touch them.

            What is shown hides secrets (***). Nothing is written without --yes or a yes at
            the terminal. The exit code is 1 when something could not be undone, and 2 when
            a server that was named is not adopted.

            Usage: leash release [OPTIONS] [CLIENT]...

            Arguments:
              [CLIENT]...
                      Only these clients [default: all]

            Options:
                  --server <NAME>
                      Only the server of this name; may be repeated

                  --yes
                      Write the changes without asking

                  --diff
                      Only show the changes, and ask nothing

                  --json
                      Print JSON

                  --color <WHEN>
                      Use colours: auto (on a terminal), always or never [default: auto]

              -h, --help
                      Print help (see a summary with '-h')
            [0]
        "#]],
    );
}

/// A client that was not restarted yet has started no server with leash.
#[test]
fn an_empty_ps_names_the_clients_to_restart() {
    // Only root can act as a user without other processes.
    or_skip!(User::find(Who::Root));
    let home = Home::of(Who::User).expect("root can run as any user");
    home.put(".cursor/mcp.json", TEXT);
    let ps = || home.leash(&["ps"]).stdout;
    assert!(ps().starts_with("No MCP server runs here.\n`leash adopt` puts"), "{}", ps());
    assert_eq!(home.leash(&["adopt", "--leash", "leash", "--yes"]).code, 0);
    assert_eq!(ps(), "No MCP server runs here.\nRestart Cursor; then `leash ps` shows its servers.\n");
}

/// The backups are in the order of time, and those of one `adopt` in none.
#[test]
fn release_shows_the_clients_in_the_order_of_adopt() {
    let home = home();
    home.put(".gemini/settings.json", TEXT);
    for client in ["gemini", "cursor"] {
        home.well(&["adopt", "--yes", "--leash", "leash", client]);
    }
    let released = home.well(&["release", "--yes"]);
    let end = "2 servers in 2 files taken off the leash; restart Cursor and Gemini CLI\n";
    assert!(released.stderr.ends_with(end), "{released:?}");
}
