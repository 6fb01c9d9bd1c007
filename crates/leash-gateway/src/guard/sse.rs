//! The transport of 2024-11-05 (HTTP+SSE). The session is a GET that stays open. The client POSTs its messages to an
//! address in the server's first event. leash puts its own address there and ends both halves together.

use std::task::{Context, Poll};
use std::{pin::Pin, rc::Rc};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::{Method, Response, StatusCode, Uri};

use super::holding::{self, UpstreamHolding};
use super::stream::{Boundary, ResponseLimit};
use super::{RequestFacts, forward, listen::ListenBody, unanswered::ResponseFinder};
use crate::respond::{self, Answer};
use crate::state::session::{self, ClientSession};
use crate::{call::Call, state::gateway::Gateway, state::server::Server};
use leash_model::{limits, receipt::Reason};
use leash_protocol::sse::{self, Splitter};
use leash_protocol::{envelope::codes, headers};
use leash_upstream::body::{Body, BodyError};
use leash_upstream::client;

/// Answers a request for a server that speaks HTTP+SSE. `sse` (also `mcp`) is the stream, `messages/TOKEN` takes
/// messages.
pub(crate) async fn answer_sse(gateway: &Rc<Gateway>, server: &Rc<Server>, rest: &str, call: Call) -> Answer {
    match (&call.method, rest, rest.strip_prefix("messages/")) {
        (&Method::GET, "sse" | "mcp", _) => open(gateway, server, &call).await,
        // Clients that try Streamable HTTP first fall back to this transport when they get a 405.
        (_, "sse" | "mcp", _) => respond::method_not_allowed("GET"),
        (&Method::POST, _, Some(token)) => match session::find(server, token, &call) {
            Ok(session) => post(gateway, &session, &call).await,
            Err(unknown) => unknown,
        },
        (_, _, Some(_)) => respond::method_not_allowed("POST"),
        _ => respond::no_such_path(&format!("the server `{0}` is at /{0}/sse", server.path)),
    }
}

/// Forwards a message of the client.
async fn post(gateway: &Rc<Gateway>, session: &Rc<ClientSession>, call: &Call) -> Answer {
    let facts = match RequestFacts::read(call) {
        Ok(facts) => facts,
        Err(answer) => return answer,
    };
    let Some(upstream) = holding::of(session) else { return respond::no_session() };
    let Some(endpoint) = upstream.endpoint() else { return respond::no_session() };
    let flight = session.began();
    upstream.pings.client_is_alive();
    if facts.answers_ping {
        upstream.pings.answered();
        return respond::empty(StatusCode::ACCEPTED);
    }
    session.called(facts.requests);
    session.known_client.introduced(&gateway.book, &call.body);
    let settings = session.server.settings();
    // Recorded before it is sent, because the response may arrive on the stream before the POST is answered.
    let unanswered = upstream.unanswered().inspect(|unanswered| unanswered.sent(&call.body));
    let sent = gateway.client.send_to(endpoint.clone(), |uri| forward::request(uri, &settings, call, None));
    let sent = sent.await;
    if let Some(unanswered) = unanswered.filter(|_| !sent.as_ref().is_ok_and(|answer| answer.status().is_success())) {
        unanswered.not_sent(&call.body);
    }
    match sent {
        Ok(answer) => forward::pass(gateway, &session.server, answer, ResponseLimit::Session(flight)),
        Err(error) => forward::failed(&session.server, &error, facts.id.as_deref()),
    }
}

/// Discards a session that was not announced yet, if the client that waits for it leaves.
struct UnannouncedSession(Option<Rc<ClientSession>>);

impl UnannouncedSession {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for UnannouncedSession {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            session.discard();
        }
    }
}

