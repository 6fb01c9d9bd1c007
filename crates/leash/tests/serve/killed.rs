//! The gateway is killed by SIGKILL: its keeper deletes its upstream sessions, with the clients' credentials, before
//! any other leash starts.

use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use testkit::gateway::Gateway;
use testkit::http::{POST, initialize};
use testkit::leash::gateway_keeper;
use testkit::or_skip;
use testkit::process::Handle;
use testkit::scene::Scene;
use testkit::upstream::{Seen, Upstream, Wire};
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::receipts;

const SESSIONS: usize = 40;
const RESULT: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}"#;

/// Sessions of a server that requires the credentials that opened a session also for its end: id and credentials.
#[derive(Default)]
struct Sessions {
    open: Mutex<Vec<(String, String)>>,
    count: Mutex<usize>,
}

impl Sessions {
    fn serve(&self, seen: &Seen, wire: &mut Wire) -> std::io::Result<()> {
        let key = seen.header("authorization").unwrap_or_default().to_owned();
        let mut open = self.open.lock().expect("no test panics with it");
        match seen.method.as_str() {
            "DELETE" => {
                let named = (seen.header("mcp-session-id").unwrap_or_default().to_owned(), key);
                let known = open.len();
                open.retain(|session| *session != named);
                wire.answer(if open.len() < known { "200 OK" } else { "403 Forbidden" }, &[], b"")
            }
            _ if seen.text().contains("\"initialize\"") => {
                let mut count = self.count.lock().expect("no test panics with it");
                *count += 1;
                let id = format!("{count}-session");
                open.push((id.clone(), key));
                let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", &*id)];
                wire.answer("200 OK", &headers, RESULT.as_bytes())
            }
            _ => wire.answer("202 Accepted", &[], b""),
        }
    }

    fn left(&self) -> usize {
        self.open.lock().expect("no test panics with it").len()
    }
}

struct Stage {
    scene: Scene,
    sessions: Arc<Sessions>,
    upstream: Upstream,
    gateway: Gateway,
}

impl Stage {
    /// A gateway with sessions of clients that each have their own key; every fourth has none.
    fn set() -> Result<Stage, String> {
        let scene = Scene::set(Who::User)?;
        let sessions = Arc::new(Sessions::default());
        let serving = Arc::clone(&sessions);
        let upstream = Upstream::start(move |seen, wire| serving.serve(seen, wire));
        let gateway = Gateway::in_front_of(&scene, &["--owner", "traffic"], &upstream.url());
        let stage = Stage { scene, sessions, upstream, gateway };
        (0..SESSIONS).for_each(|client| stage.open(client));
        Ok(stage)
    }

