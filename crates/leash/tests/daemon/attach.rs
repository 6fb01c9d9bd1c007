//! `leash attach`: a stdio host gets a server of a session, and the secret in its URL stays hidden.

use std::ffi::OsString;
use std::fs;

use expect_test::{Expect, expect};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::client::{Client, Mode, Order, Sdk, Target};
use testkit::deps::Deps;
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::host::{Host, Manner};
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::{ask, create, socket, stdio_server};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

/// A daemon with a session that has a stdio server (`files`), one made with the Rust SDK (`sdk`), and an HTTP server
/// (`web`).
struct Stage {
    scene: Scene,
    fixture: Fixture,
    gateway: Gateway,
    session: Value,
}

impl Stage {
    fn set() -> Result<Stage, String> {
        let mut scene = Scene::set(Who::me())?;
        let fixture = Fixture::http(&[]);
        let gateway = Gateway::single(&scene, &["--grace", "300ms"], &["cat".into()]);
        let sdk = json!({ "command": scene.fixture_path(), "args": ["stdio", "--census", scene.census().path()] });
        let web = json!({ "type": "http", "url": fixture.url() });
        let servers = json!({ "files": stdio_server(&scene), "sdk": sdk, "web": web });
        let session = create(&socket(&scene), &json!({ "mcpServers": servers }));
        scene.census().wait_ready(LIMIT).expect("the stdio server runs");
        Ok(Stage { scene, fixture, gateway, session })
    }

    fn id(&self) -> &str {
        self.session["id"].as_str().expect("an id")
    }

    fn secret(&self) -> String {
        let url = self.session["servers"][0]["url"].as_str().expect("a url");
        let path = url.split_once("/s/").expect("the address of a session").1;
        path.split_once('/').expect("a server's name").0.to_owned()
    }

