//! `revive`: a session that the server has lost is opened anew on the client's behalf, which goes on as if nothing had been.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Notify;

use super::forward;
use super::holding;
use super::holding::Upstream;
use super::opening::{Reader, Word};
use crate::gateway::Gateway;
use crate::session::Session;
use leash_model::limits;
use leash_model::receipt::Reason;
use leash_protocol::headers::{PROTOCOL_VERSION, SESSION_ID};
use leash_upstream::client::UpstreamError;

/// What is needed to open a session anew.
pub(super) struct Revival {
    /// The client's own `initialize`.
    initialize: Bytes,
    /// Its `notifications/initialized`, once it was sent.
    initialized: RefCell<Option<Bytes>>,
    under_way: Cell<bool>,
    done: Notify,
    /// The id that could not be replaced.
    hopeless: RefCell<Option<Rc<str>>>,
}

impl Revival {
    pub(super) fn new(initialize: Bytes) -> Revival {
        Revival {
            initialize,
            initialized: RefCell::default(),
            under_way: Cell::new(false),
            done: Notify::new(),
            hopeless: RefCell::default(),
        }
    }

    /// The client has the handshake behind it.
    pub(super) fn initialized(&self, body: Bytes) {
        *self.initialized.borrow_mut() = Some(body);
    }

    /// What it keeps, as text.
    pub(super) fn texts(&self) -> Option<(String, Option<String>)> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).ok();
        let initialized = match &*self.initialized.borrow() {
            Some(body) => Some(text(body)?),
            None => None,
        };
        Some((text(&self.initialize)?, initialized))
    }

    fn over(&self) {
        self.under_way.set(false);
        self.done.notify_waiters();
    }
}

/// Waits for a revival that is under way.
pub(super) async fn settled(upstream: &Upstream) {
    let Some(revival) = upstream.revival() else { return };
    loop {
        let done = revival.done.notified();
        if !revival.under_way.get() {
            return;
        }
        done.await;
    }
}

/// Sees to it that a session has another id than the one that the server has lost. All who ask at once get the same one.
/// `said` is the status by which the server showed that it has lost it.
pub(super) async fn revive(gateway: &Rc<Gateway>, session: &Rc<Session>, lost: &Rc<str>, said: StatusCode) -> bool {
    let Some(upstream) = holding::of(session) else { return false };
    let Some(revival) = upstream.revival() else { return false };
    settled(upstream).await;
    if upstream.id() == *lost && session.usable() && revival.hopeless.borrow().as_ref() != Some(lost) {
        revival.under_way.set(true);
        let (session, occupied) = (Rc::clone(session), session.server.occupy());
        let run = run(Rc::clone(gateway), Rc::clone(&session), (Rc::clone(lost), said));
        session.clone().spawn(async move {
            tokio::select! {
                () = run => {}
                () = session.server.too_late() => {}
            }
            drop(occupied);
        });
        settled(upstream).await;
    }
    upstream.id() != *lost && session.usable()
}

/// The revival itself; it goes on when those who wait for it leave.
async fn run(gateway: Rc<Gateway>, session: Rc<Session>, (lost, said): (Rc<str>, StatusCode)) {
    let Some((upstream, revival)) = holding::of(&session).and_then(|held| Some((held, held.revival()?))) else {
        return;
    };
    let patience = session.server.settings().policy.init_timeout;
    let mut opening = Box::pin(post(&gateway, &session, revival.initialize.clone(), None));
    let in_time = tokio::time::timeout(patience, opening.as_mut()).await;
    let done = match in_time {
        Ok(Ok(answer)) => {
            // 404 is the protocol's word for a session that is over. Any other answer may come from one that is still there.
            let doubtful = (said != StatusCode::NOT_FOUND).then_some(&*lost);
            reopened(&gateway, (&session, upstream), answer, (patience, doubtful)).await
        }
        Ok(Err(_)) => false,
        Err(_) => {
            // Those who wait are told; what the server may still open is waited for, and closed.
            give_up(revival, &lost);
            let late = async { tokio::time::timeout(limits::LATE_ANSWER, opening).await.ok()?.ok() };
            if let Some(Some(answer)) = gateway.client.hurry.before(late).await {
                refuse(&gateway, &session, &answer);
            }
            return;
        }
    };
    if done { revival.over() } else { give_up(revival, &lost) }
}

fn give_up(revival: &Revival, lost: &Rc<str>) {
    *revival.hopeless.borrow_mut() = Some(Rc::clone(lost));
    revival.over();
}

/// The server answered `initialize`: the new session takes the place of the lost one, if it is one. A `doubtful` id is deleted.
async fn reopened(
    gateway: &Rc<Gateway>,
    (session, upstream): (&Rc<Session>, &Upstream),
    answer: Response<Incoming>,
    (patience, doubtful): (Duration, Option<&str>),
) -> bool {
    let Some(id) = forward::session_id(&answer) else { return false };
    if !session.usable() || !answer.status().is_success() {
        refuse(gateway, session, &answer);
        return false;
    }
    // In the book by itself before the session's own entry names the new one.
    if let Some(lost) = doubtful {
        upstream.sibling(lost).refuse(gateway, &session.server, Reason::UpstreamForgot);
    }
    // From here on the end of the session is the end of the new one.
    upstream.renamed(gateway, session, &id);
    let word = tokio::time::timeout(patience, hear(answer)).await;
    let Ok(Word::Agreed(version)) = word else { return false };
    if let Some(version) = version {
        upstream.agreed(gateway, session, &version);
    }
    let initialized = upstream.revival().and_then(|revival| revival.initialized.borrow().clone());
    if let Some(initialized) = initialized {
        // If it is not accepted, the request that follows will show it.
        let _ = tokio::time::timeout(patience, post(gateway, session, initialized, Some(&id))).await;
    }
    true
}

/// A session that the server opened for nothing is ended at once.
fn refuse(gateway: &Rc<Gateway>, session: &Session, answer: &Response<Incoming>) {
    if let (Some(upstream), Some(id)) = (holding::of(session), forward::session_id(answer)) {
        upstream.sibling(&id).refuse(gateway, &session.server, Reason::NotInitialized);
    }
}

/// Sends a message of the client's once more, or one in its name.
pub(super) async fn post(
    gateway: &Gateway,
    session: &Session,
    body: Bytes,
    id: Option<&str>,
) -> Result<Response<Incoming>, UpstreamError> {
    let settings = session.server.settings();
    let own = holding::of(session).and_then(Upstream::endpoint);
    let url = own.unwrap_or(&forward::target(&settings).url).clone();
    let (mut headers, version) = match holding::of(session) {
        Some(upstream) => (upstream.headers(&session.server), upstream.version().filter(|_| id.is_some())),
        None => Default::default(),
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    for (name, value) in [(SESSION_ID, id), (PROTOCOL_VERSION, version.as_deref())] {
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
    let request = |uri| {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers.clone();
        request
    };
    gateway.client.send_to(url, request).await
}

/// Reads the answer to `initialize`; nobody else sees it.
async fn hear(answer: Response<Incoming>) -> Word {
    let mut reader = Reader::new(answer.headers());
    let mut body = answer.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(word) = frame.data_ref().and_then(|bytes| reader.push(bytes)) {
            return word;
        }
    }
    reader.finish()
}