    fn open(&self, client: usize) {
        let key = format!("Bearer key-{client}");
        let mut headers = POST.to_vec();
        if !client.is_multiple_of(4) {
            headers.push(("authorization", &key));
        }
        let reply = self.gateway.ask("POST", "/x/mcp", &headers, initialize("2025-06-18").as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    fn kill(&mut self) {
        self.gateway.signal(Signal::KILL);
        assert_eq!(self.gateway.wait(), None);
    }

    /// Checks that every session was deleted once and has one receipt, and that no process and no book is left.
    fn check(&self, keeper: &Handle) {
        assert!(keeper.wait_gone(LIMIT), "{} sessions are left", self.sessions.left());
        assert_eq!(self.sessions.left(), 0);
        assert_eq!(self.upstream.of("DELETE").len(), *self.sessions.count.lock().expect("no test panics with it"));
        self.check_receipts("supervisor_killed", "keeper");
        assert_eq!(self.books(), 0);
        self.scene.wait_gone(&[]).expect("nothing is left");
    }

    fn check_receipts(&self, reason: &str, ended_by: &str) {
        let receipts = receipts(&self.scene);
        assert_eq!(receipts.len(), *self.sessions.count.lock().expect("no test panics with it"));
        for receipt in receipts {
            let found = (&receipt["reason"]["kind"], &receipt["ended_by"], &receipt["holdings"][0]["how"]);
            assert_eq!(found, (&reason.into(), &ended_by.into(), &"deleted".into()), "{receipt}");
        }
    }

    fn books(&self) -> usize {
        std::fs::read_dir(self.scene.dir().join("run/gateways")).map_or(0, Iterator::count)
    }

    /// The keeper that replaced this one, after it got all data.
    fn next_keeper(&self, first: &Handle) -> Handle {
        let next = wait::until("another keeper", || {
            let keeper = gateway_keeper(self.gateway.pid());
            (keeper.pid() != first.pid()).then_some(keeper)
        });
        self.gateway.wait_metric("leash_keeper_backlog", 0.0);
        next
    }
}

#[test]
fn keeper_of_a_killed_gateway_deletes_every_session() {
    let mut stage = or_skip!(Stage::set());
    let keeper = gateway_keeper(stage.gateway.pid());
    stage.kill();
    stage.check(&keeper);
}

#[test]
fn killed_keeper_is_replaced_and_knows_every_session() {
    let mut stage = or_skip!(Stage::set());
    let first = gateway_keeper(stage.gateway.pid());
    first.signal(Signal::KILL).expect("it lives");
    assert!(first.wait_gone(LIMIT));
    let second = stage.next_keeper(&first);
    stage.open(SESSIONS + 1);
    stage.kill();
    stage.check(&second);
}

/// A stopped keeper blocks no request, and does its work after SIGCONT. Messages that did not fit into its socket are
/// in the book. It has no credentials for those sessions, so the next start deletes the ones that the server lets it
/// delete.
#[test]
fn stopped_keeper_does_not_hold_up_the_gateway() {
    let mut stage = or_skip!(Stage::set());
    let keeper = gateway_keeper(stage.gateway.pid());
    keeper.signal(Signal::STOP).expect("it lives");
    // Far more than fit into a socket; none of these needs credentials.
    (0..1000).for_each(|client| stage.open(client * 4));
    stage.kill();
    keeper.signal(Signal::CONT).expect("it lives");
    stage.check(&keeper);
}

/// A keeper that was stopped for a while gets the messages that it missed.
#[test]
fn continued_keeper_gets_missed_messages() {
    let mut stage = or_skip!(Stage::set());
    let keeper = gateway_keeper(stage.gateway.pid());
    keeper.signal(Signal::STOP).expect("it lives");
    (0..1000).for_each(|client| stage.open(client));
    keeper.signal(Signal::CONT).expect("it lives");
    stage.gateway.wait_metric("leash_keeper_backlog", 0.0);
    stage.kill();
    stage.check(&keeper);
}

#[test]
fn killed_gateway_and_keeper_leave_their_sessions_to_the_next_start() {
    let mut stage = or_skip!(Stage::set());
    let keeper = gateway_keeper(stage.gateway.pid());
    // The keeper is stopped first, so that it cannot act before both are dead.
    keeper.signal(Signal::STOP).expect("it lives");
    stage.kill();
    keeper.signal(Signal::KILL).expect("it was not waited for");
    assert!(keeper.wait_gone(LIMIT));
    assert_eq!(stage.sessions.left(), SESSIONS);
    let next = Gateway::in_front_of(&stage.scene, &["--owner", "traffic"], &stage.upstream.url());
    let receipts = wait::until("all receipts", || {
        let receipts = receipts(&stage.scene);
        (receipts.len() == SESSIONS).then_some(receipts)
    });
    assert!(receipts.iter().all(|receipt| receipt["reason"]["kind"] == "swept"));
    // The clients' own keys were in memory only.
    assert_eq!(stage.sessions.left(), SESSIONS - SESSIONS / 4);
    next.stop();
}

#[test]
fn keeper_leaves_with_a_gateway_that_stops() {
    let stage = or_skip!(Stage::set());
    let keeper = gateway_keeper(stage.gateway.pid());
    let Stage { scene, sessions, upstream, gateway } = stage;
    gateway.stop();
    assert!(!keeper.is_alive(), "the gateway waits for its keeper");
    assert_eq!((sessions.left(), upstream.of("DELETE").len()), (0, SESSIONS));
    scene.wait_gone(&[]).expect("nothing is left");
}