/// Opens the stream, and with it the session.
async fn open(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call) -> Answer {
    let session = match ClientSession::begin(gateway, server, call) {
        Ok(session) => session,
        Err(refused) => return refused,
    };
    let waiting = UnannouncedSession(Some(Rc::clone(&session)));
    let opened = tokio::select! {
        opened = start_stream(gateway, server, call) => opened,
        () = session.over() => {
            let text = "Gateway Timeout: the server did not name its address for messages in time";
            return respond::error(StatusCode::GATEWAY_TIMEOUT, None, codes::SERVER, text);
        }
    };
    let SseStart { head, before, endpoint, after, body } = match opened {
        Ok(start) => start,
        Err(answer) => return answer,
    };
    waiting.done();
    session.announce(gateway);
    if !session.hold(UpstreamHolding::sse(server, call, endpoint)) {
        return respond::unavailable("Service Unavailable: the gateway is shutting down");
    }
    session.opened();
    let mut start = before.to_vec();
    let ours = format!("/{}/messages/{}", server.path, session.token());
    sse::encode(&mut start, None, Some("endpoint"), ours.as_bytes());
    start.extend_from_slice(&after);
    let counters = gateway.metrics.of(&server.bucket);
    counters.sent(start.len());
    let stream = ListenBody::new(body, counters, ResponseLimit::Session(session.listens())).after(&start);
    let (finder, boundary) = (ResponseFinder::default(), Boundary::default());
    let mut tied = SseSessionBody { start: None, stream, session, finder, boundary };
    tied.pass(&after);
    tied.start = Some(start.into());
    Response::from_parts(forward::cleaned(head), Body::stream(tied))
}

/// The beginning of a stream, up to the event with the address for messages.
struct SseStart {
    head: hyper::http::response::Parts,
    /// The events before the address.
    before: Bytes,
    endpoint: Uri,
    /// Bytes that were read after the address.
    after: Bytes,
    body: Incoming,
}

async fn start_stream(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call) -> Result<SseStart, Answer> {
    let answer =
        forward::send(gateway, server, call, None).await.map_err(|error| forward::failed(server, &error, None))?;
    if !answer.status().is_success() || !headers::is_event_stream(answer.headers()) {
        return Err(forward::pass(gateway, server, answer, ResponseLimit::End));
    }
    let base = forward::target(&server.settings()).url.clone();
    let (head, mut body) = answer.into_parts();
    let (mut splitter, mut before) = (Splitter::new(limits::SSE_ENDPOINT), BytesMut::new());
    while before.len() <= limits::SSE_ENDPOINT
        && let Some(Ok(frame)) = body.frame().await
    {
        splitter.push(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        while let Some(Ok(event)) = splitter.next_event() {
            if event.name().as_deref() != Some("endpoint") {
                before.extend_from_slice(&event.raw);
                continue;
            }
            let told = event.data().and_then(|data| String::from_utf8(data).ok());
            let endpoint = told.and_then(|told| client::resolve(&base, told.trim()));
            let endpoint = endpoint.ok_or_else(|| bad_gateway("its address for messages is not at the same server"))?;
            return Ok(SseStart { head, before: before.freeze(), endpoint, after: splitter.take_rest(), body });
        }
    }
    Err(bad_gateway("its stream does not begin with an address for messages"))
}

fn bad_gateway(why: &str) -> Answer {
    let text = format!("Bad Gateway: the server does not speak HTTP+SSE: {why}");
    respond::error(StatusCode::BAD_GATEWAY, None, codes::SERVER, &text)
}

/// The client's stream and the server's stream of one session. The session ends when either of them ends.
struct SseSessionBody {
    start: Option<Bytes>,
    stream: ListenBody,
    session: Rc<ClientSession>,
    /// Looks for responses, if requests can be aborted.
    finder: ResponseFinder,
    boundary: Boundary,
}

impl SseSessionBody {
    /// Takes note of bytes that pass.
    fn pass(&mut self, bytes: &[u8]) {
        if let Some(unanswered) = holding::of(&self.session).and_then(UpstreamHolding::unanswered) {
            self.finder.pass(bytes, unanswered);
            self.boundary.pass(bytes);
        }
    }

    /// Takes the error responses in the server's place, if the stream is between two events.
    fn error_events(&self, cx: &Context<'_>) -> Option<Bytes> {
        let unanswered = holding::of(&self.session)?.unanswered()?;
        if self.boundary.reached() { unanswered.take_events(cx) } else { None }
    }
}

impl HttpBody for SseSessionBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(start) = this.start.take() {
            return Poll::Ready(Some(Ok(Frame::data(start))));
        }
        if let Some(error_events) = this.error_events(cx) {
            return Poll::Ready(Some(Ok(Frame::data(error_events))));
        }
        let polled = Pin::new(&mut this.stream).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            this.pass(bytes);
        }
        if let Poll::Ready(None | Some(Err(_))) = &polled {
            // The server closed its stream. If the session ended before, that reason stays.
            this.session.end(Reason::UpstreamForgot);
        }
        polled
    }
}

impl Drop for SseSessionBody {
    fn drop(&mut self) {
        self.session.end(Reason::ClientLeft);
    }
}
