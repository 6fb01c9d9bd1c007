//! The gateway is killed by SIGKILL and started again: it takes the sessions over from the keeper of the killed one,
//! and no client notices.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use testkit::gateway::Gateway;
use testkit::http::{POST, Reply, initialize};
use testkit::leash::gateway_keeper;
use testkit::or_skip;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::upstream::{Seen, Upstream, Wire};
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::{LIST, config, receipts};

const CLIENTS: usize = 40;
const RESULT: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}"#;
/// Longer than any test: the keeper of a killed gateway stays until the next gateway starts.
const PATIENT: &str = r#""takeover": "1h""#;
const IMPATIENT: &str = r#""takeover": "50ms""#;

/// A server that requires the credentials that opened a session for its use and its end: ids and credentials.
#[derive(Default)]
struct Sessions {
    open: Mutex<Vec<(String, String)>>,
    opened: Mutex<usize>,
}

impl Sessions {
    fn serve(&self, seen: &Seen, wire: &mut Wire) -> std::io::Result<()> {
        let key = seen.header("authorization").unwrap_or_default().to_owned();
        let mut open = self.open.lock().expect("no test panics with it");
        if seen.text().contains("\"initialize\"") {
            let mut opened = self.opened.lock().expect("no test panics with it");
            *opened += 1;
            let id = format!("{opened}-session");
            open.push((id.clone(), key));
            let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", &*id)];
            return wire.answer("200 OK", &headers, RESULT.as_bytes());
        }
        let named = (seen.header("mcp-session-id").unwrap_or_default().to_owned(), key);
        if !open.contains(&named) {
            return wire.answer("404 Not Found", &[], b"");
        }
        if seen.method == "DELETE" {
            open.retain(|session| *session != named);
            return wire.answer("200 OK", &[], b"");
        }
        wire.answer("202 Accepted", &[], b"")
    }

    fn left(&self) -> usize {
        self.open.lock().expect("no test panics with it").len()
    }

    fn opened(&self) -> usize {
        *self.opened.lock().expect("no test panics with it")
    }

    fn forget(&self) {
        self.open.lock().expect("no test panics with it").clear();
    }
}

struct Stage {
    scene: Scene,
    sessions: Arc<Sessions>,
    upstream: Upstream,
    address: String,
    gateway: Gateway,
    /// The session ids of the clients.
    ids: Vec<String>,
}

