//! A table for what each answer means, and the driver against an upstream that behaves in every way.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::scripted;
use crate::scripted::{Scripted, reply, silence, status};

const UNKNOWN: &str =
    r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;

#[test]
fn what_an_answer_means() {
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
fn pauses_double_and_end() {
    let verdicts: Vec<Verdict> = (1..=6).map(|number| judge(&Tried::Silent, number)).collect();
    let pauses = [500, 1000, 2000, 4000, 8000].map(|ms| Verdict::Again(Duration::from_millis(ms)));
    assert_eq!(verdicts[..5], pauses);
    assert_eq!(verdicts[5], Verdict::Settled(DeleteHow::Unreachable));
    assert_eq!(judge(&Tried::Failed(UpstreamError::Refused), u32::MAX), Verdict::Settled(DeleteHow::Unreachable));
}

proptest! {
    #[test]
    fn every_answer_is_judged(code in 100u16..1000, body: Vec<u8>, number in 1..10u32) {
        let status = StatusCode::from_u16(code).expect("a status");
        let verdict = judge(&Tried::Answered(status, body.into()), number);
        // Only an answer that says so means that it is gone.
        if verdict == Verdict::Settled(DeleteHow::Deleted) {
            prop_assert!(status.is_success());
        }
        if number >= limits::DELETE_TRIES {
            prop_assert!(matches!(verdict, Verdict::Settled(_)));
        }
    }

    #[test]
    fn jitter_stays_near(ms in 0..100_000u64) {
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
fn it_carries_all_that_the_server_wants_to_see() {
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
fn it_comes_back_after_an_error_and_a_broken_connection() {
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
fn what_is_left_says_why() {
    scripted::run(async {
        for (code, why) in [
            (405, "the server does not let clients end sessions"),
            (401, "the server answered 401: the credentials are not accepted, or not known any more"),
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
fn a_server_that_never_answers_is_given_up_when_time_is_up() {
    scripted::run(async {
        let upstream = Scripted::start(|_| silence()).await;
        let (client, ticket) = (Client::new(), ticket(&upstream));
        let deleting = delete(&client, &ticket);
        let hurrying = async {
            upstream.until(|seen| seen.len() == 1).await;
            client.hurry.by(Moment::now());
        };
        let (deleted, ()) = tokio::join!(deleting, hurrying);
        assert_eq!(deleted.how, DeleteHow::Unreachable);
        assert_eq!(deleted.why.as_deref(), Some("leash stopped before the server answered"));
        // And the connection is closed, not left to the pool.
        upstream.connections(0).await;
        // From now on nothing is even tried.
        assert_eq!(delete(&client, &ticket).await.tries, 0);
        assert_eq!(upstream.seen().len(), 1);
    });
}
