//! The life of a gateway: it starts, listens, handles signals and reloads, and ends everything that it began.

use std::cell::{Cell, RefCell};
use std::{io, path::PathBuf, rc::Rc, sync::Arc};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::config::{ServerTarget, Settings};
use crate::control::{Job, Jobs};
use crate::daemon::{self, ControlListeners, ControlSettings, RunningListeners};
use crate::error::{ControlError, ServeError};
use crate::page::{Page, PageSource};
use crate::state::gateway::{Gateway, ServerLog};
use crate::state::keeper_link::{self, KeeperLink};
use crate::state::server::{JOBS_BUCKET, Server};
use crate::state::{problems::Problems, session::ClientSession, stop::Stop, stoppable::StoppableServers};
use crate::{connection::Principals, metrics::Metrics, response_memory::ResponseMemory};
use crate::{listen, stdio, sweep, takeover, timers::Timers, watch_file::FileWatch};
use leash_model::{clock, clock::Moment, limits, receipt::Reason};
use leash_tree::owner::{self, OwnerWatch};
use leash_tree::owner::{peer::Lookup, peer::resolver::Resolver, peer::watch::Watchers};
use leash_tree::platform::{command, linux};
use leash_tree::{blocking, ledger::book::Book, ledger::store::Store, places::Places, platform::proc::Proc, tree};
use leash_upstream::{client::UpstreamClient, heap::HeapTrimmer, notice::Notice, runtime::runtime};

/// The inputs of a gateway from the program around it.
pub struct GatewayInputs {
    /// The servers and their settings.
    pub settings: Settings,
    /// The directories and files that it uses.
    pub places: Places,
    /// The file of the settings, and the function that reads it again.
    pub source: Option<ConfigSource>,
    /// The settings of the control API.
    pub control: ControlSettings,
    /// The terminal that it was started from: when it is closed, the gateway ends. `None` under `nohup` and without a
    /// terminal.
    pub terminal: Option<OwnerWatch>,
    /// Called for every notice to the user.
    pub tell: Box<dyn Fn(Notice)>,
    /// Prints the stderr of servers.
    pub server_log: ServerLog,
    /// The functions behind the page; `None` if there is no page.
    pub page: Option<Arc<dyn PageSource>>,
}

/// A configuration that can change.
pub struct ConfigSource {
    /// The file to watch.
    pub file: PathBuf,
    /// Reads it again; the error is a complete text for the user.
    pub read: Box<dyn Fn() -> Result<Settings, String>>,
}

/// An event from outside that the gateway reacts to.
enum OutsideEvent {
    /// A signal asks it to stop.
    Stop,
    /// It was started on demand, the process that started it has exited, and no session is left.
    Unused,
    /// SIGHUP: reload the configuration, or stop if the terminal is gone.
    HangUp,
    /// The configuration file was changed.
    Changed,
}

/// Runs a gateway until a signal stops it, or its terminal is closed. It needs a process of its own: it configures the
/// allocator to return large buffers to the kernel.
pub fn serve(serving: GatewayInputs) -> Result<(), ServeError> {
    linux::give_back_large_buffers(limits::LARGE_BUFFER);
    command::withhold(&serving.settings.token_variables);
    let runtime = runtime().map_err(ServeError::Start)?;
    let over = runtime.block_on(run(serving));
    runtime.shutdown_background();
    over
}

