//! Every answer that leash gives by itself; docs/reference/http-status.md has the same list.

use std::io::Write as _;

use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, Reply, initialize};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::LIST;

/// A request with one fault, and the answer of leash.
struct Case {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
    status: u16,
    code: i64,
}

const JSON: (&str, &str) = POST[0];
const BOTH: (&str, &str) = POST[1];

const CASES: &[Case] = &[
    Case { name: "unknown path", method: "POST", path: "/", headers: &POST, body: LIST, status: 404, code: -32000 },
    Case {
        name: "unknown server",
        method: "POST",
        path: "/y/mcp",
        headers: &POST,
        body: LIST,
        status: 404,
        code: -32000,
    },
    Case {
        name: "unknown rest",
        method: "POST",
        path: "/x/mcp/z",
        headers: &POST,
        body: LIST,
        status: 404,
        code: -32000,
    },
    Case {
        name: "unknown session",
        method: "POST",
        path: "/x/mcp",
        headers: &[JSON, BOTH, ("mcp-session-id", "nobody")],
        body: LIST,
        status: 404,
        code: -32001,
    },
    Case {
        name: "unknown session, DELETE",
        method: "DELETE",
        path: "/x/mcp",
        headers: &[("mcp-session-id", "nobody")],
        body: "",
        status: 404,
        code: -32001,
    },
    Case {
        name: "unknown session, GET",
        method: "GET",
        path: "/x/mcp",
        headers: &[BOTH, ("mcp-session-id", "nobody")],
        body: "",
        status: 404,
        code: -32001,
    },
    Case { name: "no session", method: "POST", path: "/x/mcp", headers: &POST, body: LIST, status: 400, code: -32000 },
    Case {
        name: "wrong Accept",
        method: "POST",
        path: "/x/mcp",
        headers: &[JSON, ("accept", "text/html")],
        body: LIST,
        status: 406,
        code: -32000,
    },
    Case {
        name: "wrong Content-Type",
        method: "POST",
        path: "/x/mcp",
        headers: &[("content-type", "text/plain"), BOTH],
        body: LIST,
        status: 415,
        code: -32000,
    },
    Case { name: "not JSON", method: "POST", path: "/x/mcp", headers: &POST, body: "{", status: 400, code: -32700 },
    Case { name: "not JSON-RPC", method: "POST", path: "/x/mcp", headers: &POST, body: "1", status: 400, code: -32600 },
    Case { name: "empty batch", method: "POST", path: "/x/mcp", headers: &POST, body: "[]", status: 400, code: -32600 },
    Case {
        name: "foreign Host",
        method: "POST",
        path: "/x/mcp",
        headers: &[JSON, BOTH, ("host", "evil.example:5327")],
        body: LIST,
        status: 403,
        code: -32000,
    },
    Case {
        name: "foreign Origin",
        method: "POST",
        path: "/x/mcp",
        headers: &[JSON, BOTH, ("origin", "http://evil.example")],
        body: LIST,
        status: 403,
        code: -32000,
    },
    Case {
        name: "Origin null",
        method: "POST",
        path: "/x/mcp",
        headers: &[JSON, BOTH, ("origin", "null")],
        body: LIST,
        status: 403,
        code: -32000,
    },
    Case { name: "unknown method", method: "PUT", path: "/x/mcp", headers: &[], body: "", status: 405, code: -32000 },
    Case { name: "POST /metrics", method: "POST", path: "/metrics", headers: &[], body: "", status: 405, code: -32000 },
];

fn gateway(scene: &Scene) -> Gateway {
    Gateway::start(scene, ["--name", "x", "--", "cat"])
}

#[test]
fn bad_requests_get_their_answer() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    for case in CASES {
        let reply = gateway.ask(case.method, case.path, case.headers, case.body.as_bytes());
        assert_eq!(reply.status, case.status, "{}: {}", case.name, reply.text());
        assert_eq!(reply.json()["error"]["code"], case.code, "{}: {}", case.name, reply.text());
        assert_eq!(reply.json()["jsonrpc"], "2.0", "{}", case.name);
    }
    // None of them opened a session.
    assert_eq!(gateway.metric("leash_sessions{server=\"x\",state=\"live\"}").unwrap_or_default(), 0.0);
    assert!(scene.ledger().is_empty());
}

