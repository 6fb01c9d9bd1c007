//! Every command with `--json`, on real servers, files and sessions.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::Value;
use testkit::gateway::Gateway;
use testkit::host::Manner;
use testkit::lines::Lines;
use testkit::namespace::inside;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::upstream::Upstream;
use testkit::user::{User, Who};
use testkit::wait::{self, LIMIT};

use super::Reference;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"web","version":"1"}}}"#;

/// In its own PID namespace, because `leash reap --yes` acts on all processes of the user.
#[test]
fn every_answer_is_as_documented() {
    or_skip!(User::find(Who::Root));
    if !inside("answers::every_answer_is_as_documented", &[]) {
        return;
    }
    let mut scene = or_skip!(Scene::set(Who::User));
    let reference = Reference::read();
    sessions(&mut scene, &reference);
    orphans(&scene, &reference);
    configurations(&scene, &reference);
    machine(&mut scene, &reference);
    scene.wait_gone(&[]).expect("nothing is left");
    let all: BTreeSet<String> = reference.forms().map(|(form, _)| form.clone()).collect();
    assert_eq!(*reference.played.borrow(), all, "a form was not played");
}

/// The first document of `leash ps --watch`, which then continues until its reader has gone.
fn first_document(scene: &Scene, reference: &Reference) -> Value {
    let mut watch = scene.leash(["ps", "--watch", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("cannot start leash");
    let line = Lines::new(watch.stdout.take().expect("it is a pipe")).next(LIMIT).expect("a document");
    watch.wait().expect("it ends");
    reference.check("ps --watch", serde_json::from_str(&line).expect("it is JSON"))
}

/// A server with a label, a failed start, and a session at an HTTP server.
fn sessions(scene: &mut Scene, reference: &Reference) {
    let options = ["--session", "job", "--name", "sample", "--label", "team=red", "--grace", "100ms"];
    let words = scene.run_words(options, &scene.tree("setsid", [] as [&str; 0]));
    let mut host = scene.host(&Manner::default(), None, &words);
    scene.census().wait_ready(LIMIT).expect("the tree did not come up");
    let web = Upstream::start(|seen, wire| match seen.method.as_str() {
        "POST" if seen.text().contains("\"initialize\"") => {
            let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "one")];
            wire.answer("200 OK", &headers, INITIALIZED.as_bytes())
        }
        "DELETE" => wire.answer("200 OK", &[], b""),
        _ => wire.answer("405 Method Not Allowed", &[], b""),
    });
    let mut connect = scene.leash(["connect", "--session", "job", &web.url()]);
    let mut connect = connect.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start leash");
    let mut stdin = connect.stdin.take().expect("it is a pipe");
    std::io::Write::write_all(&mut stdin, format!("{INITIALIZE}\n").as_bytes()).expect("leash reads");

    let listed = wait::until("both members in the listing", || {
        let listed = reference.play(scene, "ps", ["ps", "--json"]);
        let is_there = |list: &str| listed[list].as_array().is_some_and(|list| !list.is_empty());
        (listed["sessions"][0]["processes"] == 2 && is_there("upstream")).then_some(listed)
    });
    assert_eq!(listed["groups"][0]["members"].as_array().map(Vec::len), Some(2), "{listed:#}");
    let snapshot = first_document(scene, reference);
    assert_eq!((&snapshot["kind"], &snapshot["totals"]["trees"]), (&"snapshot".into(), &1.into()), "{snapshot:#}");
    let server = listed["sessions"][0]["leader"]["pid"].to_string();
    let finding = reference.play(scene, "why PID", ["why", &server, "--json"]);
    assert_eq!(finding["finding"]["leashed"], "job", "{finding:#}");
    let other = reference.play(scene, "why PID", ["why", &host.pid().as_raw_nonzero().to_string(), "--json"]);
    assert_eq!(other["finding"], Value::Null, "{other:#}");

    assert_eq!(scene.answer(["run", "--session", "job", "--", "/no/such/server"]).code, 127);
    let ended = reference.play(scene, "end SESSION", ["end", "job", "--json"]);
    assert_eq!(ended["receipts"][0]["members"].as_array().map(Vec::len), Some(2), "{ended:#}");
    assert_eq!(reference.play(scene, "end SESSION", ["end", "--all", "--json"])["receipts"], serde_json::json!([]));
    drop(stdin);
    connect.wait().expect("leash ends");
    host.exit();
    host.wait();
    let all = reference.play(scene, "history", ["history", "--json"]);
    assert!(all["receipts"].as_array().is_some_and(|receipts| receipts.len() == 3), "{all:#}");
    gateway(scene, reference);
    let one = reference.play(scene, "history", ["history", "job", "--json"]);
    assert_eq!(one["sessions"][0]["upstream"], 1, "{one:#}");
}

