//! A running job: the driver of [`crate::control::job_machine`].

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::{collections::BTreeMap, time::Duration};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{events::EventKind, jobs::Jobs, joined, view::OwnerView};
use crate::control::job_machine::{Effect, Event, JobLife, JobTimes, State};
use crate::notified::wait_for;
use crate::state::account::{JobAccount, JobHoldings};
use crate::timers::{Timed, Timer};
use crate::{guard, state::gateway::Gateway, state::server::Server, state::stop::Stop, stdio};
use leash_model::clock::{self, Moment};
use leash_model::receipt::{EndedBy, Reason, Receipt, VERSION};
use leash_model::{duration, owner::Role};
use leash_tree::contain::caps::Caps;
use leash_tree::{ledger::receipts, owner::peer::watch::WatchId, platform::identity::HeldProcess as Process};
use leash_upstream::notice::Notice;

/// A session of the control API.
pub(crate) struct Job {
    pub(super) account: Rc<JobAccount>,
    pub(super) name: Option<String>,
    pub(super) owner: OwnerView,
    pub(super) started_ms: u64,
    /// Its number: jobs are counted in the order in which they begin.
    pub(super) number: u64,
    /// Its servers by name. The set never changes.
    pub(crate) servers: BTreeMap<String, Rc<Server>>,
    jobs: Weak<Jobs>,
    life: RefCell<JobLife>,
    timer: RefCell<Option<Timer>>,
    watch: Cell<Option<WatchId>>,
    /// True once its start was announced; only then its end is announced as well.
    announced: Cell<bool>,
    ending_since: Cell<Option<Moment>>,
    /// Cancelled when nothing of it is left: this cuts the calls that still run.
    pub(super) cut: CancellationToken,
    receipt: OnceCell<Rc<Receipt>>,
    over: Notify,
}

/// The parts of a new job.
pub(super) struct Plan {
    pub(super) name: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) budget: Caps,
    pub(super) owner: OwnerView,
    pub(super) times: JobTimes,
    pub(super) servers: BTreeMap<String, crate::config::ServerSettings>,
}

impl Job {
    /// A job whose servers are about to be started.
    pub(super) fn new(jobs: &Rc<Jobs>, plan: Plan) -> Rc<Job> {
        let account = JobAccount::new(plan.labels, plan.budget);
        let of_job = |(name, settings)| (name, Server::of_job(settings, Box::<stdio::Trees>::default(), &account));
        let servers = plan.servers.into_iter().map(of_job).collect();
        Rc::new(Job {
            name: plan.name,
            owner: plan.owner,
            started_ms: clock::unix_ms(),
            number: jobs.count(),
            servers,
            account,
            jobs: Rc::downgrade(jobs),
            life: RefCell::new(JobLife::begin(Moment::on_runtime(), plan.times)),
            timer: RefCell::default(),
            watch: Cell::new(None),
            announced: Cell::new(false),
            ending_since: Cell::new(None),
            cut: CancellationToken::new(),
            receipt: OnceCell::new(),
            over: Notify::new(),
        })
    }

    /// Its id.
    pub(crate) fn id(&self) -> &Rc<str> {
        &self.account.id
    }

    /// Reads its state.
    pub(super) fn look<T>(&self, at: impl FnOnce(&JobLife) -> T) -> T {
        at(&self.life.borrow())
    }

    /// True if it is starting or live.
    pub(super) fn is_alive(&self) -> bool {
        self.look(JobLife::is_alive)
    }

    /// The reason for its end, once it is ending.
    pub(super) fn why(&self) -> Option<Reason> {
        self.look(|life| match life.state() {
            State::Ending { reason, .. } | State::Ended(reason) => Some(reason.clone()),
            State::Starting | State::Live => None,
        })
    }

    /// Makes a process its owner.
    pub(super) fn owned_by(self: &Rc<Self>, gateway: &Gateway, process: &Process) -> std::io::Result<()> {
        let (job, pid) = (Rc::downgrade(self), process.id.pid);
        let gone = move || {
            if let Some(job) = job.upgrade() {
                // The watch has ended with the process.
                job.watch.set(None);
                job.owner_lost(Reason::OwnerGone { pid, role: Role::Owner });
            }
        };
        self.watch.set(Some(gateway.watchers.watch(process, gone)?));
        Ok(())
    }

