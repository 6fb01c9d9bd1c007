//! Access control: other users of this machine, pages in browsers, and ambiguous requests and answers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType};
use testkit::gateway::Gateway;
use testkit::http::{POST, Reply, initialize};
use testkit::scene::Scene;
use testkit::upstream::Upstream;
use testkit::user::{User, Who};
use testkit::{or_skip, wait};

use super::LIST;

/// A gateway of a user, and another user. Only root can run as two users.
fn two_users(options: &[&str]) -> Result<(Scene, Gateway, User), String> {
    User::find(Who::Root)?;
    let mut scene = Scene::set(Who::User)?;
    scene.set_env("LEASH_TEST_TOKEN", "s3cret");
    let gateway = Gateway::single(&scene, options, &scene.tree("setsid", ["--mcp"]));
    Ok((scene, gateway, User::find(Who::User)?))
}

fn post(gateway: &Gateway, more: &[(&str, &str)], body: &str) -> Reply {
    let headers = [&POST[..], more].concat();
    gateway.ask("POST", "/x/mcp", &headers, body.as_bytes())
}

#[test]
fn another_user_is_refused_without_a_token() {
    let (scene, gateway, other) = or_skip!(two_users(&["--grace", "300ms"]));
    let hello = initialize("2025-06-18");
    other.act(|| {
        // A forwarding header does not hide the user of the connection.
        for more in [&[][..], &[("x-forwarded-for", "192.0.2.1")], &[("authorization", "Bearer guess")]] {
            let reply = post(&gateway, more, &hello);
            assert_eq!(reply.status, 403, "{}", reply.text());
            let said = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert!(said.contains(&format!("uid {}", other.uid())) && said.contains("localUsers"), "{said}");
        }
        assert_eq!(gateway.ask("GET", "/metrics", &[], b"").status, 403);
        assert_eq!(gateway.ask("GET", "/unknown", &[], b"").status, 403, "no path is told");
        assert_eq!(gateway.ask("GET", "/healthz", &[], b"").text(), "ok\n");
        assert_eq!(gateway.ask("GET", "/readyz", &[], b"").text(), "ready\n");
    });
    assert!(scene.ledger().iter().all(|path| !path.to_string_lossy().ends_with(".json")), "nothing was started");
    // Root and the gateway's own user are served.
    let own = *scene.user();
    let session = own.act(|| {
        let opened = post(&gateway, &[], &hello);
        assert_eq!(opened.status, 200, "{}", opened.text());
        opened.header("mcp-session-id").expect("a session").to_owned()
    });
    assert_eq!(post(&gateway, &[], &hello).status, 200, "root is served");
    // A session id is of no use to another uid, including root.
    assert_eq!(post(&gateway, &[("mcp-session-id", &session)], LIST).status, 404);
    own.act(|| assert_eq!(post(&gateway, &[("mcp-session-id", &session)], LIST).status, 200));
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

/// A client may bind to any address of its machine before it connects to loopback.
#[test]
fn another_user_is_refused_from_another_source_address() {
    let (_scene, gateway, other) = or_skip!(two_users(&[]));
    let Some(source) = own_address() else { return testkit::note("skipped: loopback is the only address") };
    let status = other.act(|| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        rustix::net::bind(&socket, &source).expect("the address is ours");
        rustix::net::connect(&socket, &gateway.address()).expect("it listens");
        let mut stream = TcpStream::from(socket);
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("an answer");
        reply.split(' ').nth(1).map(str::to_owned)
    });
    assert_eq!(status.as_deref(), Some("403"));
}

/// An address of this machine that is not loopback. The kernel chooses it for a route, without sending a packet.
fn own_address() -> Option<SocketAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback()).then(|| SocketAddr::new(ip, 0))
}

