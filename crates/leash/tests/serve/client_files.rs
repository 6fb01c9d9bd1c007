//! `leash serve --config` with the files of MCP clients as they are, and servers that cannot be served.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use testkit::gateway::Gateway;
use testkit::http::initialize;
use testkit::lines::Lines;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;
use testkit::{or_skip, wait};

use super::{config, open, stdio_server};

/// Writes a client's file. `GOOD` in the text is the list of words of a server that works, `FIRST` its program and
/// `REST` its arguments.
fn put(scene: &Scene, path: &str, text: &str) -> String {
    let words: Vec<String> = scene.tree("setsid", ["--mcp"]).iter().map(|word| format!("{word:?}")).collect();
    let text = text
        .replace("GOOD", &format!("[{}]", words.join(", ")))
        .replace("FIRST", &words[0])
        .replace("REST", &format!("[{}]", words[1..].join(", ")));
    let file: PathBuf = scene.dir().join(path);
    fs::create_dir_all(file.parent().expect("it has a parent")).expect("a directory");
    fs::write(&file, text).expect("a file");
    file.to_str().expect("a plain path").to_owned()
}

/// Serves a file with the server `good`, which works, and `gone`, whose program does not exist.
#[track_caller]
fn check(path: &str, client: &str, text: &str) {
    let scene = or_skip!(Scene::set(Who::User));
    let file = put(&scene, path, text);
    let gateway = Gateway::start(&scene, ["--config", &file]);
    open(&gateway, "good");
    let refused = gateway.post("gone", None, &initialize("2025-06-18"));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    let why = "Service Unavailable: server `gone`: command `/nowhere/gone` was not found";
    assert!(refused.text().contains(why), "{}", refused.text());
    assert_eq!(gateway.post("off", None, &initialize("2025-06-18")).status, 404, "it is disabled");
    let said = gateway.said();
    assert!(said.starts_with(&format!("configuration: {file} ({client})\n")), "{said}");
    assert!(said.contains(&format!("\n  good: {}\n", gateway.url("good"))), "{said}");
    assert!(!said.contains("  gone: http") && !said.contains("  off: http"), "{said}");
    let warning = "server `gone`: command `/nowhere/gone` was not found; clients of `gone` get 503";
    assert!(said.contains(&format!("warning: {file}:")) && said.contains(warning), "{said}");
    let strict = scene.answer(["serve", "--strict", "--config", &file]);
    assert_eq!(strict.code, 2, "{strict:?}");
    assert!(strict.stderr.starts_with("error: 1 mistake in the configuration; nothing was started\n"), "{strict:?}");
}

#[test]
fn claude_code() {
    let text = r#"{"numStartups": 3, "tipsHistory": {"x": 1},
        "projects": {"/elsewhere": {"mcpServers": {"other": {"command": "x"}}, "history": []}},
        "mcpServers": {"good": {"type": "stdio", "command": FIRST, "args": REST, "env": {}},
            "gone": {"command": "/nowhere/gone"}, "off": {"command": "x", "disabled": true}}, "userID": "00"}"#;
    check(".claude.json", "Claude Code", text);
}

#[test]
fn cursor() {
    let text = r#"{ // mine
        "mcpServers": {"good": {"command": FIRST, "args": REST, "env": {"A": "${env:HOME}"}, "anything": 1, /* of theirs */ },
            "gone": {"command": "/nowhere/gone"}, "off": {"command": "x", "disabled": true},}}"#;
    check(".cursor/mcp.json", "Cursor", text);
}

#[test]
fn vs_code() {
    let text = r#"{"inputs": [], "servers": {"good": {"type": "stdio", "command": FIRST, "args": REST, "dev": {"watch": "x"}},
            "gone": {"command": "/nowhere/gone"}, "off": {"command": "x", "disabled": true}}}"#;
    check(".config/Code/User/mcp.json", "VS Code", text);
    // A copy is recognised by its content.
    check("copied.json", "VS Code", text);
}

#[test]
fn codex() {
    let text = "model = \"gpt\"\n[mcp_servers.good]\ncommand = FIRST\nargs = REST\nstartup_timeout_sec = 20\n\
        [mcp_servers.good.env]\nA = \"${B}\"\n[mcp_servers.gone]\ncommand = \"/nowhere/gone\"\n[mcp_servers.off]\ncommand = \"x\"\nenabled = false\n";
    check(".codex/config.toml", "Codex CLI", text);
}

#[test]
fn zed() {
    let text = r#"// Zed
        {"theme": "dark", "context_servers": {"good": {"source": "custom", "command": FIRST, "args": REST},
            "gone": {"command": {"path": "/nowhere/gone"}}, "off": {"command": "x", "enabled": false}}}"#;
    check(".config/zed/settings.json", "Zed", text);
}

#[test]
fn goose() {
    let text = "GOOSE_MODEL: x\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n  good:\n    type: stdio\n    cmd: FIRST\n    args: REST\n\
        \n  gone:\n    type: stdio\n    cmd: /nowhere/gone\n  off:\n    type: stdio\n    cmd: x\n    enabled: false\n";
    check(".config/goose/config.yaml", "goose", text);
}

