//! The handle to a guard's sessions, for the program that runs the server.

use std::{sync::Arc, time::Duration};

use super::entry::{SessionEntry, Shared};
use super::{release::Ended, sweeper};
use leash_model::{clock::Moment, receipt::Reason};

/// The sessions of a [`SessionGuardLayer`](super::SessionGuardLayer): a handle to list and to end them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GuardedSessions {
    shared: Arc<Shared>,
}

/// The current state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedSession {
    /// The id that its client presents. Every client that knows it can use the session: do not log it.
    pub id: String,
    /// The time at which it began, milliseconds since 1970.
    pub started_ms: u64,
    /// The number of requests whose responses have not ended; open GET streams are not counted.
    pub in_flight: u32,
    /// The time until it ends if it is not used, and the reason; `None` while a request is in flight, if it has no
    /// maximum age.
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
        let now = Moment::on_runtime();
        let summaries = entries.iter().filter_map(|entry| Some((entry.started_ms, entry.summary(&self.shared)?)));
        summaries
            .map(|(started_ms, summary)| GuardedSession {
                id: summary.token.to_string(),
                started_ms,
                in_flight: summary.in_flight,
                ends_in: summary.deadline.map(|(at, why)| (at.since(now), why)),
            })
            .collect()
    }

    /// Ends a session; returns when the service has deleted it, or when that has failed. `None` if there is no such
    /// session.
    pub async fn end(&self, id: &str) -> Option<Ended> {
        let entry = self.shared.find(id)?;
        self.end_these(vec![entry], Reason::PROGRAM).await.into_iter().next()
    }

    /// Ends all sessions, at the same time.
    pub async fn end_all(&self) -> Vec<Ended> {
        self.end_these(self.shared.all(), Reason::PROGRAM).await
    }

    /// Ends all sessions and refuses new ones (503), for a server that shuts down. Call it before the listener is gone,
    /// and limit it by a timeout: it waits for every `initialize` that the service has not answered.
    pub async fn shutdown(&self) -> Vec<Ended> {
        self.shared.close();
        self.end_these(self.shared.all(), Reason::Shutdown).await
    }

    async fn end_these(&self, entries: Vec<Arc<SessionEntry>>, reason: Reason) -> Vec<Ended> {
        sweeper::ensure_running(&self.shared);
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
