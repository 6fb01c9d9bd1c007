//! The gateway's tokens: no process that it starts has them in its environment.

use std::collections::BTreeMap;

use rustix::process::Pid;
use serde_json::json;
use testkit::control::Control;
use testkit::gateway::Gateway;
use testkit::http::{POST, initialize};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};
use testkit::{or_skip, process};

use super::{config, stdio_server};

/// The initial environment of a process, as the kernel shows it.
fn environment(pid: Pid) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', "\n"))
}

/// Every living descendant of a process, with its environment.
fn below(pid: Pid) -> BTreeMap<i32, (String, String)> {
    let mut found = BTreeMap::new();
    for child in process::children(pid) {
        if let Some(environment) = environment(child.pid) {
            found.insert(child.pid.as_raw_nonzero().get(), (child.to_string(), environment));
        }
        found.extend(below(child.pid));
    }
    found
}

/// Checks that the supervisor, and keeper, server and helper of each tree, have the scene's other variables and none of
/// the secrets.
fn nobody_has(secrets: &[&str], gateway: &Gateway, trees: usize) {
    let processes = below(gateway.pid());
    assert!(processes.len() > 3 * trees, "{trees} trees are {} processes", processes.len());
    none_of(&processes, secrets);
}

fn none_of(processes: &BTreeMap<i32, (String, String)>, secrets: &[&str]) {
    for (shown, environment) in processes.values() {
        assert!(environment.contains("LEASH_RUNTIME_DIR="), "{shown}: {environment}");
        for secret in secrets {
            assert!(!environment.contains(secret), "{shown} has {secret}: {environment}");
        }
    }
}

fn open(gateway: &Gateway, name: &str, token: &str) {
    let authorization = format!("Bearer {token}");
    let mut headers = POST.to_vec();
    headers.push(("authorization", &authorization));
    let reply = gateway.ask("POST", &format!("/{name}/mcp"), &headers, initialize("2025-06-18").as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[test]
fn token_variables_reach_no_process_of_a_tree() {
    let mut scene = or_skip!(Scene::set(Who::User));
    for (name, value) in [("FIRST", "alpha-s3cret"), ("SECOND", "beta-s3cret"), ("CONTROL", "gamma-s3cret")] {
        scene.set_env(name, value);
    }
    scene.set_env("FLAG", "delta-s3cret");
    let text = |token: &str| {
        let server = stdio_server(&scene);
        format!(
            r#"{{"mcpServers": {{"a": {{{server}}}, "b": {{{server}}}}}, "leash": {{"token": "{token}", "grace": "300ms"}}}}"#
        )
    };
    let file = config(&scene, &text("${FIRST}"));
    let control = ["--control-listen", "127.0.0.1:0", "--control-token-env", "CONTROL"];
    let gateway = Gateway::start(&scene, ["--config", &file].iter().chain(&control));
    open(&gateway, "a", "alpha-s3cret");
    nobody_has(&["alpha-s3cret", "FIRST=", "gamma-s3cret", "CONTROL="], &gateway, 1);

    // Another file names another variable: new trees have neither. The old tree has the second one, and ends.
    let changed = text("${SECOND}").replace(r#""a": "#, r#""z": "#);
    config(&scene, &changed);
    wait::until("the reload", || gateway.said().contains("reloaded;").then_some(()));
    wait::until("the first tree to end", || below(gateway.pid()).is_empty().then_some(()));
    open(&gateway, "b", "beta-s3cret");
    // A session of the control API has a tree like any other.
    let words: Vec<String> =
        scene.tree("setsid", ["--mcp"]).iter().map(|word| word.to_str().expect("plain").to_owned()).collect();
    let request = json!({"mcpServers": {"j": {"command": words[0], "args": words[1..], "leash": {"grace": "300ms"}}}});
    Control::of(&scene).create(&request);
    wait::until("both trees", || (below(gateway.pid()).len() > 6).then_some(()));
    nobody_has(&["alpha-s3cret", "beta-s3cret", "gamma-s3cret", "SECOND="], &gateway, 2);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");

    // A flag withholds the variable as a file does.
    let gateway =
        Gateway::single(&scene, &["--token-env", "FLAG", "--grace", "300ms"], &scene.tree("setsid", ["--mcp"]));
    open(&gateway, "x", "delta-s3cret");
    nobody_has(&["delta-s3cret", "FLAG="], &gateway, 1);
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// The old tree still has the variable that is a secret from now on. So it keeps its supervisor, and new trees get another.
#[test]
fn new_secret_reaches_no_process_of_a_new_tree() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("FIRST", "alpha-s3cret");
    scene.set_env("SECOND", "beta-s3cret");
    let server = stdio_server(&scene);
    let text = |token: &str| format!(r#"{{"mcpServers": {{"a": {{{server}}}}}, "leash": {{"token": "{token}"}}}}"#);
    let file = config(&scene, &text("${FIRST}"));
    let gateway = Gateway::start(&scene, ["--config", &file]);
    open(&gateway, "a", "alpha-s3cret");
    let old = wait::until("the first tree", || Some(below(gateway.pid())).filter(|processes| processes.len() > 3));
    config(&scene, &text("${SECOND}"));
    wait::until("the reload", || gateway.said().contains("reloaded;").then_some(()));
    open(&gateway, "a", "beta-s3cret");
    let new = wait::until("the second tree", || {
        let new: BTreeMap<_, _> = below(gateway.pid()).into_iter().filter(|(pid, _)| !old.contains_key(pid)).collect();
        (new.len() > 3).then_some(new)
    });
    none_of(&new, &["alpha-s3cret", "beta-s3cret", "SECOND="]);
    assert!(old.keys().all(|pid| below(gateway.pid()).contains_key(pid)), "the first session goes on");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn a_server_has_a_token_variable_that_its_own_env_names() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("MINE", "epsilon-s3cret");
    let server = stdio_server(&scene);
    let env = r#""env": {"MINE": "${MINE}"}"#;
    let text = format!(r#"{{"mcpServers": {{"a": {{{server}, {env}}}}}, "leash": {{"token": "${{MINE}}"}}}}"#);
    let file = config(&scene, &text);
    let gateway = Gateway::start(&scene, ["--config", &file]);
    open(&gateway, "a", "epsilon-s3cret");
    scene.census().wait_ready(LIMIT).expect("the server runs");
    let has = |pid: i32| environment(Pid::from_raw(pid).expect("a pid")).is_some_and(|text| text.contains("MINE="));
    let servers: Vec<i32> = scene.census().holders().iter().map(|process| process.pid.as_raw_nonzero().get()).collect();
    assert!(!servers.is_empty() && servers.iter().all(|pid| has(*pid)), "the user said so");
    // Supervisor and keeper do not need it.
    let others: Vec<i32> = below(gateway.pid()).into_keys().filter(|pid| !servers.contains(pid)).collect();
    assert!(others.len() >= 2 && others.iter().all(|pid| !has(*pid)), "{others:?}");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}
