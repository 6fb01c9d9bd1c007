//! The state that leash keeps for a session at an upstream server, from the first sight of its id to the response to
//! its DELETE.

use std::cell::{Cell, OnceCell, RefCell};
use std::{rc::Rc, time::Duration};

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode, Uri};
use tokio_util::sync::CancellationToken;

use super::{forward, revive::Revival, unanswered::Unanswered};
use crate::state::backend::{Release, SessionHolding};
use crate::state::session::{ClientSession, SessionStart};
use crate::state::{gateway::Gateway, known_client::KnownClient, server::Server};
use crate::{budget::BudgetClient, call::Call, config::ServerTarget, keep_alive::Pings, metrics::add};
use leash_model::client::GatewayClient;
use leash_model::clock::{self, Moment};
use leash_model::receipt::{DeleteHow, EndedBy, Fate, Holding as End, Reason, Receipt};
use leash_model::{client_session::SessionLife, id, limits};
use leash_protocol::headers;
use leash_tree::{ledger::book::Entry, ledger::receipts};
use leash_upstream::address::HttpTransport;
use leash_upstream::delete::{self, DeleteResult, DeleteTarget};
use leash_upstream::keeper::{Headers, HeldSession, ResumeFacts};

/// A session at an upstream server.
pub(crate) struct UpstreamHolding {
    url: Uri,
    kind: HoldingTransport,
    version: RefCell<Option<Box<str>>>,
    credentials: RefCell<Credentials>,
    pub(super) pings: Pings,
    /// Cancelled when the session is over, which cuts its open streams off. Created when the first stream begins.
    gone: OnceCell<CancellationToken>,
}

/// The two transports, which end a session in different ways.
enum HoldingTransport {
    /// Ended by a DELETE of this id. A revival changes the id.
    Streamable {
        id: RefCell<Rc<str>>,
        /// The status by which the upstream said that it no longer knows the session.
        forgotten: Cell<Option<StatusCode>>,
        revival: Option<Box<Revival>>,
    },
    /// Ended by closing its connection. Until then, messages go to this address.
    Sse { endpoint: Uri, unanswered: Option<Unanswered> },
}

/// The parts of an upstream session that come from the server's response and from the policy.
pub(super) struct UpstreamParts<'a> {
    pub(super) id: &'a str,
    pub(super) version: Option<&'a str>,
    pub(super) revival: Option<Revival>,
}

/// Returns the upstream session that a session holds.
pub(super) fn of(session: &ClientSession) -> Option<&UpstreamHolding> {
    session.holding_as()
}

impl SessionHolding for UpstreamHolding {
    fn release<'a>(&'a self, gateway: &'a Rc<Gateway>, session: &'a ClientSession, reason: Reason) -> Release<'a> {
        Box::pin(async move { Some(self.end(gateway, session, reason).await) })
    }

    /// `None` if the session needs no DELETE.
    fn held_session(&self, session: &ClientSession) -> Option<HeldSession> {
        if !matches!(self.kind, HoldingTransport::Streamable { .. }) {
            return None;
        }
        let delete_target = self.delete_target(&session.server, &self.entry(session));
        let resume_facts = session.resume_facts().and_then(|resume_facts| self.resume_facts(resume_facts));
        Some(HeldSession::of(&session.server.name, session.started_ms, &delete_target).resumable(resume_facts))
    }
}

/// Resumes a session of a killed gateway if its server is still configured the same way. The client notices nothing.
pub(crate) fn resume(gateway: &Rc<Gateway>, entry: &Entry, held: &HeldSession) -> bool {
    let Some(resume_facts) = &held.resume_facts else { return false };
    let Some(server) = gateway.server(held.server()) else { return false };
    let (Some(url), Some(headers)) = (held.url(), resume_facts.credentials.read()) else { return false };
    let same = matches!(&server.settings().target,
        ServerTarget::Url(target) if target.url == url && target.transport == HttpTransport::Streamable);
    // The server may have given the same id to two sessions. Then nothing else tells their clients apart.
    if !same || server.session(&resume_facts.token).is_some() {
        return false;
    }
    let principal = gateway.principals.of(&headers, resume_facts.uid);
    let born = Moment::from_boot(Duration::from_millis(resume_facts.born_ms));
    let start = SessionStart {
        id: (&*entry.session).into(),
        token: (&*resume_facts.token).into(),
        principal,
        client: BudgetClient::at(resume_facts.origin, principal),
        known_client: KnownClient::resumed(resume_facts.client.clone()),
        started_ms: entry.started_ms,
        life: SessionLife::resume(born, Moment::on_runtime()),
    };
    let Some(session) = ClientSession::resume(gateway, &server, start) else { return false };
    let revival = resume_facts.revival.clone().map(|(initialize, initialized)| {
        let revival = Revival::new(initialize.into());
        initialized.into_iter().for_each(|body| revival.initialized(body.into()));
        revival
    });
    let parts = UpstreamParts { id: &entry.id, version: entry.version.as_deref(), revival };
    let upstream = UpstreamHolding::streamable(&server, &headers, parts);
    session.hold(upstream);
    session.known_client.list(&gateway.book, &session.id);
    gateway.keeper_link.hold(&session);
    session.resume_owners(resume_facts);
    true
}

