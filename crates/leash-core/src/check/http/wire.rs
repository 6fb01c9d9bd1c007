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

use crate::check::Stop;
use crate::check::stdio::talk;
use crate::http::upstream::Client;
use crate::protocol::headers::{METHOD, PROTOCOL_VERSION, SESSION_ID};

/// How long any answer may take.
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

    /// For people.
    pub(super) fn describe(&self) -> String {
        match self {
            Answer::Status { status, .. } => status.to_string(),
            Answer::Failed(why) => why.clone(),
        }
    }
}

/// A client of one server.
pub(super) struct Wire<'a> {
    client: Client,
    url: Uri,
    headers: HeaderMap,
    pub(super) stop: &'a Stop,
    /// Sessions that were opened and not ended yet, as far as is known.
    open: RefCell<BTreeSet<String>>,
}

impl<'a> Wire<'a> {
    /// `bearer` is sent with everything.
    pub(super) fn new(url: Uri, bearer: Option<&str>, stop: &'a Stop) -> Wire<'a> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(Ok(value)) = bearer.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))) {
            headers.insert(AUTHORIZATION, value);
        }
        Wire { client: Client::new(), url, headers, stop, open: RefCell::default() }
    }

    /// Opens a session, and says that it is open, as a client has to.
    pub(super) async fn open(&self) -> Answer {
        let opened = self.send(Method::POST, None, &[], &talk::initialize()).await;
        if let Some(session) = opened.session() {
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            self.send(Method::POST, Some(session), &[], &initialized).await;
        }
        opened
    }

    /// What a server of the era without sessions is asked first.
    pub(super) async fn discover(&self) -> Answer {
        self.send(Method::POST, None, &modern("server/discover"), &talk::discover(1)).await
    }

    /// The first request, as a web page of somebody else would send it.
    pub(super) async fn come_from_elsewhere(&self, is_modern: bool) -> Answer {
        let (mut headers, request) = match is_modern {
            true => (modern("server/discover").to_vec(), talk::discover(1)),
            false => (Vec::new(), talk::initialize()),
        };
        headers.push((ORIGIN, FOREIGN));
        self.send(Method::POST, None, &headers, &request).await
    }

    /// A request in a session.
    pub(super) async fn ask(&self, session: &str) -> Answer {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {} });
        self.send(Method::POST, Some(session), &[], &request).await
    }

    /// Ends a session.
    pub(super) async fn delete(&self, session: &str) -> Answer {
        let answer = self.send(Method::DELETE, Some(session), &[], &Value::Null).await;
        if answer.status().is_some() {
            self.open.borrow_mut().remove(session);
        }
        answer
    }

    /// Somebody else opened a session, and it is ours to end.
    pub(super) fn has_open(&self, session: &str) {
        self.open.borrow_mut().insert(session.to_owned());
    }

    /// Ends every session that is left open, also when nothing else is to be done any more.
    pub(super) async fn close(&self) {
        let left = self.open.take();
        let all = async {
            for session in &left {
                self.exchange(Method::DELETE, Some(session), &[], Bytes::new()).await;
            }
        };
        // A server that does not answer keeps what it has.
        let _ = tokio::time::timeout(CLOSING, all).await;
    }

    async fn send(
        &self,
        method: Method,
        session: Option<&str>,
        more: &[(HeaderName, HeaderValue)],
        body: &Value,
    ) -> Answer {
        if self.stop.asked().is_some() {
            return Answer::Failed("stopped".to_owned());
        }
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let answer = self.exchange(method, session, more, body).await;
        if let (None, Some(opened)) = (session, answer.session()) {
            self.open.borrow_mut().insert(opened.to_owned());
        }
        answer
    }

    async fn exchange(
        &self,
        method: Method,
        session: Option<&str>,
        more: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Answer {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(Ok(value)) = session.map(HeaderValue::from_str) {
            request.headers_mut().insert(SESSION_ID, value);
            request.headers_mut().insert(PROTOCOL_VERSION, HeaderValue::from_static(talk::LEGACY));
        }
        for (name, value) in more {
            request.headers_mut().insert(name, value.clone());
        }
        let answered = async {
            let answer = self.client.send(request).await.map_err(|error| error.to_string())?;
            let status = answer.status().as_u16();
            let session = answer.headers().get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
            Ok(Answer::Status { status, session, body: read(answer.into_body()).await })
        };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(answer) => answer.unwrap_or_else(Answer::Failed),
            Err(_) => Answer::Failed(format!("no answer within {} s", PATIENCE.as_secs())),
        }
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