#[test]
fn opencode() {
    let text = r#"{"$schema": "x", "mcp": {"good": {"type": "local", "command": GOOD, "environment": {"A": "{env:HOME}"}},
            "gone": {"type": "local", "command": ["/nowhere/gone"]}, "off": {"command": ["x"], "enabled": false}}}"#;
    check(".config/opencode/opencode.json", "opencode", text);
}

/// A variable that is not set, an unknown shape, and an input that only VS Code can ask for.
#[test]
fn mistakes_in_a_client_s_file_refuse_only_their_server() {
    let scene = or_skip!(Scene::set(Who::User));
    let text = "{\"servers\": {\"good\": {\"command\": FIRST, \"args\": REST},\n\
        \"a\": {\"command\": \"cat\",\n \"env\": {\"K\": \"${env:LEASH_NO_SUCH_VARIABLE}\"}},\n\
        \"b\": {\"kind\": \"magic\"},\n\"c\": {\"url\": \"https://h/mcp\", \"headers\": {\"K\": \"${input:key}\"}}}}";
    let file = put(&scene, ".vscode/mcp.json", text);
    let gateway = Gateway::start(&scene, ["--config", &file]);
    open(&gateway, "good");
    for (name, place, why) in [
        ("a", "3:15", "variable `LEASH_NO_SUCH_VARIABLE` is not set"),
        ("b", "4:6", "server `b`: it has neither a command nor an address"),
        ("c", "5:48", "`${input:key}` names no variable"),
    ] {
        let refused = gateway.post(name, None, &initialize("2025-06-18"));
        assert!(refused.status == 503 && refused.text().contains(why), "{name}: {}", refused.text());
        assert!(gateway.said().contains(&format!("warning: {file}:{place}: ")), "{place}: {}", gateway.said());
    }
    let strict = scene.answer(["serve", "--strict", "--config", &file]);
    assert!(strict.stderr.starts_with("error: 3 mistakes"), "{strict:?}");
}

#[test]
fn a_missing_program_that_is_installed_later_is_found() {
    let scene = or_skip!(Scene::set(Who::User));
    let words: Vec<String> = scene.tree("setsid", ["--mcp"]).iter().map(|word| format!("{word:?}")).collect();
    let later = scene.dir().join("later");
    let text = format!(
        "{{\"mcpServers\": {{\"now\": {{{}}}, \"later\": {{\"command\": {later:?}, \"args\": [{}]}}, }}}} // mine",
        stdio_server(&scene),
        words[1..].join(", "),
    );
    let file = config(&scene, &text);
    let gateway = Gateway::start(&scene, ["--config", &file]);
    assert!(gateway.said().starts_with(&format!("configuration: {file}\n")), "{}", gateway.said());
    assert_eq!(gateway.post("later", None, &initialize("2025-06-18")).status, 503);
    open(&gateway, "now");
    fs::write(&later, format!("#!/bin/sh\nexec {} \"$@\"\n", words[0])).expect("a script");
    fs::set_permissions(&later, fs::Permissions::from_mode(0o755)).expect("its mode");
    open(&gateway, "later");
    // A reload warns again.
    config(&scene, &text.replace("\"now\"", "\"gone\": {\"command\": \"/nowhere/gone\"}, \"now\""));
    wait::until("the warning", || gateway.said().contains("clients of `gone` get 503").then_some(()));
    assert_eq!(gateway.post("gone", None, &initialize("2025-06-18")).status, 503);
}

#[test]
fn a_file_in_which_no_server_can_be_started_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let file = config(&scene, r#"{"mcpServers": {"gone": {"command": "/nowhere/gone"}}}"#);
    let answer = scene.answer(["serve", "--config", &file]);
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("server `gone`: command `/nowhere/gone` was not found"), "{answer:?}");
}

#[test]
fn a_server_on_the_command_line_needs_no_name() {
    let scene = or_skip!(Scene::set(Who::User));
    let words = scene.tree("setsid", ["--mcp"]);
    let gateway = Gateway::start(&scene, [&["--".into()], &words[..]].concat());
    open(&gateway, "zoo");
    assert!(gateway.said().contains(&format!("\n  zoo: {}\n", gateway.url("zoo"))), "{}", gateway.said());
}

#[test]
fn a_name_to_listen_at_is_resolved() {
    let scene = or_skip!(Scene::set(Who::User));
    let words = scene.tree("setsid", ["--mcp"]);
    let words = [&["--name".into(), "x".into(), "--".into()], &words[..]].concat();
    let gateway = Gateway::start_at(&scene, "localhost:0", words);
    assert_eq!(gateway.address().ip().to_string(), "127.0.0.1");
    open(&gateway, "x");
}

#[test]
fn a_port_alone_is_one_of_loopback() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut command = scene.leash(["serve", "--port", "0", "--", "cat"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("cannot start leash");
    let mut says = Lines::new(child.stderr.take().expect("a pipe"));
    let address = says.wait(LIMIT, |line| line.strip_prefix("listening on http://127.0.0.1:").map(str::to_owned));
    let port = address.unwrap_or_else(|| panic!("it does not listen: {}", says.rest()));
    assert_eq!(says.next(LIMIT).as_deref(), Some(format!("  cat: http://127.0.0.1:{port}/cat/mcp").as_str()));
    child.kill().expect("it was not waited for");
    child.wait().expect("it is ours");
    scene.wait_gone(&[]).expect("nothing is left");
}
