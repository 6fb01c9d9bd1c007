//! An upstream that lost the session: a host on a pipe cannot be told 404, so leash opens the session again, or exits.

use std::sync::Arc;

use rustix::process::Signal;
use testkit::leash::keeper;
use testkit::wait::LIMIT;

use crate::host::{Connect, INITIALIZE, INITIALIZED, call, scene};
use crate::upstream::{Seen, Sessions, Upstream, result};

fn start(sessions: &Arc<Sessions>) -> Upstream {
    let serving = Arc::clone(sessions);
    Upstream::start(move |seen, talk| serving.serve(seen, talk))
}

/// The POSTed messages, each with its session.
fn posted(upstream: &Upstream) -> Vec<(String, String)> {
    let named = |seen: &Seen| (seen.text(), seen.header("mcp-session-id").to_owned());
    upstream.of("POST").iter().map(named).collect()
}

#[test]
fn a_lost_session_is_opened_again() {
    let sessions = Arc::new(Sessions::default());
    let upstream = start(&sessions);
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "session-1"));
    sessions.forget();
    // The host notices nothing: no second answer to its `initialize`, and its request is answered.
    connect.send(&call(2));
    assert_eq!(connect.next(), result(&2.into(), "session-2"));
    connect.send(&call(3));
    assert_eq!(connect.next(), result(&3.into(), "session-2"));
    let sent = |text: &str, session: &str| (text.to_owned(), session.to_owned());
    assert_eq!(
        posted(&upstream)[3..],
        [
            sent(&call(2), "session-1"),
            sent(INITIALIZE, ""),
            sent(INITIALIZED, "session-2"),
            sent(&call(2), "session-2"),
            sent(&call(3), "session-2"),
        ]
    );
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert!(connect.is_silent());
    // The upstream forgot the first one by itself; leash ends the second one.
    let deleted: Vec<String> =
        upstream.of("DELETE").iter().map(|seen| seen.header("mcp-session-id").to_owned()).collect();
    assert_eq!(deleted, ["session-2"]);
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    let how: Vec<&str> =
        receipt["holdings"].as_array().into_iter().flatten().filter_map(|end| end["how"].as_str()).collect();
    assert_eq!(how, ["forgotten", "deleted"], "{receipt:#}");
}

/// The keeper gets the id of the new session, too.
#[test]
fn a_killed_leash_leaves_no_revived_session() {
    let sessions = Arc::new(Sessions::default());
    let upstream = start(&sessions);
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    sessions.forget();
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "session-2"));
    let keeper = keeper(connect.pid());
    connect.signal(Signal::KILL);
    assert!(keeper.wait_gone(LIMIT));
    assert_eq!(sessions.open(), Vec::<String>::new());
    assert_eq!(upstream.of("DELETE").len(), 1);
    // The receipt names the first one, too.
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    assert_eq!(ends(receipt), ["session-/forgotten", "session-/deleted"], "{receipt:#}");
}

/// The beginnings of ids, and their ends, as in a receipt.
fn ends(receipt: &serde_json::Value) -> Vec<String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let ends = receipt["holdings"].as_array().into_iter().flatten();
    ends.map(|end| format!("{}/{}", text(&end["id"]), text(&end["how"]))).collect()
}

