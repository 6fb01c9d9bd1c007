//! Tests of the guard over real sockets: a client, the gateway, and a scripted upstream.

mod abandoned;
mod forwarding;
mod listening;
mod property;
mod reviving;
mod sessions;
mod sse;

use std::cell::{Cell, RefCell};
use std::{collections::BTreeSet, net::SocketAddr, rc::Rc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, body::Incoming};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{self, OwnerPolicy, ServerTarget, SessionPolicy, Settings};
use crate::{control::Jobs, listen, serve, state::gateway::Gateway};
use leash_model::clock::Moment;
use leash_model::receipt::{DeleteHow, Reason, Receipt};
use leash_protocol::headers::SESSION_ID;
use leash_tree::{ledger::book::Book, ledger::receipts, places::Places};
use leash_upstream::scripted::{Reply, Scripted, Seen, reply, status};
use leash_upstream::{address::HttpTransport, body::Body, client::UpstreamClient, notice::Notice};
use testkit::Scratch;

pub(super) const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
pub(super) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// Has spaces, an unknown field and a number that no double holds, so that a test sees if leash changes any byte.
pub(super) const CALL: &str =
    r#"{"jsonrpc":"2.0", "id":7,"method":"tools/call","x":123456789012345678901234567890,"params":{}}"#;
pub(super) const MODERN: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;

/// A gateway in front of one server, `s`.
pub(super) struct Rig {
    pub(super) gateway: Rc<Gateway>,
    pub(super) client: UpstreamClient,
    address: SocketAddr,
    _dir: Scratch,
    notices: Rc<RefCell<Vec<String>>>,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

/// The gateway's settings for its server.
pub(super) struct Terms {
    pub(super) policy: SessionPolicy,
    pub(super) transport: HttpTransport,
    pub(super) headers: Vec<(String, String)>,
    pub(super) query: &'static str,
    pub(super) max_sessions: usize,
}

impl Default for Terms {
    fn default() -> Terms {
        // The client of these tests is the test process, which lives on. So sessions end by traffic, not by their
        // owner.
        let policy = SessionPolicy { owner: OwnerPolicy::Traffic, ..SessionPolicy::default() };
        Terms { policy, transport: HttpTransport::Streamable, headers: Vec::new(), query: "", max_sessions: 1000 }
    }
}

impl Rig {
    pub(super) async fn start(upstream: &Uri) -> Rig {
        Rig::with(upstream, Terms::default()).await
    }

    pub(super) async fn with(upstream: &Uri, terms: Terms) -> Rig {
        let url = format!("{upstream}{}", terms.query);
        let target = ServerTarget::Url(
            leash_upstream::address::upstream(&url, &terms.headers, terms.transport).expect("a fine address"),
        );
        let mut settings = Settings { max_sessions: terms.max_sessions, ..Settings::default() };
        settings.listen.set_port(0);
        let server = config::ServerSettings { name: "s".to_owned(), policy: terms.policy, target };
        settings.servers.insert("s".to_owned(), server);
        let dir = Scratch::new();
        let places = Places::below(&*dir);
        let book = Book::of_gateway(&places, None).expect("a book");
        let notices = Rc::new(RefCell::new(Vec::new()));
        let told = Rc::clone(&notices);
        let tell = move |notice: Notice| told.borrow_mut().push(format!("{notice:?}"));
        let listener = listen::bind(settings.listen).expect("a port");
        let address = listener.local_addr().expect("its address");
        let gateway = Rc::new(serve::gateway(settings, places, book, Box::new(tell)));
        gateway.address.set(Some(address));
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        let jobs = Jobs::new(Rc::clone(&gateway), None);
        tasks.spawn_local(listen::accept(Rc::clone(&jobs), listener, stop.clone()));
        tasks.spawn_local(serve::tick(jobs));
        Rig { gateway, client: UpstreamClient::new(), address, _dir: dir, notices, stop, _tasks: tasks }
    }

