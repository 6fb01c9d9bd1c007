//! The requests of a client that looks closely at what it is answered.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Method, Request, Uri};
use serde_json::{Value, json};

use crate::Stop;
use crate::stdio::talk;
use leash_model::duration;
use leash_protocol::headers::{METHOD, PROTOCOL_VERSION, SESSION_ID};
use leash_protocol::sse::Splitter;
use leash_upstream::client::Client;

/// How long any answer may take but that to `initialize`.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long the sessions that are left may take to be ended.
const CLOSING: Duration = Duration::from_secs(3);

/// The most of a body that is read while looking for an answer in it.
const BODY: usize = 256 * 1024;

/// An origin that no server can mean to allow: the name is reserved and never resolves.
const FOREIGN: HeaderValue = HeaderValue::from_static("http://leash-check.invalid");

/// An answer, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// What came back.
    Status {
        /// The HTTP status.
        status: u16,
        /// The session that was opened.
        session: Option<String>,
        /// The beginning of the body.
        body: String,
    },
    /// Nothing came back.
    Failed(String),
}

impl Answer {
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Answer::Status { status, .. } => Some(*status),
            Answer::Failed(_) => None,
        }
    }

    pub(super) fn session(&self) -> Option<&str> {
        match self {
            Answer::Status { status: 200..300, session, .. } => session.as_deref(),
            _ => None,
        }
    }

    /// Whether it is a result, and no error of whichever kind.
    pub(super) fn is_result(&self) -> bool {
        matches!(self, Answer::Status { status: 200..300, body, .. } if body.contains("\"result\""))
    }

    /// Whether DELETE has nothing more to do: the session is ended, was none, or is not for clients to end.
    fn settles(&self) -> bool {
        matches!(self.status(), Some(200..300 | 404 | 405))
    }

    /// The revision in the answer to `initialize`, which is one JSON text or an event of a stream.
    fn revision(&self) -> Option<HeaderValue> {
        let Answer::Status { body, .. } = self else { return None };
        let mut events = Splitter::new(BODY);
        events.push(body.as_bytes());
        let streamed = std::iter::from_fn(|| events.next_event()).flatten().filter_map(|event| event.data());
        let messages = std::iter::once(body.clone().into_bytes()).chain(streamed);
        messages.filter_map(|text| serde_json::from_slice::<Value>(&text).ok()).find_map(|message| {
            let revision = message["result"]["protocolVersion"].as_str()?;
            HeaderValue::from_str(revision).ok()
        })
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        match self {
            Answer::Status { status, .. } => status.to_string(),
            Answer::Failed(why) => why.clone(),
        }
    }
}

/// A request, without what all of them have.
struct Ask<'s> {
    method: Method,
    session: Option<&'s str>,
    more: &'s [(HeaderName, HeaderValue)],
    body: Bytes,
    patience: Duration,
}

impl Ask<'_> {
    fn post(body: &Value) -> Ask<'static> {
        Ask { method: Method::POST, session: None, more: &[], body: body.to_string().into(), patience: PATIENCE }
    }
}

/// A client of one server.
pub(super) struct Wire<'a> {
    client: Client,
    url: Uri,
    headers: HeaderMap,
    /// How long `initialize` may take.
    ready: Duration,
    pub(super) stop: &'a Stop,
    /// Sessions that were opened and not ended yet, as far as is known.
    open: RefCell<BTreeSet<String>>,
    /// The revision that the server agreed to last. All sessions are asked for in the same words, so it is that of all of them.
    agreed: RefCell<Option<HeaderValue>>,
}

