//! Tests of sessions, from `initialize` to every kind of end.

use super::*;
use leash_upstream::scripted::run;

#[test]
fn a_session_is_in_the_ledger_before_the_client_knows_it_and_is_deleted_once() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start(&upstream.url()).await;
        let answer = rig.send(rig.request(Method::POST, "/s/mcp", None, INITIALIZE)).await;
        // Only the head of the response has arrived.
        assert_eq!(rig.booked(), ["up-1"]);
        let told = told(answer).await;
        assert_eq!((told.status, told.body.as_str()), (200, RESULT));
        let session = told.session().expect("a session");
        assert_eq!(session, "up-1");
        assert_eq!(rig.post(Some(&session), CALL).await.body, CALL);
        // The client gets the server's own status for DELETE.
        let gone = rig.delete(Some(&session)).await;
        assert_eq!(gone.status, 200);
        assert_eq!(rig.post(Some(&session), CALL).await.status, 404);
        assert_eq!(rig.delete(Some(&session)).await.status, 404);
        assert_eq!(deleted(&upstream), ["up-1"]);
        assert_eq!(upstream.of(&Method::DELETE)[0].header("mcp-protocol-version"), "2025-06-18");
        assert_eq!(rig.ends(), [(Reason::ClientDeleted, DeleteHow::Deleted)]);
        assert!(rig.booked().is_empty() && fake.live.borrow().is_empty());
        assert_eq!((rig.notices("Opened"), rig.notices("Ended")), (1, 1));
    });
}

#[test]
fn a_server_without_sessions_gets_no_session_and_no_delete() {
    run(async {
        let upstream =
            Scripted::start(|seen| reply(json(200, if seen.says("initialize") { RESULT } else { "{}" }))).await;
        let rig = Rig::start(&upstream.url()).await;
        let told = rig.post(None, INITIALIZE).await;
        assert_eq!((told.status, told.body.as_str(), told.session()), (200, RESULT, None));
        assert_eq!(rig.sessions(), 0);
        assert_eq!(rig.post(None, CALL).await.body, "{}");
        assert_eq!(rig.get(None).await.status(), 200);
        rig.drain().await;
        assert_eq!((rig.receipts().len(), rig.notices("Opened"), rig.notices("Ended")), (0, 0, 0));
        assert!(deleted(&upstream).is_empty());
    });
}

#[test]
fn idle_session_is_deleted_with_the_credentials_and_configured_headers() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let mut terms = Terms { query: "?key=k", ..Terms::default() };
        terms.policy.idle = Some(Duration::from_millis(50));
        terms.headers = vec![("x-configured".to_owned(), "c".to_owned()), ("x-both".to_owned(), "theirs".to_owned())];
        let rig = Rig::with(&upstream.url(), terms).await;
        let mut request = rig.request(Method::POST, "/s/mcp", None, INITIALIZE);
        for (name, value) in
            [("authorization", "Bearer t"), ("x-api-key", "k"), ("x-both", "ours"), ("user-agent", "u")]
        {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        assert_eq!(told(rig.send(request).await).await.status, 200);
        upstream.until(|seen| seen.iter().any(|seen| seen.method == Method::DELETE)).await;
        rig.quiet().await;
        let delete = &upstream.of(&Method::DELETE)[0];
        let headers = ["authorization", "x-api-key", "x-configured", "x-both", "user-agent", "mcp-protocol-version"];
        let values = headers.map(|name| delete.header(name).to_owned());
        assert_eq!(values, ["Bearer t", "k", "c", "theirs", "", "2025-06-18"]);
        assert_eq!(delete.uri, "/mcp?key=k");
        assert_eq!(rig.ends(), [(Reason::Idle, DeleteHow::Deleted)]);
    });
}

