//! A server behind the gateway, and its sessions.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::control::Account;
use super::session::Session;
use super::stdio::{ModernTrees, Warm};
use crate::config;
use leash_model::client_session::Terms;
use leash_model::containment::Containment;
use leash_model::limits;
use leash_model::receipt::Receipt;

/// The counters of all servers of jobs together: there are as many of them as there are jobs.
pub(crate) const JOBS_BUCKET: &str = "session";

/// A server as it runs. A reload that changes only its terms changes them in place.
pub(crate) struct Server {
    pub(crate) name: Rc<str>,
    /// What its paths begin with, without the slash in front.
    pub(crate) path: Rc<str>,
    /// The name under which it is counted.
    pub(crate) bucket: Rc<str>,
    settings: RefCell<Rc<config::Server>>,
    /// By what the client presents as `Mcp-Session-Id`; while a session is opening, by leash's own id of it.
    pub(crate) sessions: RefCell<HashMap<Rc<str>, Rc<Session>>>,
    /// Sessions and trees that have not ended; also those whose end is under way.
    pub(crate) seats: Rc<Budget>,
    /// Trees for requests that have no session.
    pub(crate) modern: ModernTrees,
    /// It was removed from the configuration, or replaced, or its job ends: nothing begins here any more.
    pub(crate) retired: Cell<bool>,
    /// The job it belongs to.
    pub(crate) job: Option<Rc<Account>>,
    /// A tree that waits for the first client of a job.
    pub(crate) warm: Warm,
    /// The trees that run.
    trees: RefCell<Vec<Running>>,
    /// Whatever must be over before nothing of it is left.
    occupied: Cell<usize>,
    freed: Notify,
    /// Requests in flight at a server elsewhere. Only those of jobs are counted.
    pub(crate) calls: Cell<usize>,
    /// Cancelled when everything in flight is to be cancelled; those who come later have another one.
    abort: RefCell<CancellationToken>,
    /// Cancelled when its job ends.
    pub(crate) closing: CancellationToken,
    /// Cancelled when there is no grace any more.
    pub(crate) hurry: CancellationToken,
}

/// A tree that runs.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// The id of the run, under which it is in the ledger.
    pub(crate) run: Rc<str>,
    /// The server's first process, where it is known.
    pub(crate) pid: Option<i32>,
    pub(crate) containment: Option<Containment>,
}

/// Something of a server that is not over while this is held.
pub(crate) struct Occupied(Rc<Server>);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.occupied.update(|occupied| occupied - 1);
        self.0.freed.notify_waiters();
    }
}

impl Server {
    /// A server of the configuration.
    pub(crate) fn new(settings: config::Server) -> Rc<Server> {
        let name: Rc<str> = settings.name.as_str().into();
        Server::make(settings, Rc::clone(&name), name, None)
    }

    /// A server of a job, below a path that nobody can guess.
    pub(crate) fn of_job(settings: config::Server, account: &Rc<Account>) -> Rc<Server> {
        let path = format!("s/{}/{}", account.secret, settings.name);
        Server::make(settings, path.into(), JOBS_BUCKET.into(), Some(Rc::clone(account)))
    }

    fn make(settings: config::Server, path: Rc<str>, bucket: Rc<str>, job: Option<Rc<Account>>) -> Rc<Server> {
        Rc::new(Server {
            name: settings.name.as_str().into(),
            path,
            bucket,
            settings: RefCell::new(Rc::new(settings)),
            sessions: RefCell::default(),
            seats: Rc::default(),
            modern: ModernTrees::default(),
            retired: Cell::new(false),
            job,
            warm: Warm::default(),
            trees: RefCell::default(),
            occupied: Cell::new(0),
            freed: Notify::new(),
            calls: Cell::new(0),
            abort: RefCell::default(),
            closing: CancellationToken::new(),
            hurry: CancellationToken::new(),
        })
    }

    pub(crate) fn settings(&self) -> Rc<config::Server> {
        Rc::clone(&self.settings.borrow())
    }

    /// Takes over new terms; the target is the same.
    pub(crate) fn adopt(&self, settings: config::Server) {
        *self.settings.borrow_mut() = Rc::new(settings);
    }

    /// The times its sessions live by.
    pub(crate) fn terms(&self) -> Terms {
        let policy = &self.settings.borrow().policy;
        Terms { idle: policy.idle, max_age: policy.max_age, linger: policy.linger, init_timeout: policy.init_timeout }
    }

    /// The session that a client means.
    pub(crate) fn session(&self, token: &str) -> Option<Rc<Session>> {
        self.sessions.borrow().get(token).cloned()
    }

    /// All sessions, for what concerns all of them.
    pub(crate) fn all(&self) -> Vec<Rc<Session>> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Something of it begins; it is not empty before that is over.
    pub(crate) fn occupy(self: &Rc<Self>) -> Occupied {
        self.occupied.update(|occupied| occupied + 1);
        Occupied(Rc::clone(self))
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied.get() == 0
    }

    /// Returns when nothing is left of it. For one that is retired: on any other, something may begin right after.
    pub(crate) async fn empty(&self) {
        loop {
            let freed = self.freed.notified();
            if self.is_empty() {
                return;
            }
            freed.await;
        }
    }

    /// Returns when its job has been ending for so long that a late answer is not waited for any more.
    pub(crate) async fn too_late(&self) {
        self.closing.cancelled().await;
        let patience = tokio::time::Instant::now() + limits::JOB_LATE_ANSWER;
        tokio::select! {
            () = tokio::time::sleep_until(patience) => {}
            () = self.hurry.cancelled() => {}
        }
    }

    /// A tree runs.
    pub(crate) fn tree_began(&self, running: Running) {
        self.trees.borrow_mut().push(running);
    }

    /// The trees that run.
    pub(crate) fn trees(&self) -> Vec<Running> {
        self.trees.borrow().clone()
    }

    /// A tree is over; there is no receipt if nobody could tell how it went.
    pub(crate) fn tree_ended(&self, run: &str, receipt: Option<&Receipt>) {
        self.trees.borrow_mut().retain(|tree| *tree.run != *run);
        if let Some(receipt) = receipt {
            self.ended(receipt);
        }
    }

    /// Something of it is over: the job it belongs to writes it down.
    pub(crate) fn ended(&self, receipt: &Receipt) {
        if let Some(job) = &self.job {
            job.ended(receipt);
        }
    }

    /// Cancelled when what is in flight now is to be cancelled.
    pub(crate) fn aborted(&self) -> CancellationToken {
        self.abort.borrow().clone()
    }

    /// Cancels what is in flight at a server elsewhere; how much that was.
    pub(crate) fn abort_calls(&self) -> usize {
        self.abort.take().cancel();
        self.calls.get()
    }
}
