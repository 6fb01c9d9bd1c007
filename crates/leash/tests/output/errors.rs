//! An error of the system is never printed alone: the message names the file that it is about.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

/// A place that a test makes unusable.
struct Place<'a> {
    /// The variable with its path, if it is not one of the scene's own.
    variable: Option<&'a str>,
    /// Below the directory of the scene.
    path: &'a str,
    mode: u32,
}

#[track_caller]
fn check(words: &[&str], place: &Place<'_>) {
    let Ok(scene) = Scene::set(Who::User) else { return testkit::note("skipped: no other user") };
    let Place { variable, path, mode } = *place;
    let path = scene.dir().join(path);
    fs::create_dir_all(&path).expect("a directory");
    for dir in path.ancestors().take_while(|dir| *dir != scene.dir()) {
        scene.user().own(dir).expect("it can be given away");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    let mut command = scene.leash(words);
    command.envs(variable.map(|name| (name, &path)));
    let answer: Answer = command.output().expect("leash runs").into();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("a mode");
    let text = answer.stdout.clone() + &answer.stderr;
    let shown = path.file_name().unwrap_or_default().display().to_string();
    assert!(text.contains("Permission denied") && text.contains(&shown), "{words:?}: {answer:?}");
    for line in text.lines().filter(|line| line.contains("Permission denied")) {
        // The cause of an error is below the line that names the file.
        assert!(line.contains('/') || line.starts_with("  Caused by"), "{words:?}: {answer:?}");
    }
}

fn unwritable(variable: &str) -> Place<'_> {
    Place { variable: Some(variable), path: "place", mode: 0o500 }
}

#[test]
fn files_that_cannot_be_written_are_named() {
    for words in [&["demo"][..], &["check", "--", "true"]] {
        check(words, &unwritable("TMPDIR"));
    }
    for words in [
        &["run", "--", "true"][..],
        &["doctor", "-v"],
        &["serve", "--port", "0", "--", "true"],
        &["connect", "http://127.0.0.1:1/"],
    ] {
        check(words, &unwritable("LEASH_RUNTIME_DIR"));
    }
    check(&["doctor", "-v"], &unwritable("XDG_STATE_HOME"));
    check(&["man", "--dir", "place"], &Place { variable: None, path: "place", mode: 0o500 });
    check(&["watch", "--install"], &unwritable("XDG_CONFIG_HOME"));
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let sessions = Place { variable: None, path: "run/sessions", mode: 0 };
    for words in [&["ps"][..], &["end", "--all"], &["run", "-v", "--", "true"]] {
        check(words, &sessions);
    }
    let receipts = Place { variable: None, path: "state/leash/receipts.jsonl", mode: 0 };
    check(&["history"], &receipts);
}

/// A file of a client that cannot be read.
#[test]
fn configurations_that_cannot_be_read_are_named() {
    let scene = or_skip!(Scene::set(Who::User));
    let path = scene.dir().join(".claude.json");
    fs::write(&path, "{}").expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("a mode");
    let shown = path.display().to_string();
    for words in [&["adopt"][..], &["serve", "--config", &shown]] {
        let answer = scene.answer(words);
        let denied = answer.stderr.lines().find(|line| line.contains("Permission denied")).unwrap_or_default();
        assert!(denied.contains(&shown), "{words:?}: {answer:?}");
    }
    assert!(Path::new(&shown).exists());
}