    /// Ends the job because its owner is gone.
    pub(super) fn owner_lost(self: &Rc<Self>, reason: Reason) {
        if self.is_alive() && self.announced.get() {
            self.tell(EventKind::OwnerLost, Some(reason.describe()), None);
        }
        self.apply(Event::OwnerLost(reason));
    }

    /// Notes that all of its servers run.
    pub(super) fn started(self: &Rc<Self>) {
        self.apply(Event::Started);
        if self.is_alive() {
            self.announced.set(true);
            self.tell(EventKind::Started, None, None);
            if let Some(jobs) = self.jobs.upgrade() {
                jobs.gateway.tell(|| Notice::Opened {
                    session: self.id().to_string(),
                    server: self.shown(),
                    client: None,
                });
            }
        }
    }

    /// Renews its lease.
    pub(super) fn renew(self: &Rc<Self>, ttl: Option<Duration>) {
        self.apply(Event::Renewed(ttl));
    }

    /// Begins its end. It ends once: later callers wait for the same end.
    pub(crate) fn end(self: &Rc<Self>, reason: Reason, force: bool) {
        self.apply(Event::End { reason, force });
    }

    /// Returns its receipt when it is over.
    pub(super) async fn over(&self) -> Rc<Receipt> {
        wait_for(&self.over, || self.receipt.get().cloned()).await
    }

    /// Its receipt, once it is over.
    pub(super) fn receipt(&self) -> Option<&Receipt> {
        self.receipt.get().map(|receipt| &**receipt)
    }

    /// Checks its deadlines; called when its timer fires.
    pub(crate) fn tick(self: &Rc<Self>) {
        // A call whose connection was lost continues, and its client can resume it: it counts as a use as well.
        if self.in_flight() > 0 {
            self.apply(Event::UseBegan);
            self.apply(Event::UseEnded);
        }
        self.apply(Event::Tick);
    }

    /// Counts a use until the guard is dropped.
    pub(super) fn used(self: &Rc<Self>) -> Using {
        self.apply(Event::UseBegan);
        Using(Rc::clone(self))
    }

    /// Requests of its clients that were not answered yet.
    pub(super) fn in_flight(&self) -> usize {
        self.servers.values().map(|server| in_flight(server)).sum()
    }

    /// Cancels all requests in flight; returns their number.
    pub(super) fn abort(&self) -> usize {
        let Some(jobs) = self.jobs.upgrade() else { return 0 };
        let aborted = |server: &Rc<Server>| {
            // Requests over HTTP+SSE are counted among the calls until they are aborted.
            let unanswered = guard::abort_unanswered(&jobs.gateway, server);
            unanswered + stdio::abort(server) + server.abort_calls()
        };
        self.servers.values().map(aborted).sum()
    }

    /// Applies an event and performs its effect. The only place where a job's state changes.
    fn apply(self: &Rc<Self>, event: Event) {
        let Some(jobs) = self.jobs.upgrade() else { return };
        let now = Moment::on_runtime();
        let (effect, deadline) = {
            let mut life = self.life.borrow_mut();
            let effect = life.apply(event, now);
            (effect, life.deadline())
        };
        if let Some((at, _)) = deadline {
            jobs.timers.arm(self, at, now);
        }
        match effect {
            Effect::Nothing => {}
            Effect::End { reason, force } => self.begin_end(&jobs, &reason, force),
            Effect::Hurry => {
                let reason = self.why().unwrap_or(Reason::CONTROL_API);
                let stop = Stop { reason, force: true };
                self.servers.values().for_each(|server| server.stop.give(stop.clone()));
            }
        }
    }

