//! The keeper process. It waits in one blocking call, without a runtime, until the process that started it says that
//! everything is done. If that process dies before, or is stopped while its host is gone, the keeper ends all upstream
//! sessions.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::{os::unix::net::UnixListener, path::Path, time::Duration};

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use tokio::task::JoinSet;

use super::machine::{Effect, Event, HeldSessions, Machine, State};
use super::{HeldSession, KeeperOrders, add_end, connection_facts::ConnectionFacts, fds, handover};
use crate::delete::{self, DeleteResult};
use crate::sweep::{self, Sweep, SweptBy};
use crate::{client::UpstreamClient, runtime::runtime};
use leash_model::clock::{Moment, timeout_until};
use leash_model::limits;
use leash_model::receipt::{EndedBy, Reason, UpstreamEnd};
use leash_tree::ledger::book::{AbandonedBook, Book, Entry};
use leash_tree::platform::channel::{self, ChannelRead};
use leash_tree::platform::poll::{self, PollOutcome};
use leash_tree::platform::{linux, spawn};
use leash_tree::tree::keeper::{self, EntryPoint};
use leash_tree::{ledger::receipts, owner::OwnerWatch};

/// The keeper's first argument. It does not contain `leash`, so that `pkill -9 -f leash` does not kill both processes.
pub(crate) const ROLE: &str = "mcp-undertaker";

/// Its place in the table of processes that leash starts from its own program.
pub const ENTRY_POINT: EntryPoint = EntryPoint { name: ROLE, run: |_| run() };

/// Runs as the keeper of a connection or of a gateway. Returns when nothing is left to do.
pub(crate) fn run() {
    if let Some(driver) = KeeperDriver::prepare() {
        driver.run();
    }
}

/// Waits for the events of a keeper and performs its effects; [`machine`](super::machine) decides.
struct KeeperDriver {
    machine: Machine,
    control: OwnedFd,
    orders: KeeperOrders,
    /// The book's lock, shared with the watched process. The book is abandoned only when both are gone.
    lock: OwnedFd,
    watches: Vec<OwnerWatch>,
    /// The socket at which a new gateway asks for the sessions.
    handover_socket: Option<UnixListener>,
    /// Events that the machine has not seen.
    events: VecDeque<Event>,
    /// True if a message came since the last wait.
    has_read: bool,
}

impl KeeperDriver {
    /// Takes the inherited descriptors and the orders.
    fn prepare() -> Option<KeeperDriver> {
        linux::survive_file_size_limit();
        let _ = rustix::thread::set_name(c"keeper");
        let control = linux::inherited_fd(fds::CONTROL).ok()?;
        let orders: KeeperOrders = channel::read_memfd(linux::inherited_fd(fds::ORDERS).ok()?)?;
        let lock = linux::inherited_fd(fds::LOCK).ok()?;
        let mut watches = Vec::new();
        for (owner, number) in orders.owners.iter().zip(fds::OWNERS..) {
            watches.push(OwnerWatch::new(owner.clone(), linux::inherited_fd(number).ok()?));
        }
        let mut inherited = fds::OWNERS + watches.len() as i32;
        let mut handover_socket = None;
        if orders.takeover_ms.is_some() {
            handover_socket = Some(linux::inherited_fd(inherited).ok()?.into());
            inherited += 1;
        }
        linux::close_from(inherited);
        // The signals stay blocked and unread: only SIGKILL ends a keeper.
        drop(linux::listen(&keeper::SIGNALS).ok()?);
        let _ = rustix::process::setsid();
        spawn::detach_stdio();
        let (machine, events) = (Machine::new(&orders), VecDeque::new());
        Some(KeeperDriver { machine, control, orders, lock, watches, handover_socket, events, has_read: false })
    }

