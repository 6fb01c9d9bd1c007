//! Clients that do not read, or that write very slowly.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testkit::gateway::Gateway;
use testkit::http::{Connection, POST, initialize};
use testkit::puppet::{Puppet, Theatre};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{LIST, MIB, Rest, end, open, post_head, sent};

/// A gateway in front of a server that answers (`y`) and of puppets (`x`).
fn gateway(scene: &Scene, theatre: &Theatre) -> Gateway {
    let server = |words: Vec<std::ffi::OsString>| {
        let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        format!(r#"{{"command": {}, "args": [{}]}}"#, words[0], words[1..].join(", "))
    };
    let (x, y) = (server(theatre.words(scene, "polite")), server(scene.tree("polite", ["--mcp"])));
    let file = super::super::config(scene, &format!(r#"{{"mcpServers": {{"x": {x}, "y": {y}}}}}"#));
    Gateway::start(scene, ["--config", &file])
}

/// A session with a puppet.
fn played(gateway: &Gateway, theatre: &Theatre) -> (String, Puppet) {
    let mut client = gateway.connect();
    client.send("POST", "/x/mcp", &POST, initialize("2025-06-18").as_bytes()).expect("it is sent");
    let mut puppet = theatre.next();
    puppet.initialize("2025-06-18");
    let reply = client.reply().expect("an answer");
    (reply.header("mcp-session-id").expect("a session").to_owned(), puppet)
}

fn others_go_on(gateway: &Gateway) {
    let session = open(gateway, "y");
    for _ in 0..20 {
        assert_eq!(gateway.post("y", Some(&session), LIST).status, 200);
    }
    end(gateway, "y", &session);
}

/// Sends a request, and does not read the answer.
fn ask(gateway: &Gateway, session: &str, puppet: &mut Puppet, answer: &str) -> Connection {
    let mut client = gateway.connect();
    let headers = [POST[0], POST[1], ("mcp-session-id", session)];
    client.send("POST", "/x/mcp", &headers, LIST.as_bytes()).expect("it is sent");
    assert_eq!(puppet.hear(), LIST.as_bytes());
    puppet.say(answer);
    client
}

/// Large unread answers take their size in memory once, and only until the client is gone.
#[test]
fn unread_answers_are_kept_once() {
    const SIZE: u64 = 8 * MIB;
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = gateway(&scene, &theatre);
    let rest = Rest::of(&gateway, &["y"]);
    let text = "x".repeat(SIZE as usize);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"text":"{text}"}}}}"#);
    let mut slow = Vec::new();
    for number in 1..=4 {
        let (session, mut puppet) = played(&gateway, &theatre);
        slow.push((ask(&gateway, &session, &mut puppet, &answer), session, puppet));
        wait::until("the answer to come", || {
            let read = gateway.metric("leash_sent_bytes_total{server=\"x\"}").unwrap_or_default();
            (read >= (number * SIZE) as f64).then_some(())
        });
        let used = gateway.memory() - rest.memory;
        // The same size again for the line while it is read, before it is a message.
        assert!(used < (number + 2) * SIZE, "{used} bytes for {number} answers of {SIZE}");
    }
    others_go_on(&gateway);
    for (client, session, puppet) in slow {
        drop(client);
        end(&gateway, "x", &session);
        drop(puppet);
    }
    rest.again(&gateway, &["x", "y"], 2 * MIB);
}

