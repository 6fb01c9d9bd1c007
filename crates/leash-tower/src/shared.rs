//! What all clones of a guard share: the table of sessions, and the sweeper, which is one task however many there are.

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

/// What is shared. Where two locks are needed, a session's own comes first.
pub(super) struct Shared {
    pub(super) policy: Policy,
    pub(super) tasks: TaskTracker,
    table: Mutex<Table>,
    /// Wakes the sweeper, which holds a copy of its own: it must not keep all this alive.
    bell: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    numbers: u64,
    /// Every session that takes room: opening, live or ending.
    entries: HashMap<u64, Arc<Entry>>,
    /// Those that can be used.
    tokens: HashMap<Arc<str>, Arc<Entry>>,
    timers: BTreeMap<(Moment, u64), Weak<Entry>>,
    /// What is to be let go, for the sweeper: an end may be decided where there is no runtime to spawn on.
    retired: Vec<(Arc<Entry>, Reason)>,
    sweeps: bool,
    closed: bool,
}

/// Why there is no room for a session.
pub(super) enum Refusal {
    /// The cap.
    Full,
    /// The server ends.
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

    /// Room for a session that may be about to begin.
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

    /// No session begins from now on.
    pub(super) fn close(&self) {
        self.table().closed = true;
    }

    /// The session that a client names.
    pub(super) fn known(&self, token: &str) -> Option<Arc<Entry>> {
        self.table().tokens.get(token).cloned()
    }

    /// Everything that takes room.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.table().entries.values().cloned().collect()
    }

    /// The session is found by this token from now on, unless there is one by that name.
    pub(super) fn name(&self, entry: &Arc<Entry>, token: Arc<str>) -> Option<Arc<Entry>> {
        match self.table().tokens.entry(token) {
            Entries::Occupied(known) => Some(Arc::clone(known.get())),
            Entries::Vacant(free) => {
                free.insert(Arc::clone(entry));
                None
            }
        }
    }

    /// It is not, from now on.
    pub(super) fn forget_token(&self, token: &str) {
        self.table().tokens.remove(token);
    }

    /// It is not, from now on, and has to be let go.
    pub(super) fn retire(&self, entry: &Arc<Entry>, token: &str, reason: Reason) {
        let mut table = self.table();
        table.tokens.remove(token);
        table.retired.push((Arc::clone(entry), reason));
        drop(table);
        self.bell.notify_one();
    }

    /// The session takes no room any more.
    pub(super) fn remove(&self, entry: &Entry, armed: Option<Moment>) {
        let mut table = self.table();
        table.entries.remove(&entry.number);
        if let Some(at) = armed {
            table.timers.remove(&(at, entry.number));
        }
        let last = table.entries.is_empty();
        drop(table);
        if last {
            // The sweeper has nothing to do, and leaves.
            self.bell.notify_one();
        }
    }

    /// The session is looked at at `at`, and not at `before`.
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

    /// Sees to it that there is a sweeper. Needs a runtime.
    pub(super) fn keep_swept(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.table().sweeps, true) {
            let sweeper = Sweeper { shared: Some(Arc::downgrade(self)) };
            self.tasks.spawn(sweeper.run(Arc::clone(&self.bell)));
        }
    }

    /// Does what is due; how long the sweeper may rest after that, or `None` if there is nothing left to sweep.
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
        // What was retired since then has rung the bell.
        Some(next.unwrap_or(limits::LONGEST).min(limits::LONGEST))
    }

    fn due(&self, now: Moment) -> Vec<Arc<Entry>> {
        let mut table = self.table();
        // Every number is smaller than this one, so all that is due at `now` is before it.
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

/// The task that sweeps. If it is dropped with its runtime, another one can take its place.
struct Sweeper {
    shared: Option<Weak<Shared>>,
}

impl Sweeper {
    async fn run(mut self, bell: Arc<Notify>) {
        while let Some(shared) = self.shared.as_ref().and_then(Weak::upgrade) {
            let Some(rest) = shared.round() else {
                // It has said so itself, and another one may have begun since.
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
