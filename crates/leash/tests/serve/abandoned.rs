//! Clients that vanish: no process and no upstream session of theirs stays. go-sdk#499, claude-code#56456.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Signal};
use testkit::fixture::Fixture;
use testkit::gateway::{Gateway, post};
use testkit::http::{Connection, POST, initialize};
use testkit::scene::Scene;
use testkit::sys::{self, Step};
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{both, live, nothing_is_left, open, receipts};

/// The number of clients. Each has an upstream session, and every fifth one a process tree as well.
const CLIENTS: usize = 200;
const WITH_TREE: usize = 5;
/// The number of concurrent clients, if they do not wait for each other.
const AT_ONCE: usize = 20;
/// A request that every server answers.
const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
/// A reset connection is gone by then.
const SOON: Duration = Duration::from_millis(200);

fn urls(gateway: &Gateway, client: usize) -> Vec<String> {
    let stdio = (client.is_multiple_of(WITH_TREE)).then(|| gateway.url("stdio"));
    [gateway.url("http")].into_iter().chain(stdio).collect()
}

/// Client processes, each with open sessions.
fn clients(scene: &Scene, gateway: &Gateway, then: &str) -> Vec<Child> {
    let start = |client| {
        let mut command = scene.zoo(["http-client", then]);
        command.args(urls(gateway, client)).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("cannot start a client")
    };
    let mut clients: Vec<Child> = (0..CLIENTS).map(start).collect();
    for client in &mut clients {
        let mut line = String::new();
        let stdout = client.stdout.as_mut().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a client says something");
        assert_eq!(line, "ready\n", "{}", gateway.said());
    }
    clients
}

fn vanish(then: &str, leave: impl Fn(&mut Child)) {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""linger": "300ms", "grace": "500ms""#);
    let mut clients = clients(&scene, &gateway, then);
    assert_eq!(fixture.report().opened(), CLIENTS as u64);
    clients.iter_mut().for_each(leave);
    clients.iter_mut().for_each(|client| drop(client.wait()));
    nothing_is_left(&mut scene, &gateway, &fixture);
    let receipts = receipts(&scene);
    assert_eq!(receipts.len(), CLIENTS + CLIENTS / WITH_TREE);
    for receipt in receipts {
        let reason = &receipt["reason"];
        assert_eq!((&reason["kind"], &reason["role"]), (&"owner_gone".into(), &"client".into()), "{receipt}");
        assert_eq!(receipt["holdings"][0]["fate"], "gone", "{receipt}");
    }
}

#[test]
fn killed_clients_leave_nothing() {
    vanish("hold", |client| client.kill().expect("it is our child"));
}

#[test]
fn clients_that_exit_leave_nothing() {
    vanish("exit", |client| client.stdin.take().expect("stdin is piped").write_all(b"go\n").expect("it reads"));
}

/// Each of their sessions is deleted on its own connection, all at once: the memory for that must be freed too.
#[test]
fn killed_clients_leave_no_memory() {
    const SESSIONS: usize = 400;
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""linger": "300ms""#);
    let before = gateway.memory();
    let mut command = scene.zoo(["http-client", "hold"]);
    command.args(std::iter::repeat_n(gateway.url("http"), SESSIONS)).stdout(Stdio::piped());
    let mut client = command.spawn().expect("cannot start a client");
    let mut line = String::new();
    let stdout = client.stdout.as_mut().expect("stdout is piped");
    BufReader::new(stdout).read_line(&mut line).expect("a client says something");
    assert_eq!(line, "ready\n", "{}", gateway.said());
    client.kill().expect("it is our child");
    client.wait().expect("it is our child");
    nothing_is_left(&mut scene, &gateway, &fixture);
    // Without heap trimming 9 MiB stay. The sessions that end after the last trimming leave some, which is less than 4 MiB.
    let freed = wait::within(wait::LIMIT, || (gateway.memory() < before + (4 << 20)).then_some(()));
    assert!(freed.is_some(), "{} bytes of memory, and {before} before", gateway.memory());
}

/// Programs that are started for one request: there is hardly time to look up their process.
#[test]
fn clients_that_leave_at_once_leave_nothing() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""linger": "300ms", "grace": "500ms""#);
    for some in 0..CLIENTS / AT_ONCE {
        let start = |client| {
            let mut command = scene.zoo(["http-client", "exit"]);
            command.args(urls(&gateway, some * AT_ONCE + client)).stdin(Stdio::null()).stdout(Stdio::null());
            command.spawn().expect("cannot start a client")
        };
        let clients: Vec<Child> = (0..AT_ONCE).map(start).collect();
        for mut client in clients {
            assert!(client.wait().expect("it is our child").success(), "{}", gateway.said());
        }
    }
    nothing_is_left(&mut scene, &gateway, &fixture);
    assert_eq!(fixture.report().opened(), CLIENTS as u64);
    for receipt in receipts(&scene) {
        assert_eq!(receipt["reason"]["kind"], "owner_gone", "{receipt}");
    }
}