    /// A host with `leash attach` below it, in the middle of a conversation.
    fn host(&self, server: &str) -> Host {
        // As `leash ps` shows it.
        let target = format!("{}/{server}", &self.id()[..8]);
        let words = vec![self.scene.leash_path().into(), "attach".into(), target.into()];
        let mut host = self.scene.host(&Manner::default(), None, &words);
        host.send(INITIALIZE);
        assert!(host.wait_containing(r#""protocolVersion""#), "{}\n{}", self.scene.stderr(), self.gateway.said());
        host.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        host
    }

    /// The session as the daemon sees it.
    fn now(&self) -> Value {
        ask(&socket(&self.scene), "GET", &format!("/v1/sessions/{}", self.id()), "").json()
    }

    /// Ends the session, and asks every witness.
    fn end(self) {
        let Stage { scene, fixture, gateway, session } = self;
        let path = format!("/v1/sessions/{}", session["id"].as_str().expect("an id"));
        let receipt = ask(&socket(&scene), "DELETE", &path, "");
        assert_eq!(receipt.status, 200, "{}", receipt.text());
        assert_eq!(fixture.report().open(), [""; 0]);
        gateway.stop();
        scene.wait_gone(&[]).expect("nothing is left");
    }
}

/// Every file below a directory that contains a text.
fn holding(dir: &std::path::Path, text: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(holding(&path, text)),
            Ok(kind) if kind.is_file() => {
                let bytes = fs::read(&path).unwrap_or_default();
                if String::from_utf8_lossy(&bytes).contains(text) {
                    found.push(path);
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn real_clients_reach_both_kinds_of_servers_and_leave_the_session_alive() {
    let stage = or_skip!(Stage::set());
    let deps = or_skip!(Deps::find());
    let scene = &stage.scene;
    let acts = ["list", "call", "progress", "sampling", "close"];
    for server in ["sdk", "web"] {
        let found = stage.session["servers"].as_array().expect("servers").iter().find(|found| found["name"] == server);
        let found = found.expect("it was asked for");
        // As a host starts it: without the environment variable of the daemon's runtime directory.
        let elsewhere = format!("LEASH_RUNTIME_DIR={}", scene.dir().join("elsewhere").display());
        let mut words: Vec<OsString> = ["env", &elsewhere].map(OsString::from).into();
        let word = |word: &Value| OsString::from(word.as_str().expect("a word"));
        words.push(word(&found["command"]));
        words.extend(found["args"].as_array().expect("words").iter().map(word));
        let order = Order { sdk: Sdk::Rust, mode: Mode::Legacy, acts: &acts, target: Target::Stdio(words) };
        let mut client = Client::start_on(scene, &deps, &order);
        for act in ["connect"].iter().chain(&acts) {
            let outcome = client.outcome(act);
            assert!(outcome["error"].is_null(), "{server}: {outcome}");
        }
        assert!(client.wait().success());
    }
    // Their own upstream sessions are over; the session that they were attached to is not.
    assert_eq!(stage.fixture.wait_deleted(), 1);
    assert_eq!(stage.now()["state"], "live");
    stage.end();
}

fn lose_host(server: &str, lose: impl Fn(&mut Host)) {
    let stage = or_skip!(Stage::set());
    let mut host = stage.host(server);
    let attached = host.server();
    lose(&mut host);
    assert!(attached.wait_gone(LIMIT), "leash attach outlives its host");
    wait::until("the end of the connection", || {
        let holdings =
            stage.now()["servers"].as_array()?.iter().map(|server| server["inFlight"].as_u64()).sum::<Option<u64>>();
        (holdings == Some(0) && stage.fixture.report().open().is_empty()).then_some(())
    });
    assert_eq!(stage.now()["state"], "live", "{}", stage.gateway.said());
    drop(host);
    stage.end();
}

#[test]
fn a_host_that_closes_its_pipe_ends_the_connection_and_not_the_session() {
    lose_host("web", Host::close_stdin);
}

#[test]
fn a_host_that_is_killed_ends_the_connection_and_not_the_session() {
    lose_host("web", |host| host.signal(Signal::KILL));
}

#[test]
fn a_killed_host_of_a_stdio_server_ends_the_connection_and_not_the_session() {
    lose_host("files", |host| host.signal(Signal::KILL));
}

#[test]
fn when_attach_is_killed_its_keeper_ends_the_connection() {
    let stage = or_skip!(Stage::set());
    let mut host = stage.host("web");
    assert_eq!(stage.fixture.report().open().len(), 1);
    let attached = host.server();
    let keeper = keeper(attached.pid());
    attached.signal(Signal::KILL).expect("it is alive");
    assert!(keeper.wait_gone(LIMIT));
    stage.fixture.wait("the end of the connection", |report| report.open().is_empty().then_some(()));
    assert_eq!(stage.now()["state"], "live");
    drop(host);
    stage.end();
}

#[test]
fn end_of_the_session_ends_attach() {
    let mut stage = or_skip!(Stage::set());
    let mut host = stage.host("files");
    let attached = host.server();
    let receipt = ask(&socket(&stage.scene), "DELETE", &format!("/v1/sessions/{}", stage.id()), "");
    assert_eq!(receipt.status, 200, "{}", receipt.text());
    stage.scene.census().wait_gone(std::time::Duration::ZERO).expect("nothing is left when the call returns");
    assert!(attached.wait_gone(LIMIT), "leash attach stays: {}", stage.scene.stderr());
    let again = stage.scene.answer(["attach", &format!("{}/files", stage.id())]);
    assert_eq!(again.code, 1, "{again:?}");
    drop(host);
    stage.end();
}

#[test]
fn the_secret_is_in_no_command_line_no_listing_and_no_receipt() {
    let stage = or_skip!(Stage::set());
    let secret = stage.secret();
    let mut host = stage.host("web");
    for process in testkit::process::all() {
        for file in ["cmdline", "environ", "comm"] {
            let text = fs::read(format!("/proc/{}/{file}", process.as_raw_nonzero())).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains(&secret), "/proc/{}/{file}", process.as_raw_nonzero());
        }
    }
    for words in [&["ps"][..], &["ps", "--json"], &["ps", "--tree", "-v"]] {
        let answer = stage.scene.answer(words);
        assert!(!format!("{answer:?}").contains(&secret), "{words:?}: {answer:?}");
    }
    // The book needs it in case all processes are killed: it is our own file in our own directory.
    for path in holding(stage.scene.dir(), &secret) {
        use std::os::unix::fs::MetadataExt as _;
        assert!(path.starts_with(stage.scene.runtime_dir().join("gateways")), "{}", path.display());
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o077, 0, "{}", path.display());
    }
    host.close_stdin();
    assert!(host.wait_ended(LIMIT).is_some());
    for words in [&["history"][..], &["history", "--json"]] {
        let answer = stage.scene.answer(words);
        assert!(!format!("{answer:?}").contains(&secret), "{words:?}: {answer:?}");
    }
    let left = holding(stage.scene.dir(), &secret);
    assert!(left.is_empty(), "{left:?}");
    assert!(!stage.gateway.said().contains(&secret), "{}", stage.gateway.said());
    assert!(!stage.scene.stderr().contains(&secret), "{}", stage.scene.stderr());
    drop(host);
    stage.end();
}

#[test]
fn missing_session_or_server_is_reported() {
    let stage = or_skip!(Stage::set());
    let check = |target: &str, expected: &Expect| {
        let answer = stage.scene.answer(["attach", target]);
        let text = format!("{}{}[{}]\n", answer.stdout, answer.stderr, answer.code);
        expected.assert_eq(&text.replace(stage.id(), "SESSION"));
    };
    check(
        "no-such-session/files",
        &expect![[r#"
            error: there is no session `no-such-session`

            hint: `leash ps` lists the sessions that are alive, `leash history` those that ended
            [1]
        "#]],
    );
    check(
        &format!("{}/file", stage.id()),
        &expect![[r#"
        error: session `SESSION` has no server `file`

        hint: it has: files, sdk, web
        [1]
    "#]],
    );
    let path = format!("/v1/sessions/{}", stage.id());
    assert_eq!(ask(&socket(&stage.scene), "DELETE", &path, "").status, 200);
    check(
        &format!("{}/files", stage.id()),
        &expect![[r#"
            error: session `SESSION` has ended

            hint: `leash ps` lists the sessions that are alive, `leash history` those that ended
            [1]
        "#]],
    );
    stage.end();
}