#[test]
fn one_connection_survives_bad_requests() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    let mut connection = gateway.connect();
    for case in CASES {
        let reply = connection.ask(case.method, case.path, case.headers, case.body.as_bytes());
        assert_eq!(reply.status, case.status, "{}", case.name);
    }
    assert_eq!(connection.ask("GET", "/healthz", &[], b"").text(), "ok\n");
}

/// Sends bytes unchanged, and reads the answer.
fn raw(gateway: &Gateway, bytes: &[u8]) -> std::io::Result<Reply> {
    let mut connection = Connection::open(gateway.address());
    // The gateway may refuse while we are still writing.
    let _ = connection.socket().write_all(bytes);
    connection.reply()
}

#[test]
fn a_large_body_is_refused_before_it_is_read() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    let head = "POST /x/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let told = raw(&gateway, format!("{head}Content-Length: 99999999\r\n\r\n").as_bytes()).expect("an answer");
    assert_eq!(told.status, 413);
    // Without a declared length the gateway counts the bytes.
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..5 {
        chunked.extend_from_slice(b"100000\r\n");
        chunked.extend(std::iter::repeat_n(b' ', 0x100000));
        chunked.extend_from_slice(b"\r\n");
    }
    let counted = raw(&gateway, &chunked).expect("an answer");
    assert_eq!(counted.status, 413);
    assert_eq!(gateway.ask("GET", "/healthz", &[], b"").status, 200);
}

#[test]
fn a_flood_of_headers_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene);
    let many: String = (0..1000).map(|n| format!("x-{n}: y\r\n")).collect();
    let reply = raw(&gateway, format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes());
    assert_eq!(reply.expect("an answer").status, 431);
    let long = "y".repeat(1 << 20);
    let reply = raw(&gateway, format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nx: {long}\r\n\r\n").as_bytes());
    // Refused with an answer, or cut off: never accepted.
    assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status == 431));
    assert_eq!(gateway.ask("GET", "/healthz", &[], b"").status, 200);
}

#[test]
fn a_token_guards_everything_but_health() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("LEASH_TEST_TOKEN", "s3cret");
    let gateway = Gateway::start(&scene, ["--token-env", "LEASH_TEST_TOKEN", "--name", "x", "--", "cat"]);
    let ask = |header: Option<(&str, &str)>| {
        let mut headers = POST.to_vec();
        headers.extend(header);
        gateway.ask("POST", "/x/mcp", &headers, LIST.as_bytes()).status
    };
    assert_eq!(ask(None), 401);
    assert_eq!(ask(Some(("authorization", "Bearer wrong!"))), 401);
    assert_eq!(ask(Some(("authorization", "Basic s3cret"))), 401);
    assert_eq!(ask(Some(("authorization", "Bearer s3cret"))), 400, "no session, but welcome");
    assert_eq!(ask(Some(("leash-authorization", "bearer s3cret"))), 400);
    assert_eq!(gateway.ask("GET", "/healthz", &[], b"").status, 200);
    assert!(!gateway.said().contains("s3cret"));
}

#[test]
fn a_session_belongs_to_the_credential_that_opened_it() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &scene.tree("polite", ["--mcp"]));
    let with = |credential: &'static str, session: Option<&str>, body: &str| {
        let mut headers = POST.to_vec();
        headers.push(("authorization", credential));
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        gateway.ask("POST", "/x/mcp", &headers, body.as_bytes())
    };
    let opened = with("Bearer alice", None, &initialize("2025-06-18"));
    assert_eq!(opened.status, 200, "{}", opened.text());
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    assert_eq!(with("Bearer alice", Some(&session), LIST).status, 200);
    assert_eq!(with("Bearer mallory", Some(&session), LIST).status, 404);
    assert_eq!(gateway.post("x", Some(&session), LIST).status, 404);
}