async fn run(serving: GatewayInputs) -> Result<(), ServeError> {
    let GatewayInputs { settings, places, source, control, terminal, tell, server_log, page } = serving;
    if settings.is_exposed() {
        return Err(ServeError::Exposed(settings.listen));
    }
    // The handlers come first, so that a signal during the start does not kill the process by default.
    let mut signals = Signals::new().map_err(ServeError::Start)?;
    let control_listeners = match ControlListeners::open(&control, &places.runtime_dir) {
        // Another daemon was faster. One daemon is all that the caller asked for.
        Err(ServeError::Control(ControlError::Held { .. })) if control.on_demand.is_some() => return Ok(()),
        control_listeners => control_listeners?,
    };
    let listener = listen::bind(settings.listen)?;
    let address = listener.local_addr().map_err(ServeError::Start)?;
    let (book, inherited) = match takeover::ask(&settings, &places, address) {
        Some((book, inherited)) => (book, Some(inherited)),
        None => (Book::of_gateway(&places, Some(address))?, None),
    };
    let gateway = Rc::new(Gateway { server_log, ..gateway(settings, places, book, tell) });
    gateway.keeper_link.enable(&gateway);
    if gateway.settings().servers.values().any(|server| matches!(server.target, ServerTarget::Url(_))) {
        gateway.keeper_link.prepare(&gateway);
    }
    gateway.address.set(Some(address));
    if let Some(inherited) = inherited {
        takeover::resume_sessions(&gateway, inherited)?;
    }
    gateway.tell(|| Notice::Listening(address));
    gateway.tell_servers();
    warn_unavailable(&gateway);
    gateway.tasks.spawn_local(sweep::sweep(Rc::clone(&gateway)));
    gateway.tasks.spawn_local(sweep_trees(Rc::clone(&gateway)));
    let stop = CancellationToken::new();
    let page = page.map(|source| Page::new(source, gateway.tasks.clone()));
    let jobs = Jobs::new(Rc::clone(&gateway), page.clone());
    gateway.tasks.spawn_local(listen::accept(Rc::clone(&jobs), listener, stop.clone()));
    let mut running = control_listeners.serve(&jobs)?;
    let ticking = tokio::task::spawn_local(tick(Rc::clone(&jobs)));
    let watching_keeper = tokio::task::spawn_local(keeper_link::watch_keeper(Rc::clone(&gateway)));
    let watching_memory = tokio::task::spawn_local(stdio::watch_pressure(Rc::clone(&gateway)));
    let mut file = source.as_ref().map(|source| FileWatch::new(&source.file));
    let mut unused = std::pin::pin!(daemon::unused(&jobs, control.on_demand));
    loop {
        let event = tokio::select! {
            event = signals.next() => event,
            () = FileWatch::changed(file.as_mut()) => OutsideEvent::Changed,
            () = unused.as_mut() => OutsideEvent::Unused,
        };
        match event {
            OutsideEvent::Stop | OutsideEvent::Unused => break,
            OutsideEvent::HangUp if terminal.as_ref().and_then(owner::lost_by_now).is_some() => break,
            OutsideEvent::HangUp | OutsideEvent::Changed => reload(&gateway, source.as_ref()),
        }
    }
    running.close();
    stop.cancel();
    page.iter().for_each(|page| page.close());
    watching_memory.abort();
    drain(&jobs, &mut signals, running).await;
    ticking.abort();
    watching_keeper.abort();
    gateway.keeper_link.close();
    Ok(())
}

pub(super) fn gateway(settings: Settings, places: Places, book: Book, tell: Box<dyn Fn(Notice)>) -> Gateway {
    let tasks = TaskTracker::new();
    let metrics = Metrics::default();
    metrics.of(&JOBS_BUCKET.into());
    let servers = settings.servers.values().cloned().map(|server| new_server(&metrics, server));
    let trimmer = HeapTrimmer::default();
    Gateway {
        servers: RefCell::new(servers.map(|server| (Rc::clone(&server.name), server)).collect()),
        settings: RefCell::new(Rc::new(settings)),
        metrics,
        timers: Timers::default(),
        principals: Principals::default(),
        lookup: Rc::new(Lookup::open()),
        resolver: RefCell::new(Some(Resolver::start(&tasks))),
        watchers: Watchers::new(&tasks),
        supervisor: Arc::default(),
        tasks,
        book,
        keeper_link: KeeperLink::default(),
        client: UpstreamClient::counted_by(trimmer.clone()),
        places,
        draining: Cell::new(false),
        slots: Rc::default(),
        trimmer,
        stoppable: StoppableServers::default(),
        bodies: Rc::default(),
        memory: ResponseMemory::default(),
        address: Cell::new(None),
        tell,
        problems: Problems::default(),
        started_ms: clock::unix_ms(),
        server_log: Box::new(|_, _| true),
    }
}

/// Ends the trees of runs whose supervisor and keeper are gone.
async fn sweep_trees(gateway: Rc<Gateway>) {
    let places = gateway.places.clone();
    let sweep = move || Some(tree::sweep::sweep(&Store::look_all(&places).ok()?, Proc::own().ok().as_ref()));
    let Ok(Some(swept)) = blocking::spawn(sweep).await else { return };
    swept.warnings.into_iter().for_each(|warning| gateway.warn(warning));
    swept.receipts.into_iter().for_each(|receipt| gateway.tell(|| Notice::Swept(Box::new(receipt))));
}

/// Calls sessions and jobs when their timers fire.
pub(super) async fn tick(jobs: Rc<Jobs>) {
    loop {
        tokio::select! {
            session = jobs.gateway.timers.next() => session.iter().for_each(ClientSession::tick),
            job = jobs.timers.next() => job.iter().for_each(Job::tick),
        }
    }
}

