//! Commands return the exit codes that the reference documents.

use std::fs;

use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::Reference;

/// Each case is a command line and its exit code.
const CASES: &[(&[&str], i32)] = &[
    (&["run", "--", "sh", "-c", "exit 7"], 7),
    (&["run", "--", "sh", "-c", "kill -9 $$"], 137),
    (&["run", "--", "/no/such/server"], 127),
    (&["run", "--", "/etc"], 126),
    (&["run", "--contain", "nonsense", "--", "true"], 2),
    (&["run", "--owner", "pid:999999999", "--", "true"], 125),
    (&["connect", "ftp://example.org"], 2),
    (&["attach", "no-such-session/server"], 125),
    (&["attach", "nonsense"], 2),
    (&["serve", "--check", "--name", "files", "--", "true"], 0),
    (&["serve", "--config", "/no/such/file"], 2),
    (&["serve", "--listen", "127.0.0.1:1", "--name", "files", "--", "true"], 125),
    (&["ps"], 0),
    (&["ps", "no-such-session"], 1),
    (&["ps", "--nonsense"], 2),
    (&["top"], 2),
    (&["why", "1"], 0),
    (&["why", "999999999"], 1),
    (&["why", "no-such-run"], 1),
    (&["why"], 2),
    (&["reap"], 0),
    (&["reap", "--nonsense"], 2),
    (&["watch", "--uninstall"], 0),
    (&["watch", "--nonsense"], 2),
    (&["end", "--all"], 0),
    (&["end", "no-such-session"], 1),
    (&["end"], 2),
    (&["end", "{NO_SUCH_VARIABLE}"], 2),
    (&["history"], 0),
    (&["history", "no-such-session"], 1),
    (&["history", "--nonsense"], 2),
    (&["logs"], 0),
    (&["logs", "no-such-session"], 1),
    (&["logs", "--nonsense"], 2),
    (&["status"], 1),
    (&["status", "--nonsense"], 2),
    (&["status", "--url", "ftp://x", "--token-env", "HOME"], 2),
    (&["adopt", "--diff"], 0),
    (&["adopt", "--diff", "no-such-client"], 2),
    (&["release", "--diff"], 0),
    (&["release", "--diff", "--server", "no-such-server"], 2),
    (&["check", "--", "/no/such/server"], 127),
    (&["check", "--", "/etc"], 126),
    (&["check"], 2),
    (&["check", "--junit", "/no/such/directory/file", "--", "true"], 125),
    (&["doctor", "--nonsense"], 2),
    (&["upgrade"], 0),
    (&["upgrade", "--nonsense"], 2),
    (&["demo", "--nonsense"], 2),
    (&["completions", "bash"], 0),
    (&["completions", "nonsense"], 2),
    (&["man"], 0),
    (&["man", "--dir", "/proc/no/such/directory"], 125),
    (&["man", "--nonsense"], 2),
];

#[test]
fn exit_codes_are_documented() {
    let scene = or_skip!(Scene::set(Who::User));
    let reference = Reference::read();
    for (words, code) in CASES {
        let answer = scene.answer(*words);
        assert_eq!(answer.code, *code, "leash {}: {answer:?}", words.join(" "));
        reference.check_code(words[0], &answer);
    }
    scene.wait_gone(&[]).expect("nothing is left");
}

/// A ledger that can't be read is a failure of leash, for every command that reads it.
#[test]
fn unreadable_ledger_is_documented() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let reference = Reference::read();
    let file = scene.dir().join("file");
    fs::write(&file, "").expect("a file");
    scene.set_env("LEASH_RUNTIME_DIR", file.join("run"));
    scene.set_env("XDG_RUNTIME_DIR", file.join("run"));
    for words in [&["run", "--", "true"][..], &["doctor"]] {
        let answer = scene.answer(words);
        assert!(matches!(answer.code, 1 | 125), "leash {}: {answer:?}", words.join(" "));
        reference.check_code(words[0], &answer);
    }
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The manual page of a command has the same exit codes.
#[test]
fn manual_pages_have_the_exit_codes() {
    let scene = or_skip!(Scene::set(Who::User));
    let reference = Reference::read();
    let dir = scene.dir().join("man");
    let pages = scene.answer(["man", "--dir", &dir.display().to_string()]);
    assert_eq!(pages.code, 0, "{pages:?}");
    for (name, command) in reference.document["commands"].as_object().expect("an object") {
        let page = fs::read_to_string(dir.join(format!("leash-{name}.1"))).expect("it can be read");
        let codes = command["exit_codes"].as_array().expect("an array");
        for code in codes.iter().filter_map(|code| code["code"].as_str()) {
            assert!(page.contains(&format!(".TP\n\\fB{code}\\fR\n")), "{name}: {code} is not in\n{page}");
        }
    }
}
