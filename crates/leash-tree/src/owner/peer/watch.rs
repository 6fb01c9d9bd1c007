//! Watches many processes in one runtime, with one descriptor and one task for each process. Ten thousand sessions of
//! one client cost ten thousand callbacks, but only one pidfd.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::AsFd as _;
use std::rc::{Rc, Weak};

use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use super::reserve::Reserve;
use crate::platform::identity::HeldProcess;
use crate::platform::linux::AsyncPidfd;
use leash_model::identity::Identity;
use leash_model::limits;

/// The function that is called when a process is gone.
type OnGone = Box<dyn FnOnce()>;

/// The watched processes. A cheap handle: clones share the same processes, and dropping the last one ends all watches.
#[derive(Clone, Debug)]
pub struct Watchers {
    tracker: TaskTracker,
    table: Rc<RefCell<WatchTable>>,
    reserve: Rc<RefCell<Reserve>>,
}

/// One registered callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId {
    process: Identity,
    number: u64,
}

#[derive(Debug, Default)]
struct WatchTable {
    /// The number of watches made so far.
    watches: u64,
    processes: HashMap<Identity, WatchedProcess>,
}

struct WatchedProcess {
    /// By the number of the watch, so that they are called in the order in which they were made.
    calls: BTreeMap<u64, OnGone>,
    task: AbortHandle,
}

impl std::fmt::Debug for WatchedProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl Drop for WatchedProcess {
    /// Ends the task of a process that has no callbacks left. The task itself may remove the last one; it is at its end
    /// then.
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watchers {
    /// Makes an empty set. `tracker` owns the tasks.
    pub fn new(tracker: &TaskTracker) -> Watchers {
        let reserve = Rc::new(RefCell::new(Reserve::new(limits::WATCH_RESERVE)));
        Watchers { tracker: tracker.clone(), table: Rc::default(), reserve }
    }

    /// Calls `on_gone` once, from a task, when the process is gone; soon if it is already gone. The set has its own
    /// descriptor of the process, so `held` may be dropped.
    ///
    /// An error (out of descriptors or of memory) means that the process is not watched: leash will not know when it
    /// ends.
    ///
    /// # Panics
    /// Outside of a tokio runtime with local tasks and I/O.
    pub fn watch(&self, held: &HeldProcess, on_gone: impl FnOnce() + 'static) -> Result<WatchId, io::Error> {
        let mut table = self.table.borrow_mut();
        table.watches += 1;
        let number = table.watches;
        let watched = match table.processes.entry(held.id) {
            Entry::Occupied(watched) => watched.into_mut(),
            Entry::Vacant(place) => place.insert(self.begin(held)?),
        };
        watched.calls.insert(number, Box::new(on_gone));
        Ok(WatchId { process: held.id, number })
    }

    /// Removes a callback, so that it is not called. False if it was already called or removed.
    pub fn unwatch(&self, id: WatchId) -> bool {
        let mut table = self.table.borrow_mut();
        let Some(watched) = table.processes.get_mut(&id.process) else { return false };
        let call = watched.calls.remove(&id.number);
        let last = if watched.calls.is_empty() { table.processes.remove(&id.process) } else { None };
        // Dropping a callback's captured values may call this function again.
        drop(table);
        drop(last);
        call.is_some()
    }

    /// Removes every callback. For the end: captured values of the callbacks may hold these watchers.
    pub fn clear(&self) {
        let processes = std::mem::take(&mut self.table.borrow_mut().processes);
        drop(processes);
    }

    /// The number of watched processes, and of descriptors open for them.
    pub fn processes(&self) -> usize {
        self.table.borrow().processes.len()
    }

    /// The number of callbacks.
    pub fn watches(&self) -> usize {
        self.table.borrow().processes.values().map(|watched| watched.calls.len()).sum()
    }

    fn begin(&self, held: &HeldProcess) -> Result<WatchedProcess, io::Error> {
        // A copy: a descriptor can be in an epoll set only once, and an aborted task needs a moment to leave it.
        let copy = || held.as_fd().try_clone_to_owned();
        let mut reserve = self.reserve.borrow_mut();
        let pidfd = copy().or_else(|error| if reserve.give_up() { copy() } else { Err(error) });
        reserve.fill();
        let pidfd = pidfd?;
        let pidfd = AsyncPidfd::new(pidfd)?;
        let task = self.tracker.spawn_local(watch_over(pidfd, held.id, Rc::downgrade(&self.table)));
        Ok(WatchedProcess { calls: BTreeMap::new(), task: task.abort_handle() })
    }
}

/// The task of one process. It holds the table weakly: a strong reference would keep alive the handle whose drop ends
/// the task.
async fn watch_over(pidfd: AsyncPidfd, process: Identity, table: Weak<RefCell<WatchTable>>) {
    if pidfd.ended().await.is_err() {
        return;
    }
    // Runs one callback at a time, without a borrow of the table: a callback may watch, unwatch, or drop the watchers.
    while let Some(call) = next_call(&table, process) {
        call();
    }
}

fn next_call(table: &Weak<RefCell<WatchTable>>, process: Identity) -> Option<OnGone> {
    let table = table.upgrade()?;
    let mut table = table.borrow_mut();
    let call = table.processes.get_mut(&process)?.calls.pop_first();
    if call.is_none() {
        table.processes.remove(&process);
    }
    call.map(|(_, call)| call)
}