impl HoldingTransport {
    fn streamable(id: &str, revival: Option<Revival>) -> HoldingTransport {
        let id = RefCell::new(id.into());
        HoldingTransport::Streamable { id, forgotten: Cell::new(None), revival: revival.map(Box::new) }
    }
}

impl UpstreamHolding {
    pub(super) fn streamable(server: &Server, headers: &HeaderMap, parts: UpstreamParts<'_>) -> UpstreamHolding {
        let kind = HoldingTransport::streamable(parts.id, parts.revival);
        UpstreamHolding::new(server, headers, kind, parts.version)
    }

    pub(super) fn sse(server: &Rc<Server>, call: &Call, endpoint: Uri) -> UpstreamHolding {
        let kind = HoldingTransport::Sse { endpoint, unanswered: Unanswered::of(server) };
        UpstreamHolding::new(server, &call.headers, kind, None)
    }

    /// The address for messages, if it is not the server's URL.
    pub(super) fn endpoint(&self) -> Option<&Uri> {
        match &self.kind {
            HoldingTransport::Sse { endpoint, .. } => Some(endpoint),
            HoldingTransport::Streamable { .. } => None,
        }
    }

    /// The unanswered requests, if leash looks for their responses on the session's stream.
    pub(super) fn unanswered(&self) -> Option<&Unanswered> {
        match &self.kind {
            HoldingTransport::Sse { unanswered, .. } => unanswered.as_ref(),
            HoldingTransport::Streamable { .. } => None,
        }
    }

    fn new(server: &Server, headers: &HeaderMap, kind: HoldingTransport, version: Option<&str>) -> UpstreamHolding {
        UpstreamHolding {
            url: forward::target(&server.settings()).url.clone(),
            kind,
            version: RefCell::new(version.map(Into::into)),
            credentials: RefCell::new(Credentials::of(headers)),
            pings: Pings::default(),
            gone: OnceCell::new(),
        }
    }

    /// Creates another upstream session at the same server for the same client.
    pub(super) fn sibling(&self, id: &str) -> UpstreamHolding {
        UpstreamHolding {
            url: self.url.clone(),
            kind: HoldingTransport::streamable(id, None),
            version: self.version.clone(),
            credentials: self.credentials.clone(),
            pings: Pings::default(),
            gone: OnceCell::new(),
        }
    }

    /// The session's current id at the server. Empty if it has none.
    pub(super) fn id(&self) -> Rc<str> {
        match &self.kind {
            HoldingTransport::Streamable { id, .. } => Rc::clone(&id.borrow()),
            HoldingTransport::Sse { .. } => "".into(),
        }
    }

    /// The server's URL for display, and the session's id there.
    pub(super) fn shown(&self) -> (String, String) {
        (delete::shown(&self.url), self.id().to_string())
    }

    /// The messages that open the session anew, if the policy allows it.
    pub(super) fn revival(&self) -> Option<&Revival> {
        match &self.kind {
            HoldingTransport::Streamable { revival, .. } => revival.as_deref(),
            HoldingTransport::Sse { .. } => None,
        }
    }

    /// The agreed protocol version.
    pub(super) fn version(&self) -> Option<Box<str>> {
        self.version.borrow().clone()
    }

    /// Keeps a request's credentials for the DELETE. They may be newer than those with which the client began.
    pub(super) fn remember(&self, gateway: &Gateway, session: &ClientSession, call: &Call) {
        if !self.credentials.borrow().are_of(&call.headers) {
            *self.credentials.borrow_mut() = Credentials::of(&call.headers);
            gateway.keeper_link.changed(session);
        }
    }

    /// The client's credentials together with the configured headers.
    pub(super) fn headers(&self, server: &Server) -> HeaderMap {
        let mut headers: HeaderMap = self.credentials.borrow().0.iter().cloned().collect();
        forward::configure(&mut headers, &server.settings());
        headers
    }

