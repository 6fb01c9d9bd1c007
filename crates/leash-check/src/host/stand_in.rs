//! The servers that leash provides for a host under test: as much of MCP as a host needs.

use std::io::{self, BufRead, Write};
use std::{cell::RefCell, collections::BTreeSet, convert::Infallible, net::SocketAddr, rc::Rc, thread::JoinHandle};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::task::{JoinSet, LocalSet};
use tokio::{net::TcpListener, sync::oneshot};

use super::journal::{Journal, StandInEvent, StandInRole};
use crate::stdio::talk::LEGACY;
use leash_model::id;
use leash_protocol::headers::SESSION_ID;

/// The largest message of a host.
const MESSAGE: usize = 4 * 1024 * 1024;

/// Serves a host over stdio until the end of input, and records the events.
pub fn serve_stdio(
    part: StandInRole,
    journal: &Journal,
    input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    for line in input.lines() {
        // A line that is no text or no message is the host's own matter.
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        journal.write(part, asked(&message))?;
        if let Some(answer) = answer(&message) {
            writeln!(output, "{answer}")?;
            output.flush()?;
        }
    }
    journal.write(part, StandInEvent::Eof)
}

/// The event that a message means.
fn asked(message: &Value) -> StandInEvent {
    if message["method"] == "notifications/initialized" { StandInEvent::Connected } else { StandInEvent::Asked }
}

/// The response to a message, if it needs one.
fn answer(message: &Value) -> Option<Value> {
    let (method, id) = (message["method"].as_str()?, message.get("id")?);
    let result = match method {
        "initialize" => {
            let asked = message["params"]["protocolVersion"].as_str();
            // A revision without a handshake can't be agreed upon in one.
            let version = asked.filter(|asked| *asked <= LEGACY).unwrap_or(LEGACY);
            json!({
                "protocolVersion": version, "capabilities": { "tools": {} },
                "serverInfo": { "name": "leash-check", "version": env!("CARGO_PKG_VERSION") },
            })
        }
        "ping" => json!({}),
        "tools/list" => json!({ "tools": [{
            "name": "echo", "description": "Says it again",
            "inputSchema": { "type": "object", "properties": { "message": { "type": "string" } } },
        }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": message["params"]["arguments"].to_string() }] }),
        _ => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// An HTTP server with sessions, on loopback and on its own thread. Dropping it ends the server.
#[derive(Debug)]
pub(super) struct HttpStandIn {
    pub(super) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpStandIn {
    pub(super) fn start(journal: Journal) -> io::Result<HttpStandIn> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            let serving = async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(listener, journal) => {}
                    _ = stopped => {}
                }
            };
            LocalSet::new().block_on(&runtime, serving);
        };
        let thread = std::thread::Builder::new().name("leash-stand-in".to_owned()).spawn(serve)?;
        Ok(HttpStandIn { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The URL for the host.
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for HttpStandIn {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state that all connections share.
struct HttpStandInState {
    journal: Journal,
    sessions: RefCell<BTreeSet<String>>,
}

async fn accept(listener: TcpListener, journal: Journal) {
    let shared = Rc::new(HttpStandInState { journal, sessions: RefCell::default() });
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Rc::clone(&shared);
        connections.spawn_local(async move {
            let service = service_fn(|request| {
                let shared = Rc::clone(&shared);
                async move { Ok::<_, Infallible>(shared.serve(request).await) }
            });
            // A host may break a connection off.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl HttpStandInState {
    async fn serve(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let session = parts.headers.get(SESSION_ID).and_then(|id| id.to_str().ok());
        match parts.method {
            Method::POST => match Limited::new(body, MESSAGE).collect().await {
                Ok(body) => self.post(session, &body.to_bytes()),
                Err(_) => status(StatusCode::BAD_REQUEST),
            },
            Method::DELETE => match session.filter(|id| self.sessions.borrow_mut().remove(*id)) {
                Some(session) => {
                    self.note(StandInEvent::Deleted { session: session.to_owned() });
                    status(StatusCode::OK)
                }
                None => status(StatusCode::NOT_FOUND),
            },
            _ => {
                let mut answer = status(StatusCode::METHOD_NOT_ALLOWED);
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
                answer
            }
        }
    }

    fn post(&self, session: Option<&str>, body: &[u8]) -> Response<Full<Bytes>> {
        let Ok(message) = serde_json::from_slice::<Value>(body) else { return status(StatusCode::BAD_REQUEST) };
        if message["method"] == "initialize" {
            return self.open(&message);
        }
        match session {
            // Not an error of the modern era: modern clients then continue with `initialize`.
            None => {
                let error = json!({ "code": -32000, "message": "Bad Request: Server not initialized" });
                let id = message.get("id").cloned().unwrap_or_default();
                json_answer(StatusCode::BAD_REQUEST, &json!({ "jsonrpc": "2.0", "id": id, "error": error }))
            }
            Some(id) if !self.sessions.borrow().contains(id) => status(StatusCode::NOT_FOUND),
            Some(_) => {
                self.note(asked(&message));
                answer(&message)
                    .map_or_else(|| status(StatusCode::ACCEPTED), |answer| json_answer(StatusCode::OK, &answer))
            }
        }
    }

    fn open(&self, message: &Value) -> Response<Full<Bytes>> {
        let session = id::random();
        let Some(answer) = answer(message) else { return status(StatusCode::BAD_REQUEST) };
        let mut answer = json_answer(StatusCode::OK, &answer);
        if let Ok(value) = HeaderValue::from_str(&session) {
            answer.headers_mut().insert(SESSION_ID, value);
        }
        self.sessions.borrow_mut().insert(session.clone());
        self.note(StandInEvent::Opened { session });
        answer
    }

    fn note(&self, event: StandInEvent) {
        // If the disk is full, an event is missing: then the host is judged worse than it is.
        let _ = self.journal.write(StandInRole::Http, event);
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

fn json_answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
