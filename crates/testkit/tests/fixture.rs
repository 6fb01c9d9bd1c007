//! The fixture is a witness in other tests, so its records must be right and it must misbehave as it is told to.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};
use testkit::census::Census;
use testkit::fixture::Fixture;
use testkit::get::{self, Page};

#[test]
fn a_session_is_counted_from_its_opening_to_its_end() {
    let fixture = Fixture::http(&[]);
    let [first, second] = [open(&fixture), open(&fixture)];
    let report = fixture.report();
    assert_eq!((report.opened(), report.open().len()), (2, 2));
    assert_eq!(delete(&fixture, &first).status, 202);
    let report = fixture.report();
    assert_eq!(report.open(), [second.as_str()]);
    assert_eq!(report.deleted().into_iter().collect::<Vec<_>>(), [(first.clone(), 1)]);
    assert_eq!(call(&fixture, &first, "counter").status, 404);
    assert_eq!(call(&fixture, &second, "counter").status, 200);
}

#[test]
fn requests_are_recorded_with_their_headers() {
    let fixture = Fixture::http(&[]);
    let session = open(&fixture);
    call(&fixture, &session, "counter");
    let report = fixture.report();
    let seen: Vec<[&Value; 5]> = report
        .requests()
        .iter()
        .map(|seen| ["http", "rpc", "session", "version", "status"].map(|name| &seen[name]))
        .collect();
    let version = json!("2025-11-25");
    let (post, session, null) = (json!("POST"), json!(session), Value::Null);
    assert_eq!(
        seen,
        [
            [&post, &json!("initialize"), &null, &null, &json!(200)],
            [&post, &json!("notifications/initialized"), &session, &version, &json!(202)],
            [&post, &json!("tools/call"), &session, &version, &json!(200)],
        ]
    );
    assert_eq!((report.count("POST", None), report.count("POST", Some("tools/call"))), (3, 1));
}

#[test]
fn refused_delete_keeps_the_session() {
    let fixture = Fixture::http(&["--delete-status", "503"]);
    let session = open(&fixture);
    assert_eq!([delete(&fixture, &session).status, delete(&fixture, &session).status], [503, 503]);
    let report = fixture.report();
    assert_eq!(report.deleted().into_values().collect::<Vec<_>>(), [2]);
    assert_eq!(report.open(), [session]);
}

#[test]
fn request_without_the_token_is_refused() {
    let fixture = Fixture::http(&["--require-bearer", "secret"]);
    let page = post(&fixture, &[], &initialize());
    assert_eq!((page.status, page.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(post(&fixture, &[("Authorization", "Bearer wrong")], &initialize()).status, 401);
    assert_eq!(post(&fixture, &[("Authorization", "Bearer secret")], &initialize()).status, 200);
    let report = fixture.report();
    let authorized: Vec<&Value> = report.requests().iter().map(|seen| &seen["authorized"]).collect();
    assert_eq!(authorized, [&json!(false), &json!(true), &json!(true)]);
    assert_eq!(report.opened(), 1);
}

#[test]
fn stateless_server_opens_no_session() {
    let fixture = Fixture::http(&["--stateless"]);
    let page = post(&fixture, &[], &initialize());
    assert_eq!((page.status, page.header("mcp-session-id")), (200, None));
    assert_eq!(fixture.report().opened(), 0);
}

#[test]
fn a_server_may_end_a_session_by_itself() {
    let fixture = Fixture::http(&["--keep-alive", "0"]);
    let session = post(&fixture, &[], &initialize()).header("mcp-session-id").expect("a session").to_owned();
    fixture.wait("the end of the session", |report| report.open().is_empty().then_some(()));
    assert_eq!(call(&fixture, &session, "counter").status, 404);
    assert_eq!(fixture.report().deleted().len(), 0);
}

#[test]
fn helper_process_outlives_the_server() {
    let dir = std::env::temp_dir().join(testkit::unique("leash-test-fixture"));
    let census = Census::create(dir);
    let mut fixture = Fixture::http(&["--census", census.path().to_str().expect("a plain path")]);
    let session = open(&fixture);
    let page = call(&fixture, &session, "spawn_helper");
    let names = || census.holders().iter().map(|process| process.to_string()).collect::<Vec<_>>();
    assert_eq!(names().len(), 2, "{page:?}");
    fixture.kill();
    let left = names();
    assert!(left.len() == 1 && left[0].contains("fixture stay"), "{left:?}");
    census.kill();
    fs::remove_file(census.path()).expect("the FIFO was made");
}

#[test]
fn init_delay_holds_the_answer_back() {
    let fixture = Fixture::http(&["--init-delay", "3600000"]);
    let mut client = TcpStream::connect(fixture.address()).expect("it listens");
    let body = initialize().to_string();
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let accept = "Accept: application/json, text/event-stream";
    let request = format!("{head}{accept}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.write_all(request.as_bytes()).expect("it reads");
    let status = fixture.wait("the request", |report| Some(report.requests().first()?["status"].clone()));
    assert_eq!(status, Value::Null);
    assert_eq!(fixture.report().opened(), 0);
}

/// Opens a session and returns its id.
fn open(fixture: &Fixture) -> String {
    let page = post(fixture, &[], &initialize());
    assert_eq!(page.status, 200, "{page:?}");
    let session = page.header("mcp-session-id").expect("a session").to_owned();
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(fixture, &in_session(&session), &initialized).status, 202);
    session
}

fn initialize() -> Value {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn call(fixture: &Fixture, session: &str, tool: &str) -> Page {
    let params = json!({"name": tool, "arguments": {}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    post(fixture, &in_session(session), &call)
}

fn delete(fixture: &Fixture, session: &str) -> Page {
    get::send(fixture.address(), "DELETE /mcp", &in_session(session), "")
}

fn in_session(session: &str) -> [(&str, &str); 2] {
    [("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")]
}

fn post(fixture: &Fixture, headers: &[(&str, &str)], message: &Value) -> Page {
    let mut all = vec![("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    all.extend_from_slice(headers);
    get::send(fixture.address(), "POST /mcp", &all, &message.to_string())
}
