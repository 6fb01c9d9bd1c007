//! Tests of the transport of 2024-11-05: the stream and the address for messages end together.

use tokio::sync::mpsc::UnboundedSender;

use super::*;
use leash_upstream::scripted::{run, stream};

fn terms() -> Terms {
    Terms { transport: HttpTransport::Sse, ..Terms::default() }
}

/// A server whose stream begins with `first`.
async fn server(first: &'static str) -> (Scripted, Rc<RefCell<Vec<UnboundedSender<Bytes>>>>) {
    let streams = Rc::new(RefCell::new(Vec::new()));
    let opened = Rc::clone(&streams);
    let upstream = Scripted::start(move |seen| {
        if seen.method == Method::POST {
            return reply(status(202, "Accepted"));
        }
        let (sender, body) = stream();
        sender.send(first.into()).expect("sent");
        opened.borrow_mut().push(sender);
        reply(events(body))
    })
    .await;
    (upstream, streams)
}

async fn open(rig: &Rig, client: &UpstreamClient) -> (Incoming, String) {
    let answer = client.send(rig.request(Method::GET, "/s/sse", None, "")).await.expect("a stream");
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    let first = next(&mut body).await.expect("an event");
    (body, first)
}

#[test]
fn client_gets_leashs_own_address_for_messages() {
    run(async {
        for (told, path) in
            [("/messages?sessionId=1", "/messages?sessionId=1"), ("messages/?session_id=1", "/messages/?session_id=1")]
        {
            let text: &'static str = format!(": hi\n\nevent: endpoint\ndata: {told}\n\ndata: more\n\n").leak();
            let (upstream, streams) = server(text).await;
            let rig = Rig::with(&upstream.url(), terms()).await;
            let (mut body, first) = open(&rig, &rig.client).await;
            let ours = first.strip_prefix(": hi\n\nevent: endpoint\ndata: ").expect("as it was");
            let ours = ours.strip_suffix("\n\ndata: more\n\n").expect("and what followed");
            assert!(ours.starts_with("/s/messages/") && ours.len() == 12 + 26, "{ours}");
            let answer = rig.send(rig.request(Method::POST, ours, None, CALL)).await;
            assert_eq!(super::told(answer).await.status, 202);
            let posted = &upstream.of(&Method::POST)[0];
            assert_eq!((posted.uri.to_string().as_str(), &posted.body[..]), (path, CALL.as_bytes()));
            streams.borrow()[0].send("event: message\ndata: {}\n\n".into()).expect("sent");
            assert_eq!(next(&mut body).await.as_deref(), Some("event: message\ndata: {}\n\n"));
            assert_eq!((rig.sessions(), rig.notices("Opened")), (1, 1));
            // Waits for the receipt, because the directory for it is deleted with the rig.
            drop(body);
            rig.quiet().await;
        }
    });
}

#[test]
fn session_ends_when_the_client_the_server_or_leash_closes_the_stream() {
    run(async {
        let (upstream, streams) = server("event: endpoint\ndata: /m\n\n").await;
        let rig = Rig::with(&upstream.url(), terms()).await;
        // The client leaves.
        let client = UpstreamClient::new();
        let (body, first) = open(&rig, &client).await;
        let ours = first.trim_start_matches("event: endpoint\ndata: ").trim().to_owned();
        drop((body, client));
        let sender = streams.borrow()[0].clone();
        sender.closed().await;
        rig.quiet().await;
        assert_eq!(rig.ends(), [(Reason::ClientLeft, DeleteHow::Closed)]);
        assert_eq!(rig.send(rig.request(Method::POST, &ours, None, CALL)).await.status(), 404);
        // The server leaves.
        let (mut body, _) = open(&rig, &rig.client).await;
        streams.borrow_mut().clear();
        drop(sender);
        assert_eq!(next(&mut body).await, None);
        rig.quiet().await;
        // leash itself ends the session.
        let (mut body, _) = open(&rig, &rig.client).await;
        rig.gateway.end_all(&Reason::Shutdown);
        assert_eq!(next(&mut body).await, None);
        rig.quiet().await;
        let reasons: Vec<Reason> = rig.receipts().into_iter().map(|receipt| receipt.reason).collect();
        assert_eq!(reasons, [Reason::ClientLeft, Reason::UpstreamForgot, Reason::Shutdown]);
        assert!(rig.receipts().iter().all(Receipt::all_gone));
        assert!(rig.booked().is_empty() && deleted(&upstream).is_empty());
    });
}

#[test]
fn foreign_or_missing_endpoint_is_a_502_and_other_responses_pass() {
    run(async {
        for first in ["event: endpoint\ndata: http://elsewhere/m\n\n", "event: endpoint\n\n"] {
            let (upstream, streams) = server(first).await;
            let rig = Rig::with(&upstream.url(), terms()).await;
            let answer = rig.send(rig.request(Method::GET, "/s/sse", None, "")).await;
            assert_eq!(answer.status(), 502, "{first}");
            assert_eq!((rig.sessions(), rig.receipts().len()), (0, 0));
            let sender = streams.borrow()[0].clone();
            sender.closed().await;
        }
        let upstream = Scripted::start(|_| reply(json(401, "who are you"))).await;
        let rig = Rig::with(&upstream.url(), terms()).await;
        let answer = told(rig.send(rig.request(Method::GET, "/s/mcp", None, "")).await).await;
        assert_eq!((answer.status, answer.body.as_str()), (401, "who are you"));
        // Clients that try the newer transport first get a 405 and fall back.
        assert_eq!(rig.post(None, INITIALIZE).await.status, 405);
        assert_eq!(rig.send(rig.request(Method::GET, "/s/other", None, "")).await.status(), 404);
        assert_eq!(rig.send(rig.request(Method::POST, "/s/messages/unknown", None, CALL)).await.status(), 404);
        assert_eq!(rig.sessions(), 0);
    });
}

#[test]
fn server_without_an_endpoint_event_is_a_timeout() {
    run(async {
        let (upstream, _streams) = server(": nothing\n\n").await;
        let mut terms = terms();
        terms.policy.init_timeout = Duration::from_millis(50);
        let rig = Rig::with(&upstream.url(), terms).await;
        let answer = rig.send(rig.request(Method::GET, "/s/sse", None, "")).await;
        assert_eq!(answer.status(), 504);
        upstream.connections(0).await;
        // A client that leaves also ends the request to the server.
        let rig = Rig::with(&upstream.url(), super::Terms { transport: HttpTransport::Sse, ..Terms::default() }).await;
        let request = rig.request(Method::GET, "/s/sse", None, "");
        // The request of the first rig may not have arrived.
        let before = upstream.seen().len();
        rig.abandon(request, upstream.until(|seen| seen.len() > before)).await;
        upstream.connections(0).await;
        rig.quiet().await;
        assert!(rig.receipts().is_empty());
    });
}