    /// Records the protocol version on which the server agreed.
    pub(super) fn agreed(&self, gateway: &Gateway, session: &ClientSession, version: &str) {
        if self.version.borrow().as_deref() != Some(version) {
            *self.version.borrow_mut() = Some(version.into());
            note(gateway, gateway.book.change(&self.entry(session)));
            gateway.keeper_link.changed(session);
        }
    }

    /// Records the session's new id at the server.
    pub(super) fn renamed(&self, gateway: &Gateway, session: &ClientSession, new: &str) {
        if let HoldingTransport::Streamable { id, .. } = &self.kind {
            *id.borrow_mut() = new.into();
            note(gateway, gateway.book.change(&self.entry(session)));
            gateway.keeper_link.changed(session);
        }
    }

    /// Records that the server no longer knows the session, so no DELETE is needed.
    pub(super) fn forgotten(&self, status: StatusCode) {
        if let HoldingTransport::Streamable { forgotten, .. } = &self.kind {
            forgotten.set(Some(status));
        }
    }

    /// The token that is cancelled when the session is over.
    pub(super) fn gone(&self) -> CancellationToken {
        self.gone.get_or_init(CancellationToken::new).clone()
    }

    /// The session's entry in the ledger.
    pub(super) fn entry(&self, session: &ClientSession) -> Entry {
        self.entry_as(&session.id, &session.server, session.started_ms)
    }

    fn entry_as(&self, session: &str, server: &Server, started_ms: u64) -> Entry {
        Entry {
            session: session.to_owned(),
            server: server.name.to_string(),
            url: delete::shown(&self.url),
            id: self.id().to_string(),
            version: self.version().map(Into::into),
            shown: None,
            started_ms,
        }
    }

    /// Ends the session. Returns when the DELETE has a final result, good or bad.
    async fn end(&self, gateway: &Rc<Gateway>, session: &ClientSession, reason: Reason) -> Receipt {
        // Clients that wait for a response get one now, however long the DELETE takes.
        self.gone().cancel();
        let client = Some(session.known_client.get());
        self.close(gateway, &session.server, (self.entry(session), client), reason).await
    }

    /// Ends an upstream session that belongs to no client session.
    pub(super) fn refuse(self, gateway: &Rc<Gateway>, server: &Rc<Server>, reason: Reason) {
        let id = server.job.as_ref().map_or_else(id::random, |job| job.next_session());
        let entry = self.entry_as(&id, server, clock::unix_ms());
        note(gateway, gateway.book.open(&entry));
        gateway.keeper_link.prepare(gateway);
        let held = HeldSession::of(&server.name, entry.started_ms, &self.delete_target(server, &entry));
        gateway.keeper_link.hold_refused(&id, held);
        let (gateway, server, occupied) = (Rc::clone(gateway), Rc::clone(server), server.occupy());
        gateway.clone().tasks.spawn_local(async move {
            self.close(&gateway, &server, (entry, None), reason).await;
            drop(occupied);
        });
    }

    /// Returns the facts with which another gateway can resume the session. `None` if the server has lost the session
    /// or if the facts cannot be written as JSON.
    fn resume_facts(&self, resume_facts: ResumeFacts) -> Option<ResumeFacts> {
        if let HoldingTransport::Streamable { forgotten, .. } = &self.kind
            && forgotten.get().is_some()
        {
            return None;
        }
        let revival = match self.revival() {
            Some(revival) => Some(revival.texts()?),
            None => None,
        };
        let credentials = self.credentials.borrow();
        let credentials = Headers::of(credentials.0.iter().map(|(name, value)| (name, value)));
        Some(ResumeFacts { revival, credentials, ..resume_facts })
    }

    /// Returns everything that the session's DELETE needs.
    fn delete_target(&self, server: &Server, entry: &Entry) -> DeleteTarget {
        let (version, headers) = (entry.version.clone(), self.headers(server));
        DeleteTarget { url: self.url.clone(), session_id: entry.id.clone(), version, headers }
    }

