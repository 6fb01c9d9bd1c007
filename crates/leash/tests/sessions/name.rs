//! Session ids made of variables.

use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use crate::stage::{Joiner, alive, wait_members, web};

#[test]
fn one_line_gives_every_host_session_its_own_name() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let web = web();
    let name = ["--session", "claude-{CLAUDE_CODE_SESSION_ID:-none}.{LEASH_TEST_STAGE:-dev}"];
    let mut members = Vec::new();
    for id in ["7c0e3b7e-6a52-4c86", "a5b5-0d4a1f1b3f0a"] {
        scene.set_env("CLAUDE_CODE_SESSION_ID", id);
        members.push(Joiner::run(&scene, &[&name[..], &["--grace", "0"]].concat(), "polite"));
        members.push(Joiner::connect(&scene, &name, &web.url()));
        wait_members(&scene, &format!("claude-{id}.dev"), 2);
    }
    scene.census().wait_all_ready(2, LIMIT).expect("the trees did not come up");
    // The variable still has the second value.
    assert_eq!(scene.answer(["end", "claude-{CLAUDE_CODE_SESSION_ID}.dev"]).code, 0);
    assert_eq!(alive(&scene), ["claude-7c0e3b7e-6a52-4c86.dev"]);
    assert_eq!(scene.answer(["end", "--all"]).code, 0);
    members.iter_mut().for_each(Joiner::wait);
    scene.wait_gone(&[]).expect("nothing is left");
}

/// Nothing is started or ended with an invalid name.
#[test]
fn name_with_a_missing_variable_is_an_error() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("LEASH_TEST_EMPTY", "");
    scene.set_env("LEASH_TEST_BAD", "not an id");
    let started = scene.dir().join("started");
    let touch = started.display().to_string();
    let cases = [
        ("{LEASH_TEST_NONE}", "`LEASH_TEST_NONE` in the session's id is not set"),
        ("a-{LEASH_TEST_EMPTY}", "`LEASH_TEST_EMPTY` in the session's id is empty"),
        ("{LEASH_TEST_BAD}", "the session id from `{LEASH_TEST_BAD}` is not valid"),
        ("{LEASH_TEST_NONE:-}", "it is empty"),
        ("{LEASH_TEST", "is not closed"),
        ("{{x}}", "only letters, digits"),
    ];
    for (name, why) in cases {
        let run = scene.answer(["run", "--session", name, "--", "touch", &touch]);
        let connect = scene.answer(["connect", "--session", name, "http://127.0.0.1:1/mcp"]);
        for answer in [run, connect] {
            assert_eq!(answer.code, 2, "{name}: {answer:?}");
            assert!(answer.stderr.contains(why) && answer.stderr.contains("hint: "), "{name}: {answer:?}");
            assert!(!answer.stderr.contains("not an id"), "the value must not be printed: {answer:?}");
        }
    }
    assert!(!started.exists(), "something was started");
    let answer = scene.answer(["end", "{LEASH_TEST_NONE}"]);
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("give a default: {LEASH_TEST_NONE:-main}"), "{answer:?}");
}
