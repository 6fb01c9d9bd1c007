//! Finds the answer to a call in the output of a gateway: JSON, or events with JSON in them.

use std::borrow::Cow;

use serde::Deserialize;

/// The part of an answer that is checked.
#[derive(Debug, Deserialize)]
pub(super) struct Reply<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    result: Option<Outcome<'a>>,
}

#[derive(Debug, Deserialize)]
struct Outcome<'a> {
    #[serde(borrow, default)]
    content: Vec<Content<'a>>,
}

#[derive(Debug, Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl Reply<'_> {
    /// True if it is the answer of `echo` to this text.
    pub(super) fn is_text(&self, text: &str) -> bool {
        self.result.as_ref().is_some_and(|result| matches!(&result.content[..], [content] if content.text == text))
    }
}

/// The successful answer to the request `id`. The first byte shows the kind of body: no event begins with `{`.
pub(super) fn find(body: &[u8], id: u64) -> Option<Reply<'_>> {
    let is_it = |reply: &Reply<'_>| reply.id == Some(id) && reply.result.is_some();
    if body.first() == Some(&b'{') {
        return serde_json::from_slice(body).ok().filter(is_it);
    }
    body.split(|&byte| matches!(byte, b'\n' | b'\r'))
        .filter_map(|line| line.strip_prefix(b"data:"))
        .filter_map(|text| serde_json::from_slice(text).ok())
        .find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str =
        r#"{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"a\u0062"}],"isError":false},"id":7}"#;

    #[track_caller]
    fn check(body: &str, id: u64, found: bool) {
        assert_eq!(find(body.as_bytes(), id).is_some_and(|reply| reply.is_text("ab")), found, "{body}");
    }

    #[test]
    fn the_answer_is_found_as_json_and_among_events() {
        check(ANSWER, 7, true);
        check(&format!("event: message\ndata: {ANSWER}\n\n"), 7, true);
        check(&format!("id: 1\nretry: 5\ndata:\n\nevent: message\r\ndata:{ANSWER}\r\n\r\n"), 7, true);
        check(&format!("data: {{\"method\":\"notifications/x\"}}\n\n: ping\n\ndata: {ANSWER}\n\n"), 7, true);
    }

    #[test]
    fn answer_to_another_request_is_ignored() {
        check(ANSWER, 8, false);
        check(&ANSWER.replace("a\\u0062", "b"), 7, false);
        check(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"ab"}}"#, 7, false);
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#, 7, false);
        check(&format!("{ANSWER}{ANSWER}"), 7, false);
        check(": nothing\n\n", 7, false);
        check("", 7, false);
    }

    #[test]
    fn an_answer_without_content_is_an_answer() {
        let reply = find(br#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"x"}}"#, 1);
        assert!(reply.is_some_and(|reply| !reply.is_text("")));
    }
}