    /// Begins the end: its paths answer 404 from now on, and all of its servers end at the same time.
    fn begin_end(self: &Rc<Self>, jobs: &Rc<Jobs>, reason: &Reason, force: bool) {
        let gateway = &jobs.gateway;
        self.ending_since.set(Some(Moment::on_runtime()));
        jobs.ending(self);
        if let Some(watch) = self.watch.take() {
            gateway.watchers.unwatch(watch);
        }
        if self.announced.get() {
            self.tell(EventKind::Ending, Some(reason.describe()), None);
            let (session, server) = (self.id().to_string(), self.shown());
            gateway.tell(|| Notice::Ending { session, server, client: None, why: reason.clone() });
        }
        for server in self.servers.values() {
            gateway.end_server(server, Stop { reason: reason.clone(), force });
            stdio::end_warm(gateway, server);
        }
        // Members that joined have owners of their own: a daemon that shuts down leaves them alone.
        let signal = self.servers.values().next().map(|server| server.stop.signal());
        let with_others = self.announced.get() && !gateway.draining.get();
        let (job, jobs, reason) = (Rc::clone(self), Rc::clone(jobs), reason.clone());
        gateway.tasks.spawn_local(async move {
            let forced = async {
                match signal {
                    Some(signal) => signal.forced().await,
                    None => std::future::pending().await,
                }
            };
            let others =
                async { if with_others { joined::end(&jobs, job.id(), force, forced).await } else { Vec::new() } };
            let (others, ()) = tokio::join!(others, job.emptied());
            others.into_iter().for_each(|holding| job.account.held(holding));
            job.is_over(&jobs, reason);
        });
    }

    /// Returns when nothing of it is left.
    async fn emptied(&self) {
        // While this waited for one server, a call may have opened something at another.
        while !self.servers.values().all(|server| server.is_empty()) {
            for server in self.servers.values() {
                server.empty().await;
            }
        }
        // There was no await since the servers were seen empty, and a call that is cut opens nothing.
        self.cut.cancel();
    }

    fn is_over(self: &Rc<Self>, jobs: &Jobs, reason: Reason) {
        let gateway = &jobs.gateway;
        let receipt = Rc::new(self.make_receipt(reason));
        if let Err(error) = receipts::append(&gateway.places.receipts, &receipt) {
            gateway.warn(format!("cannot write {}: {error}", gateway.places.receipts.display()));
        }
        let _ = self.receipt.set(Rc::clone(&receipt));
        self.apply(Event::Released);
        jobs.over(self, &receipt, self.announced.get());
        if self.announced.get() {
            self.tell(EventKind::Ended, Some(receipt.why()), Some(&receipt));
            gateway.tell(|| Notice::Ended(Box::new((*receipt).clone())));
        }
        self.over.notify_waiters();
    }

    fn make_receipt(&self, reason: Reason) -> Receipt {
        let JobHoldings { holdings, dropped } = self.account.take();
        let took = self.ending_since.get().map(|since| Moment::on_runtime() - since).unwrap_or_default();
        Receipt {
            version: VERSION,
            session: self.id().to_string(),
            run: receipts::whole(self.id()),
            name: self.shown(),
            labels: self.account.labels.clone(),
            reason,
            client: None,
            containment: None,
            refused: Vec::new(),
            holdings: holdings.into(),
            dropped_holdings: dropped,
            ended_by: EndedBy::Gateway,
            started_ms: self.started_ms,
            ended_ms: clock::unix_ms(),
            took_ms: duration::as_ms(took),
        }
    }

    /// Its name for people.
    fn shown(&self) -> String {
        self.name.clone().unwrap_or_else(|| "session".to_owned())
    }

    fn tell(&self, what: EventKind, why: Option<String>, receipt: Option<&Receipt>) {
        if let Some(jobs) = self.jobs.upgrade() {
            jobs.bus.tell(self.id(), what, why, receipt);
        }
    }
}

/// Requests at one server that were not answered yet.
pub(super) fn in_flight(server: &Server) -> usize {
    stdio::in_flight(server) + server.calls.get()
}

impl Timed for Job {
    fn timer(&self) -> &RefCell<Option<Timer>> {
        &self.timer
    }
}

/// A use of a job; dropping it ends the use.
pub(super) struct Using(Rc<Job>);

impl Drop for Using {
    fn drop(&mut self) {
        self.0.apply(Event::UseEnded);
    }
}
