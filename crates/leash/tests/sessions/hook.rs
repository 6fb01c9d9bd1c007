//! The guide to hooks, literally: its configuration, its command and its input end a session.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use crate::stage::{Joiner, NONE, alive, wait_members, web};

/// The JSON blocks in the guide, in their order.
fn documented() -> [Value; 3] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/hooks.md");
    let text = fs::read_to_string(path).expect("the guide is there");
    let blocks = text.split("```json\n").skip(1).filter_map(|block| block.split("```").next());
    let values: Vec<Value> = blocks.map(|block| serde_json::from_str(block).expect(block)).collect();
    values.try_into().expect("the servers, the hook, and its input")
}

/// Runs the hook as the host does: with a shell, and the input on stdin.
fn run_hook(scene: &Scene, settings: &Value, input: &Value) -> Answer {
    let hook = &settings["hooks"]["SessionEnd"][0]["hooks"][0];
    assert_eq!(hook["type"], "command");
    let line = hook["command"].as_str().expect("a command line");
    let mut command = scene.command("sh");
    command.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let leash = scene.leash_path();
    // The program under test is called by its usual name.
    let bin = scene.dir().join("bin");
    fs::create_dir_all(&bin).expect("cannot make a directory");
    let _ = std::os::unix::fs::symlink(leash, bin.join("leash"));
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", bin.display()));
    let mut shell = command.spawn().expect("cannot start a shell");
    let mut stdin = shell.stdin.take().expect("it is a pipe");
    stdin.write_all(input.to_string().as_bytes()).expect("the hook reads");
    // Held open: some hosts do not close it.
    let output = shell.wait_with_output().expect("cannot wait for the shell");
    drop(stdin);
    output.into()
}

/// The options of a documented server, without the server's own command.
fn options(server: &Value) -> Vec<&str> {
    assert_eq!(server["command"], "leash");
    let args = server["args"].as_array().expect("a list").iter().filter_map(Value::as_str);
    args.skip(1).take_while(|arg| *arg != "--" && !arg.starts_with("http")).collect()
}

#[test]
fn the_documented_hook_ends_the_documented_servers() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let [servers, settings, input] = documented();
    let session = input["session_id"].as_str().expect("an id").to_owned();
    scene.set_env("CLAUDE_CODE_SESSION_ID", &session);
    let web = web();
    let (browser, site) = (&servers["mcpServers"]["browser"], &servers["mcpServers"]["web"]);
    assert_eq!((&browser["args"][0], &site["args"][0]), (&"run".into(), &"connect".into()));
    let mut members = [
        Joiner::run_words(&scene, &options(browser), &scene.tree("setsid", NONE)),
        Joiner::connect_open(&scene, &options(site), &web.url()),
    ];
    // Another conversation of the same user.
    scene.set_env("CLAUDE_CODE_SESSION_ID", "another");
    let mut other = Joiner::run_words(&scene, &options(browser), &scene.tree("polite", NONE));
    scene.census().wait_all_ready(2, LIMIT).expect("the trees did not come up");
    wait_members(&scene, &session, 2);
    wait_members(&scene, "another", 1);

    // The host leaves the conversation and keeps its servers.
    for reason in ["clear", "resume"] {
        let mut goes_on = input.clone();
        goes_on["reason"] = reason.into();
        let answer = run_hook(&scene, &settings, &goes_on);
        assert_eq!((answer.code, alive(&scene).len()), (0, 2), "{answer:?}");
    }
    let answer = run_hook(&scene, &settings, &input);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.stdout.starts_with(&format!("{session}: leash end; 1 server, 2 processes")), "{answer:?}");
    assert_eq!((alive(&scene), web.of("DELETE").len()), (vec!["another".to_owned()], 1));
    members.iter_mut().for_each(Joiner::wait);
    // A conversation without servers, or with servers of another name, is no failure.
    let answer = run_hook(&scene, &settings, &input);
    assert_eq!((answer.code, answer.stdout.as_str()), (0, ""), "{answer:?}");

    assert_eq!(scene.answer(["end", "--force", "another"]).code, 0);
    other.wait();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// A hook's id must match exactly, not only its beginning.
#[test]
fn hook_needs_the_full_session_id() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let [_, settings, mut input] = documented();
    let mut member = Joiner::run(&scene, &["--session", "abc-1", "--grace", "0"], "polite");
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    wait_members(&scene, "abc-1", 1);
    input["session_id"] = "abc".into();
    assert_eq!(run_hook(&scene, &settings, &input).code, 0);
    for bad in [Value::Null, 7.into(), "../x".into()] {
        input["session_id"] = bad;
        let answer = run_hook(&scene, &settings, &input);
        assert_eq!(answer.code, 2, "{answer:?}");
    }
    assert_eq!(alive(&scene), ["abc-1"]);
    assert_eq!(scene.answer(["end", "--all", "--force"]).code, 0);
    member.wait();
    scene.wait_gone(&[]).expect("nothing is left");
}