    pub(super) fn request(
        &self,
        method: Method,
        path: &str,
        session: Option<&str>,
        body: &str,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(body.to_owned()));
        *request.uri_mut() = format!("http://{}{path}", self.address).parse().expect("an address");
        let headers = request.headers_mut();
        headers.insert("accept", HeaderValue::from_static("application/json, text/event-stream"));
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(session) = session {
            headers.insert(SESSION_ID, HeaderValue::from_str(session).expect("an id"));
        }
        *request.method_mut() = method;
        request
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.client.send(request).await.expect("the gateway answers")
    }

    pub(super) async fn post(&self, session: Option<&str>, body: &str) -> Told {
        told(self.send(self.request(Method::POST, "/s/mcp", session, body)).await).await
    }

    pub(super) async fn get(&self, session: Option<&str>) -> Response<Incoming> {
        self.send(self.request(Method::GET, "/s/mcp", session, "")).await
    }

    pub(super) async fn delete(&self, session: Option<&str>) -> Told {
        told(self.send(self.request(Method::DELETE, "/s/mcp", session, "")).await).await
    }

    /// Opens a session and returns the id that the client got.
    pub(super) async fn open(&self) -> String {
        let told = self.post(None, INITIALIZE).await;
        assert_eq!(told.status, 200, "{}", told.body);
        let session = told.session().expect("a session");
        assert_eq!(self.post(Some(&session), INITIALIZED).await.status, 202);
        session
    }

    /// Sends a request and leaves as soon as `seen` returns, without waiting for the response.
    pub(super) async fn abandon(&self, request: Request<Full<Bytes>>, seen: impl Future<Output = ()>) {
        let client = UpstreamClient::new();
        tokio::select! {
            answer = client.send(request) => panic!("an answer: {answer:?}"),
            () = seen => {}
        }
    }

    /// The number of sessions that leash knows, with those that are ending.
    pub(super) fn sessions(&self) -> usize {
        self.gateway.count()
    }

    /// Waits until all sessions are over.
    pub(super) async fn quiet(&self) {
        self.until(|rig| rig.sessions() == 0).await;
    }

    /// Lets the idle time pass: opens a session and waits for its end.
    pub(super) async fn idle_time(&self) {
        let ended = self.receipts().len();
        self.open().await;
        self.until(|rig| rig.receipts().len() > ended).await;
    }

    /// Waits until `wanted` returns true, and lets the tasks of this thread run meanwhile.
    pub(super) async fn until(&self, wanted: impl Fn(&Rig) -> bool) {
        while !wanted(self) {
            tokio::task::yield_now().await;
            let soon = tokio::time::Instant::now() + Duration::from_millis(1);
            tokio::time::sleep_until(soon).await;
        }
    }

    /// Shuts the gateway down as a signal would, and waits until all sessions are over.
    pub(super) async fn drain(&self) {
        self.drain_within(Duration::from_secs(20)).await;
    }

    pub(super) async fn drain_within(&self, time: Duration) {
        self.stop.cancel();
        self.gateway.end_all(&Reason::Shutdown);
        self.gateway.client.deadline.set(Moment::on_runtime() + time);
        self.quiet().await;
    }

    pub(super) fn receipts(&self) -> Vec<Receipt> {
        receipts::read(&self.gateway.places.receipts).expect("receipts").0
    }

    /// The reason of each session's end, and the result of its DELETE.
    pub(super) fn ends(&self) -> Vec<(Reason, DeleteHow)> {
        let ends = self.receipts().into_iter();
        ends.map(|receipt| (receipt.reason.clone(), receipt.upstreams().next().expect("an upstream").how)).collect()
    }

    /// The ids of the open entries in the ledger.
    pub(super) fn booked(&self) -> Vec<String> {
        let books = Book::list(&self.gateway.places.runtime_dir).expect("the ledger");
        books.into_iter().flat_map(|book| book.open).map(|entry| entry.id).collect()
    }

    pub(super) fn notices(&self, word: &str) -> usize {
        self.notices.borrow().iter().filter(|notice| notice.contains(word)).count()
    }
}

/// A response, read to its end.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Told {
    pub(super) fn session(&self) -> Option<String> {
        Some(self.headers.get(SESSION_ID)?.to_str().ok()?.to_owned())
    }
}