/// An address that no other test uses: a restarted gateway must find it free.
fn own_address() -> String {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let [.., third, second, first] = std::process::id().to_be_bytes();
    format!("127.{}.{second}.{first}:{}", 100 + third % 100, 5400 + COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Stage {
    /// A gateway without sessions.
    fn empty(who: Who, policy: &str) -> Result<Stage, String> {
        let scene = Scene::set(who)?;
        let sessions = Arc::new(Sessions::default());
        let serving = Arc::clone(&sessions);
        let upstream = Upstream::start(move |seen, wire| serving.serve(seen, wire));
        let (address, servers) = (own_address(), x_at(&upstream));
        let gateway = start(&scene, &address, &servers, policy);
        Ok(Stage { scene, sessions, upstream, address, gateway, ids: Vec::new() })
    }

    /// A gateway with sessions of clients that each have their own key; every fourth has none.
    fn set(policy: &str) -> Result<Stage, String> {
        Stage::set_as(Who::User, policy)
    }

    fn set_as(who: Who, policy: &str) -> Result<Stage, String> {
        let mut stage = Stage::empty(who, policy)?;
        for client in 0..CLIENTS {
            let reply = stage.ask(client, "POST", None, &initialize("2025-06-18"));
            assert_eq!(reply.status, 200, "{}", reply.text());
            stage.ids.push(reply.header("mcp-session-id").expect("a session").to_owned());
        }
        Ok(stage)
    }

    /// Sends a request with a client's key.
    fn ask(&self, client: usize, method: &str, session: Option<&str>, body: &str) -> Reply {
        let key = format!("Bearer key-{client}");
        let mut headers = POST.to_vec();
        if !client.is_multiple_of(4) {
            headers.push(("authorization", &key));
        }
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        self.gateway.ask(method, "/x/mcp", &headers, body.as_bytes())
    }

    /// Kills the gateway, and returns its keeper.
    fn kill(&mut self) -> Handle {
        let keeper = gateway_keeper(self.gateway.pid());
        self.gateway.wait_metric("leash_keeper_backlog", 0.0);
        self.gateway.signal(Signal::KILL);
        assert_eq!(self.gateway.wait(), None);
        keeper
    }

    /// Asks the keeper for all sessions. It answers when the gateway is dead.
    fn knock(&self) -> UnixStream {
        let books = std::fs::read_dir(self.scene.dir().join("run/gateways")).expect("there is a book");
        let mut paths = books.map(|entry| entry.expect("an entry").path());
        let handover_socket =
            paths.find(|path| path.extension().is_some_and(|kind| kind == "sock")).expect("there is a door");
        UnixStream::connect(handover_socket).expect("it listens")
    }

    fn stop(&mut self) {
        self.gateway.signal(Signal::TERM);
        assert_eq!(self.gateway.wait(), Some(0), "{}", self.gateway.said());
    }

    /// Starts it again.
    fn come_back(&mut self, policy: &str) {
        self.gateway = start(&self.scene, &self.address, &x_at(&self.upstream), policy);
    }

    /// Checks that every client can use its session, and no other client can.
    fn check_use(&self) {
        for (client, id) in self.ids.iter().enumerate() {
            assert_eq!(self.ask(client, "POST", Some(id), LIST).status, 202, "{}", self.gateway.said());
            assert_eq!(self.ask(client + CLIENTS + 1, "POST", Some(id), LIST).status, 404);
        }
        assert_eq!((self.upstream.of("DELETE").len(), self.sessions.opened()), (0, CLIENTS));
        assert_eq!(receipts(&self.scene).len(), 0);
    }

    /// Checks that every session was deleted once and has one receipt with this reason, and that no process and no book
    /// is left.
    fn check_end(&self, reason: &str, ended_by: &str) {
        assert_eq!((self.sessions.left(), self.upstream.of("DELETE").len()), (0, self.sessions.opened()));
        let receipts = receipts(&self.scene);
        assert_eq!(receipts.len(), self.sessions.opened());
        for receipt in receipts {
            let found = (&receipt["reason"]["kind"], &receipt["ended_by"], &receipt["holdings"][0]["how"]);
            assert_eq!(found, (&reason.into(), &ended_by.into(), &"deleted".into()), "{receipt}");
        }
        assert_eq!(std::fs::read_dir(self.scene.dir().join("run/gateways")).map_or(0, Iterator::count), 0);
        self.scene.wait_gone(&[]).expect("nothing is left");
    }
}

fn x_at(upstream: &Upstream) -> String {
    format!(r#""x": {{"type": "http", "url": "{}"}}"#, upstream.url())
}

fn start(scene: &Scene, address: &str, servers: &str, policy: &str) -> Gateway {
    let file = config(scene, &format!(r#"{{"mcpServers": {{{servers}}}, "leash": {{{policy}}}}}"#));
    Gateway::start_at(scene, address, ["--config", &file])
}

#[test]
fn next_gateway_goes_on_with_the_sessions_of_a_killed_one() {
    let mut stage = or_skip!(Stage::set(PATIENT));
    // Twice: sessions that were taken over can be taken over again.
    for _ in 0..2 {
        let keeper = stage.kill();
        stage.come_back(PATIENT);
        assert!(keeper.wait_gone(LIMIT));
        stage.check_use();
    }
    stage.stop();
    stage.check_end("shutdown", "gateway");
}

#[test]
fn session_that_was_taken_over_is_ended_by_its_client() {
    let mut stage = or_skip!(Stage::set(PATIENT));
    stage.kill();
    stage.come_back(PATIENT);
    for (client, id) in stage.ids.iter().enumerate() {
        assert_eq!(stage.ask(client, "DELETE", Some(id), "").status, 200);
    }
    assert_eq!(stage.gateway.sessions("x"), 0.0);
    stage.stop();
    stage.check_end("client_deleted", "gateway");
}

#[test]
fn keeper_deletes_the_sessions_of_a_gateway_that_does_not_come_back() {
    let mut stage = or_skip!(Stage::set(IMPATIENT));
    assert!(stage.kill().wait_gone(LIMIT));
    stage.check_end("supervisor_killed", "keeper");
}

#[test]
fn keeper_of_a_gateway_that_is_stopped_does_not_wait_for_the_next() {
    let mut stage = or_skip!(Stage::set(PATIENT));
    let keeper = gateway_keeper(stage.gateway.pid());
    stage.stop();
    assert!(keeper.wait_gone(LIMIT));
    stage.check_end("shutdown", "gateway");
}

#[test]
fn next_gateway_deletes_the_sessions_of_servers_that_it_does_not_have() {
    let mut stage = or_skip!(Stage::set(PATIENT));
    let keeper = stage.kill();
    stage.gateway =
        start(&stage.scene, &stage.address, r#""y": {"type": "http", "url": "http://127.0.0.1:1/mcp"}"#, PATIENT);
    assert!(keeper.wait_gone(LIMIT));
    wait::until("all are deleted", || (stage.sessions.left() == 0).then_some(()));
    wait::until("all receipts", || (receipts(&stage.scene).len() == CLIENTS).then_some(()));
    stage.stop();
    // With the clients' own keys, which the keeper had in memory.
    stage.check_end("swept", "sweep");
}

#[test]
fn keeper_of_a_gateway_that_took_sessions_over_deletes_them() {
    let mut stage = or_skip!(Stage::set(PATIENT));
    let first = stage.kill();
    stage.come_back(IMPATIENT);
    let second = gateway_keeper(stage.gateway.pid());
    // At once, whatever it has told its keeper by now.
    stage.gateway.signal(Signal::KILL);
    assert_eq!(stage.gateway.wait(), None);
    assert!(first.wait_gone(LIMIT) && second.wait_gone(LIMIT));
    stage.check_end("supervisor_killed", "keeper");
}

/// The restarted gateway does not wait for a stopped keeper, which does its work after SIGCONT.
#[test]
fn stopped_keeper_keeps_its_sessions() {
    let mut stage = or_skip!(Stage::set(IMPATIENT));
    let keeper = gateway_keeper(stage.gateway.pid());
    stage.gateway.wait_metric("leash_keeper_backlog", 0.0);
    keeper.signal(Signal::STOP).expect("it lives");
    stage.gateway.signal(Signal::KILL);
    assert_eq!(stage.gateway.wait(), None);
    stage.come_back(IMPATIENT);
    assert_eq!(stage.ask(0, "POST", Some(&stage.ids[0]), LIST).status, 404);
    assert_eq!(stage.upstream.of("DELETE").len(), 0);
    keeper.signal(Signal::CONT).expect("it lives");
    assert!(keeper.wait_gone(LIMIT));
    stage.stop();
    stage.check_end("supervisor_killed", "keeper");
}

#[test]
fn killed_keeper_leaves_its_sessions_to_the_sweep_of_the_next_gateway() {
    let mut stage = or_skip!(Stage::set(PATIENT));
    let keeper = stage.kill();
    keeper.signal(Signal::KILL).expect("it waits for the next gateway");
    assert!(keeper.wait_gone(LIMIT));
    stage.come_back(PATIENT);
    wait::until("all receipts", || (receipts(&stage.scene).len() == CLIENTS).then_some(()));
    assert!(receipts(&stage.scene).iter().all(|receipt| receipt["reason"]["kind"] == "swept"));
    assert_eq!(stage.ask(0, "POST", Some(&stage.ids[0]), LIST).status, 404);
    stage.stop();
}

/// A process asks for the sessions and dies before it owns the book.
#[test]
fn keeper_deletes_the_sessions_that_were_asked_for_and_not_taken() {
    let mut stage = or_skip!(Stage::set_as(Who::me(), IMPATIENT));
    let mut heir = stage.knock();
    let keeper = stage.kill();
    let mut given = String::new();
    heir.read_to_string(&mut given).expect("the keeper gives everything away");
    assert_eq!(given.lines().filter(|line| line.contains("-session")).count(), CLIENTS);
    // It waits for as long as the other side could take them.
    assert!(keeper.is_alive() && stage.upstream.of("DELETE").is_empty());
    drop(heir);
    assert!(keeper.wait_gone(LIMIT));
    stage.check_end("supervisor_killed", "keeper");
}

#[test]
fn keeper_refuses_another_user() {
    let is_other = rustix::process::geteuid().is_root();
    let stage = if is_other { Stage::set(IMPATIENT) } else { Err("only root can ask as another user".to_owned()) };
    let mut stage = or_skip!(stage);
    let mut stranger = stage.knock();
    let keeper = stage.kill();
    let mut given = Vec::new();
    // The connection may also be reset.
    let _ = stranger.read_to_end(&mut given);
    assert_eq!(given, b"");
    assert!(keeper.wait_gone(LIMIT));
    stage.check_end("supervisor_killed", "keeper");
}

#[test]
fn session_that_was_taken_over_is_revived() {
    let policy = &format!(r#"{PATIENT}, "revive": true"#);
    let mut stage = or_skip!(Stage::set(policy));
    stage.kill();
    stage.come_back(policy);
    stage.check_use();
    stage.sessions.forget();
    for (client, id) in stage.ids.iter().enumerate() {
        assert_eq!(stage.ask(client, "POST", Some(id), LIST).status, 202, "{}", stage.gateway.said());
    }
    assert_eq!(stage.sessions.opened(), 2 * CLIENTS);
    stage.stop();
    assert_eq!((stage.sessions.left(), receipts(&stage.scene).len()), (0, CLIENTS));
}

/// A client process with a session.
fn client(stage: &Stage) -> Child {
    let mut command = stage.scene.zoo(["http-client", "hold", &stage.gateway.url("x")]);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start a client");
    let mut line = String::new();
    BufReader::new(client.stdout.as_mut().expect("stdout is piped")).read_line(&mut line).expect("it says something");
    assert_eq!(line, "ready\n", "{}", stage.gateway.said());
    client
}

#[test]
fn client_that_dies_after_or_during_the_change_is_noticed() {
    for dies_before in [true, false] {
        let policy = &format!(r#"{PATIENT}, "linger": "50ms""#);
        let mut stage = or_skip!(Stage::empty(Who::User, policy));
        let mut client = client(&stage);
        let keeper = stage.kill();
        let mut die = || {
            client.kill().expect("it lives");
            client.wait().expect("it was ours");
        };
        if dies_before {
            die();
        }
        stage.come_back(policy);
        assert!(keeper.wait_gone(LIMIT));
        if !dies_before {
            assert_eq!(stage.upstream.of("DELETE").len(), 0);
            die();
        }
        wait::until("the receipt", || (receipts(&stage.scene).len() == 1).then_some(()));
        stage.stop();
        stage.check_end("owner_gone", "gateway");
    }
}
