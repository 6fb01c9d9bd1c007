//! Killed at any moment, leash leaves the old file or the new one, and a later `release` can undo everything.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use testkit::wait::{self, Deadline, LIMIT};

use crate::Home;

/// The number of kills in each direction.
const ROUNDS: u32 = 60;

/// A file of the size that Claude Code's can reach, so that writing it takes a while.
fn large() -> String {
    let history: Vec<String> =
        (0..20_000).map(|number| format!("    \"line {number}: {{}} [] , // no comment\"")).collect();
    format!(
        "{{\n  \"history\": [\n{}\n  ],\n  \"mcpServers\": {{\n    \"a\": {{ \"command\": \"npx\", \"args\": [\"x\"] }}\n  }}\n}}\n",
        history.join(",\n")
    )
}

fn start(home: &Home, words: &[&str]) -> Child {
    let mut command = home.scene.leash(words);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("cannot start leash")
}

/// The duration of a command that is not killed.
fn measured(home: &Home, words: &[&str]) -> Duration {
    let deadline = Deadline::after(LIMIT);
    home.well(words);
    LIMIT - deadline.left()
}

/// Runs a command and kills it after `delay`, unless it ended before.
fn killed_after(home: &Home, words: &[&str], delay: Duration) {
    let mut child = start(home, words);
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("it was not waited for");
    wait::ready(&pidfd, rustix::event::PollFlags::IN, delay);
    child.kill().expect("it was not waited for");
    child.wait().expect("it is ours");
}

#[test]
fn at_any_moment_the_file_is_whole() {
    let home = Home::new();
    let before = large();
    home.put(".claude.json", &before);
    let (adopt, release) = (["adopt", "--yes", "--leash", "leash"], ["release", "--yes"]);
    let took = measured(&home, &adopt);
    let after = home.text(".claude.json");
    assert_ne!(after, before);
    measured(&home, &release);
    let mut seen = [0, 0];
    for words in [&adopt[..], &release[..]] {
        for round in 0..ROUNDS {
            // Restores the initial state of the command, whatever the last kill has left.
            if words.len() == adopt.len() {
                home.well(&release)
            } else {
                home.well(&adopt)
            };
            killed_after(&home, words, took * 3 / 2 * round / ROUNDS);
            let now = home.text(".claude.json");
            match (now == before, now == after) {
                (true, false) => seen[0] += 1,
                (false, true) => seen[1] += 1,
                _ => panic!(
                    "{words:?} killed in round {round}: {} bytes of {} or {}",
                    now.len(),
                    before.len(),
                    after.len()
                ),
            }
        }
        home.well(&release);
        assert_eq!(home.text(".claude.json"), before, "{words:?}");
    }
    assert!(seen[0] > 0 && seen[1] > 0, "the kills came too early or too late: {seen:?}");
    // No temporary file is left beside the file or in leash's own directory.
    let beside = std::fs::read_dir(home.scene.dir()).expect("readable").flatten();
    let litter: Vec<_> = beside.filter(|entry| entry.file_name().to_string_lossy().contains("leash-new")).collect();
    assert!(litter.is_empty(), "{litter:?}");
    let kept = std::fs::read_dir(home.path("state/leash/adopt")).expect("readable").count();
    assert_eq!(kept, 1, "only the lock");
}
