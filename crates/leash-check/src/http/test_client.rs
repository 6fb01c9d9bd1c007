//! An HTTP client that records the details of each response.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Method, Request, Uri, body::Incoming};
use serde_json::{Value, json};

use crate::{StopSignals, stdio::talk};
use leash_model::duration;
use leash_protocol::headers::{METHOD, PROTOCOL_VERSION, SESSION_ID};
use leash_protocol::sse::Splitter;
use leash_upstream::client::UpstreamClient;

/// The timeout of every response but the one to `initialize`.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The time to end the sessions that are left.
const CLOSING: Duration = Duration::from_secs(3);

/// The most of a body that is read to find a response in it.
const BODY: usize = 256 * 1024;

/// An origin that no server can intend to allow: the name is reserved and never resolves.
const FOREIGN: HeaderValue = HeaderValue::from_static("http://leash-check.invalid");

/// A response, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The server responded.
    Status {
        /// The HTTP status.
        status: u16,
        /// The id of the session that it opened.
        session: Option<String>,
        /// The beginning of the body.
        body: String,
    },
    /// The server did not respond.
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

    /// True if the response is a result and not an error of any kind.
    pub(super) fn is_result(&self) -> bool {
        matches!(self, Answer::Status { status: 200..300, body, .. } if body.contains("\"result\""))
    }

    /// True if DELETE needs no retry: the session has ended, did not exist, or can't be ended by clients.
    fn settles(&self) -> bool {
        matches!(self.status(), Some(200..300 | 404 | 405))
    }

    /// The revision in the response to `initialize`, which is one JSON text or an event of a stream.
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

    /// The text for the report.
    pub(super) fn describe(&self) -> String {
        match self {
            Answer::Status { status, .. } => status.to_string(),
            Answer::Failed(why) => why.clone(),
        }
    }
}

/// A request, without the parts that all requests share.
struct RequestParts<'s> {
    method: Method,
    session: Option<&'s str>,
    more: &'s [(HeaderName, HeaderValue)],
    body: Bytes,
    time_limit: Duration,
}

impl RequestParts<'_> {
    fn post(body: &Value) -> RequestParts<'static> {
        RequestParts {
            method: Method::POST,
            session: None,
            more: &[],
            body: body.to_string().into(),
            time_limit: TIME_LIMIT,
        }
    }
}

/// An HTTP client for one server.
pub(super) struct TestClient<'a> {
    client: UpstreamClient,
    url: Uri,
    headers: HeaderMap,
    /// The timeout of `initialize`.
    ready: Duration,
    pub(super) stop: &'a StopSignals,
    /// Sessions that were opened and are not known to have ended.
    open: RefCell<BTreeSet<String>>,
    /// The revision that the server agreed to last. Every `initialize` is the same, so it applies to all sessions.
    agreed: RefCell<Option<HeaderValue>>,
}

