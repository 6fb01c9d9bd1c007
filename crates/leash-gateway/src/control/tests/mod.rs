//! Jobs over real sockets: a caller of the control API, an MCP client, the gateway, and a scripted upstream.

mod calls;
mod creating;
mod document;
mod ending;
mod events;
mod property;
mod refused;

use std::cell::{Cell, RefCell};
use std::{collections::BTreeSet, net::SocketAddr, rc::Rc, sync::LazyLock, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, Uri, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::control::{self, Jobs};
use crate::{config::Settings, listen, serve, state::gateway::Gateway};
use leash_model::receipt::Receipt;
use leash_protocol::headers::SESSION_ID;
use leash_tree::{ledger::book::Book, ledger::receipts, places::Places};
use leash_upstream::scripted::{Reply, Scripted, Seen, reply, status};
use leash_upstream::{body::Body, client::UpstreamClient};
use testkit::Scratch;

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#;
const RESULT: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"f","version":"0"}}}"#;

/// A gateway without servers of its own, and its control API.
struct Rig {
    gateway: Rc<Gateway>,
    jobs: Rc<Jobs>,
    client: UpstreamClient,
    control: SocketAddr,
    stop: CancellationToken,
    _dir: Scratch,
    _tasks: JoinSet<()>,
}

impl Rig {
    async fn start() -> Rig {
        Rig::with(Settings::default()).await
    }

    async fn with(mut settings: Settings) -> Rig {
        LazyLock::force(&document::API);
        settings.listen.set_port(0);
        let dir = Scratch::new();
        let places = Places::below(&*dir);
        let book = Book::of_gateway(&places, None).expect("a book");
        let listener = listen::bind(settings.listen).expect("a port");
        let gateway = Rc::new(serve::gateway(settings, places, book, Box::new(|_| ())));
        gateway.address.set(listener.local_addr().ok());
        let jobs = Jobs::new(Rc::clone(&gateway), None);
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        tasks.spawn_local(listen::accept(Rc::clone(&jobs), listener, stop.clone()));
        tasks.spawn_local(serve::tick(Rc::clone(&jobs)));
        let door = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let control = door.local_addr().expect("its address");
        tasks.spawn_local(accept(Rc::clone(&jobs), door));
        Rig { gateway, jobs, client: UpstreamClient::new(), control, stop, _dir: dir, _tasks: tasks }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(body.to_owned()));
        *request.uri_mut() = format!("http://{}{path}", self.control).parse().expect("an address");
        *request.method_mut() = method.parse().expect("a method");
        if !body.is_empty() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        request
    }

    /// Asks the control API.
    async fn ask(&self, method: &str, path: &str, body: &str) -> Told {
        told(self.client.send(self.request(method, path, body)).await.expect("an answer")).await
    }

    /// Creates a job with these servers and the fields of `more`.
    async fn create(&self, servers: Value, more: Value) -> Value {
        let told = self.ask("POST", "/v1/sessions", &wanted(servers, more)).await;
        assert_eq!(told.status, 201, "{}", told.body);
        told.json()
    }

    /// Creates a job with one server, an upstream.
    async fn in_front_of(&self, upstream: &Scripted, more: Value) -> Value {
        self.create(json!({"s": {"url": upstream.url().to_string()}}), more).await
    }

    /// Ends a job, and returns its receipt.
    async fn end(&self, job: &Value) -> Receipt {
        let told = self.ask("DELETE", &path(job, ""), "").await;
        assert_eq!(told.status, 200, "{}", told.body);
        serde_json::from_str(&told.body).expect("a receipt")
    }

    /// The request of an MCP client.
    fn mcp(&self, job: &Value, method: Method, session: Option<&str>, body: &str) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(body.to_owned()));
        *request.uri_mut() = job["servers"][0]["url"].as_str().expect("a url").parse().expect("an address");
        *request.method_mut() = method;
        let headers = request.headers_mut();
        headers.insert("accept", HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(session) = session {
            headers.insert(SESSION_ID, HeaderValue::from_str(session).expect("an id"));
        }
        request
    }

    async fn post(&self, job: &Value, session: Option<&str>, body: &str) -> Told {
        told(self.client.send(self.mcp(job, Method::POST, session, body)).await.expect("an answer")).await
    }

    /// Opens a client session, and returns the id that the client presents.
    async fn open(&self, job: &Value) -> String {
        let told = self.post(job, None, INITIALIZE).await;
        assert_eq!(told.status, 200, "{}", told.body);
        told.headers[SESSION_ID].to_str().expect("text").to_owned()
    }

    /// Sends a client's request in a task of its own.
    fn beside(&self, request: Request<Full<Bytes>>) -> Beside {
        let mut task = JoinSet::new();
        let client = UpstreamClient::new();
        task.spawn_local(async move { told(client.send(request).await.expect("an answer")).await });
        Beside(task)
    }

    async fn state(&self, job: &Value) -> String {
        self.ask("GET", &path(job, ""), "").await.json()["state"].as_str().expect("a state").to_owned()
    }

    /// Waits until the condition holds. The sleep lets the other tasks of this thread run.
    async fn until(&self, wanted: impl Fn(&Rig) -> bool) {
        while !wanted(self) {
            let soon = tokio::time::Instant::now() + Duration::from_millis(1);
            tokio::time::sleep_until(soon).await;
        }
    }

    /// Waits until there is no job.
    async fn quiet(&self) {
        self.until(|rig| rig.jobs.is_empty()).await;
    }

    /// The receipts of whole jobs.
    fn receipts(&self) -> Vec<Receipt> {
        let (all, broken) = receipts::read(&self.gateway.places.receipts).expect("receipts");
        assert_eq!(broken, 0);
        all.into_iter().filter(|one| one.run == receipts::whole(&one.session)).collect()
    }

    /// The sessions that are open in the book.
    fn booked(&self) -> Vec<String> {
        let books = Book::list(&self.gateway.places.runtime_dir).expect("the ledger");
        books.into_iter().flat_map(|book| book.open).map(|entry| entry.session).collect()
    }
}