#[test]
fn a_call_longer_than_the_idle_time_is_not_cut() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let release = CancellationToken::new();
        let script = (Rc::clone(&fake), release.clone());
        let slow = Scripted::start(move |seen| {
            let (fake, release) = script.clone();
            let slow = seen.says("tools/call");
            let reply = fake.reply(seen);
            Box::pin(async move {
                if slow {
                    release.cancelled().await;
                }
                reply.await
            })
        })
        .await;
        drop(upstream);
        let mut terms = Terms::default();
        terms.policy.idle = Some(Duration::from_millis(500));
        let rig = Rig::with(&slow.url(), terms).await;
        let session = rig.open().await;
        let call = rig.post(Some(&session), CALL);
        let later = async {
            slow.until(|seen| seen.iter().any(|seen| seen.says("tools/call"))).await;
            rig.idle_time().await;
            rig.idle_time().await;
            release.cancel();
        };
        let (told, ()) = tokio::join!(call, later);
        assert_eq!((told.status, told.body.as_str()), (200, CALL));
        rig.quiet().await;
        assert_eq!(deleted(&slow), ["up-2", "up-3", "up-1"]);
    });
}

#[test]
fn forgotten_session_is_not_deleted_and_the_client_gets_the_404() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start(&upstream.url()).await;
        let session = rig.open().await;
        fake.forget();
        let told = rig.post(Some(&session), CALL).await;
        assert_eq!((told.status, told.body.as_str()), (404, NOT_FOUND));
        rig.quiet().await;
        assert_eq!(rig.ends(), [(Reason::UpstreamForgot, DeleteHow::Forgotten)]);
        assert!(deleted(&upstream).is_empty() && rig.booked().is_empty());
    });
}

#[test]
fn method_not_found_does_not_end_the_session() {
    run(async {
        const UNKNOWN: &str = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found"}}"#;
        let upstream = Scripted::start(|seen| {
            let mut answer = if seen.says("initialize") { json(200, RESULT) } else { json(404, UNKNOWN) };
            answer.headers_mut().insert(SESSION_ID, HeaderValue::from_static("one"));
            reply(answer)
        })
        .await;
        let rig = Rig::start(&upstream.url()).await;
        assert_eq!(rig.post(None, INITIALIZE).await.status, 200);
        let told = rig.post(Some("one"), CALL).await;
        assert_eq!((told.status, told.body.as_str()), (404, UNKNOWN));
        assert_eq!(rig.sessions(), 1);
    });
}

#[test]
fn failed_initialize_is_passed_on_and_its_session_is_deleted() {
    run(async {
        const NO: &str = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Unsupported protocol version"}}"#;
        for code in [200, 400] {
            let upstream = Scripted::start(move |seen| {
                let mut answer = if seen.method == Method::DELETE { status(204, "") } else { json(code, NO) };
                answer.headers_mut().insert(SESSION_ID, HeaderValue::from_static("one"));
                reply(answer)
            })
            .await;
            let rig = Rig::start(&upstream.url()).await;
            let told = rig.post(None, INITIALIZE).await;
            assert_eq!((told.status, told.body.as_str()), (code, NO));
            rig.quiet().await;
            assert_eq!(rig.ends(), [(Reason::NotInitialized, DeleteHow::Deleted)]);
        }
    });
}

#[test]
fn a_session_belongs_to_the_credential_that_opened_it() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start(&upstream.url()).await;
        let with = |token: &'static str, session: Option<&str>, body: &str| {
            let mut request = rig.request(Method::POST, "/s/mcp", session, body);
            request.headers_mut().insert("authorization", HeaderValue::from_static(token));
            request
        };
        let session = told(rig.send(with("Bearer a", None, INITIALIZE)).await).await.session().expect("a session");
        let before = upstream.seen().len();
        assert_eq!(rig.send(with("Bearer b", Some(&session), CALL)).await.status(), 404);
        assert_eq!(rig.post(Some(&session), CALL).await.status, 404);
        assert_eq!(upstream.seen().len(), before, "no request reached the server");
        assert_eq!(rig.send(with("Bearer a", Some(&session), CALL)).await.status(), 200);
    });
}

