//! Servers over HTTP.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use testkit::gateway::Gateway;
use testkit::http::{POST, Reply, initialize};
use testkit::scene::Scene;
use testkit::upstream::{Seen, Upstream, Wire};
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{LIST, ask, listen, no_session_is_left, open, receipts};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const OPENED: &[u8] = br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}"#;

/// A server that opens and ends sessions; the script answers the other requests.
pub(super) fn server(script: impl Fn(&Seen, &mut Wire) -> io::Result<()> + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |seen, wire| match (seen.method.as_str(), seen.header("mcp-session-id")) {
        ("POST", None) => {
            let id = testkit::unique("session");
            wire.answer("200 OK", &[JSON, ("Mcp-Session-Id", &id)], OPENED)
        }
        ("DELETE", _) => wire.answer("200 OK", &[], b""),
        _ => script(seen, wire),
    })
}

pub(super) fn gateway(scene: &Scene, upstream: &Upstream, options: &[&str]) -> Gateway {
    let url = upstream.url();
    Gateway::start(scene, ["--name", "x", "--url", &url].iter().chain(options))
}

#[test]
fn missing_server_is_reported() {
    let scene = or_skip!(Scene::set(Who::User));
    let gone = server(|_, wire| wire.close()).url();
    let gateway = Gateway::start(&scene, ["--name", "x", "--url", &gone]);
    for body in [initialize("2025-06-18"), LIST.to_owned()] {
        let reply = gateway.post("x", None, &body);
        let id: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((reply.status, &reply.json()["id"]), (502, &id["id"]), "{}", reply.text());
    }
    no_session_is_left(&gateway);
    assert!(receipts(&scene).is_empty(), "there was none");
}

/// A server that is away for a while: calls fail meanwhile, and the session is kept.
#[test]
fn a_server_that_breaks_connections_keeps_its_sessions() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = server(|seen, wire| match seen.text().contains("\"break\"") {
        true => wire.reset(),
        false => wire.answer("200 OK", &[JSON], b"{}"),
    });
    let gateway = gateway(&scene, &upstream, &[]);
    let session = open(&gateway, "x");
    for _ in 0..5 {
        let broken = gateway.post("x", Some(&session), r#"{"jsonrpc":"2.0","id":1,"method":"break"}"#);
        assert_eq!((broken.status, &broken.json()["id"]), (502, &1.into()), "{}", broken.text());
        assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
    }
}

/// The pool must not offer connections that the server has closed.
#[test]
fn a_server_that_closes_every_connection_loses_no_request() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = server(|seen, wire| {
        // Half of the time it announces that.
        let announced = seen.text().contains("\"announced\"");
        let headers = [JSON, ("Connection", "close")];
        wire.answer("200 OK", &headers[..if announced { 2 } else { 1 }], b"{}")?;
        wire.close()
    });
    let gateway = gateway(&scene, &upstream, &[]);
    let session = open(&gateway, "x");
    for number in 0..100 {
        let method = if number % 2 == 0 { "announced" } else { "silent" };
        let reply = gateway.post("x", Some(&session), &LIST.replace("tools/list", method));
        assert_eq!(reply.status, 200, "{}", reply.text());
        wait::until("the connection's end", || (upstream.connections() == 0).then_some(()));
    }
}

/// A session that a slow server opens after its client got a timeout is closed.
#[test]
fn hanging_server_is_reported_and_its_late_session_is_closed() {
    let scene = or_skip!(Scene::set(Who::User));
    let (go, wait_for_it) = channel::<()>();
    let wait_for_it = Mutex::new(wait_for_it);
    let upstream = Upstream::start(move |seen, wire| match seen.method.as_str() {
        "POST" => {
            let _ = wait_for_it.lock().expect("no thread panics while it holds the lock").recv();
            wire.answer("200 OK", &[JSON, ("Mcp-Session-Id", "late")], OPENED)
        }
        _ => wire.answer("200 OK", &[], b""),
    });
    let gateway = gateway(&scene, &upstream, &["--init-timeout", "300ms"]);
    let reply = gateway.post("x", None, &initialize("2025-06-18"));
    assert_eq!((reply.status, &reply.json()["id"]), (504, &0.into()), "{}", reply.text());
    assert!(upstream.of("DELETE").is_empty());
    go.send(()).expect("the server waits");
    let deleted = wait::until("the DELETE", || upstream.of("DELETE").pop());
    assert_eq!(deleted.header("mcp-session-id"), Some("late"));
    no_session_is_left(&gateway);
    drop(go);
}

