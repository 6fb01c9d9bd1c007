//! The load generator: an MCP client that opens sessions, calls `echo` and checks the answers.

use std::cell::Cell;
use std::fmt::Write as _;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::http::request;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::reply;
use crate::step::{Failure, Outcome};

/// All peers speak this revision.
const VERSION: &str = "2025-06-18";

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The size of a small request, as in the bench `echo`.
pub(super) const LINE: usize = 200;

/// The address of a gateway, and its name for the tool.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    address: SocketAddr,
    host: HeaderValue,
    path: Uri,
    tool: String,
}

impl Endpoint {
    pub(super) fn new(address: SocketAddr, path: &str, tool: &str) -> Outcome<Self> {
        let failed = |_| Failure::new(format!("`{path}` is not a path"));
        let host = HeaderValue::try_from(address.to_string()).expect("an address is visible ASCII");
        Ok(Self { address, host, path: path.parse().map_err(failed)?, tool: tool.to_owned() })
    }
}

/// A persistent connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

/// A session, which is not bound to a connection. A gateway without sessions gives no id.
#[derive(Clone)]
pub(super) struct Session {
    id: Option<HeaderValue>,
}

/// An open event stream.
pub(super) struct Listening(#[cfg_attr(not(test), expect(dead_code, reason = "held, not read"))] Response<Incoming>);

impl Listening {
    /// Waits until it ends.
    #[cfg(test)]
    pub(super) async fn end(self) -> Outcome {
        whole(self.0).await.map(drop)
    }
}

impl Connection {
    pub(super) async fn open(to: &Endpoint) -> Outcome<Self> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("cannot connect to {}: {error}", to.address));
        let stream = TcpStream::connect(to.address).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        let driver = tokio::task::spawn_local(async {
            // A pending request gets the error.
            let _ = driver.await;
        });
        Ok(Self { sender, _driver: AbortOnDropHandle::new(driver) })
    }

    /// `initialize` and `notifications/initialized`.
    pub(super) async fn initialize(&mut self, to: &Endpoint) -> Outcome<Session> {
        let id = next_id();
        let hello = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}}}"#
        );
        let request = post(to).body(Full::from(hello));
        let response = self.send(request).await?;
        let session = Session { id: response.headers().get(SESSION).cloned() };
        let body = whole(response).await?;
        reply::find(&body, id).ok_or_else(|| unexpected("`initialize`", &body))?;

        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let request = session.on(post(to)).body(Full::from(initialized));
        let response = self.send(request).await?;
        whole(response).await?;
        Ok(session)
    }

    /// One call of `echo`. An answer that is not to this call is a failure.
    pub(super) async fn call(&mut self, to: &Endpoint, session: &Session) -> Outcome {
        let id = next_id();
        let mut body = String::with_capacity(LINE + 64);
        let text = call(&to.tool, id, &mut body);
        let text = &body[text];
        let request = session.on(post(to)).body(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        let response = self.send(request).await?;
        let answer = whole(response).await?;
        match reply::find(&answer, id) {
            Some(reply) if reply.is_text(text) => Ok(()),
            _ => Err(unexpected("`tools/call`", &answer)),
        }
    }

    /// Opens the event stream of the session, which occupies the connection.
    pub(super) async fn listen(&mut self, to: &Endpoint, session: &Session) -> Outcome<Listening> {
        let accept = HeaderValue::from_static("text/event-stream");
        let request = session.on(request(Method::GET, to).header(ACCEPT, accept)).body(Full::default());
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::OK => Ok(Listening(response)),
            status => Err(Failure::new(format!("GET was answered by {status}"))),
        }
    }

    /// Ends the session.
    pub(super) async fn delete(&mut self, to: &Endpoint, session: &Session) -> Outcome {
        let request = session.on(request(Method::DELETE, to)).body(Full::default());
        let response = self.send(request).await?;
        whole(response).await.map(drop)
    }

    async fn send(&mut self, request: hyper::http::Result<Request<Full<Bytes>>>) -> Outcome<Response<Incoming>> {
        let request = request.map_err(|error| Failure::new(error.to_string()))?;
        let lost = |error: hyper::Error| Failure::new(format!("a request was not answered: {error}"));
        self.sender.ready().await.map_err(lost)?;
        self.sender.send_request(request).await.map_err(lost)
    }
}

impl Session {
    fn on(&self, request: request::Builder) -> request::Builder {
        let request = request.header(PROTOCOL, HeaderValue::from_static(VERSION));
        match &self.id {
            Some(id) => request.header(SESSION, id),
            None => request,
        }
    }
}

/// A number that no other request of this process has.
pub(super) fn next_id() -> u64 {
    thread_local!(static LAST: Cell<u64> = const { Cell::new(0) });
    LAST.set(LAST.get() + 1);
    LAST.get()
}

/// Appends a call of [`LINE`] bytes or a little more, and returns the range of its text. The text contains the id, so
/// it is unique.
pub(super) fn call(tool: &str, id: u64, body: &mut String) -> std::ops::Range<usize> {
    let written = write!(
        body,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":""#
    );
    let start = body.len();
    written.and_then(|()| write!(body, "{id}-")).expect("a string can be written to");
    const END: &str = r#""}}}"#;
    while body.len() + END.len() < LINE {
        body.push('x');
    }
    let end = body.len();
    body.push_str(END);
    start..end
}

fn post(to: &Endpoint) -> request::Builder {
    request(Method::POST, to)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"))
}

fn request(method: Method, to: &Endpoint) -> request::Builder {
    Request::builder().method(method).uri(to.path.clone()).header(HOST, to.host.clone())
}

/// The whole body of a successful answer.
async fn whole(response: Response<Incoming>) -> Outcome<Bytes> {
    let status = response.status();
    let lost = |error: hyper::Error| Failure::new(format!("an answer was cut: {error}"));
    let body = response.into_body().collect().await.map_err(lost)?.to_bytes();
    match status.is_success() {
        true => Ok(body),
        false => Err(unexpected(&format!("a request, with {status}"), &body)),
    }
}

fn unexpected(to: &str, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let shown: String = text.chars().take(400).collect();
    Failure::new(format!("this answers {to}: {shown}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn call_has_the_size_of_the_bench_and_a_unique_text() {
        for id in [1, 4_294_967_296] {
            let mut body = String::new();
            let text = call("echo", id, &mut body);
            assert_eq!(body.len(), LINE);
            let sent: Value = serde_json::from_str(&body).expect("it is JSON");
            assert_eq!(sent["params"]["arguments"]["text"], body[text.clone()]);
            assert!(body[text].starts_with(&format!("{id}-x")));
            assert_eq!(sent["id"], id);
        }
    }

    #[test]
    fn long_tool_name_does_not_cut_the_text() {
        let mut body = String::new();
        call(&"t".repeat(LINE), 7, &mut body);
        let sent: Value = serde_json::from_str(&body).expect("it is JSON");
        assert_eq!(sent["params"]["arguments"]["text"], "7-");
    }

    #[test]
    fn ids_are_never_used_twice() {
        let first = next_id();
        assert!((0..100).map(|_| next_id()).all(|id| id > first));
    }
}
