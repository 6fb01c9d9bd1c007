//! The state that all connections share.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{collections::HashMap, rc::Rc, sync::Arc};

use tokio_util::task::TaskTracker;

use super::server::{Occupied, Server};
use super::{
    keeper_link::KeeperLink, problems::Problems, session::ClientSession, stop::Stop, stoppable::StoppableServers,
};
use crate::budget::{Bounds, Budget, BudgetClient, LimitReached, Share};
use crate::config::{ServerSettings, ServerTarget, Settings};
use crate::respond::{self, Answer};
use crate::{connection::Principals, metrics::Metrics};
use crate::{response_memory::ResponseMemory, timers::Timers};
use leash_model::receipt::Reason;
use leash_tree::owner::{peer::Lookup, peer::resolver::Resolver, peer::watch::Watchers};
use leash_tree::{ledger::book::Book, places::Places, tree::SharedSupervisor};
use leash_upstream::heap::{Counted, HeapTrimmer};
use leash_upstream::{address::HttpTransport, client::UpstreamClient, notice::Notice};

/// The label that names the gateway of a tree.
pub(crate) const GATEWAY_LABEL: &str = "gateway";

/// Prints a line of a server, without its newline; the arguments are the server's name and the line. Returns false if
/// it cannot be printed now: the gateway tries again, and the server waits.
pub type ServerLog = Box<dyn Fn(&str, &[u8]) -> bool>;

/// The gateway's state. It runs on one thread: a function borrows it and never holds it across an `.await`.
pub(crate) struct Gateway {
    pub(crate) settings: RefCell<Rc<Settings>>,
    pub(crate) servers: RefCell<HashMap<Rc<str>, Rc<Server>>>,
    pub(crate) metrics: Metrics,
    pub(crate) timers: Timers<ClientSession>,
    /// Tasks that outlive a request; the gateway waits for them before it exits.
    pub(crate) tasks: TaskTracker,
    pub(crate) principals: Principals,
    pub(crate) lookup: Rc<Lookup>,
    /// Finds clients' processes, until the gateway stops.
    pub(crate) resolver: RefCell<Option<Resolver>>,
    pub(crate) watchers: Watchers,
    /// The supervisor of all trees of stdio servers.
    pub(crate) supervisor: Arc<SharedSupervisor>,
    /// The upstream sessions that are open, on disk.
    pub(crate) book: Book,
    /// The same in the memory of the keeper process, with credentials.
    pub(crate) keeper_link: KeeperLink,
    pub(crate) client: UpstreamClient,
    pub(crate) places: Places,
    /// True once no new session may begin.
    pub(crate) draining: Cell<bool>,
    /// The sessions of all servers that have not ended, including those that are ending.
    pub(crate) slots: Rc<Budget>,
    pub(crate) trimmer: HeapTrimmer,
    pub(crate) stoppable: StoppableServers,
    /// The budget for the bodies of requests.
    pub(crate) bodies: Rc<Budget>,
    /// The memory for answers that clients have not read.
    pub(crate) memory: ResponseMemory,
    /// The address that it listens on, once it does.
    pub(crate) address: Cell<Option<SocketAddr>>,
    pub(crate) tell: Box<dyn Fn(Notice)>,
    /// The last problems that were told.
    pub(crate) problems: Problems,
    /// The time at which it began, milliseconds since 1970.
    pub(crate) started_ms: u64,
    /// Prints the stderr of servers.
    pub(crate) server_log: ServerLog,
}

impl Gateway {
    /// Reports a notice to the user.
    pub(crate) fn tell(&self, notice: impl FnOnce() -> Notice) {
        let notice = notice();
        self.problems.note(&notice);
        (self.tell)(notice);
    }

    /// Reports every server that clients can use, and its URL, to the user.
    pub(crate) fn tell_servers(&self) {
        let settings = self.settings();
        let available = settings.servers.iter().filter(|(name, _)| !settings.unavailable.contains_key(*name));
        for (name, server) in available {
            self.tell(|| Notice::Serves { server: name.clone(), url: self.url(server) });
        }
    }

    /// The URL of a server of the configuration, for clients on this machine.
    pub(crate) fn url(&self, server: &ServerSettings) -> String {
        let is_sse = matches!(&server.target, ServerTarget::Url(upstream) if upstream.transport == HttpTransport::Sse);
        format!("http://{}/{}/{}", self.reached_at(), server.name, if is_sse { "sse" } else { "mcp" })
    }

    /// Reports a warning to the user.
    pub(crate) fn warn(&self, text: String) {
        self.tell(|| Notice::Warning(text));
    }

    /// The current settings; a reload does not change them for a request that already has them.
    pub(crate) fn settings(&self) -> Rc<Settings> {
        Rc::clone(&self.settings.borrow())
    }

    /// A server by its name.
    pub(crate) fn server(&self, name: &str) -> Option<Rc<Server>> {
        self.servers.borrow().get(name).cloned()
    }

    /// The number of sessions that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.slots.used()
    }

    /// Admits a new session or tree of a client, or answers why not. It is counted until the slot is dropped.
    pub(crate) fn admit(self: &Rc<Self>, server: &Rc<Server>, client: BudgetClient) -> Result<SessionSlot, Answer> {
        if self.draining.get() || server.stop.is_given() {
            return Err(respond::unavailable(
                "Service Unavailable: the gateway is shutting down; try again when it is back",
            ));
        }
        let (settings, policy) = (self.settings(), &server.settings().policy);
        let here = Bounds::of_sessions(settings.max_sessions, settings.max_sessions_per_client);
        let there = Bounds::of_sessions(policy.max_sessions.unwrap_or(usize::MAX), policy.max_sessions_per_client);
        let mut shares = [self.slots.share(client, here), server.slots.share(client, there)];
        for share in &mut shares {
            share.take(1).map_err(|full| {
                self.metrics.session_refused(&server.bucket);
                respond::unavailable(match full {
                    LimitReached::All => "Service Unavailable: too many sessions; end one, or raise `maxSessions`",
                    LimitReached::Client => "Service Unavailable: too many sessions of this client; end one, or raise `maxSessionsPerClient`",
                })
            })?;
        }
        Ok(SessionSlot { _shares: shares, _occupied: server.occupy(), _counted: self.trimmer.count() })
    }

    /// Begins the end of all sessions and trees at the same time, and admits no others; returns their number.
    pub(crate) fn end_all(&self, reason: &Reason) -> usize {
        self.draining.set(true);
        let servers: Vec<_> = self.servers.borrow().values().cloned().collect();
        let stop = Stop { reason: reason.clone(), force: false };
        servers.iter().map(|server| self.end_server(server, stop.clone())).sum()
    }

    /// The address at which a client on this machine reaches the gateway.
    pub(crate) fn reached_at(&self) -> SocketAddr {
        let mut address = self.address.get().unwrap_or(self.settings.borrow().listen);
        if address.ip().is_unspecified() {
            let loopback: IpAddr =
                if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            address.set_ip(loopback);
        }
        address
    }

    /// Begins the end of all sessions and trees of one server; returns their number.
    pub(crate) fn end_server(&self, server: &Rc<Server>, stop: Stop) -> usize {
        let reason = stop.reason.clone();
        server.stop.give(stop);
        let sessions = server.all();
        sessions.iter().for_each(|session| session.end(reason.clone()));
        sessions.len() + server.shared.end_all(&reason)
    }
}

/// The place of a session or a tree. It is held until everything that was begun with it is over.
pub(crate) struct SessionSlot {
    /// The shares of the gateway's and of the server's sessions.
    _shares: [Share; 2],
    _occupied: Occupied,
    _counted: Counted,
}
