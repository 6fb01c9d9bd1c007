//! The meaning of a server's response to DELETE of a session: which responses are final, and when to try again.

use std::time::Duration;

use crate::{limits, receipt::DeleteHow};

/// The decision after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteDecision {
    /// The result is final.
    Settled(DeleteHow),
    /// Try again after this pause.
    Again(Duration),
}

/// Decides after the `number`th try (from 1). `status` is `None` if the server did not respond. The body counts only
/// if the status [`needs_body`].
pub fn judge(status: Option<u16>, body: &[u8], number: u32) -> DeleteDecision {
    match (status.and_then(|status| meaning(status, body)), number) {
        (Some(how), _) => DeleteDecision::Settled(how),
        (None, limits::DELETE_TRIES..) => DeleteDecision::Settled(DeleteHow::Unreachable),
        (None, _) => DeleteDecision::Again(limits::DELETE_BACK_OFF * 2_u32.saturating_pow(number.saturating_sub(1))),
    }
}

/// Returns the meaning of a response; `None` if a later try may work.
pub fn meaning(status: u16, body: &[u8]) -> Option<DeleteHow> {
    match status {
        200..=299 => Some(DeleteHow::Deleted),
        404 if says_no_route(body) => Some(DeleteHow::Unsupported),
        404 | 410 => Some(DeleteHow::Forgotten),
        400 if says_unknown(body) => Some(DeleteHow::Forgotten),
        401 | 403 | 407 => Some(DeleteHow::Denied),
        // With these (timeout, too early, too many requests, server errors) the server says that a later try may work.
        408 | 425 | 429 | 500 | 502..=599 => None,
        // 405, 501 and other statuses of a server without DELETE: a retry changes nothing.
        _ => Some(DeleteHow::Unsupported),
    }
}

/// True if the body of a response with this status decides what it means.
pub fn needs_body(status: u16) -> bool {
    matches!(status, 400 | 404)
}

/// True if the body of a 400 says that the session is unknown. There is no code for it: servers use different texts.
pub fn says_unknown(body: &[u8]) -> bool {
    const WORDS: [&str; 9] = [
        "not found",
        "unknown",
        "invalid",
        "no valid",
        "expired",
        "not exist",
        "terminated",
        "no such",
        "not initialized",
    ];
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    text.contains("session") && WORDS.iter().any(|word| text.contains(word))
}

/// True if the body of a 404 is about the method and not about the session: Express sends this text if there is no
/// route.
fn says_no_route(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).to_ascii_lowercase().contains("cannot delete")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNKNOWN: &str =
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
    const NO_ROUTE: &str = "<pre>Cannot DELETE /mcp</pre>";

    #[test]
    fn status_and_body_decide_the_result() {
        use DeleteHow::*;
        for (statuses, body, expected) in [
            (100..=199, "", Some(Unsupported)),
            (200..=299, "", Some(Deleted)),
            (300..=399, "", Some(Unsupported)),
            (400..=400, "", Some(Unsupported)),
            (400..=400, "Unsupported protocol version", Some(Unsupported)),
            (400..=400, UNKNOWN, Some(Forgotten)),
            (400..=400, "Invalid or missing session ID", Some(Forgotten)),
            (400..=400, "Session not found", Some(Forgotten)),
            (401..=401, "", Some(Denied)),
            (402..=402, "", Some(Unsupported)),
            (403..=403, "", Some(Denied)),
            (404..=404, "", Some(Forgotten)),
            (404..=404, NO_ROUTE, Some(Unsupported)),
            (405..=406, "", Some(Unsupported)),
            (407..=407, "", Some(Denied)),
            (408..=408, "", None),
            (409..=409, "", Some(Unsupported)),
            (410..=410, "", Some(Forgotten)),
            (411..=424, "", Some(Unsupported)),
            (425..=425, "", None),
            (426..=428, "", Some(Unsupported)),
            (429..=429, "", None),
            (430..=499, "", Some(Unsupported)),
            (500..=500, "", None),
            (501..=501, "", Some(Unsupported)),
            (502..=599, "", None),
            (600..=999, "", Some(Unsupported)),
        ] {
            for status in statuses {
                assert_eq!(meaning(status, body.as_bytes()), expected, "{status} {body}");
                let verdict =
                    expected.map_or(DeleteDecision::Again(Duration::from_millis(500)), DeleteDecision::Settled);
                assert_eq!(judge(Some(status), body.as_bytes(), 1), verdict, "{status} {body}");
            }
        }
    }

    #[test]
    fn pauses_double_until_the_last_try() {
        let verdicts: Vec<DeleteDecision> = (1..=6).map(|number| judge(None, b"", number)).collect();
        let pauses = [500, 1000, 2000, 4000, 8000].map(|ms| DeleteDecision::Again(Duration::from_millis(ms)));
        assert_eq!(verdicts[..5], pauses);
        assert_eq!(verdicts[5], DeleteDecision::Settled(DeleteHow::Unreachable));
        assert_eq!(judge(None, b"", u32::MAX), DeleteDecision::Settled(DeleteHow::Unreachable));
    }

    #[test]
    fn only_statuses_that_need_the_body_are_decided_by_it() {
        for status in 100..1000 {
            let depends =
                [UNKNOWN, NO_ROUTE].iter().any(|body| meaning(status, body.as_bytes()) != meaning(status, b""));
            assert_eq!(needs_body(status), depends, "{status}");
        }
    }

    proptest! {
        #[test]
        fn every_status_and_body_has_a_verdict(status in 100u16..1000, body: Vec<u8>, number in 1..10u32) {
            let verdict = judge(Some(status), &body, number);
            // Only a success status means that the session was deleted.
            if verdict == DeleteDecision::Settled(DeleteHow::Deleted) {
                prop_assert!((200..300).contains(&status));
            }
            if number >= limits::DELETE_TRIES {
                prop_assert!(matches!(verdict, DeleteDecision::Settled(_)));
            }
        }
    }
}