/// A server that sends more than its client reads has to wait. Other clients and servers do not.
#[test]
fn unread_flood_stops_the_server() {
    const FLOOD: u64 = 128 * MIB;
    let scene = or_skip!(Scene::set(Who::User));
    let theatre = Theatre::open(&scene);
    let gateway = gateway(&scene, &theatre);
    let rest = Rest::of(&gateway, &["y"]);
    let (session, puppet) = played(&gateway, &theatre);
    let mut listens = gateway.connect();
    let headers = [("accept", "text/event-stream"), ("mcp-session-id", session.as_str())];
    listens.send("GET", "/x/mcp", &headers, b"").expect("it is sent");
    assert_eq!(listens.head().expect("an answer").status, 200);

    let said = Arc::new(AtomicU64::new(0));
    let (mut mouth, counted) = (puppet.mouth(), Arc::clone(&said));
    let flood = std::thread::spawn(move || {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"{}\"}}\n", "y".repeat(4000));
        while counted.load(Ordering::Relaxed) < FLOOD {
            mouth.write_all(line.as_bytes()).expect("the puppet is gone");
            counted.fetch_add(line.len() as u64, Ordering::Relaxed);
        }
    });
    // The sockets between the gateway and its client take some megabytes; then everything stops.
    wait::until("the flood to stop", || {
        let before = said.load(Ordering::Relaxed);
        wait::step(Duration::from_millis(300));
        (before > 0 && said.load(Ordering::Relaxed) == before).then_some(())
    });
    let (passed, used) = (said.load(Ordering::Relaxed), gateway.memory() - rest.memory);
    assert!(passed < FLOOD / 2, "{passed} bytes were taken from the server");
    assert!(used < 4 * MIB, "{used} bytes of memory");
    others_go_on(&gateway);
    // Without a listener leash keeps a bounded amount for a client that comes back, and the server continues.
    drop(listens);
    flood.join().expect("the flood ends");
    let used = gateway.memory() - rest.memory;
    assert!(used < 6 * MIB, "{used} bytes of memory");
    wait::until("a warning", || gateway.said().contains("sends more than its client reads").then_some(()));
    end(&gateway, "x", &session);
    drop(puppet);
    rest.again(&gateway, &["x", "y"], 2 * MIB);
}

/// Request heads that arrive byte by byte, or never end.
#[test]
fn endless_heads_do_not_affect_other_clients() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &scene.tree("polite", ["--mcp"]));
    let rest = Rest::of(&gateway, &["x"]);
    let whole = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: yes\r\n\r\n";
    let mut slow: Vec<Connection> = (0..500).map(|_| sent(&gateway, b"GET /healthz HTTP/1.1\r\nX-")).collect();
    gateway.wait_metric("leash_connections", 501.0);
    let used = gateway.memory().saturating_sub(rest.memory);
    assert!(used < 500 * 32 * 1024, "{used} bytes for 500 heads");
    let session = open(&gateway, "x");
    assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
    end(&gateway, "x", &session);
    // One of them ends after all.
    let mut last = slow.pop().expect("there are many");
    for byte in "Slow: yes\r\nHost: localhost\r\n\r\n".bytes() {
        last.socket().write_all(&[byte]).expect("it is sent");
    }
    assert_eq!(last.reply().expect("an answer").text(), "ok\n");
    // A whole request, byte by byte.
    let mut bytes = sent(&gateway, b"");
    for byte in whole.bytes() {
        bytes.socket().write_all(&[byte]).expect("it is sent");
    }
    assert_eq!(bytes.reply().expect("an answer").text(), "ok\n");
    drop((slow, last, bytes));
    rest.again(&gateway, &["x"], 4 * MIB);
}

/// Endless bodies take no more memory than was sent of them.
#[test]
fn endless_bodies_do_not_affect_other_clients() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = Gateway::single(&scene, &[], &scene.tree("polite", ["--mcp"]));
    let rest = Rest::of(&gateway, &["x"]);
    let head = format!("{}Content-Length: 4194304\r\n\r\n{{", post_head(None));
    let slow: Vec<Connection> = (0..200).map(|_| sent(&gateway, head.as_bytes())).collect();
    gateway.wait_metric("leash_connections", 201.0);
    let used = gateway.memory().saturating_sub(rest.memory);
    assert!(used < 200 * 32 * 1024, "{used} bytes for 200 bodies of which one byte came");
    let session = open(&gateway, "x");
    assert_eq!(gateway.post("x", Some(&session), LIST).status, 200);
    end(&gateway, "x", &session);
    drop(slow);
    rest.again(&gateway, &["x"], 4 * MIB);
}
