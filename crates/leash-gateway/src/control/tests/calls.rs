//! Calls through a job: aborts, cuts and secret paths.

use super::*;
use leash_upstream::scripted::{run, stream};

const ABORTED: &str = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"aborted"}}"#;

fn same(text: &str, expected: &str) {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(read(text), read(expected));
}

#[test]
fn an_abort_cancels_a_call_and_keeps_the_session() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let session = rig.open(&job).await;
        let stall = fake.stalls();
        let call = rig.beside(rig.mcp(&job, Method::POST, Some(&session), CALL));
        upstream.until(|seen| seen.iter().any(|seen| seen.says("tools/call"))).await;
        let told = rig.ask("POST", &path(&job, "/abort"), "").await;
        assert_eq!((told.status, told.json()), (200, json!({"aborted": 1})), "{}", told.body);
        same(&call.answer().await.body, ABORTED);
        upstream.until(|seen| seen.iter().any(|seen| seen.says("notifications/cancelled"))).await;
        let cancelled =
            upstream.seen().into_iter().find(|seen| seen.says("notifications/cancelled")).expect("just seen");
        assert_eq!(cancelled.header("mcp-session-id"), "up-1");
        assert!(cancelled.says(r#""requestId":7"#), "{cancelled:?}");
        // The session and the job go on, and nothing is left to cancel.
        stall.cancel();
        assert_eq!(rig.post(&job, Some(&session), CALL).await.body, CALL);
        assert_eq!(rig.ask("POST", &path(&job, "/abort"), "").await.json(), json!({"aborted": 0}));
        assert!(rig.end(&job).await.all_gone());
    });
}

#[test]
fn an_abort_ends_a_stream_between_two_events() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let session = rig.open(&job).await;
        let (sender, body) = stream();
        *fake.stream.borrow_mut() = Some(body);
        let answer = rig.client.send(rig.mcp(&job, Method::POST, Some(&session), CALL)).await.expect("an answer");
        let mut body = answer.into_body();
        sender.send(Bytes::from_static(b"data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n")).expect("it is read");
        assert!(next(&mut body).await.is_some_and(|text| text.contains("\"x\"")));
        assert_eq!(rig.ask("GET", &path(&job, ""), "").await.json()["servers"][0]["inFlight"], 1);
        assert_eq!(rig.ask("POST", &path(&job, "/abort"), "").await.json(), json!({"aborted": 1}));
        let last = next(&mut body).await.expect("an event with the error");
        same(last.trim().strip_prefix("event: message\ndata: ").expect("an event"), ABORTED);
        assert_eq!(next(&mut body).await, None);
        assert_eq!(rig.ask("GET", &path(&job, ""), "").await.json()["servers"][0]["inFlight"], 0);
        assert!(rig.end(&job).await.all_gone());
    });
}

#[test]
fn an_abort_does_not_cancel_initialize() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let hold = CancellationToken::new();
        *fake.hold.borrow_mut() = Some(hold.clone());
        let opening = rig.beside(rig.mcp(&job, Method::POST, None, INITIALIZE));
        upstream.until(|seen| seen.iter().any(|seen| seen.says("initialize"))).await;
        assert_eq!(rig.ask("POST", &path(&job, "/abort"), "").await.json(), json!({"aborted": 0}));
        hold.cancel();
        assert_eq!(opening.answer().await.body, RESULT);
        assert!(rig.end(&job).await.all_gone());
    });
}

#[test]
fn a_call_without_a_session_is_cut_with_the_job() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        fake.stalls();
        let call = rig.beside(rig.mcp(&job, Method::POST, None, CALL));
        upstream.until(|seen| seen.iter().any(|seen| seen.says("tools/call"))).await;
        assert!(rig.end(&job).await.all_gone());
        assert_eq!(call.answer().await.status, 404);
        // The same for an answer that has begun.
        let job = rig.in_front_of(&upstream, json!({})).await;
        let (sender, body) = stream();
        *fake.stream.borrow_mut() = Some(body);
        let answer = rig.client.send(rig.mcp(&job, Method::POST, None, CALL)).await.expect("an answer");
        let mut body = answer.into_body();
        sender.send(Bytes::from_static(b"data: 1\n\n")).expect("it is read");
        assert!(next(&mut body).await.is_some());
        assert!(rig.end(&job).await.all_gone());
        assert_eq!(next(&mut body).await, None);
    });
}