/// Reads the configuration again. Sessions of unchanged servers continue; a configuration with a mistake changes
/// nothing.
fn reload(gateway: &Rc<Gateway>, source: Option<&ConfigSource>) {
    let Some(source) = source else { return };
    let settings = match (source.read)() {
        Ok(settings) => settings,
        Err(text) => return gateway.warn(format!("the configuration was not reloaded: {text}")),
    };
    let before = gateway.settings();
    if settings.listen != before.listen {
        gateway.warn(format!("`listen` is still {}: a new address needs a restart", before.listen));
    }
    let settings = Settings { listen: before.listen, ..settings };
    if settings.is_exposed() {
        let text =
            format!("the configuration was not reloaded: {} can be reached by others and needs a token", before.listen);
        return gateway.warn(text);
    }
    // Before any server starts with the new settings. Variables that an earlier file named stay withheld.
    command::withhold(&settings.token_variables);
    let (mut changed, mut removed) = (Vec::new(), Vec::new());
    let names: Vec<Rc<str>> = gateway.servers.borrow().keys().cloned().collect();
    for name in names.iter().filter(|name| !settings.servers.contains_key(&***name)) {
        removed.push(name.to_string());
        retire(gateway, name);
    }
    for (name, wanted) in &settings.servers {
        let running = gateway.server(name);
        match running.map(|server| (server.settings(), server)) {
            Some((now, _)) if *now == *wanted => continue,
            Some((now, server)) if now.target == wanted.target => {
                server.adopt(wanted.clone());
                gateway.stoppable.add(&server);
                // Deadlines may be earlier now.
                server.all().iter().for_each(|session| session.tick());
            }
            Some(_) => {
                retire(gateway, name);
                begin(gateway, wanted.clone());
            }
            None => begin(gateway, wanted.clone()),
        }
        changed.push(name.clone());
    }
    *gateway.settings.borrow_mut() = Rc::new(settings);
    gateway.tell(|| Notice::Reloaded { changed, removed });
    warn_unavailable(gateway);
}

/// Warns about servers that clients cannot use.
fn warn_unavailable(gateway: &Gateway) {
    for (name, mistakes) in &gateway.settings().unavailable {
        for mistake in mistakes {
            gateway.warn(format!("{mistake}; clients of `{name}` get 503 (`leash serve --check` says more)"));
        }
    }
}

fn new_server(metrics: &Metrics, settings: crate::config::ServerSettings) -> Rc<Server> {
    let server = Server::new(settings, Box::<stdio::Trees>::default());
    metrics.of(&server.bucket);
    server
}

fn begin(gateway: &Gateway, settings: crate::config::ServerSettings) {
    let server = new_server(&gateway.metrics, settings);
    gateway.servers.borrow_mut().insert(Rc::clone(&server.name), server);
}

fn retire(gateway: &Gateway, name: &str) {
    let server = gateway.servers.borrow_mut().remove(name);
    if let Some(server) = server {
        gateway.end_server(&server, Stop { reason: Reason::Reconfigured, force: false });
    }
}

/// Ends everything at once and waits for it, up to a limit or a second signal. The keepers finish the rest: each tree
/// has a keeper, and the gateway has one for upstream sessions.
async fn drain(jobs: &Rc<Jobs>, signals: &mut Signals, running: RunningListeners) {
    let gateway = &jobs.gateway;
    gateway.keeper_link.ending();
    let sessions = jobs.end_everything(&Reason::Shutdown);
    let ending = Rc::clone(jobs);
    gateway.tasks.spawn_local(async move {
        ending.end_all(Reason::Shutdown, false).await;
        running.over();
    });
    // Upstream sessions that are not deleted by then are recorded as left, and stay in the book.
    gateway.client.deadline.set(Moment::on_runtime() + gateway.settings().drain);
    gateway.tell(|| Notice::Draining(sessions));
    gateway.watchers.clear();
    drop(gateway.resolver.take());
    gateway.tasks.close();
    let bound = gateway.settings().drain + jobs.longest_ladder();
    let cut = async {
        loop {
            if let OutsideEvent::Stop = signals.next().await {
                return;
            }
        }
    };
    let done = tokio::select! {
        () = gateway.tasks.wait() => true,
        () = cut => false,
        () = tokio::time::sleep_until(tokio::time::Instant::now() + bound) => false,
    };
    let left = gateway.count().max(jobs.list().len());
    if !done && left > 0 {
        gateway.warn(format!("{left} sessions have not ended yet; their keepers will end them"));
    }
    gateway.book.close();
}

/// The signals that a gateway handles.
struct Signals {
    term: Signal,
    interrupt: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    async fn next(&mut self) -> OutsideEvent {
        tokio::select! {
            _ = self.term.recv() => OutsideEvent::Stop,
            _ = self.interrupt.recv() => OutsideEvent::Stop,
            _ = self.quit.recv() => OutsideEvent::Stop,
            _ = self.hang_up.recv() => OutsideEvent::HangUp,
        }
    }
}
