//! Cancels requests at a server when the client no longer waits for the responses.

use std::rc::Rc;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::holding::{self, UpstreamHolding};
use super::{revive, unanswered::Unanswered};
use crate::{call::Call, state::gateway::Gateway, state::server::Server, state::session::ClientSession};
use leash_model::limits;
use leash_protocol::{envelope::cancelled_body, headers};

/// `notifications/cancelled` messages for a legacy server. A dropped connection does not cancel a request there.
pub(crate) struct Cancellation {
    session: Rc<ClientSession>,
    messages: Vec<Bytes>,
}

/// Prepares the cancellation of a call's requests. `None` if the call has no session.
pub(crate) fn cancellation(server: &Server, call: &Call, ids: &[Box<RawValue>]) -> Option<Cancellation> {
    let session = server.session(headers::named_session(&call.headers)?).filter(|session| session.is_of(call))?;
    Some(Cancellation::new(session, ids))
}

/// Aborts the unanswered requests of a server's HTTP+SSE sessions. Returns their number.
pub(crate) fn abort_unanswered(gateway: &Rc<Gateway>, server: &Server) -> usize {
    let mut aborted = 0;
    for session in server.all() {
        let ids =
            holding::of(&session).and_then(UpstreamHolding::unanswered).map(Unanswered::abort).unwrap_or_default();
        if !ids.is_empty() {
            aborted += ids.len();
            Cancellation::new(session, &ids).send(gateway);
        }
    }
    aborted
}

impl Cancellation {
    fn new(session: Rc<ClientSession>, ids: &[Box<RawValue>]) -> Cancellation {
        Cancellation { session, messages: ids.iter().map(|id| cancelled_body(id, "aborted").into()).collect() }
    }

    /// Sends the messages in a task of its own.
    pub(crate) fn send(self, gateway: &Rc<Gateway>) {
        let occupied = self.session.server.occupy();
        let asking = Rc::clone(gateway);
        gateway.tasks.spawn_local(async move {
            let Some(upstream) = holding::of(&self.session) else { return };
            // A session of the old transport is known by its address and has no id.
            let id = Some(upstream.id()).filter(|id| !id.is_empty());
            for message in self.messages {
                let sent = revive::post(&asking, &self.session, message, id.as_deref());
                tokio::select! {
                    // The result does not matter: leash has already answered the client.
                    _ = tokio::time::timeout(limits::ACCEPT, sent) => {}
                    () = upstream.gone().cancelled_owned() => break,
                }
            }
            drop(occupied);
        });
    }
}

/// Lists a server's upstream sessions: the URL and the id of each.
pub(crate) fn upstreams(server: &Server) -> Vec<(String, String)> {
    let sessions = server.all();
    sessions.iter().filter_map(|session| holding::of(session)).map(|upstream| upstream.shown()).collect()
}
