//! The guard's sessions, for whoever runs the server.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use super::release::Ended;
use super::shared::Shared;
use leash_model::clock::Moment;
use leash_model::receipt::Reason;

/// The sessions of a [`SessionGuardLayer`](super::SessionGuardLayer): a handle to list and to end them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GuardedSessions {
    shared: Arc<Shared>,
}

/// A session as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedSession {
    /// The id that its client presents. Whoever has it can use the session: do not log it.
    pub id: String,
    /// When it began, milliseconds since 1970.
    pub started_ms: u64,
    /// Requests that are not answered to their end; open GET streams are not among them.
    pub in_flight: u32,
    /// How long it has if nothing happens, and why it ends then; nothing while something is in flight, if it has no greatest age.
    pub ends_in: Option<(Duration, Reason)>,
}

impl GuardedSessions {
    pub(super) fn new(shared: Arc<Shared>) -> GuardedSessions {
        GuardedSessions { shared }
    }

    /// The sessions that can be used, the oldest first.
    pub fn list(&self) -> Vec<GuardedSession> {
        let mut entries = self.shared.all();
        entries.sort_by_key(|entry| entry.number);
        let now = Moment::now();
        let looks = entries.iter().filter_map(|entry| Some((entry.started_ms, entry.look(&self.shared)?)));
        looks
            .map(|(started_ms, look)| GuardedSession {
                id: look.token.to_string(),
                started_ms,
                in_flight: look.in_flight,
                ends_in: look.deadline.map(|(at, why)| (at.since(now), why)),
            })
            .collect()
    }

    /// Ends a session, and returns when the service has let go of it, or when it is clear that it doesn't. `None`: there is none.
    pub async fn end(&self, id: &str) -> Option<Ended> {
        let entry = self.shared.known(id)?;
        self.end_these(vec![entry], Reason::Requested).await.into_iter().next()
    }

    /// Ends all sessions, at the same time.
    pub async fn end_all(&self) -> Vec<Ended> {
        self.end_these(self.shared.all(), Reason::Requested).await
    }

    /// Ends all sessions and opens no further one (503), for a server that ends. Call it before the listener is gone, and bound it
    /// by a timeout: it waits for every `initialize` that the service has not answered.
    pub async fn shutdown(&self) -> Vec<Ended> {
        self.shared.close();
        self.end_these(self.shared.all(), Reason::Shutdown).await
    }

    async fn end_these(&self, entries: Vec<Arc<Entry>>, reason: Reason) -> Vec<Ended> {
        self.shared.keep_swept();
        for entry in &entries {
            entry.end(reason.clone());
        }
        let mut ended = Vec::with_capacity(entries.len());
        for entry in entries {
            ended.extend(entry.ended().await);
        }
        ended
    }
}