    fn run(mut self) {
        loop {
            let event = self.next();
            for effect in self.machine.apply(event, Moment::now()) {
                match effect {
                    Effect::MakeRoom => spawn::close_stdin_and_stdout(),
                    // The result of an effect comes before everything that was seen earlier.
                    Effect::ReadCover => self.events.push_front(self.read_cover()),
                    Effect::HandOver => self.events.push_front(self.hand_over()),
                    Effect::End(reason) => return self.end(reason),
                    Effect::Exit => return,
                }
            }
        }
    }

    /// Waits for the next event. Messages come first: a process that says in time that it ends its sessions is not
    /// stopped, even if the deadline has passed since.
    fn next(&mut self) -> Event {
        loop {
            if self.machine.listens() {
                match channel::receive(self.control.as_fd()) {
                    ChannelRead::Message(message) => {
                        self.has_read = true;
                        return Event::Message(message);
                    }
                    ChannelRead::Closed => return Event::ProcessGone,
                    ChannelRead::Nothing => {}
                }
            }
            match self.events.pop_front() {
                Some(event) => return event,
                None if self.machine.listens() => self.look_at_process(),
                None => self.look_for_gateway(),
            }
        }
    }

    /// Polls the control socket and the owners. After a message the keeper pauses, and reads those that come meanwhile at
    /// once: a busy gateway sends thousands in a second, and a wakeup for each of them would slow it down. The socket
    /// keeps the messages, and its end ends the pause.
    fn look_at_process(&mut self) {
        if *self.machine.state() != State::Waiting {
            // A lost owner would wake the keeper again and again.
            self.watches.clear();
        }
        let (mut wanted, mut patience) = (PollFlags::IN, self.patience());
        if std::mem::take(&mut self.has_read) {
            let now = Moment::now();
            let pause = timeout_until(now + limits::KEEPER_READS, now);
            (wanted, patience) = (PollFlags::empty(), Some(patience.map_or(pause, |patience| patience.min(pause))));
        }
        let mut polled = vec![PollFd::new(&self.control, wanted)];
        polled.extend(self.watches.iter().map(OwnerWatch::poll));
        match poll::poll(&mut polled, patience.as_ref()) {
            PollOutcome::Clear => {
                let owners = self.watches.iter().zip(&polled[1..]).rev();
                let gone = owners.filter_map(|(watch, answer)| watch.judge(answer.revents()));
                self.events.extend(gone.map(Event::OwnerGone));
            }
            PollOutcome::Blind => self.events.push_back(Event::Blind),
        }
        self.events.push_back(Event::Tick);
    }

    /// Polls the handover socket.
    fn look_for_gateway(&mut self) {
        let mut polled: Vec<PollFd<'_>> =
            self.handover_socket.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let sight = poll::poll(&mut polled, self.patience().as_ref());
        let is_asked = polled.iter().any(|socket| !socket.revents().is_empty());
        self.events.push_back(match sight {
            PollOutcome::Blind => Event::Blind,
            PollOutcome::Clear if is_asked => Event::Asked,
            PollOutcome::Clear => Event::Tick,
        });
    }

    /// The time until the machine's deadline.
    fn patience(&self) -> Option<Timespec> {
        self.machine.deadline().map(|deadline| timeout_until(deadline, Moment::now()))
    }

    /// Reads whose book it is.
    fn read_cover(&self) -> Event {
        let cover = Book::cover_of(&self.orders.runtime_dir, &self.orders.book);
        let is_ours = !matches!((cover, &self.orders.cover), (Some(now), Some(then)) if now != *then);
        Event::Cover { is_ours }
    }

    /// Hands the sessions over to the gateway that asks for them.
    fn hand_over(&self) -> Event {
        let Some(Ok(successor)) = self.handover_socket.as_ref().map(handover::accept) else {
            return Event::CannotAccept;
        };
        if let Some(successor) = successor {
            handover::hand_over(successor, self.lock.as_fd(), &self.machine.held().sessions);
        }
        self.read_cover()
    }

