//! The state that all clones of a guard share: its options, its tasks and the table of sessions. It knows of a session
//! `E` only its number.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{collections::hash_map::Entry as Entries, time::Duration};

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::options::GuardOptions;
use leash_model::{clock::Moment, limits, receipt::Reason};

/// The shared state. Code that needs two locks takes the lock of the session first.
pub(super) struct Registry<E> {
    pub(super) options: GuardOptions,
    pub(super) tasks: TaskTracker,
    table: Mutex<SessionTable<E>>,
    /// Wakes the sweeper. The sweeper holds its own reference to it, so that it does not keep the whole state alive.
    pub(super) wake: Arc<Notify>,
}

struct SessionTable<E> {
    numbers: u64,
    /// All sessions that count towards the limit: opening, live or ending.
    entries: HashMap<u64, Arc<E>>,
    /// The sessions that can be used.
    tokens: HashMap<Arc<str>, Arc<E>>,
    timers: BTreeMap<(Moment, u64), Weak<E>>,
    /// The sessions that the sweeper is to delete: an end may be decided where there is no runtime to spawn on.
    retired: Vec<(Arc<E>, Reason)>,
    sweeps: bool,
    closed: bool,
}

/// The reason that a session is refused.
pub(super) enum SessionRefusal {
    /// The limit of sessions is reached.
    Full,
    /// The server is shutting down.
    Closed,
}

impl<E> std::fmt::Debug for Registry<E> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Registry").field("sessions", &self.table().entries.len()).finish_non_exhaustive()
    }
}

impl<E> Registry<E> {
    pub(super) fn new(options: GuardOptions) -> Registry<E> {
        let table = SessionTable {
            numbers: 0,
            entries: HashMap::new(),
            tokens: HashMap::new(),
            timers: BTreeMap::new(),
            retired: Vec::new(),
            sweeps: false,
            closed: false,
        };
        Registry { options, tasks: TaskTracker::new(), table: Mutex::new(table), wake: Arc::default() }
    }

    fn table(&self) -> MutexGuard<'_, SessionTable<E>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry for a session that may begin, if the limit allows it. `begin` makes it from its number.
    pub(super) fn admit(&self, begin: impl FnOnce(u64) -> E) -> Result<Arc<E>, SessionRefusal> {
        let mut table = self.table();
        if table.closed {
            return Err(SessionRefusal::Closed);
        }
        if table.entries.len() >= self.options.max_sessions {
            return Err(SessionRefusal::Full);
        }
        table.numbers += 1;
        let (number, entry) = (table.numbers, Arc::new(begin(table.numbers)));
        table.entries.insert(number, Arc::clone(&entry));
        Ok(entry)
    }

    /// Refuses all sessions from now on.
    pub(super) fn close(&self) {
        self.table().closed = true;
    }

    /// The session that a client names.
    pub(super) fn find(&self, token: &str) -> Option<Arc<E>> {
        self.table().tokens.get(token).cloned()
    }

    /// All sessions that count towards the limit.
    pub(super) fn all(&self) -> Vec<Arc<E>> {
        self.table().entries.values().cloned().collect()
    }

    /// Makes the session known by this token. If another session has the token, returns that one instead.
    pub(super) fn name(&self, entry: &Arc<E>, token: Arc<str>) -> Option<Arc<E>> {
        match self.table().tokens.entry(token) {
            Entries::Occupied(entry) => Some(Arc::clone(entry.get())),
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
    pub(super) fn retire(&self, entry: &Arc<E>, token: &str, reason: Reason) {
        let mut table = self.table();
        table.tokens.remove(token);
        table.retired.push((Arc::clone(entry), reason));
        drop(table);
        self.wake.notify_one();
    }

    /// Removes a session that is over.
    pub(super) fn remove(&self, number: u64, armed: Option<Moment>) {
        let mut table = self.table();
        table.entries.remove(&number);
        if let Some(at) = armed {
            table.timers.remove(&(at, number));
        }
        let last = table.entries.is_empty();
        drop(table);
        if last {
            // The sweeper has nothing left to do; this wakes it so that it ends.
            self.wake.notify_one();
        }
    }

    /// Moves the check of a session from `before` to `at`.
    pub(super) fn arm(&self, number: u64, entry: &Arc<E>, before: Option<Moment>, at: Moment) {
        let mut table = self.table();
        if let Some(before) = before {
            table.timers.remove(&(before, number));
        }
        table.timers.insert((at, number), Arc::downgrade(entry));
        let first = table.timers.first_key_value().is_some_and(|(key, _)| *key == (at, number));
        drop(table);
        if first {
            self.wake.notify_one();
        }
    }

    /// Sets whether the sweeper runs. Returns the value before.
    pub(super) fn set_swept(&self, sweeps: bool) -> bool {
        std::mem::replace(&mut self.table().sweeps, sweeps)
    }

    /// Takes the sessions that are to be deleted.
    pub(super) fn take_retired(&self) -> Vec<(Arc<E>, Reason)> {
        std::mem::take(&mut self.table().retired)
    }

    /// Returns the time until the next check. `None` if no session is left: then the sweeper counts as ended.
    pub(super) fn next_check(&self) -> Option<Duration> {
        let mut table = self.table();
        if table.entries.is_empty() {
            table.sweeps = false;
            return None;
        }
        let next = table.timers.first_key_value().map(|((at, _), _)| at.since(Moment::on_runtime()));
        Some(next.unwrap_or(limits::LONGEST).min(limits::LONGEST))
    }

    /// Takes the sessions whose check is due.
    pub(super) fn take_due(&self, now: Moment) -> Vec<Arc<E>> {
        let mut table = self.table();
        // No entry has this number, so every entry that is due at `now` sorts before the key.
        let later = table.timers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut table.timers, later);
        due.into_values().filter_map(|entry| entry.upgrade()).collect()
    }
}

impl<E> Drop for Registry<E> {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}
