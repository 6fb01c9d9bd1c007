//! The page: what `leash top` shows, in a browser of the gateway's user on this machine.
//!
//! `rules` decides from the head of a request, `access` knows the one-time links and the cookies, `streams` sends the
//! rows to all tabs, and this file answers. The page is three files in the program; it needs nothing from elsewhere.

mod access;
mod rules;
mod source;
mod streams;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, StatusCode};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use self::access::{PageAccess, cookie, cookie_name};
use self::rules::RequestKind;
use self::streams::LiveStreams;
use crate::connection::PeerUser;
use crate::respond::{self, Answer};
use leash_model::clock::Moment;
use leash_model::feed::{FeedRow, RowKind, RowRemedy};
use leash_model::{id, limits};
use leash_protocol::headers;
use leash_tree::blocking;
use leash_upstream::body::Body;
pub use source::{PageEnd, PageReceipt, PageSource, PageTarget};

/// The directory of the page. No server can be called `-`, and the cookie is sent to no other path.
const DOCUMENT: &str = "/-/";

/// The path of one-time links.
const OPEN: &str = "/-/open";

/// Nothing but the files of the page itself; no frame, no form, no script in the document.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Sent with every response of the page, refusals included.
const SECURITY: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The files of the page, with their types.
const FILES: [(&str, &str, &str); 3] = [
    (DOCUMENT, "text/html; charset=utf-8", include_str!("assets/index.html")),
    ("/-/page.js", "text/javascript; charset=utf-8", include_str!("assets/page.js")),
    ("/-/page.css", "text/css; charset=utf-8", include_str!("assets/page.css")),
];

/// True if a path belongs to the page.
pub(crate) fn is_path(path: &str) -> bool {
    path == "/" || path.starts_with(DOCUMENT) || path == "/-"
}

/// The page of a gateway.
pub(crate) struct Page {
    source: Arc<dyn PageSource>,
    access: RefCell<PageAccess>,
    streams: Rc<LiveStreams>,
    /// Requests that read /proc or end something now.
    working: Cell<usize>,
    tasks: TaskTracker,
}

/// The listener that accepted a request, and what it knows about the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageCaller {
    /// A connection to this address. The page asks for its cookie.
    Tcp { bound: SocketAddr, peer: PeerUser },
    /// The control API has admitted the caller, which is a program: it may read, and ends sessions with `/v1`.
    Admitted,
}

/// A request to end something.
#[derive(Deserialize)]
struct EndRequest {
    /// The key of its row.
    key: String,
}

/// The answer about a row.
#[derive(Serialize)]
struct WhyView {
    lines: Vec<String>,
}

impl Page {
    pub(crate) fn new(source: Arc<dyn PageSource>, tasks: TaskTracker) -> Rc<Page> {
        let (access, streams, working) = (RefCell::default(), Rc::default(), Cell::new(0));
        Rc::new(Page { source, access, streams, working, tasks })
    }

    /// A new one-time link to the page at this address.
    pub(crate) fn link(&self, reached_at: SocketAddr) -> String {
        let secret = secret();
        let link = format!("http://{reached_at}{OPEN}?{secret}");
        self.access.borrow_mut().add_link(secret, Moment::on_runtime());
        link
    }

    /// Ends all event streams.
    pub(crate) fn close(&self) {
        self.streams.close();
    }

