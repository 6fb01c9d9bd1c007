//! A server that cannot be started: the problem has the failure with its kind, and a hint. Nothing is left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use testkit::or_skip;

use super::Stage;

/// Creates a session with one server that cannot be started, and returns the problem.
fn problem(stage: &mut Stage, server: &Value) -> Value {
    let reply = stage.control.ask("POST", "/v1/sessions", &json!({"mcpServers": {"s": server}}).to_string());
    assert_eq!(reply.status, 502, "{server}: {}", reply.text());
    stage.nothing_is_left();
    let problem = reply.json();
    assert_eq!((&problem["type"], &problem["server"]), (&json!("urn:leash:problem:server-failed"), &json!("s")));
    assert_eq!(problem["detail"], format!("server `s` could not be started: {}", problem["why"].as_str().unwrap()));
    problem
}

fn check(stage: &mut Stage, server: &Value, failure: &Value, (why, hint): (&str, &str)) {
    let problem = problem(stage, server);
    assert_eq!((&problem["failure"], &problem["why"], &problem["hint"]), (failure, &json!(why), &json!(hint)));
}

#[test]
fn commands_that_cannot_be_executed() {
    let mut stage = or_skip!(Stage::set());
    check(
        &mut stage,
        &json!({"command": "no-such-program", "env": {"PATH": "/nowhere"}}),
        &json!({"kind": "not_found", "command": "no-such-program", "path": "/nowhere"}),
        ("command `no-such-program` was not found", "it is in none of the directories of PATH: /nowhere"),
    );
    check(
        &mut stage,
        &json!({"command": "sh -c true", "env": {"PATH": "/bin"}}),
        &json!({"kind": "not_found", "command": "sh -c true", "path": "/bin"}),
        ("command `sh -c true` was not found", "a command is one program: write its arguments into `args`"),
    );
    check(
        &mut stage,
        &json!({"command": "/nowhere/server"}),
        &json!({"kind": "not_found", "command": "/nowhere/server"}),
        ("command `/nowhere/server` was not found", "check the path; it is taken relative to `cwd`"),
    );
    check(
        &mut stage,
        &json!({"command": "~/server"}),
        &json!({"kind": "not_found", "command": "~/server"}),
        ("command `~/server` was not found", "write the whole path: leash does not expand `~`"),
    );
    check(
        &mut stage,
        &json!({"command": "/usr"}),
        &json!({"kind": "is_directory", "path": "/usr"}),
        ("`/usr` cannot be executed: it is a directory", "name a program, not a directory"),
    );
    check(
        &mut stage,
        &json!({"command": "/etc/passwd"}),
        &json!({"kind": "not_executable", "path": "/etc/passwd"}),
        ("`/etc/passwd` cannot be executed: permission denied", "make it executable: chmod +x /etc/passwd"),
    );
    let cause = "No such file or directory (os error 2)";
    check(
        &mut stage,
        &json!({"command": "true", "cwd": "/nowhere"}),
        &json!({"kind": "working_directory", "dir": "/nowhere", "cause": cause}),
        (
            &format!("cannot change to the directory `/nowhere`: {cause}"),
            "check its `cwd`; it is taken relative to where leash was started",
        ),
    );
    let script = stage.scene.dir().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("cannot write a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("cannot set its mode");
    let path = script.to_str().expect("a plain path");
    check(
        &mut stage,
        &json!({"command": path}),
        &json!({"kind": "exec", "path": path, "cause": cause}),
        (
            &format!("cannot execute `{path}`: {cause}"),
            "the file is not a program this machine can run, or its interpreter is missing",
        ),
    );
    stage.gateway.stop();
}

#[test]
fn refused_containment_is_explained() {
    let mut stage = or_skip!(Stage::set());
    let problem = problem(&mut stage, &json!({"command": "true", "leash": {"contain": "unit"}}));
    assert_eq!(problem["failure"]["kind"], "contain", "{problem}");
    let refused = &problem["failure"]["refused"][0];
    assert_eq!(refused["containment"], "unit", "{problem}");
    let why = format!("no acceptable containment works here; not unit: {}", refused["why"].as_str().expect("a reason"));
    assert_eq!(problem["why"], why);
    let hint = "run `leash doctor` to see what works here, or ask for less (`contain`, `require`, `spare`, `memory`, `pids`, `cpu`, `budget`)";
    assert_eq!(problem["hint"], hint);
    stage.gateway.stop();
}

#[test]
fn ledger_that_other_users_can_write_to_is_refused() {
    let mut stage = or_skip!(Stage::set());
    let sessions = stage.scene.runtime_dir().join("sessions");
    fs::create_dir_all(&sessions).expect("cannot make a directory");
    fs::set_permissions(&sessions, fs::Permissions::from_mode(0o777)).expect("cannot set its mode");
    let what = format!("runtime directory `{}` is writable by other users (mode 777)", sessions.display());
    check(
        &mut stage,
        &json!({"command": "true"}),
        &json!({"kind": "shared_ledger", "what": what}),
        (&what, "set LEASH_RUNTIME_DIR to a directory of your own with mode 0700"),
    );
    stage.gateway.stop();
}

#[test]
fn address_that_cannot_be_reached() {
    let mut stage = or_skip!(Stage::set());
    // The port is free: its listener is closed.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port").port();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let why = format!("cannot reach {url}: connection refused");
    check(
        &mut stage,
        &json!({"url": url}),
        &json!({"kind": "unreachable", "why": why}),
        (&why, "check its `url`, and that the server runs"),
    );
    stage.gateway.stop();
}
