//! Finds the owners of accepted connections, for a gateway on one thread. It asks for the socket at once. It searches
//! for the processes on a blocking thread, with one search at a time for all waiting requests.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::hints::Hints;
use super::holders::{Holders, UnknownReason, holders_of, is_ours};
use super::reserve::Reserve;
use super::sock_diag::{Lookup, NetlinkAnswer};
use super::{PeerSocket, SocketEnds, is_local, table};
use crate::blocking;
use crate::platform::proc::Proc;
use leash_model::limits;

/// Finds owners. A cheap handle; the task behind it ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Resolver {
    lookup: Rc<Lookup>,
    /// Unbounded: a connection has at most one open request, and connections are bounded.
    requests: mpsc::UnboundedSender<OwnerRequest>,
}

struct OwnerRequest {
    question: OwnerQuestion,
    answer: oneshot::Sender<Holders>,
    /// The number of searches that found its socket held by no visible process.
    hidden: usize,
}

#[derive(Clone, Copy)]
struct OwnerQuestion {
    ends: SocketEnds,
    /// `None` if netlink gave no answer, so the tables must be read.
    socket: Option<PeerSocket>,
}

impl Resolver {
    /// Starts the task that searches, as one of `tracker`'s.
    ///
    /// # Panics
    /// Outside of a tokio runtime with local tasks.
    pub fn start(tracker: &TaskTracker) -> Resolver {
        let (requests, queue) = mpsc::unbounded_channel();
        tracker.spawn_local(serve(queue, requests.downgrade(), tracker.clone()));
        Resolver { lookup: Rc::new(Lookup::open()), requests }
    }

    /// The processes that hold the client's end of an accepted connection. Call it right after accepting: it asks for
    /// the socket before it returns, because a client may be gone soon.
    ///
    /// Dropping the future withdraws the request.
    pub fn owners(&self, peer: SocketAddr, local: SocketAddr) -> impl Future<Output = Holders> + use<> {
        self.search(peer, local, None)
    }

    /// The same as [`Resolver::owners`] for a connection whose client had `socket`. Returns [`Holders::None`] if
    /// another connection has the two addresses by now. For asking again when the owners are gone, because another
    /// process may have inherited the socket.
    pub fn owners_of(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        socket: PeerSocket,
    ) -> impl Future<Output = Holders> + use<> {
        self.search(peer, local, Some(socket))
    }

    fn search(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        known: Option<PeerSocket>,
    ) -> impl Future<Output = Holders> + use<> {
        let asked = self.ask(peer, local, known);
        async move {
            match asked {
                Ok(at_once) => at_once,
                Err(later) => later.await.unwrap_or(Holders::Unknown(UnknownReason::Stopped)),
            }
        }
    }

    /// The result if it needs no search; otherwise the channel on which it will come.
    fn ask(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        known: Option<PeerSocket>,
    ) -> Result<Holders, oneshot::Receiver<Holders>> {
        if !is_local(&peer, &local) {
            return Ok(Holders::Unknown(UnknownReason::Remote));
        }
        let ends = SocketEnds::of_client(peer, local);
        let socket = match self.lookup.ask(ends) {
            NetlinkAnswer::Absent | NetlinkAnswer::Found(PeerSocket { inode: 0, .. }) => return Ok(Holders::None),
            NetlinkAnswer::Found(socket) if known.is_some_and(|known| known.inode != socket.inode) => {
                return Ok(Holders::None);
            }
            NetlinkAnswer::Found(socket) => Some(socket),
            // Search for the known socket, even if another connection has the addresses by now.
            NetlinkAnswer::NoAnswer => known,
        };
        let (answer, later) = oneshot::channel();
        // If the task is gone, it has dropped the queue and with it `answer`, so `later` returns an error.
        let _ = self.requests.send(OwnerRequest { question: OwnerQuestion { ends, socket }, answer, hidden: 0 });
        Err(later)
    }
}

