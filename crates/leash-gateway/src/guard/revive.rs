//! `revive`: leash opens a session that the server has lost anew, on the client's behalf. The client notices nothing.
//!
//! `leash connect` decides by the same rules whether a session is lost ([`leash_upstream::lost`]), but opens it in
//! another way. Here the requests of one client wait for a new id and are then sent again by their own tasks. There one
//! machine also keeps the order of the host's messages, and opens the stream of the server and HTTP+SSE again.

use std::cell::{Cell, RefCell};
use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, body::Incoming};
use tokio::sync::Notify;

use super::forward;
use super::holding::{self, UpstreamHolding};
use super::opening::{InitializeReader, InitializeResponse};
use crate::{notified::wait_until, state::gateway::Gateway, state::session::ClientSession};
use leash_model::{limits, receipt::Reason};
use leash_protocol::headers;
use leash_upstream::{client::UpstreamError, lost::Lost};

/// The messages that open a session anew, and the state of the revival.
pub(super) struct Revival {
    /// The client's own `initialize`.
    initialize: Bytes,
    /// The client's `notifications/initialized`, once it was sent.
    initialized: RefCell<Option<Bytes>>,
    under_way: Cell<bool>,
    done: Notify,
    /// The id for which a revival failed.
    failed_id: RefCell<Option<Rc<str>>>,
}

impl Revival {
    pub(super) fn new(initialize: Bytes) -> Revival {
        Revival {
            initialize,
            initialized: RefCell::default(),
            under_way: Cell::new(false),
            done: Notify::new(),
            failed_id: RefCell::default(),
        }
    }

    /// Keeps the client's `notifications/initialized`.
    pub(super) fn initialized(&self, body: Bytes) {
        *self.initialized.borrow_mut() = Some(body);
    }

    /// Returns both messages as text. `None` if one of them is not UTF-8.
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

/// Waits until no revival is under way.
pub(super) async fn settled(upstream: &UpstreamHolding) {
    if let Some(revival) = upstream.revival() {
        wait_until(&revival.done, || !revival.under_way.get()).await;
    }
}

/// Replaces the id that the server has lost. Callers at the same time share one revival. Returns true if the session
/// has a new id. `how` says whether the lost session may still exist.
pub(super) async fn revive(gateway: &Rc<Gateway>, session: &Rc<ClientSession>, lost: &Rc<str>, how: Lost) -> bool {
    let Some(upstream) = holding::of(session) else { return false };
    let Some(revival) = upstream.revival() else { return false };
    settled(upstream).await;
    if upstream.id() == *lost && session.usable() && revival.failed_id.borrow().as_ref() != Some(lost) {
        revival.under_way.set(true);
        let (session, occupied) = (Rc::clone(session), session.server.occupy());
        let run = run(Rc::clone(gateway), Rc::clone(&session), (Rc::clone(lost), how));
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

/// Performs the revival. It goes on when the requests that wait for it are dropped.
async fn run(gateway: Rc<Gateway>, session: Rc<ClientSession>, (lost, how): (Rc<str>, Lost)) {
    let Some((upstream, revival)) = holding::of(&session).and_then(|held| Some((held, held.revival()?))) else {
        return;
    };
    let patience = session.server.settings().policy.init_timeout;
    let mut opening = Box::pin(post(&gateway, &session, revival.initialize.clone(), None));
    let in_time = tokio::time::timeout(patience, opening.as_mut()).await;
    let done = match in_time {
        Ok(Ok(answer)) => {
            let doubtful = (how == Lost::Doubtful).then_some(&*lost);
            reopened(&gateway, (&session, upstream), answer, (patience, doubtful)).await
        }
        Ok(Err(_)) => false,
        Err(_) => {
            // The waiting requests get their response now. If the server opens a session later, leash closes it.
            give_up(revival, &lost);
            let late = async { tokio::time::timeout(limits::LATE_ANSWER, opening).await.ok()?.ok() };
            if let Some(Some(answer)) = gateway.client.deadline.before(late).await {
                refuse(&gateway, &session, &answer);
            }
            return;
        }
    };
    if done { revival.over() } else { give_up(revival, &lost) }
}

fn give_up(revival: &Revival, lost: &Rc<str>) {
    *revival.failed_id.borrow_mut() = Some(Rc::clone(lost));
    revival.over();
}

/// Handles the response to `initialize`: a new session takes the place of the lost one. leash deletes the `doubtful`
/// id.
async fn reopened(
    gateway: &Rc<Gateway>,
    (session, upstream): (&Rc<ClientSession>, &UpstreamHolding),
    answer: Response<Incoming>,
    (patience, doubtful): (Duration, Option<&str>),
) -> bool {
    let Some(id) = headers::opened_session(answer.headers()).map(str::to_owned) else { return false };
    if !session.usable() || !answer.status().is_success() {
        refuse(gateway, session, &answer);
        return false;
    }
    // The old id gets a ledger entry of its own before the session's entry names the new id.
    if let Some(lost) = doubtful {
        upstream.sibling(lost).refuse(gateway, &session.server, Reason::UpstreamForgot);
    }
    // From here on, ending the session deletes the new id.
    upstream.renamed(gateway, session, &id);
    let response = tokio::time::timeout(patience, read_response(answer)).await;
    let Ok(InitializeResponse::Agreed(version)) = response else { return false };
    if let Some(version) = version {
        upstream.agreed(gateway, session, &version);
    }
    let initialized = upstream.revival().and_then(|revival| revival.initialized.borrow().clone());
    if let Some(initialized) = initialized {
        // If the server rejects this, the request that follows fails too.
        let _ = tokio::time::timeout(patience, post(gateway, session, initialized, Some(&id))).await;
    }
    true
}

/// Ends a session that the server opened too late or with an error status.
fn refuse(gateway: &Rc<Gateway>, session: &ClientSession, answer: &Response<Incoming>) {
    if let (Some(upstream), Some(id)) = (holding::of(session), headers::opened_session(answer.headers())) {
        upstream.sibling(id).refuse(gateway, &session.server, Reason::NotInitialized);
    }
}

/// Sends one of the client's messages again, or a message on its behalf.
pub(super) async fn post(
    gateway: &Gateway,
    session: &ClientSession,
    body: Bytes,
    id: Option<&str>,
) -> Result<Response<Incoming>, UpstreamError> {
    let settings = session.server.settings();
    let own = holding::of(session).and_then(UpstreamHolding::endpoint);
    let url = own.unwrap_or(&forward::target(&settings).url).clone();
    let (mut headers, version) = match holding::of(session) {
        Some(upstream) => (upstream.headers(&session.server), upstream.version().filter(|_| id.is_some())),
        None => Default::default(),
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, headers::ACCEPT_BOTH);
    headers::set_session(&mut headers, id, version.as_deref());
    let request = |uri| {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers.clone();
        request
    };
    gateway.client.send_to(url, request).await
}

/// Reads the response to leash's own `initialize`. The client does not get it.
async fn read_response(answer: Response<Incoming>) -> InitializeResponse {
    let mut reader = InitializeReader::new(answer.headers());
    let mut body = answer.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(response) = frame.data_ref().and_then(|bytes| reader.push(bytes)) {
            return response;
        }
    }
    reader.finish()
}
