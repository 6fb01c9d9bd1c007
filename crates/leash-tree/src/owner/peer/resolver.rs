//! The owners of accepted connections, for a gateway on one thread: the socket is asked for at once, the processes are
//! looked for on a blocking thread, by one search at a time for all who wait.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::hints::Hints;
use super::holders::{Holders, Why, holders_of, is_ours};
use super::reserve::Reserve;
use super::sock_diag::{Asked, Lookup};
use super::{Ends, PeerSocket, is_local, table};
use crate::blocking;
use crate::platform::proc::Proc;
use leash_model::limits;

/// Finds owners. A cheap handle; the task behind it ends with the last of them.
#[derive(Clone, Debug)]
pub struct Resolver {
    lookup: Rc<Lookup>,
    /// Without a bound of its own: a connection has one question at a time, and connections are bounded.
    requests: mpsc::UnboundedSender<Request>,
}

struct Request {
    question: Question,
    answer: oneshot::Sender<Holders>,
    /// How often its socket was held by no process that can be seen.
    hidden: usize,
}

#[derive(Clone, Copy)]
struct Question {
    ends: Ends,
    /// `None`: netlink has no answer, so the tables must be read.
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

    /// The processes that hold the client's end of an accepted connection. Call it right after accepting: the socket is
    /// asked for before this returns, because a client may be gone soon.
    ///
    /// A future that is dropped takes its question back.
    pub fn owners(&self, peer: SocketAddr, local: SocketAddr) -> impl Future<Output = Holders> + use<> {
        self.search(peer, local, None)
    }

    /// The same for a connection whose client had `socket`: nobody holds it when the two addresses are by now those of another
    /// connection. For asking again when the owners are gone, because it may have been inherited.
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
                Err(later) => later.await.unwrap_or(Holders::Unknown(Why::Stopped)),
            }
        }
    }

    /// The answer if it needs no search, or where it will come from.
    fn ask(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        known: Option<PeerSocket>,
    ) -> Result<Holders, oneshot::Receiver<Holders>> {
        if !is_local(&peer, &local) {
            return Ok(Holders::Unknown(Why::Remote));
        }
        let ends = Ends::of_client(peer, local);
        let socket = match self.lookup.ask(ends) {
            Asked::Absent | Asked::Found(PeerSocket { inode: 0, .. }) => return Ok(Holders::Nobody),
            Asked::Found(socket) if known.is_some_and(|known| known.inode != socket.inode) => {
                return Ok(Holders::Nobody);
            }
            Asked::Found(socket) => Some(socket),
            // What was known is looked for, whoever has the addresses by now.
            Asked::NoAnswer => known,
        };
        let (answer, later) = oneshot::channel();
        // A task that is gone has dropped the queue; then so is `answer`, and `later` says so.
        let _ = self.requests.send(Request { question: Question { ends, socket }, answer, hidden: 0 });
        Err(later)
    }
}

/// Answers everything that has come in while the last search ran, with one search.
async fn serve(
    mut queue: mpsc::UnboundedReceiver<Request>,
    requests: mpsc::WeakUnboundedSender<Request>,
    tracker: TaskTracker,
) {
    let mut searcher = Some(Searcher::new());
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, limits::PEER_BATCH).await > 0 {
        // A connection that is closed by now has nobody waiting for the answer.
        batch.retain(|request| !request.answer.is_closed());
        if batch.is_empty() {
            continue;
        }
        let questions: Vec<Question> = batch.iter().map(|request| request.question).collect();
        let mut working = searcher.take().unwrap_or_else(Searcher::new);
        let token = tracker.token();
        let search = blocking::spawn(move || {
            let answers = working.answer(&questions);
            drop(token);
            (working, answers)
        });
        // A search that panicked, or a runtime on its way out, drops its batch: those who wait hear that it was
        // stopped.
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
        // The burst of a start must not be kept for ever.
        batch.shrink_to(limits::PEER_HINTS);
    }
}

/// Whether the process that holds a socket may be on its way out. A process that exits gives up its memory first, after which its
/// descriptors may not be read even by its own user; then its table of descriptors; and then it closes them one by one. All the
/// while its sockets are open.
fn may_be_closing(question: &Question, holders: &Holders) -> bool {
    let is_of_our_user = || question.socket.is_some_and(|socket| socket.uid == rustix::process::geteuid().as_raw());
    match holders {
        Holders::Unknown(Why::Hidden) => true,
        Holders::Unknown(Why::NotPermitted) => is_of_our_user(),
        _ => false,
    }
}

/// Asks again after a pause. Only what stays hidden, or refused, is.
async fn ask_again(mut request: Request, pause: Duration, requests: mpsc::WeakUnboundedSender<Request>) {
    tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
    request.hidden += 1;
    // Without the sender the gateway is on its way out: the dropped question says that the search was stopped.
    if let Some(requests) = requests.upgrade() {
        let _ = requests.send(request);
    }
}

