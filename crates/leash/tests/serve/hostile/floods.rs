//! Too many connections, and too many sessions.

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::gateway::Gateway;
use testkit::http::{Connection, initialize};
use testkit::scene::Scene;
use testkit::sys::Step;
use testkit::upstream::Upstream;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{LIST, MIB, Rest, end, open};

/// Raises the descriptor limit as far as the machine allows, and returns it.
fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum }).expect("up to the hard limit");
    most
}

#[test]
fn ten_thousand_idle_connections_are_held() {
    const WANTED: usize = 10_000;
    let scene = or_skip!(Scene::set(Who::User));
    let most = raise_limit();
    let number = WANTED.min(usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(500));
    if number < WANTED {
        testkit::note(&format!("{number} connections instead of {WANTED}: the hard limit is {most} descriptors"));
    }
    let words = ["--name", "x", "--"].map(Into::into).into_iter().chain(scene.tree("polite", ["--mcp"]));
    let gateway = Gateway::prepared(&scene, "127.0.0.1:0", vec![Step::Limit(Resource::Nofile, most)], words);
    let rest = Rest::of(&gateway, &["x"]);
    // Every other one has sent a request before it became idle.
    let mut idle = Vec::new();
    for at in 0..number {
        let mut connection = gateway.connect();
        if at % 2 == 0 {
            assert_eq!(connection.ask("GET", "/healthz", &[], b"").status, 200);
        }
        idle.push(connection.into_socket());
    }
    gateway.wait_metric("leash_connections", (number + 1) as f64);
    let each = gateway.memory().saturating_sub(rest.memory) / number as u64;
    assert!(each < 24 * 1024, "{each} bytes for a connection");
    let session = open(&gateway, "x");
    assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
    end(&gateway, "x", &session);
    drop(idle);
    // 200 MB were used. About as much as for some hundred connections may be kept.
    rest.again(&gateway, &["x"], 8 * MIB);
}

/// More clients than descriptors: existing clients continue, new ones wait, and afterwards everything is as before.
#[test]
fn a_gateway_out_of_descriptors_recovers() {
    const LIMIT: u64 = 96;
    let scene = or_skip!(Scene::set(Who::User));
    let words = ["--name", "x", "--"].map(Into::into).into_iter().chain(scene.tree("polite", ["--mcp"]));
    let gateway = Gateway::prepared(&scene, "127.0.0.1:0", vec![Step::Limit(Resource::Nofile, LIMIT)], words);
    let rest = Rest::of(&gateway, &["x"]);
    let mut early = gateway.connect();
    assert_eq!(early.ask("GET", "/healthz", &[], b"").status, 200);
    let session = open(&gateway, "x");
    let flood: Vec<TcpStream> = (0..3 * LIMIT).map(|_| Connection::open(gateway.address()).into_socket()).collect();
    wait::until("a word on it", || gateway.said().contains("cannot accept a connection").then_some(()));
    for _ in 0..20 {
        assert_eq!(testkit::gateway::post(&mut early, "x", Some(&session), LIST).status, 200);
    }
    // There is no descriptor left to start a server: the client gets an error, and nothing is left of the attempt.
    let refused = testkit::gateway::post(&mut early, "x", None, &initialize("2025-06-18"));
    assert_eq!(refused.status, 502, "{}", refused.text());
    drop(flood);
    wait::until("the gateway to accept again", || {
        (gateway.metric("leash_connections").unwrap_or_default() <= 3.0).then_some(())
    });
    let another = open(&gateway, "x");
    assert_eq!(gateway.post("x", Some(&another), LIST).status, 200);
    end(&gateway, "x", &another);
    end(&gateway, "x", &session);
    drop(early);
    rest.again(&gateway, &["x"], 2 * MIB);
    scene.wait_gone(&[gateway.pid()]).expect("nothing but the gateway is left");
    // Once, and not ten times a second.
    let said = gateway.said().matches("cannot accept a connection").count();
    assert_eq!(said, 1);
}

/// Many sessions that start and end leave no memory.
#[test]
fn a_thousand_sessions_leave_no_memory() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = Upstream::start(|seen, wire| {
        let id = testkit::unique("session");
        let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", &*id)];
        let result = br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;
        match (seen.method.as_str(), seen.header("mcp-session-id")) {
            ("POST", None) => wire.answer("200 OK", &headers, result),
            _ => wire.answer("200 OK", &headers[..1], b"{}"),
        }
    });
    let gateway = Gateway::start(&scene, ["--name", "x", "--url", &upstream.url()]);
    let churn = |sessions: usize| {
        let mut client = gateway.connect();
        for _ in 0..sessions {
            let opened = testkit::gateway::post(&mut client, "x", None, &initialize("2025-06-18"));
            let session = opened.header("mcp-session-id").expect("a session").to_owned();
            assert_eq!(testkit::gateway::post(&mut client, "x", Some(&session), LIST).status, 200);
            let deleted = client.ask("DELETE", "/x/mcp", &[("mcp-session-id", &session)], b"");
            assert_eq!(deleted.status, 200);
        }
    };
    churn(200);
    let rest = Rest::of(&gateway, &["x"]);
    churn(1000);
    rest.again(&gateway, &["x"], MIB);
    assert_eq!(upstream.of("DELETE").len(), 1201);
}

/// The same with a tree for each.
#[test]
fn trees_that_come_and_go_leave_no_memory() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &scene.tree("polite", ["--mcp"]));
    let churn = |sessions: usize| {
        for _ in 0..sessions {
            let session = open(&gateway, "x");
            assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
            end(&gateway, "x", &session);
        }
    };
    churn(10);
    let rest = Rest::of(&gateway, &["x"]);
    churn(40);
    rest.again(&gateway, &["x"], MIB);
    scene.wait_gone(&[gateway.pid()]).expect("nothing but the gateway is left");
}