/// The gateway is stopped meanwhile, so that it reads the last request after its client is gone. The request does not
/// identify its client; the process that opened the session decides.
#[test]
fn a_last_request_that_is_read_too_late_does_not_keep_the_session() {
    const SESSIONS: usize = 50;
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""linger": "300ms", "grace": "500ms""#);
    let mut command = scene.zoo(["http-client", "obey"]);
    let urls = (0..SESSIONS).map(|client| gateway.url(if client % 10 == 0 { "stdio" } else { "http" }));
    command.args(urls).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.spawn().expect("cannot start a client");
    let mut says = BufReader::new(client.stdout.take().expect("stdout is piped")).lines();
    let mut hear = || says.next().expect("a client says something").expect("it is text");
    assert_eq!(hear(), "ready", "{}", gateway.said());
    gateway.signal(Signal::STOP);
    let mut orders = client.stdin.take().expect("stdin is piped");
    orders.write_all(b"request-stream\n").expect("it reads");
    (0..SESSIONS).for_each(|_| assert_eq!(hear(), "request-stream 0"));
    drop(orders);
    assert!(client.wait().expect("it is our child").success());
    gateway.signal(Signal::CONT);
    nothing_is_left(&mut scene, &gateway, &fixture);
    let receipts = receipts(&scene);
    assert_eq!(receipts.len(), SESSIONS);
    for receipt in receipts {
        assert_eq!(receipt["reason"]["kind"], "owner_gone", "{receipt}");
    }
}

/// Other connections use every descriptor of the gateway. It has some in reserve to look up its client.
#[test]
fn a_gateway_without_descriptors_still_finds_its_client() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let limit = vec![Step::Limit(Resource::Nofile, 64)];
    let words = ["--name", "x", "--url", fixture.url(), "--linger", "300ms"];
    let gateway = Gateway::prepared(&scene, "127.0.0.1:0", limit, words);
    // Its connection to the server is kept for the next session.
    open(&gateway, "x");
    let mut command = scene.zoo(["http-client", "late-hold"]);
    command.arg(gateway.url("x")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.spawn().expect("cannot start a client");
    let mut says = BufReader::new(client.stdout.take().expect("stdout is piped")).lines();
    let mut hear = || says.next().expect("a client says something").expect("it is text");
    assert_eq!(hear(), "connected", "{}", gateway.said());
    let mut others = Vec::new();
    wait::until("all descriptors to be taken", || {
        others.push(gateway.connect());
        gateway.said().contains("cannot accept a connection").then_some(())
    });
    client.stdin.take().expect("stdin is piped").write_all(b"go\n").expect("it reads");
    assert_eq!(hear(), "ready", "{}", gateway.said());
    client.kill().expect("it is our child");
    client.wait().expect("it is our child");
    drop(others);
    fixture
        .wait("the session of the killed client to be deleted", |report| (report.deleted().len() == 1).then_some(()));
    // The other client lives.
    let ended = wait::until("its receipt", || Some(receipts(&scene)).filter(|receipts| receipts.len() == 1));
    assert_eq!(ended[0]["reason"]["kind"], "owner_gone", "{}", ended[0]);
    gateway.stop();
}

