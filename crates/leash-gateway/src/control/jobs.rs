//! All jobs: the living ones, and the last ones that ended.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::{path::Path, rc::Rc, time::Duration};

use tokio::sync::Notify;

use super::{events::EventStreams, job::Job, joined::Looks, look, view::SessionView};
use crate::state::gateway::{GATEWAY_LABEL, Gateway};
use crate::state::server::{JOBS_BUCKET, Server};
use crate::{page::Page, stdio, timers::Timers};
use leash_model::limits;
use leash_model::receipt::{Reason, Receipt};
use leash_tree::{blocking, ledger::store::Store, platform::linux};

/// The jobs of a gateway.
pub(crate) struct Jobs {
    pub(crate) gateway: Rc<Gateway>,
    page: Option<Rc<Page>>,
    /// The living and the ending jobs, by id.
    all: RefCell<HashMap<Rc<str>, Rc<Job>>>,
    /// The jobs that can be used, by the secret in their paths.
    open: RefCell<HashMap<Rc<str>, Rc<Job>>>,
    /// The last jobs that are over, the oldest first, as text: nothing else of them is kept.
    ended: RefCell<VecDeque<EndedJob>>,
    pub(crate) timers: Timers<Job>,
    pub(super) bus: EventStreams,
    pub(super) looks: Looks,
    changed: Notify,
    /// The number of all jobs that ever began.
    counted: Cell<u64>,
    /// True once no new job may begin.
    closed: Cell<bool>,
    /// The command line of `leash attach`.
    attach: OnceCell<AttachCommand>,
    /// The number of jobs that ended since the heap was last trimmed.
    freed: Cell<usize>,
}

/// The command line that connects stdin and stdout to a server of a job.
#[derive(Clone, Debug)]
pub(super) struct AttachCommand {
    /// The program.
    pub(super) command: String,
    /// The arguments before `ID/NAME`.
    pub(super) args: Vec<String>,
}

impl AttachCommand {
    /// This program, with this control socket.
    fn through(socket: Option<&Path>) -> AttachCommand {
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| "leash".into());
        let program = program.to_string_lossy();
        // After an update this process still runs the deleted file; the new one is at the same path.
        let program = program.strip_suffix(" (deleted)").unwrap_or(&program).to_owned();
        let socket = socket.map(|socket| ["--control".to_owned(), socket.to_string_lossy().into_owned()]);
        let args = std::iter::once("attach".to_owned()).chain(socket.into_iter().flatten()).collect();
        AttachCommand { command: program, args }
    }
}

/// A job that is over.
struct EndedJob {
    id: Rc<str>,
    /// Its [`SessionView`], as text.
    view: Box<str>,
}

impl Jobs {
    /// No job yet.
    pub(crate) fn new(gateway: Rc<Gateway>, page: Option<Rc<Page>>) -> Rc<Jobs> {
        Rc::new(Jobs {
            gateway,
            page,
            all: RefCell::default(),
            open: RefCell::default(),
            ended: RefCell::default(),
            timers: Timers::default(),
            bus: EventStreams::default(),
            looks: Looks::default(),
            changed: Notify::new(),
            counted: Cell::new(0),
            closed: Cell::new(false),
            attach: OnceCell::new(),
            freed: Cell::new(0),
        })
    }

    /// The page, unless the settings switch it off.
    pub(crate) fn page(&self) -> Option<Rc<Page>> {
        self.page.clone().filter(|_| self.gateway.settings().page)
    }

    /// The memory of the trees by server, as their keepers last recorded it.
    pub(crate) async fn tree_memory(&self) -> BTreeMap<String, u64> {
        let (dir, run) = (self.gateway.places.runtime_dir.clone(), self.gateway.book.run().to_owned());
        // Jobs share one name: a name per job would be too many.
        let jobs: HashSet<String> = self.list().iter().map(|job| job.id().to_string()).collect();
        // This reads a file per tree, so it runs on the blocking pool and not on the thread that serves all requests.
        let read = move || {
            let mut memory = BTreeMap::new();
            let records = Store::look(&dir).ok().flatten().and_then(|store| store.list().ok());
            for record in records.into_iter().flatten().filter_map(|found| found.record) {
                if record.labels.get(GATEWAY_LABEL) == Some(&run) {
                    let of_job = jobs.contains(&record.session);
                    let name = if of_job { JOBS_BUCKET.to_owned() } else { record.name };
                    *memory.entry(name).or_default() += record.memory_bytes;
                }
            }
            memory
        };
        blocking::spawn(read).await.unwrap_or_default()
    }

    /// The longest time that the end of a tree may take if the whole tree ends.
    pub(crate) fn longest_ladder(&self) -> Duration {
        let servers = self.gateway.servers.borrow().values().cloned().chain(self.servers()).collect::<Vec<_>>();
        servers.iter().map(|server| server.settings().policy.grace * 2).max().unwrap_or_default()
    }

    /// Begins the end of all sessions, trees and jobs at the same time; returns their number.
    pub(crate) fn end_everything(self: &Rc<Self>, reason: &Reason) -> usize {
        let sessions = self.gateway.end_all(reason);
        let living = self.close(reason, false);
        let (jobs, reason) = (Rc::clone(self), reason.clone());
        // The event streams get the end of the last job before they end.
        self.gateway.tasks.spawn_local(async move { jobs.end_all(reason, false).await });
        sessions + living
    }

