//! Tests of DELETE against a scripted upstream.

use std::cell::Cell;

use hyper::header::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::scripted::{self, Scripted, reply, silence, status};

proptest! {
    #[test]
    fn jitter_is_at_most_a_quarter(ms in 0..100_000u64) {
        let (wait, jittered) = (Duration::from_millis(ms), jittered(Duration::from_millis(ms)));
        prop_assert!(jittered >= wait * 3 / 4 && jittered <= wait * 5 / 4, "{jittered:?}");
    }
}

fn target(upstream: &Scripted) -> DeleteTarget {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer abc"));
    let url = format!("{}?key=secret", upstream.url()).parse().expect("an address");
    DeleteTarget { url, session_id: "0123456789".to_owned(), version: Some("2025-06-18".to_owned()), headers }
}

#[test]
fn delete_sends_the_session_id_version_and_credentials() {
    scripted::run(async {
        let upstream = Scripted::start(|_| reply(status(204, ""))).await;
        let target = target(&upstream);
        let deleted = delete(&UpstreamClient::new(), &target).await;
        let seen = &upstream.seen()[0];
        assert_eq!((&seen.method, seen.uri.to_string().as_str()), (&Method::DELETE, "/mcp?key=secret"));
        let headers = ["mcp-session-id", "mcp-protocol-version", "authorization"].map(|name| seen.header(name));
        assert_eq!(headers, ["0123456789", "2025-06-18", "Bearer abc"]);
        let end = deleted.receipt(&target.url, &target.session_id);
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
        let deleted = delete(&UpstreamClient::new(), &target(&upstream)).await;
        assert_eq!((deleted.how, deleted.tries), (DeleteHow::Deleted, 3));
    });
}

#[test]
fn body_of_a_400_or_404_decides_the_result() {
    scripted::run(async {
        for (code, body, how) in [
            (400, "Session not found", DeleteHow::Forgotten),
            (400, "Unsupported protocol version", DeleteHow::Unsupported),
            (404, "", DeleteHow::Forgotten),
            (404, "<pre>Cannot DELETE /mcp</pre>", DeleteHow::Unsupported),
        ] {
            let upstream = Scripted::start(move |_| reply(status(code, body))).await;
            let deleted = delete(&UpstreamClient::new(), &target(&upstream)).await;
            assert_eq!((deleted.how, deleted.tries), (how, 1), "{code} {body}");
        }
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
            let target = target(&upstream);
            let end = delete(&UpstreamClient::new(), &target).await.receipt(&target.url, "x");
            assert_eq!((end.fate, end.why.as_deref(), end.tries), (Fate::Left, Some(why), 1));
        }
    });
}

#[test]
fn unanswered_delete_is_cut_short_at_the_deadline() {
    scripted::run(async {
        let upstream = Scripted::start(|_| silence()).await;
        let (client, target) = (UpstreamClient::new(), target(&upstream));
        let deleting = delete(&client, &target);
        let stopping = async {
            upstream.until(|seen| seen.len() == 1).await;
            client.deadline.set(Moment::on_runtime());
        };
        let (deleted, ()) = tokio::join!(deleting, stopping);
        assert_eq!(deleted.how, DeleteHow::Unreachable);
        assert_eq!(deleted.why.as_deref(), Some("leash stopped before the server answered"));
        // The client closes the connection and does not keep it in the pool.
        upstream.connections(0).await;
        // After the deadline, a DELETE is not sent at all.
        assert_eq!(delete(&client, &target).await.tries, 0);
        assert_eq!(upstream.seen().len(), 1);
    });
}
