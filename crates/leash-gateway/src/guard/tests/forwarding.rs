//! Tests of requests as the upstream gets them and of responses as the client gets them.

use super::*;
use leash_upstream::scripted::{run, silence, stream};

#[test]
fn headers_and_bytes_pass_except_hop_by_hop_and_leashs_own() {
    run(async {
        let upstream = Scripted::start(|seen| {
            let mut answer = json(418, "");
            for (name, value) in [("x-own", "1"), ("www-authenticate", "Bearer x"), ("keep-alive", "timeout=5")] {
                answer.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            *answer.body_mut() = Body::Whole(seen.body);
            reply(answer)
        })
        .await;
        let headers = vec![("x-configured".to_owned(), "ours".to_owned())];
        let rig = Rig::with(&upstream.url(), Terms { query: "?a=b", headers, ..Terms::default() }).await;
        let mut request = rig.request(Method::POST, "/s/mcp?c=d", None, CALL);
        for (name, value) in [
            ("x-mine", "1"),
            ("mcp-param-x", "y"),
            ("x-configured", "mine"),
            ("origin", &*format!("http://{}", rig.address)),
            ("leash-anything", "1"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("accept-encoding", "gzip"),
        ] {
            request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a header"));
        }
        let told = told(rig.send(request).await).await;
        let seen = &upstream.seen()[0];
        assert_eq!((seen.uri.to_string().as_str(), &seen.body[..]), ("/mcp?a=b", CALL.as_bytes()));
        let names = ["x-mine", "mcp-param-x", "x-configured", "origin", "leash-anything", "x-hop", "accept-encoding"];
        assert_eq!(names.map(|name| seen.header(name).to_owned()), ["1", "y", "ours", "", "", "", "identity"]);
        assert_eq!(seen.header("host"), format!("127.0.0.1:{}", upstream.port));
        assert_eq!((told.status, told.body.as_str()), (418, CALL));
        assert_eq!(told.headers.get("x-own").map(HeaderValue::as_bytes), Some(&b"1"[..]));
        assert_eq!(told.headers.get("www-authenticate").map(HeaderValue::as_bytes), Some(&b"Bearer x"[..]));
        assert!(!told.headers.contains_key("keep-alive"));
    });
}

#[test]
fn unknown_session_is_a_404_and_is_never_forwarded() {
    run(async {
        let upstream = Scripted::start(|_| reply(json(200, "{}"))).await;
        let rig = Rig::start(&upstream.url()).await;
        assert_eq!(rig.post(Some("unknown"), CALL).await.status, 404);
        assert_eq!(rig.get(Some("unknown")).await.status(), 404);
        assert_eq!(rig.delete(Some("unknown")).await.status, 404);
        assert!(upstream.seen().is_empty());
        // The modern era has no sessions. leash does not forward a client's id: it may belong to another client.
        assert_eq!(rig.post(Some("stray"), MODERN).await.status, 200);
        assert_eq!(upstream.seen()[0].header("mcp-session-id"), "");
        assert_eq!(rig.sessions(), 0);
    });
}

#[test]
fn body_that_is_not_json_is_a_400_and_is_not_forwarded() {
    run(async {
        let upstream = Scripted::start(|_| reply(json(200, "{}"))).await;
        let rig = Rig::start(&upstream.url()).await;
        let told = rig.post(None, "{").await;
        assert_eq!(told.status, 400);
        assert!(told.body.contains("-32700"), "{}", told.body);
        assert!(upstream.seen().is_empty());
        // leash forwards JSON that is not a known kind of message. The server decides about it.
        assert_eq!(rig.post(None, "[]").await.status, 200);
        let put = rig.request(Method::PUT, "/s/mcp", None, "");
        assert_eq!(rig.send(put).await.status(), 405);
    });
}

#[test]
fn modern_client_that_leaves_ends_its_upstream_request() {
    run(async {
        let upstream = Scripted::start(|_| silence()).await;
        let rig = Rig::start(&upstream.url()).await;
        let request = rig.request(Method::POST, "/s/mcp", None, MODERN);
        rig.abandon(request, upstream.until(|seen| seen.len() == 1)).await;
        upstream.connections(0).await;
        // The same in the middle of a stream.
        let (sender, body) = stream();
        let body = RefCell::new(Some(body));
        let upstream = Scripted::start(move |_| reply(events(body.borrow_mut().take().expect("one request")))).await;
        let rig = Rig::start(&upstream.url()).await;
        let request = rig.request(Method::POST, "/s/mcp", None, MODERN);
        let mut answer = UpstreamClient::new().send(request).await.expect("a head").into_body();
        sender.send("data: 1\n\n".into()).expect("sent");
        assert_eq!(next(&mut answer).await.as_deref(), Some("data: 1\n\n"));
        drop(answer);
        upstream.connections(0).await;
    });
}

#[test]
fn legacy_client_that_abandons_a_call_keeps_its_session() {
    run(async {
        let (fake, quick) = Fake::start().await;
        let upstream =
            Scripted::start(move |seen| if seen.says("tools/call") { silence() } else { fake.reply(seen) }).await;
        drop(quick);
        let rig = Rig::start(&upstream.url()).await;
        let session = rig.open().await;
        let request = rig.request(Method::POST, "/s/mcp", Some(&session), CALL);
        rig.abandon(request, upstream.until(|seen| seen.iter().any(|seen| seen.says("tools/call")))).await;
        let list = CALL.replace("tools/call", "tools/list");
        assert_eq!(rig.post(Some(&session), &list).await.body, list);
        assert_eq!(rig.sessions(), 1);
        // A call without a response does not prevent the session's end.
        let hanging = rig.post(Some(&session), CALL);
        let ending = async {
            upstream.until(|seen| seen.iter().filter(|seen| seen.says("tools/call")).count() == 2).await;
            assert_eq!(rig.delete(Some(&session)).await.status, 200);
        };
        let (told, ()) = tokio::join!(hanging, ending);
        assert_eq!(told.status, 404);
        assert!(told.body.contains(r#""id":7"#), "{}", told.body);
    });
}

#[test]
fn unreachable_server_is_a_502_with_the_id_of_the_request() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start(&upstream.url()).await;
        let session = rig.open().await;
        drop(upstream);
        let told = rig.post(Some(&session), CALL).await;
        assert_eq!(told.status, 502);
        assert!(told.body.contains(r#""id":7"#), "{}", told.body);
        // The session stays, because the server may come back.
        assert_eq!(rig.sessions(), 1);
    });
}

#[test]
fn short_response_that_breaks_off_is_a_502() {
    run(async {
        let (sender, body) = stream();
        let body = RefCell::new(Some(body));
        let upstream = Scripted::start(move |_| {
            let mut answer = Response::new(body.borrow_mut().take().expect("one request"));
            answer.headers_mut().insert("content-length", HeaderValue::from_static("1000"));
            reply(answer)
        })
        .await;
        let rig = Rig::start(&upstream.url()).await;
        sender.send("only a part".into()).expect("sent");
        drop(sender);
        let told = rig.post(None, CALL).await;
        assert_eq!(told.status, 502);
        assert!(told.body.contains(r#""id":7"#), "{}", told.body);
    });
}

#[test]
fn long_response_that_breaks_off_breaks_for_the_client() {
    run(async {
        let (sender, body) = stream();
        let body = RefCell::new(Some(body));
        let upstream = Scripted::start(move |_| {
            let mut answer = Response::new(body.borrow_mut().take().expect("one request"));
            answer.headers_mut().insert("content-length", HeaderValue::from_static("1000000"));
            reply(answer)
        })
        .await;
        let rig = Rig::start(&upstream.url()).await;
        sender.send("only a part".into()).expect("sent");
        let mut answer = rig.send(rig.request(Method::POST, "/s/mcp", None, CALL)).await.into_body();
        assert_eq!(next(&mut answer).await.as_deref(), Some("only a part"));
        drop(sender);
        assert!(answer.collect().await.is_err());
    });
}