/// Answers all requests that came in during the last search, with one search.
async fn serve(
    mut queue: mpsc::UnboundedReceiver<OwnerRequest>,
    requests: mpsc::WeakUnboundedSender<OwnerRequest>,
    tracker: TaskTracker,
) {
    let mut searcher = Some(Searcher::new());
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, limits::PEER_BATCH).await > 0 {
        // If a connection is closed by now, no task waits for the answer.
        batch.retain(|request| !request.answer.is_closed());
        if batch.is_empty() {
            continue;
        }
        let questions: Vec<OwnerQuestion> = batch.iter().map(|request| request.question).collect();
        let mut working = searcher.take().unwrap_or_else(Searcher::new);
        let token = tracker.token();
        let search = blocking::spawn(move || {
            let answers = working.answer(&questions);
            drop(token);
            (working, answers)
        });
        // If the search panicked or the runtime shuts down, the batch is dropped: the waiting callers get
        // [`UnknownReason::Stopped`].
        let Ok((back, answers)) = search.await else {
            batch.clear();
            continue;
        };
        searcher = Some(back);
        for (request, holders) in batch.drain(..).zip(answers) {
            match limits::PEER_CLOSING.get(request.hidden).filter(|_| may_be_closing(&request.question, &holders)) {
                Some(&pause) => drop(tracker.spawn_local(ask_again(request, pause, requests.clone()))),
                None => drop(request.answer.send(holders)),
            }
        }
        // Do not keep the memory of a burst at start for ever.
        batch.shrink_to(limits::PEER_HINTS);
    }
}

/// True if the process that holds a socket may be exiting. An exiting process first gives up its memory; then even its
/// own user may not read its descriptors. Next it gives up its table of descriptors, and then closes them one by one.
/// All this time its sockets are open.
fn may_be_closing(question: &OwnerQuestion, holders: &Holders) -> bool {
    let is_of_our_user = || question.socket.is_some_and(|socket| socket.uid == rustix::process::geteuid().as_raw());
    match holders {
        Holders::Unknown(UnknownReason::Hidden) => true,
        Holders::Unknown(UnknownReason::NotPermitted) => is_of_our_user(),
        _ => false,
    }
}

/// Asks again after a pause. Only a socket that stays hidden or refused is reported as such.
async fn ask_again(mut request: OwnerRequest, pause: Duration, requests: mpsc::WeakUnboundedSender<OwnerRequest>) {
    tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
    request.hidden += 1;
    // Without the sender the gateway is shutting down: dropping the request reports that the search was stopped.
    if let Some(requests) = requests.upgrade() {
        let _ = requests.send(request);
    }
}

/// The state of a search, which it keeps for the next one. It moves to the blocking thread and back.
struct Searcher {
    proc: Option<Proc>,
    lookup: Lookup,
    hints: Hints,
    reserve: Reserve,
}

impl Searcher {
    fn new() -> Searcher {
        let (proc, reserve) = (Proc::own().ok(), Reserve::new(limits::PEER_RESERVE));
        Searcher { proc, lookup: Lookup::open(), hints: Hints::default(), reserve }
    }

    /// Searches. If no descriptor was free for that, searches once more with those in reserve.
    fn answer(&mut self, questions: &[OwnerQuestion]) -> Vec<Holders> {
        let mut answers = self.search(questions);
        let starved = |holders: &Holders| matches!(holders, Holders::Unknown(UnknownReason::OutOfDescriptors));
        if answers.iter().any(starved) && self.reserve.give_up() {
            answers = self.search(questions);
        }
        self.reserve.fill();
        answers
    }

    fn search(&mut self, questions: &[OwnerQuestion]) -> Vec<Holders> {
        let known = self.proc.ok_or(UnknownReason::NoProc).and_then(|proc| Ok((proc, sockets(questions)?)));
        let (proc, sockets) = match known {
            Ok(known) => known,
            Err(why) => return vec![Holders::Unknown(why); questions.len()],
        };
        let mut answers = holders_of(&proc, &sockets, &mut self.hints);
        self.look_twice(&proc, questions, &sockets, &mut answers);
        answers
    }

