//! A server behind the gateway, and its sessions.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::{any::Any, collections::HashMap};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{account::JobAccount, backend::SharedTrees, session::ClientSession, stop::StopOrder};
use crate::config::{ServerSettings, SessionPolicy};
use crate::{budget::Budget, notified::wait_until};
use leash_model::{
    client_session::SessionTimes, containment::Containment, identity::Identity, limits, receipt::Receipt,
};

/// The name of the shared counters of all servers of jobs. Counters per server would grow with the number of jobs.
pub(crate) const JOBS_BUCKET: &str = "session";

/// A running server. A reload that changes only its terms changes them in place.
pub(crate) struct Server {
    pub(crate) name: Rc<str>,
    /// The prefix of its paths, without the leading slash.
    pub(crate) path: Rc<str>,
    /// The name under which it is counted.
    pub(crate) bucket: Rc<str>,
    settings: RefCell<Rc<ServerSettings>>,
    /// Its sessions, by the `Mcp-Session-Id` that the client presents; while a session is opening, by leash's own id.
    pub(crate) sessions: RefCell<HashMap<Rc<str>, Rc<ClientSession>>>,
    /// The newest session of each client process.
    newest: RefCell<HashMap<Identity, Weak<ClientSession>>>,
    /// The sessions and trees that have not ended, including those that are ending.
    pub(crate) slots: Rc<Budget>,
    /// Trees that belong to no session.
    pub(crate) shared: Box<dyn SharedTrees>,
    /// The order to end: it was removed from the configuration or replaced, its job ends, or the gateway does. From then on
    /// it accepts no new sessions.
    pub(crate) stop: StopOrder,
    /// The job it belongs to.
    pub(crate) job: Option<Rc<JobAccount>>,
    /// Its running trees.
    trees: RefCell<Vec<RunningTree>>,
    /// The number of sessions, trees and tasks of it that are not over.
    occupied: Cell<usize>,
    freed: Notify,
    /// The number of requests in flight at an HTTP server. Only those of jobs are counted.
    pub(crate) calls: Cell<usize>,
    /// The number of all requests in its client sessions.
    pub(crate) called: Cell<u64>,
    /// Cancelled to abort all requests in flight; later requests have another token.
    abort: RefCell<CancellationToken>,
}

/// A running tree.
#[derive(Clone, Debug)]
pub(crate) struct RunningTree {
    /// The id of the run, under which it is in the ledger.
    pub(crate) run: Rc<str>,
    /// The server's first process, if it is known.
    pub(crate) pid: Option<i32>,
    pub(crate) containment: Option<Containment>,
}

/// Held by a session, tree or task of a server until it is over.
pub(crate) struct Occupied(Rc<Server>);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.occupied.update(|occupied| occupied - 1);
        self.0.freed.notify_waiters();
    }
}

impl Server {
    /// A server of the configuration.
    pub(crate) fn new(settings: ServerSettings, shared: Box<dyn SharedTrees>) -> Rc<Server> {
        let name: Rc<str> = settings.name.as_str().into();
        Server::make(settings, shared, [Rc::clone(&name), name], None)
    }

    /// A server of a job, below a secret path.
    pub(crate) fn of_job(settings: ServerSettings, shared: Box<dyn SharedTrees>, job: &Rc<JobAccount>) -> Rc<Server> {
        let path = format!("s/{}/{}", job.secret, settings.name);
        Server::make(settings, shared, [path.into(), JOBS_BUCKET.into()], Some(Rc::clone(job)))
    }

    fn make(
        settings: ServerSettings,
        shared: Box<dyn SharedTrees>,
        [path, bucket]: [Rc<str>; 2],
        job: Option<Rc<JobAccount>>,
    ) -> Rc<Server> {
        Rc::new(Server {
            name: settings.name.as_str().into(),
            path,
            bucket,
            settings: RefCell::new(Rc::new(settings)),
            sessions: RefCell::default(),
            newest: RefCell::default(),
            slots: Rc::default(),
            shared,
            stop: StopOrder::default(),
            job,
            trees: RefCell::default(),
            occupied: Cell::new(0),
            freed: Notify::new(),
            calls: Cell::new(0),
            called: Cell::new(0),
            abort: RefCell::default(),
        })
    }

