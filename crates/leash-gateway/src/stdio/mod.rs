//! Servers that speak over their stdin and stdout, behind HTTP.
//!
//! The modules in the order in which they handle a request: this file decides which rules apply. For the legacy era
//! follow `open` (a session begins), `post` and `get`. `bridge` connects a session's streams to its server: `switch`
//! decides which stream a message goes to, `log` keeps streams for clients that resume them, `window` decides when an
//! answer becomes a stream, `reader` and `events` write it out. `child` is the server's tree, with `input`, `output` and
//! `stderr` at its pipes. `modern` serves the modern era over the same pipes.
//!
//! The gateway forwards messages as it received them, with one exception: it turns a body of several lines into one
//! line, with spaces in place of the line breaks.

mod bridge;
mod child;
mod events;
mod exit;
mod get;
mod input;
mod log;
mod modern;
mod open;
mod output;
mod post;
mod pressure;
mod reader;
mod stderr;
mod switch;
mod waiting_task;
mod warm;
mod window;

use std::rc::Rc;

use hyper::{HeaderMap, Method, StatusCode};

use crate::respond::{self, Answer};
use crate::state::session::{self, ClientSession};
use crate::{call::Call, state::backend::SharedTrees, state::gateway::Gateway, state::server::Server};
use leash_model::receipt::Reason;
use leash_protocol::envelope::{EnvelopeKind, Message};
use leash_protocol::era::{self, Era};
use leash_protocol::headers;

use bridge::Bridge;
use modern::ModernTrees;
pub(crate) use pressure::watch_pressure;
use warm::WarmTree;
pub(crate) use warm::{end_warm, expect_warm, has_warm, warm};

/// Answers a request for a server that is a program.
pub(crate) async fn answer(gateway: &Rc<Gateway>, server: &Rc<Server>, call: Call) -> Answer {
    let answered = match call.method {
        Method::POST => post(gateway, server, &call).await,
        Method::GET => get(server, &call),
        Method::DELETE => delete(server, &call).await,
        _ => Err(respond::method_not_allowed("GET, POST, DELETE")),
    };
    match answered {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn post(gateway: &Rc<Gateway>, server: &Rc<Server>, call: &Call) -> Result<Answer, Answer> {
    if !headers::accepts(&call.headers, &["application/json", "text/event-stream"]) {
        return Err(respond::not_acceptable("application/json and text/event-stream"));
    }
    let message = Message::read(&call.body).map_err(|fault| respond::malformed(&fault))?;
    let token = headers::named_session(&call.headers);
    // A known session takes precedence over the version header.
    if let Some(session) = token.and_then(|token| session::find(server, token, call).ok()) {
        return post::answer(gateway, &session, call, &message).await;
    }
    if era::classify(&call.method, text(&call.headers, &headers::PROTOCOL_VERSION), Some(&message)) == Era::Modern {
        return modern::answer(gateway, server, call, &message).await;
    }
    match &message {
        Message::One(envelope)
            if envelope.method.as_deref() == Some("initialize") && envelope.kind == EnvelopeKind::Request =>
        {
            // This future is large and rarely needed: boxed, it does not enlarge the futures of all requests.
            Box::pin(open::answer(gateway, server, call, envelope)).await
        }
        _ if token.is_some() => Err(respond::no_session()),
        _ => Err(respond::session_missing()),
    }
}

fn get(server: &Rc<Server>, call: &Call) -> Result<Answer, Answer> {
    let session = named_session(server, call)?;
    if !headers::accepts(&call.headers, &["text/event-stream"]) {
        return Err(respond::not_acceptable("text/event-stream"));
    }
    get::answer(&session, call)
}

async fn delete(server: &Rc<Server>, call: &Call) -> Result<Answer, Answer> {
    let session = named_session(server, call)?;
    session.end(Reason::ClientDeleted);
    session.over().await;
    Ok(respond::empty(StatusCode::OK))
}

/// The session that a GET or DELETE is for. If it names no known session but a modern version, the answer is that of
/// the modern era, which has no sessions: method not allowed.
fn named_session(server: &Rc<Server>, call: &Call) -> Result<Rc<ClientSession>, Answer> {
    let found = headers::named_session(&call.headers).map(|token| session::find(server, token, call));
    match found {
        Some(Ok(session)) => Ok(session),
        _ if text(&call.headers, &headers::PROTOCOL_VERSION).is_some_and(era::is_modern_version) => {
            Err(respond::method_not_allowed("POST"))
        }
        Some(Err(unknown)) => Err(unknown),
        None => Err(respond::session_missing()),
    }
}

/// Requests that were not answered yet.
pub(crate) fn in_flight(server: &Server) -> usize {
    bridges(server).iter().map(|bridge| bridge.in_flight()).sum::<usize>() + shared_trees(server).modern.in_flight()
}

/// Cancels all requests in flight; returns their number.
pub(crate) fn abort(server: &Server) -> usize {
    bridges(server).iter().map(|bridge| bridge.abort()).sum::<usize>() + shared_trees(server).modern.abort()
}

fn bridges(server: &Server) -> Vec<Rc<Bridge>> {
    server.all().iter().filter_map(|session| session.holding_as().cloned()).collect()
}

/// The trees of a server that belong to no session.
#[derive(Default)]
pub(crate) struct Trees {
    /// Trees for requests of the modern era, which has no sessions.
    modern: ModernTrees,
    /// A tree that waits for the first client of a job.
    warm: WarmTree,
}

impl SharedTrees for Trees {
    fn end_all(&self, reason: &Reason) -> usize {
        self.modern.end_all(reason)
    }
}

/// The trees of a server that belong to no session.
fn shared_trees(server: &Server) -> &Trees {
    server.shared_as().expect("every server is made with them")
}

/// A header that is text.
fn text<'h>(headers: &'h HeaderMap, name: &hyper::header::HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}
