//! Idle sessions: a pending call is never cut, and a real listener stays.

use testkit::fixture::Fixture;
use testkit::gateway::post;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{LIST, both, live, open};

const IDLE: &str = r#""owner": "traffic", "idle": "400ms", "grace": "500ms""#;

/// A call that takes four times the idle timeout.
fn long_call(tool: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{{"ms":1600}}}}}}"#
    )
}

#[test]
fn a_call_longer_than_the_idle_time_is_not_cut() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, IDLE);
    for name in ["stdio", "http"] {
        let session = open(&gateway, name);
        let reply = gateway.post(name, Some(&session), &long_call("sleep"));
        assert_eq!((reply.status, &reply.json()["id"]), (200, &7.into()), "{name}: {}", reply.text());
        assert!(reply.json()["result"].is_object(), "{name}: {}", reply.text());
        wait::until("idleness", || (live(&gateway, name) == 0.0).then_some(()));
        assert_eq!(gateway.post(name, Some(&session), LIST).status, 404);
    }
}

#[test]
fn a_listener_stays_while_it_is_there() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, IDLE);
    for name in ["stdio", "http"] {
        let session = open(&gateway, name);
        let mut listener = gateway.connect();
        let headers = [("accept", "text/event-stream"), ("mcp-session-id", session.as_str())];
        listener.send("GET", &format!("/{name}/mcp"), &headers, b"").expect("it is sent");
        assert_eq!(listener.head().expect("an answer").status, 200);
        // Another session expires meanwhile, which shows that the time has passed.
        let other = open(&gateway, name);
        wait::until("the other to be idle", || (live(&gateway, name) == 1.0).then_some(()));
        assert_eq!(gateway.post(name, Some(&other), LIST).status, 404);
        assert_eq!(gateway.post(name, Some(&session), LIST).status, 200);
        drop(listener);
        wait::until("the listener's session to be idle", || (live(&gateway, name) == 0.0).then_some(()));
        assert_eq!(gateway.post(name, Some(&session), LIST).status, 404);
    }
}

#[test]
fn limit_refuses_one_more_session_and_admits_the_next() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = both(&scene, &fixture, r#""owner": "traffic", "maxSessions": 2, "grace": "500ms""#);
    let (first, _second) = (open(&gateway, "http"), open(&gateway, "stdio"));
    let refused = gateway.post("http", None, &testkit::http::initialize("2025-06-18"));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    let mut connection = gateway.connect();
    let headers = [("mcp-session-id", first.as_str())];
    let deleted = connection.ask("DELETE", "/http/mcp", &headers, b"");
    assert!((200..300).contains(&deleted.status), "{deleted:?}");
    assert_eq!(post(&mut connection, "http", Some(&first), LIST).status, 404);
    open(&gateway, "http");
}
