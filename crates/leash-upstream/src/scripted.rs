//! For tests: an upstream that responds as its script says and records the requests.

use std::cell::{Cell, RefCell};
use std::{future::Future, pin::Pin, rc::Rc, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinSet, LocalSet};

use super::body::{Body, BodyError};

/// The time limit of a test. No test here takes a second.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs a test on one thread, as the gateway runs.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    // All resources of the test must be gone when its runtime is dropped.
    let _guard = leash_tree::leak::guard_alone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let test = async { tokio::time::timeout(DEADLINE, test).await.expect("the test hangs") };
    LocalSet::new().block_on(&runtime, test)
}

/// A request that the upstream received.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its target.
    pub uri: Uri,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Seen {
    /// Returns a header as text. Empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// True if the body contains this text.
    pub fn says(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.body).contains(text)
    }
}

/// The script's response to a request.
pub type Reply = Pin<Box<dyn Future<Output = Option<Response<Body>>>>>;

type Script = Box<dyn Fn(Seen) -> Reply>;

/// The upstream. Dropping it closes the listener and all connections.
pub struct Scripted {
    /// The port it listens on.
    pub port: u16,
    state: Rc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    script: Script,
    seen: RefCell<Vec<Seen>>,
    connections: Cell<usize>,
    changed: Notify,
}

impl Scripted {
    /// Starts an upstream on loopback. A script that returns `None` breaks the connection off.
    pub async fn start(script: impl Fn(Seen) -> Reply + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let state = Rc::new(State {
            script: Box::new(script),
            seen: RefCell::default(),
            connections: Cell::new(0),
            changed: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        let shared = Rc::clone(&state);
        tasks.spawn_local(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn_local(serve(Rc::clone(&shared), stream));
            }
        });
        Scripted { port, state, _tasks: tasks }
    }

    /// The upstream's address.
    pub fn url(&self) -> Uri {
        format!("http://127.0.0.1:{}/mcp", self.port).parse().expect("an address")
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.borrow().clone()
    }

    /// The requests of one method.
    pub fn of(&self, method: &Method) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method == *method).collect()
    }

    /// Waits until `wanted` returns true for the requests so far.
    pub async fn until(&self, wanted: impl Fn(&[Seen]) -> bool) {
        self.wait(|state| wanted(&state.seen.borrow())).await;
    }

    /// Waits until exactly this many connections are open.
    pub async fn connections(&self, wanted: usize) {
        self.wait(|state| state.connections.get() == wanted).await;
    }

    async fn wait(&self, wanted: impl Fn(&State) -> bool) {
        loop {
            let changed = self.state.changed.notified();
            if wanted(&self.state) {
                return;
            }
            changed.await;
        }
    }
}

/// Serves one connection, with or without TLS.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(state: Rc<State>, stream: S) {
    state.connections.set(state.connections.get() + 1);
    state.changed.notify_waiters();
    let service = service_fn(|request: Request<Incoming>| {
        let state = Rc::clone(&state);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
            let seen = Seen { method: parts.method, uri: parts.uri, headers: parts.headers, body };
            state.seen.borrow_mut().push(seen.clone());
            state.changed.notify_waiters();
            (state.script)(seen).await.ok_or(Broken)
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    state.connections.set(state.connections.get() - 1);
    state.changed.notify_waiters();
}

/// The error that breaks a connection off.
#[derive(Debug, thiserror::Error)]
#[error("as the script says")]
struct Broken;

/// Responds at once.
pub fn reply(answer: Response<Body>) -> Reply {
    Box::pin(std::future::ready(Some(answer)))
}

/// Builds a response with a status and a body.
pub fn status(status: u16, body: &'static str) -> Response<Body> {
    let mut answer = Response::new(Body::Whole(Bytes::from_static(body.as_bytes())));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    answer
}

/// Never responds.
pub fn silence() -> Reply {
    Box::pin(std::future::pending())
}

/// Returns a body that the test writes through the sender. It ends when the sender is dropped.
pub fn stream() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Body::stream(Written(receiver)))
}

struct Written(mpsc::UnboundedReceiver<Bytes>);

impl HttpBody for Written {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Serves one connection with a fixed body, for the TLS tests of the client.
#[cfg(test)]
pub(crate) async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin>(stream: S, body: &'static str) {
    let service = service_fn(move |_| async move { Ok::<_, std::convert::Infallible>(status(200, body)) });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
