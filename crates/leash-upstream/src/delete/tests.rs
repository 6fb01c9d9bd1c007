//! Tests of DELETE: a table of the verdicts, and the driver against a scripted upstream.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::scripted;
use crate::scripted::{Scripted, reply, silence, status};

const UNKNOWN: &str =
    r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;

#[test]
fn status_and_body_decide_the_result() {
    use DeleteHow::*;
    for (code, body, meaning) in [
        (200, "", Some(Deleted)),
        (202, "", Some(Deleted)),
        (204, "", Some(Deleted)),
        (404, "", Some(Forgotten)),
        (404, "<pre>Cannot DELETE /mcp</pre>", Some(Unsupported)),
        (410, "", Some(Forgotten)),
        (400, UNKNOWN, Some(Forgotten)),
        (400, "Invalid or missing session ID", Some(Forgotten)),
        (400, "Session not found", Some(Forgotten)),
        (400, "Unsupported protocol version", Some(Unsupported)),
        (405, "", Some(Unsupported)),
        (501, "", Some(Unsupported)),
        (302, "", Some(Unsupported)),
        (401, "", Some(Denied)),
        (403, "", Some(Denied)),
        (429, "", None),
        (500, "", None),
        (503, "", None),
    ] {
        let tried = Tried::Answered(StatusCode::from_u16(code).expect("a status"), body.into());
        let expected = meaning.map_or(Verdict::Again(Duration::from_millis(500)), Verdict::Settled);
        assert_eq!(judge(&tried, 1), expected, "{code} {body}");
    }
}

#[test]
fn pauses_double_until_the_last_try() {
    let verdicts: Vec<Verdict> = (1..=6).map(|number| judge(&Tried::Silent, number)).collect();
    let pauses = [500, 1000, 2000, 4000, 8000].map(|ms| Verdict::Again(Duration::from_millis(ms)));
    assert_eq!(verdicts[..5], pauses);
    assert_eq!(verdicts[5], Verdict::Settled(DeleteHow::Unreachable));
    assert_eq!(judge(&Tried::Failed(UpstreamError::Refused), u32::MAX), Verdict::Settled(DeleteHow::Unreachable));
}

proptest! {
    #[test]
    fn every_status_and_body_has_a_verdict(code in 100u16..1000, body: Vec<u8>, number in 1..10u32) {
        let status = StatusCode::from_u16(code).expect("a status");
        let verdict = judge(&Tried::Answered(status, body.into()), number);
        // Only a success status means that the session was deleted.
        if verdict == Verdict::Settled(DeleteHow::Deleted) {
            prop_assert!(status.is_success());
        }
        if number >= limits::DELETE_TRIES {
            prop_assert!(matches!(verdict, Verdict::Settled(_)));
        }
    }

    #[test]
    fn jitter_is_at_most_a_quarter(ms in 0..100_000u64) {
        let (wait, jittered) = (Duration::from_millis(ms), jittered(Duration::from_millis(ms)));
        prop_assert!(jittered >= wait * 3 / 4 && jittered <= wait * 5 / 4, "{jittered:?}");
    }
}

fn ticket(upstream: &Scripted) -> Ticket {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer abc"));
    let url = format!("{}?key=secret", upstream.url()).parse().expect("an address");
    Ticket { url, session_id: "0123456789".to_owned(), version: Some("2025-06-18".to_owned()), headers }
}

#[test]
fn delete_sends_the_session_id_version_and_credentials() {
    scripted::run(async {
        let upstream = Scripted::start(|_| reply(status(204, ""))).await;
        let ticket = ticket(&upstream);
        let deleted = delete(&Client::new(), &ticket).await;
        let seen = &upstream.seen()[0];
        assert_eq!((&seen.method, seen.uri.to_string().as_str()), (&Method::DELETE, "/mcp?key=secret"));
        let headers = ["mcp-session-id", "mcp-protocol-version", "authorization"].map(|name| seen.header(name));
        assert_eq!(headers, ["0123456789", "2025-06-18", "Bearer abc"]);
        let end = deleted.receipt(&ticket.url, &ticket.session_id);
        let expected = UpstreamEnd {
            url: upstream.url().to_string(),
            id: "01234567".to_owned(),
            fate: Fate::Gone,
            how: DeleteHow::Deleted,
            status: Some(204),
            tries: 1,
            why: None,
        };
        assert_eq!(end, expected);
    });
}

#[test]
fn delete_is_retried_after_a_broken_connection_and_a_503() {
    scripted::run(async {
        let tries = Cell::new(0);
        let upstream = Scripted::start(move |_| {
            tries.set(tries.get() + 1);
            match tries.get() {
                1 => Box::pin(std::future::ready(None)),
                2 => reply(status(503, "")),
                _ => reply(status(200, "")),
            }
        })
        .await;
        let deleted = delete(&Client::new(), &ticket(&upstream)).await;
        assert_eq!((deleted.how, deleted.tries), (DeleteHow::Deleted, 3));
    });
}

#[test]
fn refused_delete_has_a_reason() {
    scripted::run(async {
        for (code, why) in [
            (405, "the server does not let clients end sessions"),
            (401, "the server answered 401: it does not accept the credentials, or leash no longer has them"),
            (418, "the server answered 418"),
        ] {
            let upstream = Scripted::start(move |_| reply(status(code, ""))).await;
            let ticket = ticket(&upstream);
            let end = delete(&Client::new(), &ticket).await.receipt(&ticket.url, "x");
            assert_eq!((end.fate, end.why.as_deref(), end.tries), (Fate::Left, Some(why), 1));
        }
    });
}

#[test]
fn unanswered_delete_is_cut_short_at_the_deadline() {
    scripted::run(async {
        let upstream = Scripted::start(|_| silence()).await;
        let (client, ticket) = (Client::new(), ticket(&upstream));
        let deleting = delete(&client, &ticket);
        let stopping = async {
            upstream.until(|seen| seen.len() == 1).await;
            client.deadline.set(Moment::now());
        };
        let (deleted, ()) = tokio::join!(deleting, stopping);
        assert_eq!(deleted.how, DeleteHow::Unreachable);
        assert_eq!(deleted.why.as_deref(), Some("leash stopped before the server answered"));
        // The client closes the connection and does not keep it in the pool.
        upstream.connections(0).await;
        // After the deadline, a DELETE is not sent at all.
        assert_eq!(delete(&client, &ticket).await.tries, 0);
        assert_eq!(upstream.seen().len(), 1);
    });
}