/// A gateway whose server has crashed, and the line that it left.
fn gateway(scene: &Scene, reference: &Reference) {
    let crash = ["sh", "-c", r"printf 'no \377 key\n' >&2; exit 3"].map(Into::into);
    let gateway = Gateway::single(scene, &[], &crash);
    let found = wait::until("the problem", || {
        // On a busy machine the client may leave before the gateway notices the crash; then its leaving is the reason.
        gateway.post("x", None, INITIALIZE);
        let found = reference.play(scene, "status", ["status", "--json"]);
        found["problems"].as_array().is_some_and(|problems| !problems.is_empty()).then_some(found)
    });
    assert_eq!(found["servers"][0]["name"], "x", "{found:#}");
    let line = reference.play(scene, "logs", ["logs", "x", "-n", "1", "--json"]);
    assert_eq!(line["hex"], "6e6f20ff206b6579", "{line:#}");
    gateway.stop();
}

/// A server of a client's configuration that its host left behind.
fn orphans(scene: &Scene, reference: &Reference) {
    fs::write(scene.dir().join("server.sh"), "sleep 600\n").expect("a script");
    let declared = r#"{"mcpServers": {"slow": {"command": "sh", "args": ["server.sh"]}}}"#;
    fs::write(scene.dir().join(".mcp.json"), declared).expect("a configuration");
    let host = format!("exec 9> {}; (true | sh server.sh | true &)", scene.witness().path().display());
    assert!(scene.command("sh").args(["-c", &host]).status().expect("cannot start sh").success());
    let is_orphan = |listed: &Value| listed["servers"][0]["finding"]["verdict"] == "orphan_proved";
    wait::until("the orphan", || is_orphan(&reference.play(scene, "ps", ["ps", "--json"])).then_some(()));
    let plan = reference.play(scene, "reap", ["reap", "--json"]);
    assert_eq!(plan["plan"][0]["would_end"], true, "{plan:#}");
    let done = reference.play(scene, "reap --yes", ["reap", "--yes", "--json"]);
    assert_eq!(done["receipts"].as_array().map(Vec::len), Some(1), "{done:#}");
    scene.witness().wait_gone(LIMIT).expect("the orphan is ended");
}

/// The configuration of a client: with a server that leash adopts, one that it leaves alone, and one that changes after.
fn configurations(scene: &Scene, reference: &Reference) {
    let path = scene.dir().join(".cursor/mcp.json");
    fs::create_dir(scene.dir().join(".cursor")).expect("a directory");
    let servers = r#"{"a": {"command": "npx", "args": ["-y", "x"]}, "b": {"command": "docker", "args": ["run", "-i", "y"]},
        "c": {"url": "https://example.org/mcp"}, "d": {"command": "sh", "disabled": true}}"#;
    fs::write(&path, format!("{{\"mcpServers\": {servers}}}\n")).expect("a configuration");
    scene.user().own(&path).expect("it can be given away");
    scene.user().own(path.parent().expect("a directory")).expect("it can be given away");
    // One that is no JSON, and one that only root can read.
    for (dir, file, mode) in [(".gemini", "settings.json", 0o644), (".codeium/windsurf", "mcp_config.json", 0o600)] {
        let dir = scene.dir().join(dir);
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(dir.join(file), "{").expect("a file");
        fs::set_permissions(dir.join(file), fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let plan = reference.play(scene, "adopt", ["adopt", "--json"]);
    assert_eq!(plan["notes"].as_array().map(Vec::len), Some(1), "{plan:#}");
    assert_eq!(
        (&plan["files"][0]["written"], &plan["files"][0]["adopted"][0]),
        (&false.into(), &"a".into()),
        "{plan:#}"
    );
    assert!(plan["files"][0]["left"].as_array().is_some_and(|left| !left.is_empty()), "{plan:#}");
    assert_eq!(plan["passed_over"][0]["servers"][0], "slow", "the project's file: {plan:#}");
    let done = reference.play(scene, "adopt", ["adopt", "--yes", "--json"]);
    assert_eq!(done["files"][0]["written"], true, "{done:#}");
    let edited = fs::read_to_string(&path).expect("it can be read").replacen("\"--name=a\", ", "", 1);
    fs::write(&path, edited).expect("it can be written");
    let undone = reference.play(scene, "release", ["release", "--yes", "--json"]);
    let outcomes: Vec<&Value> =
        undone["files"][0]["servers"].as_array().into_iter().flatten().map(|server| &server["outcome"]).collect();
    assert!(outcomes.contains(&&"released".into()), "{undone:#}");
}

/// What the machine offers, and the test kit.
fn machine(scene: &mut Scene, reference: &Reference) {
    let server = scene.tree("ignores-eof", ["--mcp"]);
    let words = ["check", "--json", "--grace", "100ms", "--"].map(Into::into);
    let report = reference.play(scene, "check", words.into_iter().chain(server));
    assert_eq!(report["passed"], false, "{report:#}");
    scene.set_env("LEASH_GRACE", "1s");
    let found = reference.play(scene, "doctor", ["doctor", "--json"]);
    assert_eq!(found["run_defaults"][0]["option"], "grace", "{found:#}");
    let upgrade = reference.play(scene, "upgrade", ["upgrade", "--json"]);
    assert_eq!(upgrade["installed"], found["installed"], "{upgrade:#}");
}