    /// Answers a request of the page.
    pub(crate) async fn answer(&self, caller: PageCaller, request: Request<Incoming>) -> Answer {
        let mut answer = match self.served(caller, request).await {
            Ok(answer) | Err(answer) => answer,
        };
        for (name, value) in SECURITY {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn served(&self, caller: PageCaller, request: Request<Incoming>) -> Result<Answer, Answer> {
        let (head, body) = request.into_parts();
        let kind = RequestKind::of(&head.method, head.uri.path());
        if let PageCaller::Tcp { bound, peer } = caller {
            let own = rustix::process::geteuid().as_raw();
            rules::check(bound, (peer, own), kind, &head.uri, &head.headers)
                .map_err(|refusal| respond::text(StatusCode::FORBIDDEN, refusal.text()))?;
            match (head.uri.path(), kind) {
                (OPEN, RequestKind::Opening) => return Ok(self.open(bound, head.uri.query().unwrap_or_default())),
                ("/" | "/-", RequestKind::Opening) => return Ok(redirect()),
                _ => self.check_cookie(bound, &head.headers)?,
            }
        }
        match (&head.method, head.uri.path()) {
            (&Method::GET, "/-/events") => self.listen(),
            (&Method::GET, "/-/history") => {
                let source = Arc::clone(&self.source);
                let receipts = self.work(move || source.history(limits::PAGE_RECEIPTS)).await?;
                Ok(json(StatusCode::OK, &receipts))
            }
            (&Method::GET, "/-/why") => self.explain(head.uri.query().unwrap_or_default()).await,
            (&Method::POST, "/-/end") if matches!(caller, PageCaller::Tcp { .. }) => {
                self.end(&head.headers, body).await
            }
            (&Method::POST, "/-/end") => {
                Err(respond::text(StatusCode::FORBIDDEN, "Forbidden: use DELETE /v1/sessions/ID here\n"))
            }
            (_, "/-/end") => Err(not_allowed("POST")),
            // Without an answer here, browsers ask the servers' paths for an icon.
            (&Method::GET, "/-/icon") => Ok(respond::empty(StatusCode::NO_CONTENT)),
            (&Method::GET | &Method::HEAD, path) => file(if path == "/" || path == "/-" { DOCUMENT } else { path }),
            _ => Err(not_allowed("GET, HEAD")),
        }
    }

    /// Exchanges a one-time link for the cookie.
    fn open(&self, bound: SocketAddr, given: &str) -> Answer {
        let secret = secret();
        if !self.access.borrow_mut().exchange(given, secret.clone(), Moment::on_runtime()) {
            let text = "This link was used before, or it is too old.\n\nA new one: leash status --open\n";
            return respond::text(StatusCode::FORBIDDEN, text);
        }
        let name = cookie_name(bound.port());
        let cookie = format!("{name}={secret}; Path={DOCUMENT}; HttpOnly; SameSite=Strict");
        let mut answer = redirect();
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            answer.headers_mut().insert(SET_COOKIE, cookie);
        }
        answer
    }

    fn check_cookie(&self, bound: SocketAddr, headers: &HeaderMap) -> Result<(), Answer> {
        let given = cookie(headers, &cookie_name(bound.port()));
        if given.is_some_and(|given| self.access.borrow_mut().admit(given, Moment::on_runtime())) {
            return Ok(());
        }
        let text = "This page needs a one-time link: leash status --open\n\n\
                    If you have just opened one from another page, reload this page.\n";
        Err(respond::text(StatusCode::UNAUTHORIZED, text))
    }

    fn listen(&self) -> Result<Answer, Answer> {
        let body = self.streams.listen().ok_or_else(|| busy("too many tabs show this page"))?;
        self.streams.watch(&self.source, &self.tasks);
        let mut answer = respond::empty(StatusCode::OK);
        *answer.body_mut() = Body::stream(body);
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        Ok(answer)
    }

    /// The answer of `leash why` about the topmost process of a row. The query is the row's key.
    async fn explain(&self, key: &str) -> Result<Answer, Answer> {
        let row = self.row(key)?;
        let root = row.root.map(|root| root.pid).or_else(|| row.processes.first().map(|process| process.pid));
        let source = Arc::clone(&self.source);
        let lines = match root {
            Some(pid) => self.work(move || source.explain(pid)).await?,
            None => Vec::new(),
        };
        Ok(json(StatusCode::OK, &WhyView { lines }))
    }

    /// Ends the session, the run or the orphan of a row, and answers with the receipts.
    async fn end(&self, head: &HeaderMap, body: Incoming) -> Result<Answer, Answer> {
        if !headers::is_json(head) {
            return Err(respond::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the Content-Type is not JSON\n"));
        }
        let read = tokio::time::timeout(limits::BODY_READ, Limited::new(body, limits::PAGE_BODY).collect()).await;
        let body: Bytes = read.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        let Ok(EndRequest { key }) = serde_json::from_slice(&body) else {
            return Err(respond::text(StatusCode::BAD_REQUEST, "the body must be {\"key\": \"KEY OF A ROW\"}\n"));
        };
        let target = target(self.row(&key)?).ok_or_else(|| {
            respond::text(StatusCode::CONFLICT, "it is in use by another program, or its gateway ends it\n")
        })?;
        let source = Arc::clone(&self.source);
        match self.work(move || source.end(target)).await? {
            Ok(end) => Ok(json(StatusCode::OK, &end)),
            Err(problem) => Err(respond::text(StatusCode::CONFLICT, problem)),
        }
    }

    fn row(&self, key: &str) -> Result<FeedRow, Answer> {
        self.streams.row(key).ok_or_else(|| respond::text(StatusCode::NOT_FOUND, "it has ended\n"))
    }

    /// Runs blocking work on another thread.
    async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Answer> {
        if self.working.get() >= limits::PAGE_WORK {
            return Err(busy("too many requests of this page are under way"));
        }
        // A counter that is given back also when the browser leaves.
        let _working = Working::begin(&self.working);
        let done = blocking::attempt(work).ok_or_else(|| busy("no thread can be started"))?;
        done.await.map_err(|_| respond::text(StatusCode::INTERNAL_SERVER_ERROR, "it failed\n"))
    }
}

/// Counts one piece of work until it is dropped.
struct Working<'p>(&'p Cell<usize>);

impl Working<'_> {
    fn begin(counter: &Cell<usize>) -> Working<'_> {
        counter.set(counter.get() + 1);
        Working(counter)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The thing that an end of this row ends; `None` if leash does not end it.
fn target(row: FeedRow) -> Option<PageTarget> {
    match (row.remedy, row.kind) {
        (RowRemedy::Reap, _) => row.root.map(PageTarget::Orphan),
        (RowRemedy::End, RowKind::Session) => row.session.map(PageTarget::Session),
        (RowRemedy::End, _) => row.run.map(PageTarget::Run),
        (RowRemedy::None, _) => None,
    }
}

/// 256 random bits.
fn secret() -> String {
    id::random() + &id::random()
}

fn file(path: &str) -> Result<Answer, Answer> {
    let (_, kind, text) = FILES
        .into_iter()
        .find(|(known, ..)| *known == path)
        .ok_or_else(|| respond::text(StatusCode::NOT_FOUND, "there is nothing here\n"))?;
    let mut answer = respond::text(StatusCode::OK, text);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(answer)
}

fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    // All answers consist of text, numbers and lists, so this cannot fail.
    respond::json(status, serde_json::to_vec(value).unwrap_or_default())
}

fn redirect() -> Answer {
    let mut answer = respond::empty(StatusCode::SEE_OTHER);
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static(DOCUMENT));
    answer
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = respond::text(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed\n");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn busy(why: &str) -> Answer {
    respond::text(StatusCode::SERVICE_UNAVAILABLE, format!("Service Unavailable: {why}\n"))
}