    /// Searches again for sockets that no process has according to /proc but that the kernel still knows. Either a
    /// process passed the socket on during the search, or a process that we can't see holds it.
    fn look_twice(
        &mut self,
        proc: &Proc,
        questions: &[OwnerQuestion],
        sockets: &[PeerSocket],
        answers: &mut [Holders],
    ) {
        let is_held = |at: &usize| {
            let OwnerQuestion { ends, .. } = questions[*at];
            matches!(answers[*at], Holders::None)
                && sockets[*at].inode != 0
                && matches!(self.lookup.socket(ends.from, ends.to), Ok(Some(now)) if now == sockets[*at])
        };
        let doubtful: Vec<usize> = (0..answers.len()).filter(is_held).collect();
        if doubtful.is_empty() {
            return;
        }
        let again: Vec<PeerSocket> = doubtful.iter().map(|&at| sockets[at]).collect();
        for (at, holders) in doubtful.into_iter().zip(holders_of(proc, &again, &mut self.hints)) {
            answers[at] = match holders {
                Holders::None if is_ours(sockets[at]) => Holders::Unknown(UnknownReason::Ourselves),
                Holders::None => Holders::Unknown(UnknownReason::Hidden),
                holders => holders,
            };
        }
    }
}

/// The sockets of the requests. Those without an answer from netlink are read from the tables. A missing socket has
/// inode 0.
fn sockets(questions: &[OwnerQuestion]) -> Result<Vec<PeerSocket>, UnknownReason> {
    const GONE: PeerSocket = PeerSocket { inode: 0, uid: 0 };
    let open: Vec<SocketEnds> =
        questions.iter().filter(|asked| asked.socket.is_none()).map(|asked| asked.ends).collect();
    let found = if open.is_empty() { Vec::new() } else { table::find(&open).map_err(|error| unreadable(&error))? };
    let mut found = found.into_iter();
    let socket = |asked: &OwnerQuestion| asked.socket.or_else(|| found.next().flatten()).unwrap_or(GONE);
    Ok(questions.iter().map(socket).collect())
}

fn unreadable(error: &io::Error) -> UnknownReason {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => UnknownReason::OutOfDescriptors,
        _ => UnknownReason::NoProc,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn question(peer: SocketAddr, local: SocketAddr) -> OwnerQuestion {
        OwnerQuestion { ends: SocketEnds::of_client(peer, local), socket: None }
    }

    /// Another connection has the two addresses by now. Its holder does not hold the first connection's socket.
    #[tokio::test(flavor = "local")]
    async fn reused_port_does_not_keep_the_old_owners() {
        let tracker = TaskTracker::new();
        let resolver = Resolver::start(&tracker);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let local = server.local_addr().unwrap();
        let now = resolver.lookup.socket(peer, local).unwrap().unwrap();
        let before = PeerSocket { inode: now.inode + 1, ..now };
        assert!(matches!(resolver.owners_of(peer, local, before).await, Holders::None));
        assert!(matches!(resolver.owners_of(peer, local, now).await, Holders::Unknown(UnknownReason::Ourselves)));
    }

    #[test]
    fn a_process_that_may_be_closing_its_sockets_is_asked_for_again() {
        let ours = rustix::process::geteuid().as_raw();
        let of = |uid| OwnerQuestion { socket: Some(PeerSocket { inode: 7, uid }), ..question(at(1), at(2)) };
        for (question, holders, again) in [
            (of(ours), Holders::Unknown(UnknownReason::Hidden), true),
            (of(ours + 1), Holders::Unknown(UnknownReason::Hidden), true),
            (of(ours), Holders::Unknown(UnknownReason::NotPermitted), true),
            (of(ours + 1), Holders::Unknown(UnknownReason::NotPermitted), false),
            (question(at(1), at(2)), Holders::Unknown(UnknownReason::NotPermitted), false),
            (of(ours), Holders::Unknown(UnknownReason::Ourselves), false),
            (of(ours), Holders::None, false),
        ] {
            assert_eq!(may_be_closing(&question, &holders), again, "{holders:?}");
        }
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Without netlink the tables name the socket. It is our own, so it is held, but by no other process.
    #[test]
    fn sockets_unknown_to_netlink_are_read_from_the_tables() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let local = server.local_addr().unwrap();
        let inode = rustix::fs::fstat(&client).unwrap().st_ino;
        let questions = [question(peer, "127.0.0.1:1".parse().unwrap()), question(peer, local)];
        let found: Vec<u64> = sockets(&questions).unwrap().iter().map(|socket| socket.inode).collect();
        assert_eq!(found, [0, inode]);
        let answers = Searcher::new().answer(&questions);
        assert!(matches!(answers[..], [Holders::None, Holders::Unknown(UnknownReason::Ourselves)]), "{answers:?}");
    }
}
