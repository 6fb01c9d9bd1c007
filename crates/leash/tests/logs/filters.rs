//! The filters of `leash history`, servers by name in `leash why`, and the other names of commands.

use std::process::Stdio;

use serde_json::Value;
use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

fn sessions<const N: usize>(scene: &Scene, words: [&str; N]) -> Vec<String> {
    let answer = scene.answer(["history", "--json"].into_iter().chain(words)).json();
    let session = |receipt: &Value| receipt["session"].as_str().map(str::to_owned);
    answer["receipts"].as_array().into_iter().flatten().filter_map(session).collect()
}

#[test]
fn history_is_filtered_by_time_client_and_result() {
    let scene = or_skip!(Scene::set(Who::User));
    for session in ["red", "blue"] {
        assert_eq!(scene.answer(["run", "--session", session, "--", "true"]).code, 0);
    }
    assert_eq!(sessions(&scene, []), ["red", "blue"]);
    assert_eq!(sessions(&scene, ["--limit", "1"]), ["blue"]);
    assert_eq!(sessions(&scene, ["--since", "1h"]), ["red", "blue"]);
    assert!(sessions(&scene, ["--since", "0"]).is_empty());
    assert!(sessions(&scene, ["--left"]).is_empty());
    assert!(sessions(&scene, ["--client", "*"]).is_empty(), "a host has no name");
    let gateway = Gateway::single(&scene, &[], &["sh".into(), "-c".into(), "exit 3".into()]);
    gateway.post("x", None, &initialize("2025-11-25"));
    wait::until("the receipt", || (sessions(&scene, ["--since", "1h"]).len() == 3).then_some(()));
    let by_name = sessions(&scene, ["--client", "T*t"]);
    assert!(by_name.len() <= 1, "{by_name:?}");
    let none = scene.answer(["history", "--left"]);
    assert!(none.stderr.contains("No session that ended here is of this kind."), "{none:?}");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn server_is_explained_by_its_name() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let words = scene.run_words(["--name", "sample", "--grace", "100ms"], &scene.tree::<&str>("polite", []));
    let start = |scene: &Scene| {
        let mut command = scene.command(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cannot start leash")
    };
    let mut first = start(&scene);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    let answer = scene.answer(["why", "sample"]);
    assert!(answer.code == 0 && answer.stdout.contains("sample"), "{answer:?}");
    let mut second = start(&scene);
    let several = wait::until("both servers", || {
        let answer = scene.answer(["why", "sample"]);
        (answer.code == 1).then_some(answer)
    });
    assert!(several.stderr.contains("`sample` is the name of 2 servers, name the PID of one: "), "{several:?}");
    for leash in [&mut first, &mut second] {
        drop(leash.stdin.take());
        leash.wait().expect("it is ours");
    }
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn commands_have_the_names_that_people_type() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let words = scene.run_words(["--session", "red", "--grace", "100ms"], &scene.tree::<&str>("polite", []));
    let mut command = scene.command(&words[0]);
    let mut leash =
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cannot start leash");
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    for name in ["ls", "list"] {
        assert!(scene.answer([name]).stdout.contains("red"), "{name}");
    }
    assert_eq!(scene.answer(["stop", "red"]).code, 0);
    assert_eq!(scene.answer(["kill", "red"]).code, 1, "it is over");
    leash.wait().expect("it is ours");
    for words in [&["help"][..], &["help", "end"], &["help", "kill"]] {
        let answer = scene.answer(words);
        assert!(answer.code == 0 && answer.stdout.contains("Usage: leash"), "{words:?}: {answer:?}");
    }
    assert_eq!(scene.answer(["help", "nonsense"]).code, 2);
    scene.wait_gone(&[]).expect("nothing is left");
}