#[test]
fn another_user_is_served_with_local_users_any() {
    let (scene, gateway, other) = or_skip!(two_users(&["--local-users", "any", "--grace", "300ms"]));
    let hello = initialize("2025-06-18");
    let session = other.act(|| {
        assert_eq!(gateway.ask("GET", "/metrics", &[], b"").status, 200);
        let opened = post(&gateway, &[], &hello);
        assert_eq!(opened.status, 200, "{}", opened.text());
        opened.header("mcp-session-id").expect("a session").to_owned()
    });
    // Its session is still private.
    for method in ["POST", "GET", "DELETE"] {
        let headers = [&POST[..], &[("mcp-session-id", &*session)]].concat();
        assert_eq!(gateway.ask(method, "/x/mcp", &headers, LIST.as_bytes()).status, 404, "{method}");
    }
    other.act(|| assert_eq!(post(&gateway, &[("mcp-session-id", &session)], LIST).status, 200));
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn another_user_that_shows_the_token_is_served() {
    let (scene, gateway, other) = or_skip!(two_users(&["--token-env", "LEASH_TEST_TOKEN", "--grace", "300ms"]));
    let bearer = ("authorization", "Bearer s3cret");
    let session = other.act(|| {
        assert_eq!(post(&gateway, &[], LIST).status, 401);
        assert_eq!(gateway.ask("GET", "/metrics", &[], b"").status, 401);
        assert_eq!(gateway.ask("GET", "/metrics", &[bearer], b"").status, 200);
        let opened = post(&gateway, &[bearer], &initialize("2025-06-18"));
        assert_eq!(opened.status, 200, "{}", opened.text());
        opened.header("mcp-session-id").expect("a session").to_owned()
    });
    assert_eq!(post(&gateway, &[bearer, ("mcp-session-id", &session)], LIST).status, 404, "of another uid");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
}

#[test]
fn only_our_own_origin_and_configured_ones_are_accepted() {
    let scene = or_skip!(Scene::set(Who::User));
    let text = r#"{"mcpServers": {"x": {"command": "cat"}}, "leash": {"allowedOrigins": ["http://localhost:6274"]}}"#;
    let gateway = Gateway::start(&scene, ["--config", &super::config(&scene, text)]);
    let port = gateway.address().port();
    for own in [format!("http://localhost:{port}"), format!("http://127.0.0.1:{port}"), "http://localhost:6274".into()]
    {
        assert_eq!(post(&gateway, &[("origin", &own)], LIST).status, 400, "no session, but welcome: {own}");
    }
    let other = if port == 3000 { 3001 } else { 3000 };
    for foreign in [
        "http://localhost".to_owned(),
        format!("http://localhost:{other}"),
        format!("http://127.0.0.1:{other}"),
        format!("http://127.0.0.2:{port}"),
        format!("https://localhost:{port}"),
    ] {
        let reply = post(&gateway, &[("origin", &foreign)], LIST);
        assert_eq!(reply.status, 403, "{foreign}");
        assert!(reply.text().contains("allowedOrigins"), "{}", reply.text());
    }
}

#[test]
fn repeated_deciding_header_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::start(&scene, ["--name", "x", "--", "cat"]);
    let own = format!("http://localhost:{}", gateway.address().port());
    for (name, first, second) in [
        ("origin", &*own, "http://evil.example"),
        ("host", "localhost", "evil.example"),
        ("mcp-session-id", "a", "b"),
        ("authorization", "Bearer a", "Bearer b"),
        ("leash-authorization", "Bearer a", "Bearer b"),
    ] {
        let reply = post(&gateway, &[(name, first), (name, second)], LIST);
        assert_eq!(reply.status, 400, "{name}: {}", reply.text());
        assert!(reply.text().contains(name) && reply.text().contains("twice"), "{}", reply.text());
    }
    // The control socket has the same check.
    let mut control =
        testkit::http::Connection::open_local(&scene.runtime_dir().join("control.sock")).expect("it listens");
    let reply = control.ask("GET", "/v1/version", &[("authorization", "a"), ("authorization", "b")], b"");
    assert_eq!((reply.status, &reply.json()["type"]), (400, &"urn:leash:problem:repeated-header".into()));
}

#[test]
fn ambiguous_answer_is_an_error() {
    let scene = or_skip!(Scene::set(Who::User));
    let upstream = Upstream::start(|seen, wire| {
        let answer: &[u8] = match (&*seen.method, &*seen.text()) {
            ("DELETE", _) => b"HTTP/1.1 204 No Content\r\n\r\n",
            (_, text) if text.contains("switch") => {
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
            }
            _ => {
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: two\r\nContent-Length: 2\r\n\
                  Transfer-Encoding: chunked\r\n\r\n4\r\n{}{}\r\n0\r\n\r\n"
            }
        };
        wire.send(answer)
    });
    let gateway = Gateway::in_front_of(&scene, &[], &upstream.url());
    let reply = post(&gateway, &[], r#"{"jsonrpc":"2.0","id":1,"method":"switch"}"#);
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(reply.text().contains("101"), "{}", reply.text());
    let reply = post(&gateway, &[], &initialize("2025-06-18"));
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(reply.text().contains("Content-Length and Transfer-Encoding"), "{}", reply.text());
    // The session that the answer opened is ended.
    let deleted = || upstream.of("DELETE").iter().any(|seen| seen.header("mcp-session-id") == Some("two"));
    wait::until("the DELETE", || deleted().then_some(()));
    gateway.stop();
}
