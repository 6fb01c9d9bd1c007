//! Tests of an `initialize` whose client has left: leash closes the session that it opens.

use super::*;
use leash_upstream::scripted::{run, stream};

async fn asked(upstream: &Scripted) {
    upstream.until(|seen| seen.iter().any(|seen| seen.says("initialize"))).await;
}

#[test]
fn session_is_deleted_if_the_client_leaves_before_the_response() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let answer = CancellationToken::new();
        *fake.hold.borrow_mut() = Some(answer.clone());
        let rig = Rig::start(&upstream.url()).await;
        rig.abandon(rig.request(Method::POST, "/s/mcp", None, INITIALIZE), asked(&upstream)).await;
        // The gateway has seen that the connection is gone.
        rig.until(|rig| rig.gateway.metrics.connections.get() == 0).await;
        answer.cancel();
        rig.quiet().await;
        assert_eq!(deleted(&upstream), ["up-1"]);
        assert_eq!(rig.ends(), [(Reason::ClientLeft, DeleteHow::Deleted)]);
        assert!(fake.leaked.borrow().is_empty());
    });
}

#[test]
fn session_is_deleted_if_the_client_leaves_in_the_middle_of_the_response() {
    run(async {
        let (sender, body) = stream();
        let body = RefCell::new(Some(body));
        let upstream = Scripted::start(move |seen| {
            let Some(body) = body.borrow_mut().take().filter(|_| seen.method == Method::POST) else {
                return reply(status(200, ""));
            };
            let mut answer = events(body);
            answer.headers_mut().insert(SESSION_ID, HeaderValue::from_static("half"));
            reply(answer)
        })
        .await;
        let rig = Rig::start(&upstream.url()).await;
        let answer =
            UpstreamClient::new().send(rig.request(Method::POST, "/s/mcp", None, INITIALIZE)).await.expect("a head");
        assert_eq!(rig.booked(), ["half"]);
        sender.send("id: 1\ndata:\n\n".into()).expect("sent");
        drop(answer);
        rig.quiet().await;
        assert_eq!(deleted(&upstream), ["half"]);
        assert_eq!(rig.ends(), [(Reason::ClientLeft, DeleteHow::Deleted)]);
    });
}

#[test]
fn streamed_response_to_initialize_is_passed_on_and_read() {
    run(async {
        let (sender, body) = stream();
        let body = RefCell::new(Some(body));
        let upstream = Scripted::start(move |seen| {
            let Some(body) = body.borrow_mut().take().filter(|_| seen.method == Method::POST) else {
                return reply(status(200, ""));
            };
            let mut answer = events(body);
            answer.headers_mut().insert(SESSION_ID, HeaderValue::from_static("streamed"));
            reply(answer)
        })
        .await;
        let rig = Rig::start(&upstream.url()).await;
        let answer = rig.send(rig.request(Method::POST, "/s/mcp", None, INITIALIZE)).await;
        assert_eq!(answer.headers().get("x-accel-buffering").map(HeaderValue::as_bytes), Some(&b"no"[..]));
        let text = format!("id: 1\nretry: 5\ndata:\n\n: hello\n\nevent: message\ndata: {RESULT}\n\n");
        sender.send(text.clone().into()).expect("sent");
        drop(sender);
        assert_eq!(told(answer).await.body, text);
        assert!(rig.gateway.server("s").and_then(|server| server.session("streamed")).expect("there").is_live());
        rig.drain().await;
        assert_eq!(upstream.of(&Method::DELETE)[0].header("mcp-protocol-version"), "2025-06-18");
    });
}

#[test]
fn session_is_deleted_if_the_server_answers_after_the_timeout() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let answer = CancellationToken::new();
        *fake.hold.borrow_mut() = Some(answer.clone());
        let mut terms = Terms::default();
        terms.policy.init_timeout = Duration::from_millis(50);
        let rig = Rig::with(&upstream.url(), terms).await;
        let told = rig.post(None, INITIALIZE).await;
        assert_eq!(told.status, 504);
        assert!(told.body.contains(r#""id":0"#), "{}", told.body);
        assert_eq!(rig.sessions(), 0);
        answer.cancel();
        rig.until(|rig| rig.receipts().len() == 1).await;
        assert_eq!(rig.ends(), [(Reason::NotInitialized, DeleteHow::Deleted)]);
        assert!(fake.leaked.borrow().is_empty() && rig.booked().is_empty());
    });
}

#[test]
fn session_is_deleted_if_the_gateway_shuts_down_before_the_response() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let answer = CancellationToken::new();
        *fake.hold.borrow_mut() = Some(answer.clone());
        let rig = Rig::start(&upstream.url()).await;
        let ending = async {
            asked(&upstream).await;
            rig.drain().await;
            answer.cancel();
        };
        let (told, ()) = tokio::join!(rig.post(None, INITIALIZE), ending);
        assert_eq!(told.status, 503);
        rig.until(|rig| rig.receipts().len() == 1).await;
        assert_eq!(rig.ends(), [(Reason::Shutdown, DeleteHow::Deleted)]);
        assert!(fake.leaked.borrow().is_empty());
    });
}

#[test]
fn unreachable_server_is_a_502_and_opens_no_session() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let url = upstream.url();
        drop(upstream);
        let rig = Rig::start(&url).await;
        let told = rig.post(None, INITIALIZE).await;
        assert_eq!(told.status, 502);
        assert!(told.body.contains(r#""id":0"#) && told.body.contains("refused"), "{}", told.body);
        assert_eq!((rig.sessions(), rig.receipts().len()), (0, 0));
    });
}

#[test]
fn invalid_session_id_is_a_502() {
    run(async {
        let upstream = Scripted::start(|_| {
            let mut answer = json(200, RESULT);
            answer.headers_mut().insert(SESSION_ID, HeaderValue::from_static("two words"));
            reply(answer)
        })
        .await;
        let rig = Rig::start(&upstream.url()).await;
        assert_eq!(rig.post(None, INITIALIZE).await.status, 502);
        assert_eq!(rig.sessions(), 0);
    });
}