    /// True if there is neither a living nor an ending job.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.borrow().is_empty()
    }

    /// Returns when a job begins or is over after this call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Begins the end of all jobs, and lets no new one begin. Returns the number of living jobs.
    pub(crate) fn close(&self, reason: &Reason, force: bool) -> usize {
        self.closed.set(true);
        let living: Vec<_> = self.list().into_iter().filter(|job| job.is_alive()).collect();
        self.list().iter().for_each(|job| job.end(reason.clone(), force));
        living.len()
    }

    /// Ends all jobs at the same time, and lets no new one begin; returns when all are over. The event streams get
    /// these events, and then end.
    pub(crate) async fn end_all(&self, reason: Reason, force: bool) {
        self.close(&reason, force);
        for job in self.list() {
            job.over().await;
        }
        self.bus.close();
    }

    /// Sets the control socket for the command line of `leash attach`.
    pub(crate) fn attach_at(&self, socket: &Path) {
        // A gateway has one control socket, so this is called once.
        let _ = self.attach.set(AttachCommand::through(Some(socket)));
    }

    /// The command line of `leash attach`.
    pub(super) fn attach(&self) -> &AttachCommand {
        self.attach.get_or_init(|| AttachCommand::through(None))
    }

    /// Counts a new job; returns its number.
    pub(super) fn count(&self) -> u64 {
        self.counted.update(|counted| counted + 1);
        self.counted.get()
    }

    /// True if no new job may begin.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Adds a new job.
    pub(super) fn add(&self, job: &Rc<Job>) {
        self.all.borrow_mut().insert(Rc::clone(job.id()), Rc::clone(job));
        self.open.borrow_mut().insert(Rc::clone(&job.account.secret), Rc::clone(job));
        self.changed.notify_waiters();
    }

    /// Removes a job that begins to end from those that can be used.
    pub(super) fn ending(&self, job: &Job) {
        self.timers.disarm(job);
        self.open.borrow_mut().remove(&job.account.secret);
    }

    /// Removes a job that is over, and keeps its view. A job that never lived is not listed.
    pub(super) fn over(&self, job: &Job, receipt: &Receipt, lived: bool) {
        self.all.borrow_mut().remove(job.id());
        if lived {
            let mut ended = self.ended.borrow_mut();
            if ended.len() == limits::ENDED_JOBS {
                ended.pop_front();
            }
            let view = serde_json::to_string(&look::over(job, receipt)).unwrap_or_default();
            ended.push_back(EndedJob { id: Rc::clone(job.id()), view: view.into() });
        }
        self.give_back();
        self.changed.notify_waiters();
    }

    /// Trims the heap every so many jobs. The allocator keeps freed memory that lies between live allocations, so
    /// without this a daemon would grow with every job.
    fn give_back(&self) {
        let freed = self.freed.get() + 1;
        self.freed.set(freed % limits::JOBS_PER_TRIM);
        if freed == limits::JOBS_PER_TRIM {
            linux::give_back_heap();
        }
    }

    /// A job that is not over.
    pub(super) fn get(&self, id: &str) -> Option<Rc<Job>> {
        self.all.borrow().get(id).cloned()
    }

    /// All jobs that are not over, in the order in which they began.
    pub(crate) fn list(&self) -> Vec<Rc<Job>> {
        let mut jobs: Vec<_> = self.all.borrow().values().cloned().collect();
        jobs.sort_by_key(|job| job.number);
        jobs
    }

    /// The view of a job, if it is one of the last that are over.
    pub(super) fn ended(&self, id: &str) -> Option<SessionView> {
        self.ended.borrow().iter().rev().find(|ended| *ended.id == *id).and_then(EndedJob::view)
    }

    /// The views of the last jobs that are over.
    pub(super) fn all_ended(&self) -> Vec<SessionView> {
        self.ended.borrow().iter().filter_map(EndedJob::view).collect()
    }

    /// The job and the server that a path names, and what follows: `SECRET/NAME/REST`.
    pub(crate) fn route<'p>(&self, path: &'p str) -> Option<(Rc<Job>, Rc<Server>, &'p str)> {
        let (secret, rest) = path.split_once('/')?;
        let (name, rest) = rest.split_once('/')?;
        let job = self.open.borrow().get(secret).cloned()?;
        let server = job.servers.get(name).cloned()?;
        Some((job, server, rest.trim_end_matches('/')))
    }

    /// All servers of all jobs that are not over.
    pub(crate) fn servers(&self) -> Vec<Rc<Server>> {
        self.all.borrow().values().flat_map(|job| job.servers.values().cloned()).collect()
    }

    /// The number of trees that wait for a client.
    pub(crate) fn warm(&self) -> usize {
        self.servers().iter().filter(|server| stdio::has_warm(server)).count()
    }
}

impl EndedJob {
    fn view(&self) -> Option<SessionView> {
        serde_json::from_str(&self.view).ok()
    }
}
