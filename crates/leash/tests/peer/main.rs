//! The owners of local HTTP clients, with real clients: from an accepted connection to the processes that hold its
//! other end, and to the notification that they exited.

mod owners;
mod permission;
mod watching;

use std::net::SocketAddr;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use leash_tree::owner::peer::resolver::Resolver;
use leash_tree::owner::peer::watch::Watchers;
use leash_tree::owner::peer::{Holders, Lookup, PeerSocket};
use leash_tree::platform::identity::HeldProcess;
use testkit::scene::Scene;
use testkit::tcp_client::Client;
use testkit::user::Who;
use testkit::wait::LIMIT;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// The user that runs the tests.
fn me() -> Who {
    if rustix::process::geteuid().is_root() { Who::Root } else { Who::User }
}

/// The parts of a gateway that deal with owners.
struct Gateway {
    listener: TcpListener,
    lookup: Lookup,
    resolver: Resolver,
    watchers: Watchers,
}

/// An accepted connection, held open.
struct Accepted {
    peer: SocketAddr,
    local: SocketAddr,
    /// `None` if the client closed it before it was accepted.
    socket: Option<PeerSocket>,
    _stream: TcpStream,
}

impl Gateway {
    async fn accept(&self) -> Accepted {
        let (stream, peer) = soon("a connection", self.listener.accept()).await.expect("cannot accept");
        let local = stream.local_addr().expect("it has an address");
        let socket = self.lookup.socket(peer, local).expect("the kernel answers");
        Accepted { peer, local, socket, _stream: stream }
    }

    async fn owners(&self, accepted: &Accepted) -> Holders {
        match self.ask(accepted) {
            Some(owners) => soon("the owners", owners).await,
            None => Holders::None,
        }
    }

    fn ask(&self, accepted: &Accepted) -> Option<impl Future<Output = Holders> + use<>> {
        Some(self.resolver.owners_of(accepted.peer, accepted.local, accepted.socket?))
    }

    /// The owners of the next connection.
    async fn next_owners(&self) -> Holders {
        self.owners(&self.accept().await).await
    }

    /// A client of `scene`'s user, connected to `host` at this gateway's port.
    fn client(&self, scene: &Scene, host: &str, options: &[&str]) -> Client {
        Client::start(self.client_command(scene, host, options))
    }

    fn client_command(&self, scene: &Scene, host: &str, options: &[&str]) -> Command {
        let port = self.listener.local_addr().expect("it has an address").port();
        let mut command = scene.zoo(["client", &format!("{host}:{port}")]);
        command.args(options);
        command
    }

    /// Notified when the process has exited.
    fn news_of(&self, held: &HeldProcess) -> Rc<Notify> {
        let news = Rc::new(Notify::new());
        let told = Rc::clone(&news);
        self.watchers.watch(held, move || told.notify_one()).expect("cannot watch");
        news
    }
}

/// Runs `case` with a gateway that listens on `listen`, and checks that no task is left. Returns false if the machine
/// has no such address.
fn with_gateway(listen: &str, case: impl AsyncFnOnce(&Gateway)) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("cannot start a runtime");
    LocalSet::new().block_on(&runtime, async {
        let Ok(listener) = TcpListener::bind((listen, 0)).await else {
            testkit::note(&format!("skipped: cannot listen on {listen}"));
            return false;
        };
        let tracker = TaskTracker::new();
        let (resolver, watchers) = (Resolver::start(&tracker), Watchers::new(&tracker));
        let gateway = Gateway { listener, lookup: Lookup::open(), resolver, watchers };
        case(&gateway).await;
        drop(gateway);
        tracker.close();
        soon("the end of all tasks", tracker.wait()).await;
        true
    })
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(LIMIT, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {LIMIT:?} in vain for {what}"),
    }
}

/// Lets other tasks and the reactor run many times: everything that can happen without waiting has happened.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// The processes, which must be known, in the order of their pids.
fn known(holders: &Holders) -> Vec<&Arc<HeldProcess>> {
    let Holders::Known(holders) = holders else { panic!("the owners should be known: {holders:?}") };
    let mut holders: Vec<_> = holders.iter().map(|holder| &holder.process).collect();
    holders.sort_by_key(|held| held.id.pid);
    holders
}

fn pids(holders: &Holders) -> Vec<i32> {
    known(holders).into_iter().map(|held| held.id.pid).collect()
}

fn sorted(mut pids: Vec<i32>) -> Vec<i32> {
    pids.sort_unstable();
    pids
}