#[test]
fn a_job_is_unreachable_without_its_secret() {
    run(async {
        let (_fake, upstream) = Fake::start().await;
        let rig = Rig::start().await;
        let job = rig.in_front_of(&upstream, json!({})).await;
        let url = job["servers"][0]["url"].as_str().expect("a url").to_owned();
        let id = job["id"].as_str().expect("an id").to_owned();
        let secret = url.split('/').nth(4).expect("a secret").to_owned();
        for guess in [url.replace(&secret, &id), url.replace("/s/mcp", "/t/mcp"), url.replace(&secret, "")] {
            let mut request = rig.mcp(&job, Method::POST, None, INITIALIZE);
            *request.uri_mut() = guess.parse().expect("an address");
            assert_eq!(told(rig.client.send(request).await.expect("an answer")).await.status, 404, "{guess}");
        }
        assert!(upstream.seen().is_empty());
        // A guessed session number does not give access to a client session.
        rig.open(&job).await;
        assert_eq!(rig.post(&job, Some(&format!("{id}.1")), CALL).await.status, 404);
    });
}

/// The answer to a call over HTTP+SSE comes on the session's stream, and so does the error of an abort.
#[test]
fn an_abort_cancels_a_call_over_sse_and_keeps_the_session() {
    run(async {
        let (sender, body) = stream();
        let body = RefCell::new(Some(body));
        let upstream = Scripted::start(move |seen| match body.take().filter(|_| seen.method == Method::GET) {
            Some(body) => {
                reply(Response::builder().header(CONTENT_TYPE, "text/event-stream").body(body).expect("fine"))
            }
            None => reply(status(202, "Accepted")),
        })
        .await;
        sender.send("event: endpoint\ndata: /messages?id=1\n\n".into()).expect("sent");
        let rig = Rig::start().await;
        let job = rig.create(json!({"s": {"type": "sse", "url": upstream.url().to_string()}}), json!({})).await;
        let listening = rig.client.send(rig.mcp(&job, Method::GET, None, "")).await.expect("a stream");
        let mut events = listening.into_body();
        let first = next(&mut events).await.expect("an event");
        let endpoint = first.trim().strip_prefix("event: endpoint\ndata: ").expect("an address").to_owned();
        let post = async |body: &str| {
            let mut request = rig.mcp(&job, Method::POST, None, body);
            let base = request.uri().authority().expect("a host").to_string();
            *request.uri_mut() = format!("http://{base}{endpoint}").parse().expect("an address");
            told(rig.client.send(request).await.expect("an answer")).await.status
        };
        let in_flight = async || rig.ask("GET", &path(&job, ""), "").await.json()["servers"][0]["inFlight"].clone();
        assert_eq!(post(INITIALIZE).await, 202);
        assert_eq!(post(CALL).await, 202);
        assert_eq!(post(&CALL.replace('7', "8")).await, 202);
        assert_eq!(in_flight().await, 2);
        sender.send("data: {\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n\n".into()).expect("sent");
        assert!(next(&mut events).await.is_some_and(|text| text.contains("result")));
        assert_eq!(in_flight().await, 1);
        // The error is not written into the middle of an event.
        sender.send("data: {\"jsonrpc\":\"2.0\",".into()).expect("sent");
        assert!(next(&mut events).await.is_some());
        assert_eq!(rig.ask("POST", &path(&job, "/abort"), "").await.json(), json!({"aborted": 1}));
        sender.send("\"method\":\"x\"}\n\n".into()).expect("sent");
        assert_eq!(next(&mut events).await.as_deref(), Some("\"method\":\"x\"}\n\n"));
        let error = next(&mut events).await.expect("the error");
        same(error.trim().strip_prefix("event: message\ndata: ").expect("an event"), ABORTED);
        upstream.until(|seen| seen.iter().any(|seen| seen.says("notifications/cancelled"))).await;
        let cancelled =
            upstream.seen().into_iter().find(|seen| seen.says("notifications/cancelled")).expect("just seen");
        assert!(cancelled.says(r#""requestId":7"#) && cancelled.uri == "/messages?id=1", "{cancelled:?}");
        assert_eq!(rig.ask("POST", &path(&job, "/abort"), "").await.json(), json!({"aborted": 0}));
        assert_eq!(in_flight().await, 0);
        sender.send("data: 1\n\n".into()).expect("the session goes on");
        assert_eq!(next(&mut events).await.as_deref(), Some("data: 1\n\n"));
        assert!(rig.end(&job).await.all_gone());
    });
}