pub(super) async fn told(answer: Response<Incoming>) -> Told {
    let (head, body) = answer.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    Told { status: head.status.as_u16(), headers: head.headers, body }
}

/// Returns the next bytes of a stream. `None` at its end.
pub(super) async fn next(body: &mut Incoming) -> Option<String> {
    loop {
        match body.frame().await?.ok()?.into_data() {
            Ok(bytes) => return Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(_) => continue,
        }
    }
}

/// A server with sessions whose behaviour a test can change.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) minted: Cell<u32>,
    pub(super) live: RefCell<BTreeSet<String>>,
    /// Every id that the server gave out and for which it got no DELETE and never said that it is unknown.
    pub(super) leaked: RefCell<BTreeSet<String>>,
    /// The status for DELETE. `None`: 200.
    pub(super) delete: Cell<Option<u16>>,
    /// The status for an unknown session. `None`: 404.
    pub(super) unknown: Cell<Option<u16>>,
    /// The server answers `initialize` when this is cancelled.
    pub(super) hold: RefCell<Option<CancellationToken>>,
    /// The body of the response to the next GET.
    pub(super) stream: RefCell<Option<Body>>,
}

pub(super) const RESULT: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"f","version":"0"}}}"#;
pub(super) const NOT_FOUND: &str =
    r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#;

impl Fake {
    pub(super) async fn start() -> (Rc<Fake>, Scripted) {
        let fake = Rc::new(Fake::default());
        let script = Rc::clone(&fake);
        (fake, Scripted::start(move |seen| script.reply(seen)).await)
    }

    /// Acts as a restart: the server forgets all sessions.
    pub(super) fn forget(&self) {
        self.live.borrow_mut().clear();
    }

    fn reply(self: &Rc<Self>, seen: Seen) -> Reply {
        let session = seen.header("mcp-session-id").to_owned();
        if seen.method == Method::POST && session.is_empty() && seen.says(r#""initialize""#) {
            return self.mint();
        }
        let known = self.live.borrow().contains(&session);
        if !known {
            if !session.is_empty() {
                self.leaked.borrow_mut().remove(&session);
            }
            return reply(json(self.unknown.get().unwrap_or(404), NOT_FOUND));
        }
        match seen.method {
            Method::POST if !seen.says(r#""id""#) => reply(status(202, "")),
            Method::POST => {
                let mut answer = json(200, "");
                *answer.body_mut() = Body::Whole(seen.body);
                reply(answer)
            }
            Method::GET => match self.stream.borrow_mut().take() {
                Some(body) => reply(events(body)),
                None => reply(status(405, "")),
            },
            _ => {
                let code = self.delete.get().unwrap_or(200);
                if code < 300 {
                    self.live.borrow_mut().remove(&session);
                    self.leaked.borrow_mut().remove(&session);
                }
                reply(status(code, ""))
            }
        }
    }

    fn mint(self: &Rc<Self>) -> Reply {
        let (fake, hold) = (Rc::clone(self), self.hold.borrow().clone());
        Box::pin(async move {
            if let Some(hold) = hold {
                hold.cancelled().await;
            }
            fake.minted.set(fake.minted.get() + 1);
            let id = format!("up-{}", fake.minted.get());
            fake.live.borrow_mut().insert(id.clone());
            fake.leaked.borrow_mut().insert(id.clone());
            let mut answer = json(200, RESULT);
            answer.headers_mut().insert(SESSION_ID, HeaderValue::from_str(&id).expect("an id"));
            Some(answer)
        })
    }
}

pub(super) fn json(code: u16, body: &'static str) -> Response<Body> {
    let mut answer = status(code, body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

pub(super) fn events(body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer
}

/// The session ids of all DELETEs, in their order.
pub(super) fn deleted(upstream: &Scripted) -> Vec<String> {
    upstream.of(&Method::DELETE).iter().map(|seen| seen.header("mcp-session-id").to_owned()).collect()
}

/// A response's status as a number.
pub(super) fn code(answer: &Response<Incoming>) -> u16 {
    StatusCode::as_u16(&answer.status())
}