    /// Ends all sessions, writes the receipts, and removes the book.
    fn end(mut self, reason: Reason) {
        // Closes the socket, so that a new gateway does not wait.
        drop(self.handover_socket.take());
        // A book that cannot be read stays for the next start.
        let Ok(book) = AbandonedBook::inherited(&self.orders.runtime_dir, &self.orders.book, self.lock) else { return };
        match &self.orders.connection_facts {
            Some(connection_facts) => end_together(&self.orders, connection_facts, self.machine.held(), book, reason),
            None => end_each(&self.orders, self.machine.held(), book, reason),
        }
    }
}

/// Ends the sessions of a connection, with one receipt for all of them.
fn end_together(
    orders: &KeeperOrders,
    connection_facts: &ConnectionFacts,
    held: &HeldSessions,
    book: AbandonedBook,
    reason: Reason,
) {
    let began = Moment::now();
    if !held.is_empty() {
        // Out of memory or descriptors: the book stays for the next start.
        let Some(ended) = delete_all(held.read()) else { return };
        let mut ends = held.ended.clone();
        ended.into_values().for_each(|end| add_end(&mut ends, end));
        let receipt = connection_facts.receipt(reason, EndedBy::Keeper, Moment::now() - began, ends);
        // The keeper ignores a full disk: the sessions are ended, and it has no process to report to. If it has no free
        // descriptor, the book stays for the next start.
        if receipts::append_once(&orders.receipts, &receipt).is_err_and(|error| receipts::is_shortage(&error)) {
            return;
        }
    }
    // leash may die before it has told a replacement keeper of its sessions. Then the book stays, and the next start
    // ends them.
    if !held.sessions.is_empty() || book.open.is_empty() {
        book.remove();
    }
}

/// Ends all sessions at the same time. `None` if there is no runtime to try it with.
fn delete_all(sessions: BTreeMap<&str, HeldSession>) -> Option<BTreeMap<String, UpstreamEnd>> {
    let (runtime, client, mut ended) = (runtime().ok()?, UpstreamClient::new(), BTreeMap::new());
    runtime.block_on(async {
        let mut under_way = JoinSet::new();
        for (key, session) in sessions {
            let Some(url) = session.url() else { continue };
            let (key, client) = (key.to_owned(), client.clone());
            under_way.spawn_local(async move {
                let (deleted, id) = match session.delete_target() {
                    Some(delete_target) => (delete::delete(&client, &delete_target).await, delete_target.session_id),
                    // The connection was closed when leash died, which ended the session.
                    None => (DeleteResult::closed(), String::new()),
                };
                (key, deleted.receipt(&url, &id))
            });
        }
        while let Some(done) = under_way.join_next().await {
            ended.extend(done.ok());
        }
    });
    // Another thread may still be resolving a name. The keeper does not wait for it.
    runtime.shutdown_timeout(Duration::ZERO);
    Some(ended)
}

/// Ends the sessions of a gateway, each with its own receipt: those in its book, with the credentials that the keeper
/// was told, and those that the gateway could not write into the book.
fn end_each(orders: &KeeperOrders, held: &HeldSessions, mut book: AbandonedBook, reason: Reason) {
    let sessions = held.read();
    let by_key = sessions.iter().map(|(key, session)| (*key, session));
    book.open.extend(unwritten(by_key, &book.open, &orders.receipts));
    if book.open.is_empty() {
        return book.remove();
    }
    let access = |entry: &Entry| sessions.get(&*entry.session)?.access();
    // Out of memory or descriptors: the book stays for the next start.
    let Ok(runtime) = runtime() else { return };
    let (client, receipts, tell) = (&UpstreamClient::new(), &orders.receipts, &|_| ());
    let sweep = Sweep { client, receipts, access: &access, tell, sweeper: SweptBy::Keeper, reason };
    runtime.block_on(sweep.end(vec![book]));
    runtime.shutdown_timeout(Duration::ZERO);
}