/// Ports are reused: a process that connects from the port of a closed connection has nothing to do with its session.
#[test]
fn next_process_on_the_same_port_is_no_owner() {
    let mut scene = or_skip!(Scene::set(Who::me()));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""linger": "300ms""#);
    let mut command = scene.zoo(["http-client", "obey"]);
    command.arg(gateway.url("http")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.spawn().expect("cannot start a client");
    let mut says = BufReader::new(client.stdout.take().expect("stdout is piped")).lines();
    let mut hear = || says.next().expect("a client says something").expect("it is text");
    assert_eq!(hear(), "ready", "{}", gateway.said());
    let mut orders = client.stdin.take().expect("stdin is piped");
    let mut stranger = wait::within(wait::LIMIT, || {
        // Other programs use the same ports: if one of them was faster, the test tries the next port.
        orders.write_all(b"call\nreset\n").expect("it reads");
        assert_eq!(hear(), "call 200");
        let port = hear().strip_prefix("reset ").and_then(|port| port.parse().ok()).expect("it says its port");
        // The port is free as soon as the kernel has processed the end of the old connection.
        wait::within(SOON, || Connection::open_from(port, gateway.address()).ok())
    })
    .expect("a port is free");
    assert_eq!(stranger.ask("GET", "/healthz", &[], b"").status, 200);
    client.kill().expect("it is our child");
    client.wait().expect("it is our child");
    nothing_is_left(&mut scene, &gateway, &fixture);
    assert_eq!(stranger.ask("GET", "/healthz", &[], b"").status, 200, "it was there all the time");
}

/// A client forks after leash found it, and its child opens a session on the inherited connection. leash remembers the
/// parent as the owner of the connection, and must not take the parent's exit for that of the child.
#[test]
fn child_that_inherited_a_known_connection_owns_its_session() {
    let mut scene = or_skip!(Scene::set(Who::me()));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""linger": "300ms""#);
    let mut command = scene.zoo(["http-client", "obey"]);
    command.arg(gateway.url("http")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parent = command.spawn().expect("cannot start a client");
    let mut orders = parent.stdin.take().expect("stdin is piped");
    let mut says = BufReader::new(parent.stdout.take().expect("stdout is piped")).lines();
    let mut hear = || says.next().expect("a client says something").expect("it is text");
    assert_eq!(hear(), "ready", "{}", gateway.said());
    orders.write_all(b"fork\n").expect("it reads");
    let child: u32 = hear().strip_prefix("fork ").and_then(|pid| pid.parse().ok()).expect("it says its pid");
    orders.write_all(b"open\n").expect("it reads");
    assert_eq!(hear(), "open 200");
    wait::until("leash to find the child", || {
        let all = scene.answer(["ps", "--json", "--leashed"]).json();
        let sessions = all["upstream"].as_array().cloned().unwrap_or_default();
        sessions.iter().any(|session| session["client"]["pid"] == child).then_some(())
    });
    // From now on only the parent holds the connection.
    orders.write_all(b"reset\n").expect("it reads");
    assert!(hear().starts_with("reset "));
    parent.kill().expect("it is our child");
    parent.wait().expect("it is our child");
    fixture.wait("the parent's session to be deleted", |report| (report.deleted().len() == 1).then_some(()));
    orders.write_all(b"call\n").expect("it reads");
    assert_eq!(hear(), "call 200", "the session of the child goes on");
    drop(orders);
    nothing_is_left(&mut scene, &gateway, &fixture);
}

/// A worker closes its connections without DELETE and lives on. The test is that worker.
#[test]
fn session_that_a_living_client_has_forgotten_ends() {
    let mut scene = or_skip!(Scene::set(Who::me()));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""idle": "300ms", "grace": "500ms""#);
    for name in ["http", "stdio"] {
        let (forgotten, newest) = (open(&gateway, name), open(&gateway, name));
        wait::until("the older session to end", || (live(&gateway, name) == 1.0).then_some(()));
        assert_eq!(gateway.post(name, Some(&forgotten), PING).status, 404);
        assert_eq!(gateway.post(name, Some(&newest), PING).status, 200, "{}", gateway.said());
        let reply = gateway.ask("DELETE", &format!("/{name}/mcp"), &[("mcp-session-id", &newest)], b"");
        assert!([200, 202].contains(&reply.status), "{}", reply.text());
    }
    nothing_is_left(&mut scene, &gateway, &fixture);
    let reasons = receipts(&scene).into_iter().map(|receipt| receipt["reason"]["kind"].to_string());
    let reasons: Vec<String> = reasons.collect();
    let count = |kind: &str| reasons.iter().filter(|reason| reason.contains(kind)).count();
    assert_eq!((count("abandoned"), count("client_deleted"), reasons.len()), (2, 2, 4), "{reasons:?}");
}

/// The same without a newer session: `abandoned` decides, and a session with a connection is not abandoned.
#[test]
fn session_without_connection_ends_although_its_client_lives() {
    let mut scene = or_skip!(Scene::set(Who::me()));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""idle": "1h", "abandoned": "300ms", "grace": "500ms""#);
    for name in ["http", "stdio"] {
        let mut connection = gateway.connect();
        let reply = post(&mut connection, name, None, &initialize("2025-06-18"));
        let connected = reply.header("mcp-session-id").expect("a session").to_owned();
        open(&gateway, name);
        wait::until("the other session to end", || (live(&gateway, name) == 1.0).then_some(()));
        assert_eq!(post(&mut connection, name, Some(&connected), PING).status, 200, "{}", gateway.said());
    }
    nothing_is_left(&mut scene, &gateway, &fixture);
    let receipts = receipts(&scene);
    assert_eq!(receipts.len(), 4);
    for receipt in receipts {
        assert_eq!(receipt["reason"]["kind"], "abandoned", "{receipt}");
    }
}

/// Sessions whose clients are only known by their traffic.
fn traffic(policy: &str, vanish: impl Fn(Connection)) {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, &format!(r#""owner": "traffic", "grace": "500ms", {policy}"#));
    let mut open = Vec::new();
    for client in 0..CLIENTS {
        for url in urls(&gateway, client) {
            let path = url.strip_prefix(&format!("http://{}", gateway.address())).expect("our own").to_owned();
            let mut connection = gateway.connect();
            let reply = connection.ask("POST", &path, &POST, initialize("2025-06-18").as_bytes());
            let session = reply.header("mcp-session-id").expect("a session").to_owned();
            let headers = [("accept", "text/event-stream"), ("mcp-session-id", &session)];
            connection.send("GET", &path, &headers, b"").expect("it is sent");
            assert_eq!(connection.head().expect("an answer").status, 200);
            open.push(connection);
        }
    }
    open.into_iter().for_each(vanish);
    nothing_is_left(&mut scene, &gateway, &fixture);
    assert_eq!(receipts(&scene).len(), CLIENTS + CLIENTS / WITH_TREE);
}

#[test]
fn closed_sockets_leave_nothing() {
    traffic(r#""idle": "500ms""#, drop);
}

#[test]
fn half_open_connections_leave_nothing() {
    // The gateway gets no FIN and no RST: it can only notice by writing.
    if let Err(why) = sys::may_close_silently() {
        return testkit::note(&format!("skipped: {why}"));
    }
    traffic(r#""idle": "500ms", "keepAlive": "500ms""#, |connection| {
        sys::close_silently(connection.into_socket());
    });
}

#[test]
fn a_client_that_dies_in_the_middle_of_initialize_leaves_nothing() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&["--init-delay", "300"]);
    let gateway = both(&scene, &fixture, r#""owner": "traffic", "idle": "500ms", "grace": "500ms""#);
    let body = initialize("2025-06-18");
    let mut waiting = Vec::new();
    for name in ["http", "stdio"] {
        for _ in 0..20 {
            let mut connection = gateway.connect();
            connection.send("POST", &format!("/{name}/mcp"), &POST, body.as_bytes()).expect("it is sent");
            waiting.push(connection);
        }
    }
    // A client that leaves before that has not sent a request.
    let received = |name| gateway.metric(&format!("leash_received_bytes_total{{server=\"{name}\"}}"));
    let all = Some((20 * body.len()) as f64);
    wait::until("all requests to be heard", || (received("http") == all && received("stdio") == all).then_some(()));
    drop(waiting);
    fixture.wait("the late sessions", |report| (report.opened() == 20).then_some(()));
    wait::until("the sessions to begin", || (gateway.said().matches("Opened").count() == 40).then_some(()));
    nothing_is_left(&mut scene, &gateway, &fixture);
}

/// Each client leaves while its server is being started, so that the session is over before there is a tree.
#[test]
fn abandoned_trees_count_against_the_limit() {
    let scene = or_skip!(Scene::set(Who::User));
    // The user of a client that is gone before its connection is accepted cannot be determined.
    let (most, options) = (2, ["--max-sessions", "2", "--grace", "300ms", "--local-users", "any"]);
    let gateway = Gateway::single(&scene, &options, &scene.tree("stubborn", ["--mcp"]));
    let body = initialize("2025-06-18");
    let most_at_once = (0..60).map(|_| {
        gateway.connect().send("POST", "/x/mcp", &POST, body.as_bytes()).expect("it is sent");
        gateway.metric("leash_trees{server=\"x\"}").unwrap_or_default()
    });
    let most_at_once = most_at_once.fold(0.0, f64::max);
    assert!(most_at_once <= f64::from(most), "{most_at_once} trees at once");
    gateway.wait_empty("x");
    let started = gateway.metric("leash_trees_started_total{server=\"x\"}").unwrap_or_default();
    assert!(started > 0.0, "not even one was started");
    // There is a free slot again.
    wait::until("room", || (gateway.post("x", None, &body).status == 200).then_some(()));
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}
