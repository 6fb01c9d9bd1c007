//! Finds the owners of accepted connections, for a gateway on one thread. It asks for the socket at once. It searches
//! for the processes on a blocking thread, with one search at a time for all waiting requests.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::hints::Hints;
use super::holders::{FoundPlace, Holders, UnknownReason, holders_of, is_ours};
use super::reserve::Reserve;
use super::sock_diag::{Lookup, NetlinkAnswer};
use super::{PeerSocket, SocketEnds, is_local};
use crate::blocking;
use crate::platform::identity::HeldProcess;
use crate::platform::proc::Proc;
use leash_model::limits;

/// Finds owners. A cheap handle; the task behind it ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Resolver {
    lookup: Rc<Lookup>,
    proc: Option<Proc>,
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
    socket: PeerSocket,
}

impl Resolver {
    /// Starts the task that searches, as one of `tracker`'s.
    ///
    /// # Panics
    /// Outside of a tokio runtime with local tasks.
    pub fn start(tracker: &TaskTracker) -> Resolver {
        let (requests, queue) = mpsc::unbounded_channel();
        tracker.spawn_local(serve(queue, requests.downgrade(), tracker.clone()));
        Resolver { lookup: Rc::new(Lookup::open()), proc: Proc::own().ok(), requests }
    }

    /// The processes at the places where an earlier search found `socket`, if all of them still hold it there; `None`
    /// if a search is needed. This takes 10 us for each process. It does not find a process that received the socket
    /// after the search.
    pub fn still_holding(&self, places: &[FoundPlace], socket: PeerSocket) -> Option<Vec<HeldProcess>> {
        let proc = self.proc.filter(|_| !places.is_empty())?;
        places.iter().map(|place| place.holder(&proc, socket)).collect()
    }

    /// The processes that hold `socket`, the client's end of an accepted connection. Returns [`Holders::None`] if
    /// another connection has the two addresses by now. It may be asked again when the owners are gone, because another
    /// process may have inherited the socket.
    ///
    /// Dropping the future withdraws the request.
    pub fn owners_of(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        socket: PeerSocket,
    ) -> impl Future<Output = Holders> + use<> {
        let asked = self.ask(peer, local, socket);
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
        socket: PeerSocket,
    ) -> Result<Holders, oneshot::Receiver<Holders>> {
        if !is_local(&peer, &local) {
            return Ok(Holders::Unknown(UnknownReason::Remote));
        }
        let ends = SocketEnds::of_client(peer, local);
        match self.lookup.ask(ends) {
            NetlinkAnswer::Absent | NetlinkAnswer::Found(PeerSocket { inode: 0, .. }) => return Ok(Holders::None),
            NetlinkAnswer::Found(now) if now.inode != socket.inode => return Ok(Holders::None),
            // Without an answer, search for the socket even if another connection has the addresses by now.
            NetlinkAnswer::Found(_) | NetlinkAnswer::NoAnswer => {}
        }
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
    match holders {
        Holders::Unknown(UnknownReason::Hidden) => true,
        Holders::Unknown(UnknownReason::NotPermitted) => question.socket.uid == rustix::process::geteuid().as_raw(),
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
        let Some(proc) = self.proc else { return vec![Holders::Unknown(UnknownReason::NoProc); questions.len()] };
        let sockets: Vec<PeerSocket> = questions.iter().map(|question| question.socket).collect();
        let mut answers = holders_of(&proc, &sockets, &mut self.hints);
        self.look_twice(&proc, questions, &mut answers);
        answers
    }

    /// Searches again for sockets that no process has according to /proc but that the kernel still knows. Either a
    /// process passed the socket on during the search, or a process that we can't see holds it.
    fn look_twice(&mut self, proc: &Proc, questions: &[OwnerQuestion], answers: &mut [Holders]) {
        let is_held = |at: &usize| {
            let OwnerQuestion { ends, socket } = questions[*at];
            matches!(answers[*at], Holders::None)
                && socket.inode != 0
                && matches!(self.lookup.socket(ends.from, ends.to), Ok(Some(now)) if now == socket)
        };
        let doubtful: Vec<usize> = (0..answers.len()).filter(is_held).collect();
        if doubtful.is_empty() {
            return;
        }
        let again: Vec<PeerSocket> = doubtful.iter().map(|&at| questions[at].socket).collect();
        for (at, holders) in doubtful.into_iter().zip(holders_of(proc, &again, &mut self.hints)) {
            answers[at] = match holders {
                Holders::None if is_ours(questions[at].socket) => Holders::Unknown(UnknownReason::Ourselves),
                Holders::None => Holders::Unknown(UnknownReason::Hidden),
                holders => holders,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

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
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let of =
            |uid| OwnerQuestion { ends: SocketEnds::of_client(at(1), at(2)), socket: PeerSocket { inode: 7, uid } };
        for (question, holders, again) in [
            (of(ours), Holders::Unknown(UnknownReason::Hidden), true),
            (of(ours + 1), Holders::Unknown(UnknownReason::Hidden), true),
            (of(ours), Holders::Unknown(UnknownReason::NotPermitted), true),
            (of(ours + 1), Holders::Unknown(UnknownReason::NotPermitted), false),
            (of(ours), Holders::Unknown(UnknownReason::Ourselves), false),
            (of(ours), Holders::None, false),
        ] {
            assert_eq!(may_be_closing(&question, &holders), again, "{holders:?}");
        }
    }

    /// A socket of our own is held, but by no other process. A closed one is held by none.
    #[test]
    fn our_own_socket_is_told_from_a_closed_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let ends = SocketEnds::of_client(peer, server.local_addr().unwrap());
        let (inode, uid) = (rustix::fs::fstat(&client).unwrap().st_ino, rustix::process::geteuid().as_raw());
        let questions = [0, inode].map(|inode| OwnerQuestion { ends, socket: PeerSocket { inode, uid } });
        let answers = Searcher::new().answer(&questions);
        assert!(matches!(answers[..], [Holders::None, Holders::Unknown(UnknownReason::Ourselves)]), "{answers:?}");
    }
}
