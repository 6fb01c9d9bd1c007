//! The state that all clones of a guard share: the table of sessions, and the sweeper, one task for all sessions.

use std::collections::hash_map::Entry as Entries;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::Policy;
use super::entry::Entry;
use super::release::Release;
use super::ticket::Ticket;
use leash_model::clock::Moment;
use leash_model::limits;
use leash_model::receipt::Reason;

/// The shared state. Code that needs two locks takes the lock of the session first.
pub(super) struct Shared {
    pub(super) policy: Policy,
    pub(super) tasks: TaskTracker,
    table: Mutex<Table>,
    /// Wakes the sweeper. The sweeper holds its own reference to it, so that it does not keep the whole state alive.
    bell: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    numbers: u64,
    /// All sessions that count towards the limit: opening, live or ending.
    entries: HashMap<u64, Arc<Entry>>,
    /// The sessions that can be used.
    tokens: HashMap<Arc<str>, Arc<Entry>>,
    timers: BTreeMap<(Moment, u64), Weak<Entry>>,
    /// The sessions that the sweeper is to delete: an end may be decided where there is no runtime to spawn on.
    retired: Vec<(Arc<Entry>, Reason)>,
    sweeps: bool,
    closed: bool,
}

/// The reason that a session is refused.
pub(super) enum Refusal {
    /// The limit of sessions is reached.
    Full,
    /// The server is shutting down.
    Closed,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared").field("sessions", &self.table().entries.len()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(policy: Policy) -> Shared {
        Shared { policy, tasks: TaskTracker::new(), table: Mutex::default(), bell: Arc::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry for a session that may begin, if the limit allows it.
    pub(super) fn admit(self: &Arc<Self>, ticket: Ticket, release: Release) -> Result<Arc<Entry>, Refusal> {
        let mut table = self.table();
        if table.closed {
            return Err(Refusal::Closed);
        }
        if table.entries.len() >= self.policy.max_sessions {
            return Err(Refusal::Full);
        }
        table.numbers += 1;
        let entry = Entry::new(self, table.numbers, ticket, release);
        table.entries.insert(entry.number, Arc::clone(&entry));
        Ok(entry)
    }

    /// Refuses all sessions from now on.
    pub(super) fn close(&self) {
        self.table().closed = true;
    }

    /// The session that a client names.
    pub(super) fn known(&self, token: &str) -> Option<Arc<Entry>> {
        self.table().tokens.get(token).cloned()
    }

    /// All sessions that count towards the limit.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.table().entries.values().cloned().collect()
    }

    /// Makes the session known by this token. If another session has the token, returns that one instead.
    pub(super) fn name(&self, entry: &Arc<Entry>, token: Arc<str>) -> Option<Arc<Entry>> {
        match self.table().tokens.entry(token) {
            Entries::Occupied(known) => Some(Arc::clone(known.get())),
            Entries::Vacant(free) => {
                free.insert(Arc::clone(entry));
                None
            }
        }
    }

    /// Makes the token unknown.
    pub(super) fn forget_token(&self, token: &str) {
        self.table().tokens.remove(token);
    }

    /// Makes the token unknown, and lets the sweeper delete the session.
    pub(super) fn retire(&self, entry: &Arc<Entry>, token: &str, reason: Reason) {
        let mut table = self.table();
        table.tokens.remove(token);
        table.retired.push((Arc::clone(entry), reason));
        drop(table);
        self.bell.notify_one();
    }

    /// Removes a session that is over.
    pub(super) fn remove(&self, entry: &Entry, armed: Option<Moment>) {
        let mut table = self.table();
        table.entries.remove(&entry.number);
        if let Some(at) = armed {
            table.timers.remove(&(at, entry.number));
        }
        let last = table.entries.is_empty();
        drop(table);
        if last {
            // The sweeper has nothing left to do; this wakes it so that it ends.
            self.bell.notify_one();
        }
    }

    /// Moves the check of a session from `before` to `at`.
    pub(super) fn arm(&self, entry: &Arc<Entry>, before: Option<Moment>, at: Moment) {
        let mut table = self.table();
        if let Some(before) = before {
            table.timers.remove(&(before, entry.number));
        }
        table.timers.insert((at, entry.number), Arc::downgrade(entry));
        let first = table.timers.first_key_value().is_some_and(|(key, _)| *key == (at, entry.number));
        drop(table);
        if first {
            self.bell.notify_one();
        }
    }

    /// Starts the sweeper if it does not run. Needs a runtime.
    pub(super) fn keep_swept(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.table().sweeps, true) {
            let sweeper = Sweeper { shared: Some(Arc::downgrade(self)) };
            self.tasks.spawn(sweeper.run(Arc::clone(&self.bell)));
        }
    }

    /// Performs all due work. Returns the time that the sweeper may sleep after that, or `None` if no session is left.
    fn round(self: &Arc<Self>) -> Option<Duration> {
        let now = Moment::now();
        for entry in self.due(now) {
            entry.fire();
        }
        let retired = std::mem::take(&mut self.table().retired);
        for (entry, reason) in retired {
            self.tasks.spawn(entry.let_go(Arc::clone(self), reason));
        }
        let mut table = self.table();
        if table.entries.is_empty() {
            table.sweeps = false;
            return None;
        }
        let next = table.timers.first_key_value().map(|((at, _), _)| at.since(Moment::now()));
        // A session that was retired since then has notified `bell`, so the sweeper wakes at once.
        Some(next.unwrap_or(limits::LONGEST).min(limits::LONGEST))
    }

    fn due(&self, now: Moment) -> Vec<Arc<Entry>> {
        let mut table = self.table();
        // No entry has this number, so every entry that is due at `now` sorts before the key.
        let later = table.timers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut table.timers, later);
        due.into_values().filter_map(|entry| entry.upgrade()).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}

/// The sweeper task. If it is dropped with its runtime, another one can be started.
struct Sweeper {
    shared: Option<Weak<Shared>>,
}

impl Sweeper {
    async fn run(mut self, bell: Arc<Notify>) {
        while let Some(shared) = self.shared.as_ref().and_then(Weak::upgrade) {
            let Some(rest) = shared.round() else {
                // `round` has already cleared the `sweeps` flag, and another sweeper may have started since: `drop`
                // must not clear it again.
                self.shared = None;
                return;
            };
            drop(shared);
            let _ = tokio::time::timeout(rest, bell.notified()).await;
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.as_ref().and_then(Weak::upgrade) {
            shared.table().sweeps = false;
        }
    }
}
