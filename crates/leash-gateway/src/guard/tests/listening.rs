//! Tests of GET streams: bytes, comments, pings, and their end.

use super::*;
use crate::{config::KeepAlive, guard::listen::ListenBody, guard::stream::ResponseLimit, metrics::Metrics};
use leash_upstream::scripted::{run, stream};

#[test]
fn bytes_pass_unchanged_and_the_end_of_a_stream_does_not_end_the_session() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start(&upstream.url()).await;
        let session = rig.open().await;
        let (sender, body) = stream();
        *fake.stream.borrow_mut() = Some(body);
        let mut request = rig.request(Method::GET, "/s/mcp", Some(&session), "");
        request.headers_mut().insert("last-event-id", HeaderValue::from_static("7"));
        let answer = rig.send(request).await;
        assert_eq!(answer.headers().get("x-accel-buffering").map(HeaderValue::as_bytes), Some(&b"no"[..]));
        let text = "id: 8\r\nretry: 1\r\ndata:\r\n\r\n: c\n\ndata: x\r\rdata: unfin";
        for part in text.as_bytes().chunks(3) {
            sender.send(Bytes::copy_from_slice(part)).expect("sent");
        }
        drop(sender);
        assert_eq!(told(answer).await.body, text);
        assert_eq!(upstream.of(&Method::GET)[0].header("last-event-id"), "7");
        // The server has no further stream.
        assert_eq!(code(&rig.get(Some(&session)).await), 405);
        assert_eq!(rig.sessions(), 1);
    });
}

#[test]
fn plain_404_for_get_does_not_end_the_session() {
    run(async {
        let (fake, quick) = Fake::start().await;
        let upstream = Scripted::start(move |seen| match seen.method {
            Method::GET => reply(status(404, "Cannot GET /mcp")),
            _ => fake.reply(seen),
        })
        .await;
        drop(quick);
        let rig = Rig::start(&upstream.url()).await;
        let session = rig.open().await;
        let answer = told(rig.get(Some(&session)).await).await;
        assert_eq!((answer.status, answer.body.as_str()), (404, "Cannot GET /mcp"));
        assert_eq!(rig.post(Some(&session), CALL).await.status, 200);
    });
}

#[test]
fn session_not_found_for_get_ends_the_session() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start(&upstream.url()).await;
        let session = rig.open().await;
        fake.forget();
        assert_eq!(code(&rig.get(Some(&session)).await), 404);
        rig.quiet().await;
        assert_eq!(rig.ends(), [(Reason::UpstreamForgot, DeleteHow::Forgotten)]);
    });
}

#[test]
fn listener_keeps_its_session_and_the_end_of_a_session_closes_its_streams() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let mut terms = Terms::default();
        terms.policy.idle = Some(Duration::from_millis(500));
        let rig = Rig::with(&upstream.url(), terms).await;
        let session = rig.open().await;
        let (sender, body) = stream();
        *fake.stream.borrow_mut() = Some(body);
        let mut answer = rig.get(Some(&session)).await.into_body();
        sender.send("data: 1\n\n".into()).expect("sent");
        assert!(next(&mut answer).await.is_some());
        rig.idle_time().await;
        rig.idle_time().await;
        assert_eq!(rig.sessions(), 1);
        // The upstream does not close its stream. leash closes it.
        assert_eq!(rig.delete(Some(&session)).await.status, 200);
        assert_eq!(next(&mut answer).await, None);
        sender.closed().await;
    });
}

#[test]
fn session_becomes_idle_after_its_listener_leaves() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let mut terms = Terms::default();
        terms.policy.idle = Some(Duration::from_millis(500));
        let rig = Rig::with(&upstream.url(), terms).await;
        let session = rig.open().await;
        let (sender, body) = stream();
        *fake.stream.borrow_mut() = Some(body);
        let client = UpstreamClient::new();
        let answer = client.send(rig.request(Method::GET, "/s/mcp", Some(&session), "")).await.expect("a stream");
        drop((answer, client));
        rig.quiet().await;
        assert_eq!(rig.ends(), [(Reason::Idle, DeleteHow::Deleted)]);
        // leash closes the upstream's stream when the client closes its own.
        sender.closed().await;
    });
}

