//! Full disks, and files that cannot or should not be written: the old content stays, and no temporary file is left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use testkit::leash::Answer;
use testkit::note;

use crate::Home;

/// Large enough to matter on a disk of 64 KiB.
fn text() -> String {
    let lines: Vec<String> = (0..1000).map(|number| format!("    \"line {number}\"")).collect();
    let server = r#""a": { "command": "npx", "args": ["x"] }"#;
    format!("{{\n  \"history\": [\n{}\n  ],\n  \"mcpServers\": {{ {server} }}\n}}\n", lines.join(",\n"))
}

/// Runs a script where `disk` is a small one; `$1` is leash. `None` if only root could make such a disk.
fn on_a_small_disk(home: &Home, script: &str) -> Option<Answer> {
    if !rustix::process::geteuid().is_root() {
        note("skipped: only root can mount a small disk");
        return None;
    }
    fs::create_dir(home.path("disk")).expect("a directory");
    let script = format!("fill() {{ head -c 1M /dev/zero > disk/ballast; }} 2> /dev/null\n{script}");
    let mut command = home.scene.zoo(["ns", "--tmpfs", "disk", "--", "sh", "-c", &script, "sh"]);
    Some(command.arg(home.scene.leash_path()).output().expect("cannot start it").into())
}

#[test]
fn a_full_disk_under_the_file() {
    let home = Home::new();
    home.put("before", &text());
    std::os::unix::fs::symlink("disk/it", home.path(".claude.json")).expect("a link");
    let script = r#"
        cp before disk/it; fill
        "$1" adopt --yes --leash leash > /dev/null; echo "adopt: $?"
        cmp before disk/it && ls -A disk state/leash/adopt
        rm disk/ballast
        "$1" adopt --yes --leash leash > /dev/null; echo "adopt: $?"
        cp disk/it adopted; fill
        "$1" release --yes > /dev/null; echo "release: $?"
        cmp adopted disk/it && ls -A disk
        rm disk/ballast
        "$1" release --yes > /dev/null; echo "release: $?"
        cmp before disk/it && ls -A disk state/leash/adopt
    "#;
    let Some(answer) = on_a_small_disk(&home, script) else { return };
    let full = "disk:\nballast\nit\n\nstate/leash/adopt:\n.lock\n";
    let said =
        format!("adopt: 1\n{full}adopt: 0\nrelease: 1\nballast\nit\nrelease: 0\n{}", full.replace("ballast\n", ""));
    assert_eq!(answer.stdout, said, "{answer:?}");
    let hint = "hint: make room on the disk and try again; the file is as it was";
    assert_eq!(answer.stderr.matches(hint).count(), 2, "{}", answer.stderr);
    assert!(answer.stderr.contains("\nno server was put on the leash\n"), "{}", answer.stderr);
    assert!(answer.stderr.contains("\nnothing was taken off the leash\n"), "{}", answer.stderr);
}

/// Without space for the copy of the old file, the file is not changed. Without space to record the release, it is
/// released all the same.
#[test]
fn a_full_disk_under_the_copy() {
    let home = Home::new();
    home.put("before", &text());
    home.put(".claude.json", &text());
    let script = r#"
        export XDG_STATE_HOME="$PWD/disk"
        mkdir -p disk/leash/adopt; fill
        "$1" adopt --yes --leash leash > /dev/null; echo "adopt: $?"
        cmp before .claude.json && ls -A disk/leash/adopt
        rm disk/ballast
        "$1" adopt --yes --leash leash > /dev/null; echo "adopt: $?"
        fill
        "$1" release --yes > /dev/null; echo "release: $?"
        cmp before .claude.json && ls -A disk/leash/adopt
    "#;
    let Some(answer) = on_a_small_disk(&home, script) else { return };
    assert_eq!(answer.stdout, "adopt: 1\n.lock\nadopt: 0\nrelease: 0\n.lock\n", "{answer:?}");
    assert!(answer.stderr.contains("hint: make room on the disk of XDG_STATE_HOME"), "{}", answer.stderr);
}

/// A file that no user may write is read-only on purpose.
#[test]
fn a_read_only_file_is_refused() {
    let home = Home::new();
    home.put(".claude.json", &text());
    let mode = |mode| fs::set_permissions(home.path(".claude.json"), fs::Permissions::from_mode(mode)).expect("it");
    mode(0o444);
    let answer = home.leash(&["adopt", "--yes", "--leash", "leash"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("is read-only\n") && answer.stderr.contains("(chmod u+w)"), "{answer:?}");
    assert_eq!(home.text(".claude.json"), text());
    mode(0o600);
    home.adopt(&[]);
    mode(0o400);
    let adopted = home.text(".claude.json");
    assert_eq!(home.leash(&["release", "--yes"]).code, 1);
    assert_eq!(home.text(".claude.json"), adopted);
    mode(0o640);
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".claude.json"), text());
}

/// leash does not wait for a pipe without a writer.
#[test]
fn pipe_is_refused() {
    let home = Home::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, home.path(".claude.json"), fifo, mode, 0).expect("a pipe");
    let answer = home.leash(&["adopt", "--yes"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("it can't be read: it is not a regular file"), "{answer:?}");
}

/// Files without servers, as editors and clients leave them.
#[test]
fn empty_files_are_left_alone() {
    for text in ["", "\n", " \r\n", "\u{feff}", "null", "{}", "[]", r#"{"mcpServers": null}"#, r#"{"mcpServers": {}}"#]
    {
        let home = Home::new();
        for path in
            [".claude.json", ".cursor/mcp.json", ".config/zed/settings.json", ".codeium/windsurf/mcp_config.json"]
        {
            home.put(path, text);
        }
        let is_json = text.contains(['{', '[', 'n']);
        home.put(".codex/config.toml", if is_json { "mcp_servers = {}\n" } else { text });
        home.put(".config/goose/config.yaml", if is_json { "extensions:\n" } else { text });
        let answer = home.adopt(&["--all"]);
        assert_eq!(
            answer.stderr, "nothing to do: leash found no MCP server in the configuration files of MCP clients\n",
            "{text:?}"
        );
        assert_eq!(home.text(".claude.json"), text);
        assert!(!home.path("state/leash/adopt").exists(), "{text:?}");
    }
}