/// A request in a task of its own.
struct Beside(JoinSet<Told>);

impl Beside {
    async fn answer(mut self) -> Told {
        self.0.join_next().await.expect("one task").expect("it does not panic")
    }

    /// Drops the request: the client disconnects.
    fn leave(self) {
        drop(self);
    }
}

async fn accept(jobs: Rc<Jobs>, door: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = door.accept().await {
        let jobs = Rc::clone(&jobs);
        connections.spawn_local(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
                let answer = control::answer(Rc::clone(&jobs), request);
                async move {
                    let answer = answer.await;
                    document::check((&method, &path), &answer);
                    Ok::<_, std::convert::Infallible>(answer)
                }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// The body of `POST /v1/sessions`.
fn wanted(servers: Value, mut more: Value) -> String {
    more["mcpServers"] = servers;
    more.to_string()
}

fn path(job: &Value, more: &str) -> String {
    format!("/v1/sessions/{}{more}", job["id"].as_str().expect("an id"))
}

/// A response, read to its end.
#[derive(Debug)]
struct Told {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Told {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The name of a problem.
    fn problem(&self) -> String {
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json", "{}", self.body);
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        let name = problem["type"].as_str().and_then(|kind| kind.strip_prefix("urn:leash:problem:"));
        name.expect("a type of ours").to_owned()
    }
}

async fn told(answer: Response<Incoming>) -> Told {
    let (head, body) = answer.into_parts();
    let body = match body.collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(error) => format!("broken off: {error}"),
    };
    Told { status: head.status.as_u16(), headers: head.headers, body }
}

/// Returns the next bytes of a stream. `None` at its end.
async fn next(body: &mut Incoming) -> Option<String> {
    loop {
        match body.frame().await?.ok()?.into_data() {
            Ok(bytes) => return Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(_) => continue,
        }
    }
}

/// A server with sessions, and its configured behaviour.
#[derive(Default)]
struct Fake {
    minted: Cell<u32>,
    /// Ids that were given out and not deleted.
    live: RefCell<BTreeSet<String>>,
    /// If set, `initialize` is answered when this is cancelled.
    hold: RefCell<Option<CancellationToken>>,
    /// If set, calls are answered when this is cancelled.
    stall: RefCell<Option<CancellationToken>>,
    /// If set, the body that the next call is answered with.
    stream: RefCell<Option<Body>>,
}

impl Fake {
    async fn start() -> (Rc<Fake>, Scripted) {
        let fake = Rc::new(Fake::default());
        let script = Rc::clone(&fake);
        (fake, Scripted::start(move |seen| script.reply(seen)).await)
    }

    fn stalls(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.stall.borrow_mut() = Some(token.clone());
        token
    }

    fn reply(self: &Rc<Self>, seen: Seen) -> Reply {
        let session = seen.header("mcp-session-id").to_owned();
        if seen.says(r#""initialize""#) {
            return self.mint();
        }
        match seen.method {
            Method::DELETE => {
                let known = self.live.borrow_mut().remove(&session);
                reply(status(if known { 200 } else { 404 }, ""))
            }
            _ if !session.is_empty() && !self.live.borrow().contains(&session) => reply(status(404, "")),
            Method::GET => reply(status(405, "")),
            _ if !seen.says(r#""id""#) => reply(status(202, "")),
            _ => self.call(seen),
        }
    }

    fn call(&self, seen: Seen) -> Reply {
        if let Some(body) = self.stream.borrow_mut().take() {
            let mut answer = Response::new(body);
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            return reply(answer);
        }
        let stall = self.stall.borrow().clone();
        Box::pin(async move {
            if let Some(stall) = stall {
                stall.cancelled().await;
            }
            let mut answer = json_answer("");
            *answer.body_mut() = Body::Whole(seen.body);
            Some(answer)
        })
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
            let mut answer = json_answer(RESULT);
            answer.headers_mut().insert(SESSION_ID, HeaderValue::from_str(&id).expect("an id"));
            Some(answer)
        })
    }
}

fn json_answer(body: &'static str) -> Response<Body> {
    let mut answer = status(200, body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// An address without a listener.
async fn nowhere() -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    format!("http://{address}/mcp").parse().expect("an address")
}