impl<'a> TestClient<'a> {
    /// Creates a client that sends `bearer` with every request.
    pub(super) fn new(url: Uri, bearer: Option<&str>, ready: Duration, stop: &'a StopSignals) -> TestClient<'a> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(Ok(value)) = bearer.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))) {
            headers.insert(AUTHORIZATION, value);
        }
        let (open, agreed) = (RefCell::default(), RefCell::default());
        TestClient { client: UpstreamClient::new(), url, headers, ready, stop, open, agreed }
    }

    /// Opens a session with `initialize` and `notifications/initialized`, as a client must.
    pub(super) async fn open(&self) -> Answer {
        let opened = self.initialize(&[]).await;
        if let Some(session) = opened.session() {
            self.initialized(session).await;
        }
        opened
    }

    /// Sends `initialize`. [`TestClient::any_open`] knows the session even if only the head of the response arrived.
    pub(super) async fn initialize(&self, more: &[(HeaderName, HeaderValue)]) -> Answer {
        let opened =
            self.send(RequestParts { more, time_limit: self.ready, ..RequestParts::post(&talk::initialize()) }).await;
        if let Some(revision) = opened.revision() {
            self.agreed.replace(Some(revision));
        }
        opened
    }

    /// Sends `notifications/initialized`.
    pub(super) async fn initialized(&self, session: &str) {
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        // Ignore the response: the following requests show the effect.
        let _ = self.send(RequestParts { session: Some(session), ..RequestParts::post(&message) }).await;
    }

    /// Sends `server/discover`, the first request to a server without sessions.
    pub(super) async fn discover(&self) -> Answer {
        self.discover_with(&modern("server/discover")).await
    }

    async fn discover_with(&self, more: &[(HeaderName, HeaderValue)]) -> Answer {
        self.send(RequestParts { more, ..RequestParts::post(&talk::discover(1)) }).await
    }

    /// Sends the first request with the origin of a foreign web page.
    pub(super) async fn send_foreign_origin(&self, is_modern: bool) -> Answer {
        let foreign = (ORIGIN, FOREIGN);
        if is_modern {
            let [version, method] = modern("server/discover");
            return self.discover_with(&[version, method, foreign]).await;
        }
        self.initialize(&[foreign]).await
    }

    /// Sends a request in a session.
    pub(super) async fn ask(&self, session: &str) -> Answer {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {} });
        self.send(RequestParts { session: Some(session), ..RequestParts::post(&request) }).await
    }

    /// Ends a session.
    pub(super) async fn delete(&self, session: &str) -> Answer {
        if self.stop.asked().is_some() {
            return Answer::Failed("stopped".to_owned());
        }
        self.end(session).await
    }

    /// Records a session that the visitor opened; this client must end it.
    pub(super) fn record_open(&self, session: &str) {
        self.open.borrow_mut().insert(session.to_owned());
    }

    /// A session that is not known to have ended.
    pub(super) fn any_open(&self) -> Option<String> {
        self.open.borrow().first().cloned()
    }

    /// Ends every open session, also after the check was stopped.
    pub(super) async fn close(&self) {
        let left: Vec<String> = self.open.borrow().iter().cloned().collect();
        let all = async {
            for session in &left {
                self.end(session).await;
            }
        };
        // If the server does not respond, its sessions stay.
        let _ = tokio::time::timeout(CLOSING, all).await;
    }

    /// Sends DELETE. The session stays recorded until the response settles it, so a call that was interrupted or
    /// refused can be repeated.
    async fn end(&self, session: &str) -> Answer {
        let (session, body) = (Some(session), Bytes::new());
        let answer = self
            .exchange(RequestParts { method: Method::DELETE, session, body, ..RequestParts::post(&Value::Null) })
            .await;
        if let Some(session) = session.filter(|_| answer.settles()) {
            self.open.borrow_mut().remove(session);
        }
        answer
    }

    async fn send(&self, ask: RequestParts<'_>) -> Answer {
        match self.stop.asked() {
            Some(_) => Answer::Failed("stopped".to_owned()),
            None => self.exchange(ask).await,
        }
    }

    async fn exchange(&self, ask: RequestParts<'_>) -> Answer {
        let (opens, time_limit) = (ask.session.is_none(), ask.time_limit);
        let request = self.request(ask);
        let answered = async {
            let address = leash_upstream::delete::shown(&self.url);
            let answer = self.client.send(request).await.map_err(|error| error.explain(&address))?;
            let status = answer.status().as_u16();
            let session = answer.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
            // Record the session before the body is read, because the time may run out: the server has opened it, and
            // only this client will end it.
            if let (true, 200..300, Some(opened)) = (opens, status, &session) {
                self.record_open(opened);
            }
            Ok(Answer::Status { status, session, body: read(answer.into_body()).await })
        };
        match tokio::time::timeout(time_limit, answered).await {
            Ok(answer) => answer.unwrap_or_else(Answer::Failed),
            Err(_) => Answer::Failed(format!("no answer within {}", duration::exact(time_limit))),
        }
    }

    fn request(&self, ask: RequestParts<'_>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(ask.body));
        *request.method_mut() = ask.method;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(Ok(value)) = ask.session.map(HeaderValue::from_str) {
            request.headers_mut().insert(SESSION_ID, value);
            // A server must refuse a revision that was not agreed upon, and must accept a request without one.
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

/// The headers of a modern request.
fn modern(method: &'static str) -> [(HeaderName, HeaderValue); 2] {
    [(PROTOCOL_VERSION, HeaderValue::from_static(talk::MODERN)), (METHOD, HeaderValue::from_static(method))]
}

/// Reads until the response is found or the body ends: an event stream may stay open.
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
    fn the_revision_is_read_from_json_and_event_stream() {
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

    /// A session that could not be ended is not forgotten.
    #[test]
    fn only_a_settling_response_ends_a_session() {
        assert!([200, 202, 204, 404, 405].map(|status| answer(status, "").settles()).iter().all(|settled| *settled));
        assert!(![400, 401, 403, 429, 500, 503].map(|status| answer(status, "").settles()).contains(&true));
        assert!(!Answer::Failed("the connection broke".to_owned()).settles());
    }
}