/// A call that hangs: its client disconnects, and leash closes the server's side of it. The session continues.
#[test]
fn a_call_that_hangs_ends_with_its_client() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = server(|seen, wire| match seen.text().contains("\"hang\"") {
        true => wire.hold(),
        false => wire.answer("200 OK", &[JSON], b"{}"),
    });
    let gateway = gateway(&scene, &upstream, &[]);
    let session = open(&gateway, "x");
    let client = ask(&gateway, &session, r#"{"jsonrpc":"2.0","id":1,"method":"hang"}"#);
    wait::until("the call", || upstream.seen().iter().find(|seen| seen.text().contains("hang")).map(drop));
    // Other requests are not delayed.
    assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
    let before = upstream.connections();
    drop(client);
    wait::until("the call to be given up", || (upstream.connections() < before).then_some(()));
    assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
}

/// The ways in which an answer can break off.
const CUTS: [fn(&mut Wire, &str) -> io::Result<()>; 4] = [
    // Less than the announced length.
    |wire, kind| {
        wire.send(
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: 100\r\n\r\ndata: {{\"half").as_bytes(),
        )?;
        wire.close()
    },
    // Chunks without an end.
    |wire, kind| {
        wire.begin("200 OK", &[("Content-Type", kind)])?;
        wire.chunk(b"data: {\"half")?;
        wire.close()
    },
    // In the middle of a chunk.
    |wire, kind| {
        wire.begin("200 OK", &[("Content-Type", kind)])?;
        wire.send(b"64\r\ndata: {\"half")?;
        wire.close()
    },
    // By a reset, after some data.
    |wire, kind| {
        wire.begin("200 OK", &[("Content-Type", kind)])?;
        wire.chunk(b"data: {\"half")?;
        wire.reset()
    },
];

/// A partial answer is never taken for a whole one.
#[test]
fn partial_answer_is_partial_for_the_client() {
    for (number, cut) in CUTS.into_iter().enumerate() {
        for kind in ["application/json", "text/event-stream"] {
            let scene = or_skip!(Scene::set(Who::User));
            let upstream = server(move |_, wire| cut(wire, kind));
            let gateway = gateway(&scene, &upstream, &[]);
            let session = open(&gateway, "x");
            // leash may have buffered a short one: then the client gets an error instead.
            let broken = |reply: &io::Result<Reply>| reply.as_ref().map_or(true, |reply| reply.status == 502);
            let reply = ask(&gateway, &session, LIST).reply();
            assert!(broken(&reply), "POST, {kind}, cut {number}: {reply:?}");
            let mut listens = gateway.connect();
            let headers = [("accept", "text/event-stream"), ("mcp-session-id", &session)];
            listens.send("GET", "/x/mcp", &headers, b"").expect("it is sent");
            let reply = listens.reply();
            assert!(broken(&reply), "GET, {kind}, cut {number}: {reply:?}");
        }
    }
}

/// The same with the answer to `initialize`: the client cannot have the session, so it is ended.
#[test]
fn partial_answer_to_initialize_leaves_no_session() {
    for (number, cut) in CUTS.into_iter().enumerate() {
        let scene = or_skip!(Scene::set(Who::User));
        let upstream = Upstream::start(move |seen, wire| match seen.method.as_str() {
            // This adds another header after the content type.
            "POST" => cut(wire, "application/json\r\nMcp-Session-Id: half"),
            _ => wire.answer("200 OK", &[], b""),
        });
        let gateway = gateway(&scene, &upstream, &[]);
        let mut client = gateway.connect();
        client.send("POST", "/x/mcp", &POST, initialize("2025-06-18").as_bytes()).expect("it is sent");
        let reply = client.reply();
        assert!(
            reply.as_ref().is_err() || reply.as_ref().is_ok_and(|reply| reply.status == 502),
            "{number}: {reply:?}"
        );
        let deleted = wait::until("the DELETE", || upstream.of("DELETE").pop());
        assert_eq!(deleted.header("mcp-session-id"), Some("half"), "{number}");
        no_session_is_left(&gateway);
    }
}

/// Errors of the server are passed unchanged: clients negotiate versions and sign in by them.
#[test]
fn errors_of_a_server_pass() {
    let scene = or_skip!(Scene::set(Who::User));
    type Answer = (&'static str, &'static [(&'static str, &'static str)], &'static [u8]);
    let answers: [Answer; 5] = [
        (
            "401 Unauthorized",
            &[("WWW-Authenticate", "Bearer resource_metadata=\"https://x/y\""), JSON],
            b"{\"error\":\"no\"}",
        ),
        ("403 Forbidden", &[("Content-Type", "text/html")], b"<p>no</p>"),
        ("429 Too Many Requests", &[("Retry-After", "7")], b""),
        (
            "500 Internal Server Error",
            &[JSON],
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"\"}}",
        ),
        ("503 Service Unavailable", &[("Retry-After", "1"), ("X-Y", "z")], b"later"),
    ];
    for (status, headers, body) in answers {
        let refusing = Upstream::start(move |_, wire| wire.answer(status, headers, body));
        let opening = server(move |_, wire| wire.answer(status, headers, body));
        let refused = gateway(&scene, &refusing, &[]);
        let opened = gateway(&scene, &opening, &[]);
        let session = open(&opened, "x");
        let replies = [refused.post("x", None, &initialize("2025-06-18")), opened.post("x", Some(&session), LIST)];
        for reply in replies {
            assert_eq!((reply.status.to_string().as_str(), &*reply.body), (&status[..3], body), "{reply:?}");
            for (name, value) in headers {
                assert_eq!(reply.header(&name.to_ascii_lowercase()), Some(*value), "{reply:?}");
            }
        }
        no_session_is_left(&refused);
        assert_eq!(super::live(&opened, "x"), 1.0, "{status}: an error is no end");
    }
}

#[test]
fn redirects_are_followed_at_the_same_server_only() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = Upstream::start(|seen, wire| match seen.path.as_str() {
        "/mcp" => wire.answer("307 Temporary Redirect", &[("Location", "/moved?a=b")], b""),
        "/moved?a=b" => wire.answer("308 Permanent Redirect", &[("Location", "last")], b""),
        "/last" => wire.answer("200 OK", &[JSON], &seen.body),
        "/away" => wire.answer("307 Temporary Redirect", &[("Location", "http://127.0.0.2:1/mcp")], b"away"),
        "/see" => wire.answer("303 See Other", &[("Location", "/last")], b"see"),
        _ => wire.answer("307 Temporary Redirect", &[("Location", "/loop")], b"loop"),
    });
    let reply = gateway(&scene, &upstream, &[]).post("x", None, LIST);
    assert_eq!((reply.status, reply.text().as_str()), (200, LIST));
    let paths: Vec<_> = upstream.seen().into_iter().map(|seen| (seen.path, seen.body == LIST.as_bytes())).collect();
    assert_eq!(paths, ["/mcp", "/moved?a=b", "/last"].map(|path| (path.to_owned(), true)));
    // The client decides about all other redirects.
    for (path, status, asked) in [("away", 307, 1), ("see", 303, 1), ("loop", 307, 4)] {
        upstream.forget();
        let url = upstream.url().replace("/mcp", &format!("/{path}"));
        let reply = Gateway::start(&scene, ["--name", "x", "--url", &url]).post("x", None, LIST);
        assert_eq!((reply.status, reply.text().as_str()), (status, path));
        assert!(reply.header("location").is_some());
        assert_eq!(upstream.seen().len(), asked, "{path}");
    }
}

/// leash asks for identity encoding. If a server compresses all the same, the client has to decode it.
#[test]
fn compressed_answers_pass() {
    let scene = or_skip!(Scene::set(Who::User));
    // `{}` as gzip; leash does not decode it.
    let zipped = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0C\xbf\xa6\xa3\x02\0\0\0";
    let upstream = Upstream::start(move |seen, wire| {
        let headers = [JSON, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"), ("Mcp-Session-Id", "zipped")];
        match seen.method.as_str() {
            "POST" => wire.answer("200 OK", &headers, zipped),
            _ => wire.answer("200 OK", &[], b""),
        }
    });
    let gateway = gateway(&scene, &upstream, &[]);
    let headers = [POST[0], POST[1], ("accept-encoding", "gzip, br")];
    let opened = gateway.ask("POST", "/x/mcp", &headers, initialize("2025-06-18").as_bytes());
    assert_eq!((opened.header("content-encoding"), &*opened.body), (Some("gzip"), &zipped[..]), "{opened:?}");
    // leash cannot read the result, but the client can, so the session is kept.
    let in_session = gateway.post("x", Some("zipped"), LIST);
    assert_eq!((in_session.status, &*in_session.body), (200, &zipped[..]), "{in_session:?}");
    assert!(upstream.of("POST").iter().all(|seen| seen.header("accept-encoding") == Some("identity")));
    assert!(upstream.of("DELETE").is_empty());
}

#[test]
fn too_large_heads_are_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    type Head = Vec<(String, String)>;
    let heads: [fn() -> Head; 3] = [
        || (0..150).map(|n| (format!("X-{n}"), "y".to_owned())).collect(),
        || vec![("X-Large".to_owned(), "y".repeat(1 << 20))],
        || (0..64).map(|n| (format!("X-{n}"), "y".repeat(16 << 10))).collect(),
    ];
    for head in heads {
        let upstream = server(move |_, wire| {
            let head = head();
            let mut headers = vec![JSON];
            headers.extend(head.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            wire.answer("200 OK", &headers, b"{}")
        });
        let gateway = gateway(&scene, &upstream, &[]);
        let session = open(&gateway, "x");
        let reply = gateway.post("x", Some(&session), LIST);
        assert_eq!((reply.status, &reply.json()["id"]), (502, &1.into()), "{:?}", reply.headers.len());
        assert_eq!(gateway.ask("GET", "/healthz", &[], b"").status, 200);
    }
}

/// All visible characters are allowed in an id, and are kept unchanged.
#[test]
fn odd_session_ids_are_kept_as_they_are() {
    let scene = or_skip!(Scene::set(Who::User));
    let visible: String = ('!'..='~').collect();
    let long = "x".repeat(1024);
    for id in [visible, long, ",".to_owned(), "\"quoted\"".to_owned()] {
        let named = id.clone();
        let upstream = Upstream::start(move |seen, wire| match seen.method.as_str() {
            "POST" => wire.answer("200 OK", &[JSON, ("Mcp-Session-Id", &named)], OPENED),
            _ => wire.answer("200 OK", &[], b""),
        });
        let gateway = gateway(&scene, &upstream, &[]);
        assert_eq!(open(&gateway, "x"), id);
        assert_eq!(gateway.post("x", Some(&id), LIST).status, 200);
        let deleted = gateway.ask("DELETE", "/x/mcp", &[("mcp-session-id", &id)], b"");
        assert_eq!(deleted.status, 200);
        let seen = upstream.seen();
        assert!(seen[1..].iter().all(|seen| seen.header("mcp-session-id") == Some(&id)), "{seen:?}");
        assert_eq!(upstream.of("DELETE").len(), 1);
    }
    // A session id that no client could send back is refused.
    for id in ["two words", "\u{e9}", &"x".repeat(1025)] {
        let named = id.to_owned();
        let upstream =
            Upstream::start(move |_, wire| wire.answer("200 OK", &[JSON, ("Mcp-Session-Id", &named)], OPENED));
        let gateway = gateway(&scene, &upstream, &[]);
        let reply = gateway.post("x", None, &initialize("2025-06-18"));
        assert_eq!((reply.status, reply.header("mcp-session-id")), (502, None), "{}", reply.text());
        no_session_is_left(&gateway);
    }
}

/// A server that gives two clients the same session id: the second one uses it, and it is ended once.
#[test]
fn a_session_id_that_is_given_twice_is_one_session() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = Upstream::start(|seen, wire| match seen.method.as_str() {
        "POST" => wire.answer("200 OK", &[JSON, ("Mcp-Session-Id", "same")], OPENED),
        _ => wire.answer("200 OK", &[], b""),
    });
    let gateway = gateway(&scene, &upstream, &[]);
    assert_eq!([open(&gateway, "x"), open(&gateway, "x")], ["same", "same"]);
    wait::until("one session", || (super::live(&gateway, "x") == 1.0).then_some(()));
    assert_eq!(gateway.post("x", Some("same"), LIST).status, 200);
    assert_eq!(gateway.ask("DELETE", "/x/mcp", &[("mcp-session-id", "same")], b"").status, 200);
    no_session_is_left(&gateway);
    assert_eq!(upstream.of("DELETE").len(), 1);
    assert_eq!(gateway.post("x", Some("same"), LIST).status, 404);
}

/// leash reads a flooded stream no faster than its client does.
#[test]
fn unread_stream_stops_the_server() {
    const FLOOD: usize = 64 << 20;
    let scene = or_skip!(Scene::set(Who::User));
    let (done, finished) = channel();
    let upstream = server(move |seen, wire| {
        if seen.method != "GET" {
            return wire.answer("200 OK", &[JSON], b"{}");
        }
        wire.begin("200 OK", &[("Content-Type", "text/event-stream")])?;
        let event = format!("data: {}\n\n", "x".repeat(65_000));
        for _ in 0..FLOOD / event.len() {
            wire.chunk(event.as_bytes())?;
        }
        let _ = done.send(());
        wire.finish()
    });
    let gateway = gateway(&scene, &upstream, &[]);
    let session = open(&gateway, "x");
    let before = gateway.memory();
    let mut listens = listen(&gateway, &session);
    // It has begun, and other requests continue.
    assert!(listens.chunk().expect("a stream").is_some());
    for _ in 0..100 {
        assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
    }
    let used = gateway.memory().saturating_sub(before);
    assert!(used < 4 << 20, "{used} bytes of memory");
    assert!(finished.try_recv().is_err(), "the server is not done");
    // A client that reads gets everything.
    while listens.chunk().expect("a stream").is_some() {}
    finished.recv_timeout(wait::LIMIT).expect("the server is done");
}