impl<'a> Wire<'a> {
    /// `bearer` is sent with everything.
    pub(super) fn new(url: Uri, bearer: Option<&str>, ready: Duration, stop: &'a Stop) -> Wire<'a> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(Ok(value)) = bearer.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))) {
            headers.insert(AUTHORIZATION, value);
        }
        let (open, agreed) = (RefCell::default(), RefCell::default());
        Wire { client: Client::new(), url, headers, ready, stop, open, agreed }
    }

    /// Opens a session, and says that it is open, as a client has to.
    pub(super) async fn open(&self) -> Answer {
        let opened = self.initialize(&[]).await;
        if let Some(session) = opened.session() {
            self.initialized(session).await;
        }
        opened
    }

    /// The first half of that. [`Wire::any_open`] knows the session even if only the head of the answer came.
    pub(super) async fn initialize(&self, more: &[(HeaderName, HeaderValue)]) -> Answer {
        let opened = self.send(Ask { more, patience: self.ready, ..Ask::post(&talk::initialize()) }).await;
        if let Some(revision) = opened.revision() {
            self.agreed.replace(Some(revision));
        }
        opened
    }

    /// The second half.
    pub(super) async fn initialized(&self, session: &str) {
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        // What it is answered with is seen in what follows.
        let _ = self.send(Ask { session: Some(session), ..Ask::post(&message) }).await;
    }

    /// What a server of the era without sessions is asked first.
    pub(super) async fn discover(&self) -> Answer {
        self.discover_with(&modern("server/discover")).await
    }

    async fn discover_with(&self, more: &[(HeaderName, HeaderValue)]) -> Answer {
        self.send(Ask { more, ..Ask::post(&talk::discover(1)) }).await
    }

    /// The first request, as a web page of somebody else would send it.
    pub(super) async fn come_from_elsewhere(&self, is_modern: bool) -> Answer {
        let foreign = (ORIGIN, FOREIGN);
        if is_modern {
            let [version, method] = modern("server/discover");
            return self.discover_with(&[version, method, foreign]).await;
        }
        self.initialize(&[foreign]).await
    }

    /// A request in a session.
    pub(super) async fn ask(&self, session: &str) -> Answer {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {} });
        self.send(Ask { session: Some(session), ..Ask::post(&request) }).await
    }

    /// Ends a session.
    pub(super) async fn delete(&self, session: &str) -> Answer {
        if self.stop.asked().is_some() {
            return Answer::Failed("stopped".to_owned());
        }
        self.end(session).await
    }

    /// Somebody else opened a session, and it is ours to end.
    pub(super) fn has_open(&self, session: &str) {
        self.open.borrow_mut().insert(session.to_owned());
    }

    /// A session that is open, as far as is known.
    pub(super) fn any_open(&self) -> Option<String> {
        self.open.borrow().first().cloned()
    }

    /// Ends every session that is left open, also when nothing else is to be done any more.
    pub(super) async fn close(&self) {
        let left: Vec<String> = self.open.borrow().iter().cloned().collect();
        let all = async {
            for session in &left {
                self.end(session).await;
            }
        };
        // A server that does not answer keeps what it has.
        let _ = tokio::time::timeout(CLOSING, all).await;
    }

    /// DELETE. The session is ours until it is answered: who is interrupted here, or refused, may try again.
    async fn end(&self, session: &str) -> Answer {
        let (session, body) = (Some(session), Bytes::new());
        let answer = self.exchange(Ask { method: Method::DELETE, session, body, ..Ask::post(&Value::Null) }).await;
        if let Some(session) = session.filter(|_| answer.settles()) {
            self.open.borrow_mut().remove(session);
        }
        answer
    }

    async fn send(&self, ask: Ask<'_>) -> Answer {
        match self.stop.asked() {
            Some(_) => Answer::Failed("stopped".to_owned()),
            None => self.exchange(ask).await,
        }
    }

    async fn exchange(&self, ask: Ask<'_>) -> Answer {
        let (opens, patience) = (ask.session.is_none(), ask.patience);
        let request = self.request(ask);
        let answered = async {
            let answer = self.client.send(request).await.map_err(|error| error.to_string())?;
            let status = answer.status().as_u16();
            let session = answer.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
            // Now, and not after the body, for which there may be no time: the server has made it, and nobody else will end it.
            if let (true, 200..300, Some(opened)) = (opens, status, &session) {
                self.has_open(opened);
            }
            Ok(Answer::Status { status, session, body: read(answer.into_body()).await })
        };
        match tokio::time::timeout(patience, answered).await {
            Ok(answer) => answer.unwrap_or_else(Answer::Failed),
            Err(_) => Answer::Failed(format!("no answer within {}", duration::exact(patience))),
        }
    }

    fn request(&self, ask: Ask<'_>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(ask.body));
        *request.method_mut() = ask.method;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(Ok(value)) = ask.session.map(HeaderValue::from_str) {
            request.headers_mut().insert(SESSION_ID, value);
            // A server has to refuse a revision that was not agreed upon, and to do without one that it is not told.
            if let Some(agreed) = &*self.agreed.borrow() {
                request.headers_mut().insert(PROTOCOL_VERSION, agreed.clone());
            }
        }
        for (name, value) in ask.more {
            request.headers_mut().insert(name, value.clone());
        }
        request
    }
}

/// What the headers of a modern request say.
fn modern(method: &'static str) -> [(HeaderName, HeaderValue); 2] {
    [(PROTOCOL_VERSION, HeaderValue::from_static(talk::MODERN)), (METHOD, HeaderValue::from_static(method))]
}

/// Reads until the answer is there or the body ends: an event stream may go on for as long as it likes.
async fn read(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        let text = String::from_utf8_lossy(&bytes);
        let whole_event = text.ends_with("\n\n") || text.ends_with("\r\n\r\n");
        let answered = whole_event && (text.contains("\"result\"") || text.contains("\"error\""));
        if answered || bytes.len() > BODY {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer::Status { status, session: None, body: body.to_owned() }
    }

    #[test]
    fn the_revision_is_read_from_text_and_stream() {
        let result = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}"#;
        let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"protocolVersion":"x"}}"#;
        let stream = format!(": hello\n\ndata: {log}\n\nid: 7\r\nevent: message\r\ndata: {result}\r\n\r\n");
        for body in [result, &stream] {
            assert_eq!(answer(200, body).revision(), Some(HeaderValue::from_static("2025-06-18")), "{body}");
        }
        for body in ["", "{}", "[1]", "data: no\n\n", r#"{"result":{"protocolVersion":"\n"}}"#, log] {
            assert_eq!(answer(200, body).revision(), None, "{body}");
        }
    }

    /// A session that could not be ended this time is not forgotten.
    #[test]
    fn only_an_answer_that_settles_it_ends_a_session() {
        assert!([200, 202, 204, 404, 405].map(|status| answer(status, "").settles()).iter().all(|settled| *settled));
        assert!(![400, 401, 403, 429, 500, 503].map(|status| answer(status, "").settles()).contains(&true));
        assert!(!Answer::Failed("the connection broke".to_owned()).settles());
    }
}