    async fn close(
        &self,
        gateway: &Gateway,
        server: &Server,
        (entry, client): (Entry, Option<GatewayClient>),
        reason: Reason,
    ) -> Receipt {
        let began = Moment::on_runtime();
        let deleted = match &self.kind {
            HoldingTransport::Sse { .. } => DeleteResult::closed(),
            HoldingTransport::Streamable { forgotten, .. } => match forgotten.get() {
                Some(status) => DeleteResult::forgotten(status),
                None => send_delete(gateway, server, &self.delete_target(server, &entry)).await,
            },
        };
        let end = deleted.receipt(&self.url, &entry.id);
        let receipt = entry.receipt(reason, EndedBy::Gateway, Moment::on_runtime() - began, end);
        let receipt = Receipt { client, ..receipt };
        // A gateway that must stop before the server responds leaves the session to its keeper, which writes the
        // receipt.
        let is_kept = deleted.cut_short && gateway.draining.get() && gateway.keeper_link.is_told_of(&entry.session);
        let is_told = is_kept || write(gateway, &receipt);
        // A session without a final result stays in the ledger, for the keeper or the next start. The ledger comes
        // last: a gateway killed in between has already written the receipt.
        if matches!(self.kind, HoldingTransport::Streamable { .. }) && !deleted.cut_short && is_told {
            note(gateway, gateway.book.over(&entry.session));
            gateway.keeper_link.over(&entry.session);
        }
        server.ended(&receipt);
        receipt
    }
}

/// Records that the server did not respond to `initialize`: leash cannot know if it opened a session.
pub(super) fn never_named(session: &ClientSession) {
    let Some(job) = &session.server.job else { return };
    let why = "the server did not answer `initialize`; if it opens a session, leash cannot know its id".to_owned();
    let deleted =
        DeleteResult { how: DeleteHow::Unreachable, status: None, tries: 0, why: Some(why), cut_short: false };
    let url = forward::target(&session.server.settings()).url.clone();
    job.held(End::Upstream(deleted.receipt(&url, "")));
}

/// Sends a DELETE and counts it. When the server's grace is over, one more try gets its usual time.
pub(super) async fn send_delete(gateway: &Gateway, server: &Server, delete_target: &DeleteTarget) -> DeleteResult {
    let (metrics, counters) = (&gateway.metrics, gateway.metrics.of(&server.bucket));
    add(&metrics.deletes_pending, 1);
    add(&counters.deletes_sent, 1);
    let forced = async {
        server.stop.signal().forced().await;
        tokio::time::sleep_until(tokio::time::Instant::now() + limits::DELETE_TRY).await;
    };
    let deleted = tokio::select! {
        deleted = delete::delete(&gateway.client, delete_target) => deleted,
        () = forced => delete::cut_short(1),
    };
    metrics.deletes_pending.set(metrics.deletes_pending.get() - 1);
    if deleted.receipt(&delete_target.url, &delete_target.session_id).fate == Fate::Left {
        add(&counters.deletes_failed, 1);
    }
    deleted
}

/// Writes a receipt. A failure, such as a full disk, only causes a warning. Returns false if leash had no free file
/// descriptor: the next start can write that receipt.
pub(crate) fn write(gateway: &Gateway, receipt: &Receipt) -> bool {
    let path = &gateway.places.receipts;
    let written = receipts::append(path, receipt);
    if let Err(error) = &written {
        gateway.warn(format!("cannot write {}: {error}", path.display()));
    }
    !written.is_err_and(|error| receipts::is_shortage(&error))
}

/// Warns if the ledger could not be written. Sessions go on.
pub(crate) fn note(gateway: &Gateway, written: std::io::Result<()>) {
    if let Err(error) = written {
        gateway.warn(format!("cannot write the ledger, upstream sessions would be left if leash were killed: {error}"));
    }
}

/// The headers that identify the client: all headers except those about one message or about the client's program.
/// leash keeps them in memory only.
#[derive(Clone, Default)]
struct Credentials(Box<[(HeaderName, HeaderValue)]>);

/// Headers that requests commonly have and that no DELETE needs. Any other header may be a credential.
const PLAIN: [HeaderName; 19] = [
    header::ACCEPT,
    header::ACCEPT_CHARSET,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::DNT,
    header::EXPECT,
    header::HOST,
    header::ORIGIN,
    header::PRAGMA,
    header::REFERER,
    header::USER_AGENT,
    headers::LAST_EVENT_ID,
    HeaderName::from_static("baggage"),
    HeaderName::from_static("priority"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

impl Credentials {
    fn of(headers: &HeaderMap) -> Credentials {
        Credentials(Credentials::among(headers).map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    fn are_of(&self, headers: &HeaderMap) -> bool {
        Credentials::among(headers).eq(self.0.iter().map(|(name, value)| (name, value)))
    }

    fn among(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        headers.iter().filter(|(name, _)| identifies_client(name))
    }
}

fn identifies_client(name: &HeaderName) -> bool {
    let prefixes = ["mcp-", "sec-", "leash-", "x-forwarded-"];
    !PLAIN.contains(name)
        && !headers::is_hop_by_hop(name)
        && !prefixes.iter().any(|prefix| name.as_str().starts_with(prefix))
}
