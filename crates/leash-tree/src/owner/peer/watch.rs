//! Many processes watched by one runtime, one descriptor and one task each: ten thousand sessions of one client cost
//! ten thousand callbacks, and one pidfd.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::AsFd as _;
use std::rc::{Rc, Weak};

use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use super::reserve::Reserve;
use crate::platform::identity::Held;
use crate::platform::linux::AsyncPidfd;
use leash_model::identity::Identity;
use leash_model::limits;

/// What is called when a process is gone.
type OnGone = Box<dyn FnOnce()>;

/// The processes that are watched. A cheap handle: clones watch the same ones, and when the last is dropped nothing is
/// watched any more.
#[derive(Clone, Debug)]
pub struct Watchers {
    tracker: TaskTracker,
    table: Rc<RefCell<Table>>,
    reserve: Rc<RefCell<Reserve>>,
}

/// One wish to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId {
    process: Identity,
    number: u64,
}

#[derive(Debug, Default)]
struct Table {
    /// Counts every watch there ever was.
    watches: u64,
    processes: HashMap<Identity, Watched>,
}

struct Watched {
    /// By the number of the watch, so that they are called in the order they were made.
    calls: BTreeMap<u64, OnGone>,
    task: AbortHandle,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl Drop for Watched {
    /// A process that nobody asks about any more is not watched. The last call may come from the task itself, which is
    /// at its end then.
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watchers {
    /// Nobody is watched yet. The tasks are `tracker`'s.
    pub fn new(tracker: &TaskTracker) -> Watchers {
        let reserve = Rc::new(RefCell::new(Reserve::new(limits::WATCH_RESERVE)));
        Watchers { tracker: tracker.clone(), table: Rc::default(), reserve }
    }

    /// Has `on_gone` called once, from a task, when the process is gone; soon if it already is. The process is watched
    /// through a descriptor of its own, so `held` may be dropped.
    ///
    /// An error (out of descriptors or of memory) means that the process is not watched: its life is then unknown.
    ///
    /// # Panics
    /// Outside of a tokio runtime with local tasks and I/O.
    pub fn watch(&self, held: &Held, on_gone: impl FnOnce() + 'static) -> Result<WatchId, io::Error> {
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

    /// Takes a wish back: from now on it is not called. False when it already was, or was taken back before.
    pub fn unwatch(&self, id: WatchId) -> bool {
        let mut table = self.table.borrow_mut();
        let Some(watched) = table.processes.get_mut(&id.process) else { return false };
        let call = watched.calls.remove(&id.number);
        let last = if watched.calls.is_empty() { table.processes.remove(&id.process) } else { None };
        // What a call had captured may itself come back here when it is dropped.
        drop(table);
        drop(last);
        call.is_some()
    }

    /// Takes every wish back. For the end: what the calls have captured may in turn hold these watchers.
    pub fn clear(&self) {
        let processes = std::mem::take(&mut self.table.borrow_mut().processes);
        drop(processes);
    }

    /// How many processes are watched; as many descriptors are open for it.
    pub fn processes(&self) -> usize {
        self.table.borrow().processes.len()
    }

    /// How many wishes there are.
    pub fn watches(&self) -> usize {
        self.table.borrow().processes.values().map(|watched| watched.calls.len()).sum()
    }

    fn begin(&self, held: &Held) -> Result<Watched, io::Error> {
        // A copy: a descriptor can be in an epoll set once only, and an aborted task takes a moment to leave it.
        let copy = || held.as_fd().try_clone_to_owned();
        let mut reserve = self.reserve.borrow_mut();
        let pidfd = copy().or_else(|error| if reserve.give_up() { copy() } else { Err(error) });
        reserve.fill();
        let pidfd = pidfd?;
        let pidfd = AsyncPidfd::new(pidfd)?;
        let task = self.tracker.spawn_local(watch_over(pidfd, held.id, Rc::downgrade(&self.table)));
        Ok(Watched { calls: BTreeMap::new(), task: task.abort_handle() })
    }
}

/// The task of one process. It holds the table weakly: it must not keep alive what would end it.
async fn watch_over(pidfd: AsyncPidfd, process: Identity, table: Weak<RefCell<Table>>) {
    if pidfd.ended().await.is_err() {
        return;
    }
    // One at a time, with the table free: a call may watch, take back, or drop the watchers altogether.
    while let Some(call) = next_call(&table, process) {
        call();
    }
}

fn next_call(table: &Weak<RefCell<Table>>, process: Identity) -> Option<OnGone> {
    let table = table.upgrade()?;
    let mut table = table.borrow_mut();
    let call = table.processes.get_mut(&process)?.calls.pop_first();
    if call.is_none() {
        table.processes.remove(&process);
    }
    call.map(|(_, call)| call)
}