/// leash is killed during the DELETE of the session that it replaced: the keeper sends it again.
#[test]
fn a_killed_leash_leaves_no_replaced_session() {
    let sessions = Arc::new(Sessions::default());
    let (serving, silent) = (Arc::clone(&sessions), std::sync::atomic::AtomicBool::new(true));
    let upstream = Upstream::start(move |seen, talk| {
        if seen.method == "DELETE" && silent.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return talk.wait_gone();
        }
        serving.serve(seen, talk);
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(INITIALIZE);
    assert!(connect.next().contains("protocolVersion"));
    upstream.wait_count("DELETE", 1);
    let keeper = keeper(connect.pid());
    connect.signal(Signal::KILL);
    assert!(keeper.wait_gone(LIMIT));
    assert_eq!(sessions.open(), Vec::<String>::new());
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    assert_eq!(ends(receipt), ["session-/deleted", "session-/deleted"], "{receipt:#}");
}

/// Several requests notice the loss at once: leash opens one new session, and keeps their order.
#[test]
fn requests_that_wait_for_the_new_session_keep_their_order() {
    let sessions = Arc::new(Sessions::default());
    let upstream = start(&sessions);
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    connect.next();
    sessions.forget();
    let lines: String = (2..40).map(|id| call(id) + "\n").collect();
    connect.write(lines.as_bytes());
    for id in 2..40 {
        connect.wait(&result(&id.into(), "session-2"));
    }
    assert_eq!(posted(&upstream).iter().filter(|(text, _)| text == INITIALIZE).count(), 2);
    let again: Vec<String> = posted(&upstream)
        .into_iter()
        .filter(|(text, session)| session == "session-2" && text != INITIALIZED)
        .map(|(text, _)| text)
        .collect();
    assert_eq!(again.len(), 38);
}

/// Servers of the SDK's first version answer 400. leash cannot know then if the session is really gone, so it sends a
/// DELETE as well.
#[test]
fn a_400_that_speaks_of_the_session_is_a_loss() {
    let sessions = Arc::new(Sessions::default());
    let serving = Arc::clone(&sessions);
    let upstream = Upstream::start(move |seen, talk| {
        let known = serving.open().iter().any(|open| open == seen.header("mcp-session-id"));
        if known || seen.rpc() == "initialize" {
            return serving.serve(seen, talk);
        }
        let error = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
        talk.answer(400, &[("Content-Type", "application/json")], error);
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    sessions.forget();
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "session-2"));
    connect.close();
    assert_eq!(connect.code(), Some(0));
    let mut deleted: Vec<String> =
        upstream.of("DELETE").iter().map(|seen| seen.header("mcp-session-id").to_owned()).collect();
    deleted.sort();
    assert_eq!(deleted, ["session-1", "session-2"]);
}

/// A real restart of the server: the connection breaks, no server listens, and then one does.
#[test]
fn session_is_reopened_after_an_upstream_restart() {
    let upstream = start(&Arc::new(Sessions::default()));
    let (address, url) = (upstream.address(), upstream.url());
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&url]);
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "session-1"));
    drop(upstream);
    connect.send(&call(2));
    assert!(connect.next().contains(r#""id":2,"error""#));
    let sessions = Arc::new(Sessions::default());
    let serving = Arc::clone(&sessions);
    let again = Upstream::start_at(address, move |seen, talk| serving.serve(seen, talk));
    connect.send(&call(3));
    assert_eq!(connect.next(), result(&3.into(), "session-1"));
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert_eq!(again.of("DELETE").len(), 1);
}

/// If a session is lost twice in a row, the upstream is at fault; the request is answered all the same.
#[test]
fn a_request_is_repeated_once() {
    let sessions = Arc::new(Sessions::default());
    let serving = Arc::clone(&sessions);
    let upstream = Upstream::start(move |seen, talk| {
        if seen.rpc() == "tools/call" {
            serving.forget();
        }
        serving.serve(seen, talk);
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(&call(1));
    assert_eq!(connect.next(), r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}"#);
    let calls = posted(&upstream).iter().filter(|(text, _)| *text == call(1)).count();
    assert_eq!(calls, 2);
}

#[test]
fn without_revive_the_host_gets_an_error_and_leash_exits() {
    let sessions = Arc::new(Sessions::default());
    let upstream = start(&sessions);
    let scene = scene();
    let mut connect = Connect::open(&scene, &["--no-revive", &upstream.url()]);
    connect.send(r#"{"jsonrpc":"2.0","id":"first","method":"ping"}"#);
    connect.next();
    sessions.forget();
    connect.send(&call(1));
    let told = connect.next();
    assert_eq!(
        told,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"the upstream server has lost the session; start the server again (--no-revive)"}}"#
    );
    assert_eq!(connect.code(), Some(1));
    assert_eq!(upstream.of("DELETE").len(), 0);
    let receipt = &scene.answer(["history", "--json"]).json()["receipts"][0];
    assert_eq!(receipt["reason"]["kind"], "upstream_forgot", "{receipt:#}");
}

/// A host that sends `initialize` again: the session that it leaves is ended.
#[test]
fn a_second_initialize_ends_the_first_session() {
    let sessions = Arc::new(Sessions::default());
    let upstream = start(&sessions);
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(INITIALIZE);
    assert!(connect.next().contains("protocolVersion"));
    upstream.wait_count("DELETE", 1);
    connect.send(&call(1));
    assert_eq!(connect.next(), result(&1.into(), "session-2"));
    connect.close();
    assert_eq!(connect.code(), Some(0));
    let deleted: Vec<String> =
        upstream.of("DELETE").iter().map(|seen| seen.header("mcp-session-id").to_owned()).collect();
    assert_eq!(deleted, ["session-1", "session-2"]);
}
