//! Telling a server that nobody waits for an answer any more.

use std::rc::Rc;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::asked::Unanswered;
use super::holding::Upstream;
use super::revive;
use super::{holding, token};
use crate::front::Call;
use crate::gateway::Gateway;
use crate::server::Server;
use crate::session::Session;
use leash_model::limits;

/// What a legacy server is told: dropping a connection means nothing to it.
pub(crate) struct Cancellation {
    session: Rc<Session>,
    messages: Vec<Bytes>,
}

/// What would have to be said to take back the requests of a call; `None` if there is no session to say it in.
pub(crate) fn cancellation(server: &Server, call: &Call, ids: &[Box<RawValue>]) -> Option<Cancellation> {
    let session = server.session(token(call)?).filter(|session| session.is_of(call))?;
    Some(Cancellation::new(session, ids))
}

/// Takes back the requests of a server's HTTP+SSE sessions, whose answers come on their streams; how many there were.
pub(crate) fn abort_unanswered(gateway: &Rc<Gateway>, server: &Server) -> usize {
    let mut aborted = 0;
    for session in server.all() {
        let ids = holding::of(&session).and_then(Upstream::unanswered).map(Unanswered::abort).unwrap_or_default();
        if !ids.is_empty() {
            aborted += ids.len();
            Cancellation::new(session, &ids).send(gateway);
        }
    }
    aborted
}

impl Cancellation {
    fn new(session: Rc<Session>, ids: &[Box<RawValue>]) -> Cancellation {
        let message = |id: &RawValue| {
            let params = format!(r#"{{"requestId":{id},"reason":"aborted"}}"#);
            Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#))
        };
        Cancellation { session, messages: ids.iter().map(|id| message(id)).collect() }
    }

    /// Says it, and does not wait for it.
    pub(crate) fn send(self, gateway: &Rc<Gateway>) {
        let occupied = self.session.server.occupy();
        let asking = Rc::clone(gateway);
        gateway.tasks.spawn_local(async move {
            let Some(upstream) = holding::of(&self.session) else { return };
            // A session of the old transport is known by its address.
            let id = Some(upstream.id()).filter(|id| !id.is_empty());
            for message in self.messages {
                let sent = revive::post(&asking, &self.session, message, id.as_deref());
                tokio::select! {
                    // Whether it was understood is the server's business.
                    _ = tokio::time::timeout(limits::ACCEPT, sent) => {}
                    () = upstream.gone().cancelled_owned() => break,
                }
            }
            drop(occupied);
        });
    }
}

/// The sessions that a server has open elsewhere: where, and their ids there.
pub(crate) fn upstreams(server: &Server) -> Vec<(String, String)> {
    let sessions = server.all();
    sessions.iter().filter_map(|session| holding::of(session)).map(|upstream| upstream.shown()).collect()
}