    /// Its trees that belong to no session, if they are of this kind.
    pub(crate) fn shared_as<T: SharedTrees>(&self) -> Option<&T> {
        (&*self.shared as &dyn Any).downcast_ref()
    }

    pub(crate) fn settings(&self) -> Rc<ServerSettings> {
        Rc::clone(&self.settings.borrow())
    }

    /// Takes over new terms; the target is the same.
    pub(crate) fn adopt(&self, settings: ServerSettings) {
        *self.settings.borrow_mut() = Rc::new(settings);
    }

    /// The time limits of its sessions.
    pub(crate) fn times(&self) -> SessionTimes {
        let SessionPolicy { idle, abandoned, max_age, linger, init_timeout, .. } = self.settings.borrow().policy;
        SessionTimes { idle, abandoned, max_age, linger, init_timeout }
    }

    /// The session with the id that a client presents.
    pub(crate) fn session(&self, token: &str) -> Option<Rc<ClientSession>> {
        self.sessions.borrow().get(token).cloned()
    }

    /// Notes that a client process uses a session. Returns the session from which the process has moved on, if it uses
    /// two: the older one.
    pub(crate) fn used_by_process(&self, owner: Identity, session: &Rc<ClientSession>) -> Option<Rc<ClientSession>> {
        let mut newest = self.newest.borrow_mut();
        let before = newest.get(&owner).and_then(Weak::upgrade).filter(|before| !Rc::ptr_eq(before, session));
        match before {
            Some(before) if before.is_newer_than(session) => Some(Rc::clone(session)),
            before => {
                newest.insert(owner, Rc::downgrade(session));
                before
            }
        }
    }

    /// Forgets that a session was the newest of a client process.
    pub(crate) fn left_by_process(&self, owner: &Identity, session: &ClientSession) {
        let mut newest = self.newest.borrow_mut();
        if newest.get(owner).is_some_and(|known| std::ptr::eq(known.as_ptr(), session)) {
            newest.remove(owner);
        }
    }

    /// All sessions.
    pub(crate) fn all(&self) -> Vec<Rc<ClientSession>> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Counts a session, tree or task that begins: until it is over, the server is not empty.
    pub(crate) fn occupy(self: &Rc<Self>) -> Occupied {
        self.occupied.update(|occupied| occupied + 1);
        Occupied(Rc::clone(self))
    }

    /// True if no session, tree or task of it is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied.get() == 0
    }

    /// Returns when it is empty. Only for a server that was told to end: at any other, a session may begin right after.
    pub(crate) async fn empty(&self) {
        wait_until(&self.freed, || self.is_empty()).await;
    }

    /// Returns when its job has been ending for so long that leash no longer waits for a late answer.
    pub(crate) async fn too_late(&self) {
        if self.job.is_none() {
            return std::future::pending().await;
        }
        self.stop.signal().given().await;
        let patience = tokio::time::Instant::now() + limits::JOB_LATE_ANSWER;
        tokio::select! {
            () = tokio::time::sleep_until(patience) => {}
            () = self.stop.signal().forced() => {}
        }
    }

    /// Adds a running tree.
    pub(crate) fn tree_began(&self, running: RunningTree) {
        self.trees.borrow_mut().push(running);
    }

    /// Its running trees.
    pub(crate) fn trees(&self) -> Vec<RunningTree> {
        self.trees.borrow().clone()
    }

    /// Removes a tree that is over; without a receipt if how it ended is not known.
    pub(crate) fn tree_ended(&self, run: &str, receipt: Option<&Receipt>) {
        self.trees.borrow_mut().retain(|tree| *tree.run != *run);
        if let Some(receipt) = receipt {
            self.ended(receipt);
        }
    }

    /// Records the receipt in the account of its job, if it has one.
    pub(crate) fn ended(&self, receipt: &Receipt) {
        if let Some(job) = &self.job {
            job.ended(receipt);
        }
    }

    /// The token that is cancelled when the requests now in flight are aborted.
    pub(crate) fn aborted(&self) -> CancellationToken {
        self.abort.borrow().clone()
    }

    /// Cancels the requests in flight at an HTTP server; returns their number.
    pub(crate) fn abort_calls(&self) -> usize {
        self.abort.take().cancel();
        self.calls.get()
    }
}
