//! `adopt` followed by `release` restores every file exactly, for every client and every way of writing.

use std::fs;
use std::os::unix::fs::symlink;

use expect_test::expect_file;
use serde_json::Value;

use crate::Home;
use crate::corpus::{SAMPLES, Sample, WAYS, Way};

fn furnished(way: Way) -> Home {
    let home = Home::new();
    SAMPLES.iter().for_each(|sample| home.put(sample.path, &sample.written(way)));
    home
}

fn options(all: bool) -> Vec<&'static str> {
    let mut words = vec!["--project", "p"];
    words.extend(all.then_some("--all"));
    words
}

#[track_caller]
fn check_there_and_back(way: Way, all: bool) {
    let home = furnished(way);
    home.adopt(&options(all));
    for sample in SAMPLES {
        let text = home.text(sample.path);
        let leashed = text.matches("--name=").count();
        let wanted = if all { sample.servers.1 } else { sample.servers.0 };
        assert_eq!(leashed, wanted, "{way:?} {}:\n{text}", sample.path);
        check_layout(way, sample, &text);
    }
    home.well(&["release", "--yes"]);
    for sample in SAMPLES {
        assert_eq!(home.text(sample.path), sample.written(way), "{way:?} {}", sample.path);
    }
    let kept: Vec<_> = fs::read_dir(home.path("state/leash/adopt")).expect("it was used").flatten().collect();
    assert_eq!(kept.len(), 1, "only the lock is left: {kept:?}");
}

/// Checks that the text that leash adds is formatted like the rest.
#[track_caller]
fn check_layout(way: Way, sample: &Sample, text: &str) {
    match way {
        Way::Crlf => assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{}:\n{text}", sample.path),
        Way::NoLastNewline => assert!(!text.ends_with('\n'), "{}", sample.path),
        Way::Mark => assert!(text.starts_with('\u{feff}'), "{}", sample.path),
        Way::Tabs if !sample.path.ends_with(".yaml") => {
            assert!(!text.contains("\n  "), "{}:\n{text}", sample.path);
        }
        Way::Plain | Way::Tabs | Way::Blank => {}
    }
}

#[test]
fn every_client_has_a_sample() {
    let home = furnished(Way::Plain);
    let plan = home.well(&["adopt", "--json", "--project", "p"]).json();
    for client in leash_orphans::clients::CLIENTS {
        let samples = SAMPLES.iter().filter(|sample| sample.client == client.id).count();
        let found = plan["files"].as_array().expect("a list").iter().filter(|file| file["client"] == client.id).count();
        assert!(samples > 0 && samples == found, "{}: {samples} samples, {found} found", client.id);
    }
}

#[test]
fn every_client_in_every_way() {
    WAYS.iter().for_each(|way| check_there_and_back(*way, false));
}

#[test]
fn every_client_in_every_way_with_http_servers() {
    WAYS.iter().for_each(|way| check_there_and_back(*way, true));
}

#[test]
fn one_line_without_blanks() {
    let home = Home::new();
    let text = r#"{"mcpServers":{"a":{"command":"x"},"b":{"args":["y"],"command":"x"},"c":{"url":"https://h/mcp"}}}"#;
    home.put(".claude.json", text);
    home.adopt(&["--all"]);
    let now: Value = serde_json::from_str(&home.text(".claude.json")).expect("it is still JSON");
    let words = |name: &str| now["mcpServers"][name]["args"].to_string();
    let session = "--session-env=CLAUDE_CODE_SESSION_ID";
    assert_eq!(words("a"), format!(r#"["run","{session}","--name=a","--","x"]"#));
    assert_eq!(words("b"), format!(r#"["run","{session}","--name=b","--","x","y"]"#));
    assert_eq!(words("c"), format!(r#"["connect","{session}","--name=c","https://h/mcp"]"#));
    home.well(&["release", "--yes"]);
    assert_eq!(home.text(".claude.json"), text);
}

/// The changes to the whole corpus, for review.
#[test]
fn changes_to_the_corpus_match_the_stored_diff() {
    let home = furnished(Way::Plain);
    let answer = home.well(&["adopt", "--diff", "--all", "--project", "p", "--leash", "leash"]);
    let dir = home.scene.dir().display().to_string();
    expect_file!["corpus/all.diff"].assert_eq(&answer.stdout.replace(&dir, "~"));
}

#[test]
fn second_adopt_changes_nothing() {
    let home = furnished(Way::Plain);
    home.adopt(&options(true));
    let once: Vec<String> = SAMPLES.iter().map(|sample| home.text(sample.path)).collect();
    let again = home.adopt(&options(true));
    assert_eq!(again.stdout, "");
    let servers: usize = SAMPLES.iter().map(|sample| sample.servers.1).sum();
    let summary = format!("nothing to do: {servers} servers on the leash already, 5 left alone (why: ");
    assert!(again.stderr.lines().last().is_some_and(|last| last.starts_with(&summary)), "{}", again.stderr);
    let twice: Vec<String> = SAMPLES.iter().map(|sample| home.text(sample.path)).collect();
    assert_eq!(once, twice);
    home.well(&["release", "--yes"]);
    SAMPLES.iter().for_each(|sample| assert_eq!(home.text(sample.path), sample.text, "{}", sample.path));
    let nothing = home.well(&["release", "--yes"]);
    assert_eq!(
        (nothing.stdout.as_str(), nothing.stderr.as_str()),
        ("", "nothing to do: leash has adopted nothing here\n")
    );
}

#[test]
fn a_link_stays_a_link_and_is_changed_once() {
    let home = Home::new();
    let sample = &SAMPLES[3];
    home.put("dotfiles/mcp.json", sample.text);
    home.put(".cursor/other", "");
    symlink("../dotfiles/mcp.json", home.path(".cursor/mcp.json")).expect("a link");
    // Another client with the same format shares the file.
    fs::create_dir_all(home.path(".codeium/windsurf")).expect("a directory");
    symlink(home.path("dotfiles/mcp.json"), home.path(".codeium/windsurf/mcp_config.json")).expect("a link");
    let answer = home.adopt(&[]);
    assert!(answer.stderr.contains("it is the same file as"), "{}", answer.stderr);
    assert!(fs::symlink_metadata(home.path(".cursor/mcp.json")).expect("there").is_symlink());
    assert_ne!(home.text("dotfiles/mcp.json"), sample.text);
    home.well(&["release", "--yes"]);
    assert_eq!(home.text("dotfiles/mcp.json"), sample.text);
    assert!(fs::symlink_metadata(home.path(".cursor/mcp.json")).expect("there").is_symlink());
}