/// Returns the id of a ping.
fn ping(event: &str) -> Option<&str> {
    event.strip_prefix(r#"data: {"jsonrpc":"2.0","id":"#)?.strip_suffix(",\"method\":\"ping\"}\n\n")
}

#[test]
fn pings_go_to_the_client_and_their_answers_go_nowhere() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let mut terms = Terms::default();
        terms.policy.keep_alive = KeepAlive::Every(Duration::from_millis(150));
        terms.policy.keep_alive_failures = 4;
        let rig = Rig::with(&upstream.url(), terms).await;
        let session = rig.open().await;
        let (sender, body) = stream();
        *fake.stream.borrow_mut() = Some(body);
        let mut answer = rig.get(Some(&session)).await.into_body();
        let before = upstream.seen().len();
        let mut ids = BTreeSet::new();
        for _ in 0..3 {
            let event = next(&mut answer).await.expect("a ping");
            let id = ping(&event).unwrap_or_else(|| panic!("no ping: {event}"));
            assert!(id.starts_with("\"leash-ping-"), "{id}");
            assert!(ids.insert(id.to_owned()), "the same id again");
            let pong = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            assert_eq!(rig.post(Some(&session), &pong).await.status, 202);
        }
        assert_eq!(upstream.seen().len(), before, "no answer reached the server");
        // leash sends no ping in the middle of an event.
        sender.send("data: ha".into()).expect("sent");
        assert_eq!(next(&mut answer).await.as_deref(), Some("data: ha"));
        // Another session's pings show that a ping was due meanwhile.
        let other = rig.open().await;
        let (_sender, body) = stream();
        *fake.stream.borrow_mut() = Some(body);
        let mut witness = rig.get(Some(&other)).await.into_body();
        for _ in 0..2 {
            assert!(next(&mut witness).await.as_deref().and_then(ping).is_some());
        }
        sender.send("lf\n\n".into()).expect("sent");
        assert_eq!(next(&mut answer).await.as_deref(), Some("lf\n\n"));
        // After four unanswered pings, leash ends the session.
        for _ in 0..4 {
            assert!(next(&mut answer).await.as_deref().and_then(ping).is_some());
        }
        assert_eq!(next(&mut answer).await, None);
        rig.quiet().await;
        let silent = (Reason::ClientSilent, DeleteHow::Deleted);
        assert_eq!(rig.ends(), [silent.clone(), silent]);
    });
}

#[test]
fn silent_stream_gets_comments_only_between_events() {
    // This test has no socket, so it can pause the clock.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let (sender, body) = stream();
        let counters = Metrics::default().of(&"s".into());
        let mut listening = ListenBody::new(body, counters, ResponseLimit::End);
        let mut next = async || {
            let frame = listening.frame().await.expect("not the end").expect("not broken");
            String::from_utf8_lossy(frame.data_ref().expect("bytes")).into_owned()
        };
        let began = tokio::time::Instant::now();
        assert_eq!(next().await, ": keep-alive\n\n");
        assert_eq!(began.elapsed(), Duration::from_secs(15));
        sender.send("data: 1\n".into()).expect("sent");
        assert_eq!(next().await, "data: 1\n");
        // leash inserts nothing in the middle of an event, however long the silence is.
        assert!(tokio::time::timeout(Duration::from_secs(100), next()).await.is_err());
        sender.send("\n".into()).expect("sent");
        assert_eq!(next().await, "\n");
        let began = tokio::time::Instant::now();
        assert_eq!(next().await, ": keep-alive\n\n");
        assert_eq!(began.elapsed(), Duration::from_secs(15));
        assert_eq!(next().await, ": keep-alive\n\n");
    });
}
