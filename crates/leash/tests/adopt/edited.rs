//! Files that were edited between `adopt` and `release`: only leash's own changes are undone.

use std::fs;

use crate::Home;
use crate::corpus::SAMPLES;

const ONE: &str = r#"{
  "mcpServers": {
    "a": {
      "command": "npx",
      "args": [
        "-y",
        "x"
      ]
    },
    "b": { "command": "plain" }
  }
}
"#;

/// Puts `text` on the leash, lets `edit` change the file, and releases it.
#[track_caller]
fn check(text: &str, edit: impl Fn(&str) -> String, expected: &str) {
    let home = Home::new();
    home.put(".claude.json", text);
    home.adopt(&["--all"]);
    let adopted = home.text(".claude.json");
    let edited = edit(&adopted);
    assert_ne!(edited, adopted, "the edit is none");
    home.put(".claude.json", &edited);
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".claude.json"), expected);
}

#[test]
fn additions_elsewhere_are_kept() {
    let add = |text: &str| {
        text.replace(
            "\"mcpServers\": {",
            "\"theme\": \"dark\",\n  \"mcpServers\": {\n    \"new\": {\"url\": \"http://h\"},",
        )
    };
    check(ONE, add, &add(ONE));
}

#[test]
fn reformatted_file_keeps_its_new_layout() {
    let wider = |text: &str| text.replace("  ", "    ");
    check(ONE, wider, &wider(ONE));
    let sample = &SAMPLES[0];
    let home = Home::new();
    home.put(".claude.json", sample.text);
    home.adopt(&[]);
    home.put(".claude.json", &wider(&home.text(".claude.json")));
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".claude.json"), wider(sample.text));
}

#[test]
fn other_edits_are_kept_for_every_client() {
    let home = Home::new();
    let touch = |path: &str, text: &str| match path.rsplit('.').next() {
        Some("toml" | "yaml") => format!("# touched\n{text}"),
        _ => text.replacen('{', "{\n  \"touched\": true,", 1),
    };
    SAMPLES.iter().for_each(|sample| home.put(sample.path, sample.text));
    home.adopt(&["--all", "--project", "p"]);
    SAMPLES.iter().for_each(|sample| home.put(sample.path, &touch(sample.path, &home.text(sample.path))));
    home.well(&["release", "--yes"]);
    for sample in SAMPLES {
        assert_eq!(home.text(sample.path), touch(sample.path, sample.text), "{}", sample.path);
    }
}

#[test]
fn words_and_variables_added_to_an_entry_stay() {
    let edit = |text: &str| {
        text.replace("\"x\"\n", "\"x\",\n        \"--more\"\n")
            .replace("\"b\": { ", "\"b\": { \"env\": {\"K\": \"v\"}, ")
    };
    check(ONE, edit, &edit(ONE));
}

#[test]
fn a_renamed_entry_is_found() {
    let rename = |text: &str| text.replace("\"a\": {", "\"renamed\": {");
    check(ONE, rename, &rename(ONE));
}

#[test]
fn removed_entry_is_reported() {
    let home = Home::new();
    home.put(".claude.json", ONE);
    home.adopt(&[]);
    home.put(".claude.json", "{\"mcpServers\": {}}\n");
    let answer = home.well(&["release", "--yes"]);
    assert!(answer.stderr.contains("`a` is not on the leash any more"), "{}", answer.stderr);
    assert_eq!(home.text(".claude.json"), "{\"mcpServers\": {}}\n");
    assert_eq!(home.well(&["release", "--yes"]).stderr, "nothing to do: leash has adopted nothing here\n");
}

#[test]
fn removed_file_is_reported() {
    let home = Home::new();
    home.put(".claude.json", ONE);
    home.adopt(&[]);
    fs::remove_file(home.path(".claude.json")).expect("it was there");
    let answer = home.well(&["release", "--yes"]);
    assert!(answer.stderr.contains("the file is gone, there is nothing to undo"), "{}", answer.stderr);
    assert!(!home.path(".claude.json").exists());
    assert_eq!(home.well(&["release", "--yes"]).stderr, "nothing to do: leash has adopted nothing here\n");
}

#[test]
fn leashs_own_words_changed_by_hand_are_refused_with_a_hint() {
    let home = Home::new();
    home.put(".claude.json", ONE);
    home.adopt(&[]);
    let edited = home.text(".claude.json").replace("\"--name=a\"", "\"--grace=5s\"");
    home.put(".claude.json", &edited);
    let answer = home.leash(&["release", "--yes"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("`a`: its entry was changed since"), "{}", answer.stderr);
    let (_, kept) = answer.stderr.split_once("the old text is in ").expect("a hint");
    assert_eq!(fs::read_to_string(kept.lines().next().expect("a path")).expect("readable"), ONE);
    // The other server is released all the same, and this one can be released once its entry is repaired.
    assert!(home.text(".claude.json").contains("\"b\": { \"command\": \"plain\" }"));
    home.put(".claude.json", &home.text(".claude.json").replace("\"--grace=5s\"", "\"--name=a\""));
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".claude.json"), ONE);
}

#[test]
fn an_http_server_changed_by_hand_is_refused() {
    let home = Home::new();
    home.put(".claude.json", "{\"mcpServers\": {\"w\": {\"type\": \"http\", \"url\": \"https://h/mcp\"}}}\n");
    home.adopt(&["--server", "w"]);
    let edited = home.text(".claude.json").replace("https://h/mcp", "https://other/mcp");
    home.put(".claude.json", &edited);
    let answer = home.leash(&["release", "--yes"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert_eq!(home.text(".claude.json"), edited);
}

#[test]
fn a_file_that_cannot_be_read_any_more_is_left_alone() {
    let home = Home::new();
    home.put(".claude.json", ONE);
    home.adopt(&[]);
    home.put(".claude.json", "{ broken");
    let answer = home.leash(&["release", "--yes"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("leash can't parse the file any more"), "{}", answer.stderr);
    assert_eq!(home.text(".claude.json"), "{ broken");
}

#[test]
fn servers_added_later_are_adopted_later_and_all_are_released() {
    let home = Home::new();
    let add =
        |text: &str| text.replace("\"mcpServers\": {", "\"mcpServers\": {\n    \"late\": { \"command\": \"late\" },");
    home.put(".claude.json", ONE);
    home.adopt(&[]);
    home.put(".claude.json", &add(&home.text(".claude.json")));
    let answer = home.adopt(&[]);
    assert!(answer.stderr.contains("1 server in 1 file put on the leash"), "{}", answer.stderr);
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".claude.json"), add(ONE));
}

#[test]
fn servers_are_adopted_and_released_one_by_one() {
    let home = Home::new();
    home.put(".claude.json", ONE);
    home.adopt(&["--server", "a"]);
    home.adopt(&["--server", "b"]);
    home.well(&["release", "--yes", "--server", "a"]);
    assert!(home.text(".claude.json").contains("--name=b") && !home.text(".claude.json").contains("--name=a"));
    home.well(&["release", "--yes", "cursor"]);
    assert!(home.text(".claude.json").contains("--name=b"));
    home.well(&["release", "--yes", "claude-code"]);
    assert_eq!(home.text(".claude.json"), ONE);
}