/// What a search needs, and remembers for the next one. Travels to the blocking thread and back.
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

    /// Searches, and where no descriptor was free for that, once more with those in reserve.
    fn answer(&mut self, questions: &[Question]) -> Vec<Holders> {
        let mut answers = self.search(questions);
        let starved = |holders: &Holders| matches!(holders, Holders::Unknown(Why::OutOfDescriptors));
        if answers.iter().any(starved) && self.reserve.give_up() {
            answers = self.search(questions);
        }
        self.reserve.fill();
        answers
    }

    fn search(&mut self, questions: &[Question]) -> Vec<Holders> {
        let known = self.proc.ok_or(Why::NoProc).and_then(|proc| Ok((proc, sockets(questions)?)));
        let (proc, sockets) = match known {
            Ok(known) => known,
            Err(why) => return vec![Holders::Unknown(why); questions.len()],
        };
        let mut answers = holders_of(&proc, &sockets, &mut self.hints);
        self.look_twice(&proc, questions, &sockets, &mut answers);
        answers
    }

    /// Nobody has it, says /proc. Unless the kernel agrees, it was handed on during the search, or it is held where we
    /// can't see.
    fn look_twice(&mut self, proc: &Proc, questions: &[Question], sockets: &[PeerSocket], answers: &mut [Holders]) {
        let is_held = |at: &usize| {
            let Question { ends, .. } = questions[*at];
            matches!(answers[*at], Holders::Nobody)
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
                Holders::Nobody if is_ours(sockets[at]) => Holders::Unknown(Why::Ourselves),
                Holders::Nobody => Holders::Unknown(Why::Hidden),
                holders => holders,
            };
        }
    }
}

/// The sockets that are asked about; those that netlink could not tell come from the tables. One that is not there has
/// inode 0.
fn sockets(questions: &[Question]) -> Result<Vec<PeerSocket>, Why> {
    const GONE: PeerSocket = PeerSocket { inode: 0, uid: 0 };
    let open: Vec<Ends> = questions.iter().filter(|asked| asked.socket.is_none()).map(|asked| asked.ends).collect();
    let found = if open.is_empty() { Vec::new() } else { table::find(&open).map_err(|error| unreadable(&error))? };
    let mut found = found.into_iter();
    let socket = |asked: &Question| asked.socket.or_else(|| found.next().flatten()).unwrap_or(GONE);
    Ok(questions.iter().map(socket).collect())
}

fn unreadable(error: &io::Error) -> Why {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Why::OutOfDescriptors,
        _ => Why::NoProc,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn question(peer: SocketAddr, local: SocketAddr) -> Question {
        Question { ends: Ends::of_client(peer, local), socket: None }
    }

    /// The two addresses are those of another connection by now: whoever has that one does not have the first.
    #[tokio::test(flavor = "local")]
    async fn a_connection_is_not_the_next_one_from_the_same_port() {
        let tracker = TaskTracker::new();
        let resolver = Resolver::start(&tracker);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let local = server.local_addr().unwrap();
        let now = resolver.lookup.socket(peer, local).unwrap().unwrap();
        let before = PeerSocket { inode: now.inode + 1, ..now };
        assert!(matches!(resolver.owners_of(peer, local, before).await, Holders::Nobody));
        assert!(matches!(resolver.owners_of(peer, local, now).await, Holders::Unknown(Why::Ourselves)));
    }

    #[test]
    fn a_process_that_may_be_closing_its_sockets_is_asked_for_again() {
        let ours = rustix::process::geteuid().as_raw();
        let of = |uid| Question { socket: Some(PeerSocket { inode: 7, uid }), ..question(at(1), at(2)) };
        for (question, holders, again) in [
            (of(ours), Holders::Unknown(Why::Hidden), true),
            (of(ours + 1), Holders::Unknown(Why::Hidden), true),
            (of(ours), Holders::Unknown(Why::NotPermitted), true),
            (of(ours + 1), Holders::Unknown(Why::NotPermitted), false),
            (question(at(1), at(2)), Holders::Unknown(Why::NotPermitted), false),
            (of(ours), Holders::Unknown(Why::Ourselves), false),
            (of(ours), Holders::Nobody, false),
        ] {
            assert_eq!(may_be_closing(&question, &holders), again, "{holders:?}");
        }
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Without netlink the tables say which socket it is. It is our own, so it is held and no other process has it.
    #[test]
    fn what_netlink_cannot_tell_is_in_the_tables() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let local = server.local_addr().unwrap();
        let inode = rustix::fs::fstat(&client).unwrap().st_ino;
        let questions = [question(peer, "127.0.0.1:1".parse().unwrap()), question(peer, local)];
        let found: Vec<u64> = sockets(&questions).unwrap().iter().map(|socket| socket.inode).collect();
        assert_eq!(found, [0, inode]);
        let answers = Searcher::new().answer(&questions);
        assert!(matches!(answers[..], [Holders::Nobody, Holders::Unknown(Why::Ourselves)]), "{answers:?}");
    }
}