/// Returns the sessions that are not in the book because the disk was full. A session with a receipt is left out: it
/// has ended, and the gateway was killed before it could tell the keeper.
pub fn unwritten<'a>(
    sessions: impl Iterator<Item = (&'a str, &'a HeldSession)>,
    written: &[Entry],
    receipts: &Path,
) -> Vec<Entry> {
    let written: HashSet<&str> = written.iter().map(|entry| &*entry.session).collect();
    let missing = sessions.filter(|(key, _)| !written.contains(key));
    let missing: Vec<Entry> = missing.filter_map(|(key, session)| session.entry(key)).collect();
    if missing.is_empty() {
        return missing;
    }
    let receipted = sweep::receipted_in([receipts]);
    missing.into_iter().filter(|entry| !sweep::has_ended(&receipted, entry)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use leash_tree::ledger::book::{Cover, Membership};
    use leash_tree::places::Places;
    use testkit::Scratch;

    /// The keeper of a book, without owners and without a handover socket.
    fn keeper(
        places: &Places,
        book: &Book,
        connection_facts: Option<ConnectionFacts>,
        cover: Option<Cover>,
    ) -> KeeperDriver {
        let orders = KeeperOrders {
            runtime_dir: places.runtime_dir.clone(),
            book: book.run().to_owned(),
            receipts: places.receipts.clone(),
            connection_facts,
            owners: vec![],
            cover,
            takeover_ms: None,
        };
        let lock = book.lock().try_clone_to_owned().expect("a descriptor");
        let (machine, control) = (Machine::new(&orders), lock.try_clone().expect("a descriptor"));
        KeeperDriver {
            machine,
            control,
            orders,
            lock,
            watches: vec![],
            handover_socket: None,
            events: VecDeque::new(),
            has_read: false,
        }
    }

    /// Found by the chaos test: the first keeper was killed, and then leash as soon as there was another keeper.
    #[test]
    fn keeper_without_messages_leaves_a_book_with_open_sessions() {
        for (open, left) in [(true, 1), (false, 0)] {
            let scratch = Scratch::new();
            let places = Places::below(&*scratch);
            let (session, name) = ("s".to_owned(), "x".to_owned());
            let member = Membership { session, name, labels: Default::default(), owners: Vec::new() };
            let book = Book::of_connection(&places, "run", member).expect("a book");
            if open {
                let (session, server, id) = ("s".to_owned(), "x".to_owned(), "a".to_owned());
                let url = "http://127.0.0.1:1/mcp".to_owned();
                let entry = Entry { session, server, url, id, version: None, shown: None, started_ms: 5 };
                book.open(&entry).expect("written");
            }
            let connection_facts = ConnectionFacts {
                session: "s".to_owned(),
                run: book.run().to_owned(),
                name: "x".to_owned(),
                labels: Default::default(),
                shown: None,
                started_ms: 5,
            };
            let keeper = keeper(&places, &book, Some(connection_facts), None);
            drop(book);
            keeper.end(Reason::SupervisorKilled);
            assert_eq!(Book::abandoned(&places.runtime_dir).expect("read").len(), left, "open: {open}");
        }
    }

    /// The keeper's gateway was killed during the takeover of the book, or another gateway has taken the book over.
    #[test]
    fn keeper_leaves_the_book_of_another_gateway_alone() {
        let scratch = Scratch::new();
        let places = Places::below(&*scratch);
        let book = Book::of_gateway(&places, None).expect("a book");
        let other = Cover { started_ms: book.cover().started_ms + 1, ..book.cover().clone() };
        for (cover, is_left) in [(Some(other), true), (Some(book.cover().clone()), false), (None, false)] {
            let mut keeper = keeper(&places, &book, None, cover);
            let effects = keeper.machine.apply(Event::ProcessGone, Moment::now());
            assert_eq!(effects, [Effect::MakeRoom, Effect::ReadCover]);
            let effects = keeper.machine.apply(keeper.read_cover(), Moment::now());
            let expected = if is_left { Effect::Exit } else { Effect::End(Reason::SupervisorKilled) };
            assert_eq!(effects, [expected], "{:?}", keeper.orders.cover);
        }
    }
}