#[test]
fn refused_delete_is_final_and_the_receipt_says_that_the_session_is_left() {
    run(async {
        for (code, how) in [(405, DeleteHow::Unsupported), (401, DeleteHow::Denied), (404, DeleteHow::Forgotten)] {
            let (fake, upstream) = Fake::start().await;
            fake.delete.set(Some(code));
            let rig = Rig::start(&upstream.url()).await;
            let session = rig.open().await;
            assert_eq!(rig.delete(Some(&session)).await.status, code);
            assert_eq!(rig.ends(), [(Reason::ClientDeleted, how)]);
            assert_eq!(rig.receipts()[0].all_gone(), how == DeleteHow::Forgotten);
            assert!(rig.booked().is_empty(), "the result is final: leash does not retry");
        }
    });
}

#[test]
fn unanswered_delete_does_not_delay_the_shutdown_and_stays_in_the_ledger() {
    run(async {
        let (fake, quick) = Fake::start().await;
        let upstream = Scripted::start(move |seen| match seen.method {
            Method::DELETE => leash_upstream::scripted::silence(),
            _ => fake.reply(seen),
        })
        .await;
        drop(quick);
        let rig = Rig::start(&upstream.url()).await;
        rig.open().await;
        rig.drain_within(Duration::from_millis(200)).await;
        assert_eq!(rig.ends(), [(Reason::Shutdown, DeleteHow::Unreachable)]);
        assert_eq!(rig.booked(), ["up-1"]);
    });
}

#[test]
fn shutdown_ends_all_sessions() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start(&upstream.url()).await;
        for _ in 0..50 {
            rig.open().await;
        }
        assert_eq!(rig.booked().len(), 50);
        rig.drain().await;
        assert!(fake.leaked.borrow().is_empty() && rig.booked().is_empty());
        assert_eq!(deleted(&upstream).len(), 50);
        assert!(rig.receipts().iter().all(|receipt| receipt.reason == Reason::Shutdown && receipt.all_gone()));
    });
}

#[test]
fn reused_id_is_not_deleted_for_the_first_session() {
    run(async {
        let upstream = Scripted::start(|seen| {
            let mut answer = if seen.says("initialize") { json(200, RESULT) } else { json(200, "{}") };
            answer.headers_mut().insert(SESSION_ID, HeaderValue::from_static("always-the-same"));
            reply(answer)
        })
        .await;
        let rig = Rig::start(&upstream.url()).await;
        assert_eq!(rig.post(None, INITIALIZE).await.status, 200);
        assert_eq!(rig.post(None, INITIALIZE).await.status, 200);
        rig.until(|rig| rig.sessions() == 1).await;
        assert!(deleted(&upstream).is_empty());
        assert_eq!(rig.post(Some("always-the-same"), CALL).await.status, 200);
        assert_eq!(rig.delete(Some("always-the-same")).await.status, 200);
        assert_eq!(deleted(&upstream), ["always-the-same"]);
    });
}

#[test]
fn session_opened_without_initialize_is_guarded() {
    run(async {
        let upstream = Scripted::start(|_| {
            let mut answer = json(200, "{}");
            answer.headers_mut().insert(SESSION_ID, HeaderValue::from_static("for-a-probe"));
            reply(answer)
        })
        .await;
        let rig = Rig::start(&upstream.url()).await;
        assert_eq!(rig.post(None, CALL).await.session().as_deref(), Some("for-a-probe"));
        assert_eq!((rig.sessions(), rig.booked()), (1, vec!["for-a-probe".to_owned()]));
        rig.drain().await;
        assert_eq!(deleted(&upstream), ["for-a-probe"]);
        // If leash has no room for the session, it ends it at once.
        let full = Rig::with(&upstream.url(), Terms { max_sessions: 0, ..Terms::default() }).await;
        assert_eq!(full.post(None, CALL).await.status, 503);
        upstream.until(|seen| seen.iter().filter(|seen| seen.method == Method::DELETE).count() == 2).await;
        full.until(|rig| rig.receipts().len() == 1).await;
        // leash refuses `initialize` without asking the server.
        let before = upstream.seen().len();
        assert_eq!(full.post(None, INITIALIZE).await.status, 503);
        assert_eq!(upstream.seen().len(), before);
    });
}
