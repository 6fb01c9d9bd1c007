//! The keeper process. It waits in one blocking call, without a runtime, until the process that started it says that
//! everything is done. If that process dies before, or is stopped while its host is gone, the keeper ends all upstream
//! sessions.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use serde_json::value::RawValue;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::JoinSet;

use super::super::delete;
use super::super::delete::Deleted;
use super::super::sweep;
use super::super::sweep::{Heir, Sweep};
use super::terms::Terms;
use super::{Lien, Orders, Word, fds, handover, name_end};
use crate::client::Client;
use leash_model::clock::{Moment, timeout_until};
use leash_model::limits;
use leash_model::receipt::{EndedBy, Reason, UpstreamEnd};
use leash_tree::ledger::book::{Abandoned, Book, Entry};
use leash_tree::ledger::receipts;
use leash_tree::owner::Watch;
use leash_tree::platform::channel::{self, Heard};
use leash_tree::platform::poll;
use leash_tree::platform::poll::Sight;
use leash_tree::platform::{linux, spawn};
use leash_tree::tree::keeper::{self, EntryPoint};

/// The keeper's first argument. It does not contain `leash`, so that `pkill -9 -f leash` does not kill both processes.
pub(crate) const ROLE: &str = "mcp-undertaker";

/// Its place in the table of processes that leash starts from its own program.
pub const ENTRY_POINT: EntryPoint = EntryPoint { name: ROLE, run: |_| run() };

/// Runs as the keeper of a connection or of a gateway. Returns when nothing is left to do.
pub(crate) fn run() {
    if let Some(mut watch) = Watching::prepare()
        && let Some(reason) = watch.wait()
    {
        spawn::make_room();
        if reason != Reason::SupervisorKilled || !watch.is_succeeded() {
            watch.end(reason);
        }
    }
}

struct Watching {
    control: OwnedFd,
    orders: Orders,
    /// The book's lock, shared with the watched process. The book is abandoned only when both are gone.
    lock: OwnedFd,
    watches: Vec<Watch>,
    /// The socket at which a new gateway asks for the sessions.
    door: Option<UnixListener>,
    held: Held,
    /// The watched process has begun to end its sessions itself.
    ending: bool,
}

/// Everything that the keeper was told. Liens stay unparsed: there may be ten thousand, and most are never read.
#[derive(Default)]
struct Held {
    liens: HashMap<Box<str>, Box<RawValue>>,
    /// The ends of earlier sessions, for the receipt of a connection.
    ended: Vec<UpstreamEnd>,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.liens.is_empty() && self.ended.is_empty()
    }

    /// Parses the liens. A lien that cannot be read was written by another version of leash; the book has its session.
    fn read(&self) -> BTreeMap<&str, Lien> {
        let liens = self.liens.iter();
        liens.filter_map(|(key, lien)| Some((&**key, serde_json::from_str(lien.get()).ok()?))).collect()
    }
}

/// An owner that is gone, and the deadline for the watched process to notice it.
struct Loss {
    reason: Reason,
    give_up: Moment,
}

impl Watching {
    /// Takes the inherited descriptors and the orders.
    fn prepare() -> Option<Watching> {
        linux::survive_file_size_limit();
        let _ = rustix::thread::set_name(c"keeper");
        let control = linux::inherited_fd(fds::CONTROL).ok()?;
        let orders: Orders = channel::read_memfd(linux::inherited_fd(fds::ORDERS).ok()?)?;
        let lock = linux::inherited_fd(fds::LOCK).ok()?;
        let mut watches = Vec::new();
        for (owner, number) in orders.owners.iter().zip(fds::OWNERS..) {
            watches.push(Watch::new(owner.clone(), linux::inherited_fd(number).ok()?));
        }
        let mut inherited = fds::OWNERS + watches.len() as i32;
        let mut door = None;
        if orders.takeover_ms.is_some() {
            door = Some(linux::inherited_fd(inherited).ok()?.into());
            inherited += 1;
        }
        linux::close_from(inherited);
        // The signals stay blocked and unread: only SIGKILL ends a keeper.
        drop(linux::listen(&keeper::SIGNALS).ok()?);
        let _ = rustix::process::setsid();
        spawn::let_go_of_stdio();
        Some(Watching { control, orders, lock, watches, door, held: Held::default(), ending: false })
    }

    /// Waits until the keeper must end the sessions, and returns the reason. `None` if there is nothing to do.
    fn wait(&mut self) -> Option<Reason> {
        let mut loss: Option<Loss> = None;
        loop {
            let answers = self.poll(loss.as_ref()).unwrap_or_else(|| {
                let give_up = Moment::now() + limits::KEEPER_ANSWER;
                loss.get_or_insert(Loss { reason: Reason::Starved, give_up });
                Vec::new()
            });
            match self.hear() {
                Hearing::Done => return None,
                // The gateway was told to stop and left the rest to its keeper.
                Hearing::Gone if self.ending && self.orders.terms.is_none() => return Some(Reason::Shutdown),
                // Even if an owner is gone too: the keeper acts because the process died.
                Hearing::Gone => return Some(Reason::SupervisorKilled),
                Hearing::Nothing => {}
            }
            for index in (0..self.watches.len()).rev() {
                let answer = answers.get(index + 1).copied().unwrap_or(PollFlags::empty());
                if let Some(reason) = self.watches[index].judge(answer) {
                    self.watches.remove(index);
                    let give_up = Moment::now() + limits::KEEPER_ANSWER;
                    loss.get_or_insert(Loss { reason, give_up });
                }
            }
            if self.ending {
                // The process is working on the end itself. Only its death matters now.
                (loss, self.watches) = (None, Vec::new());
            }
            if loss.as_ref().is_some_and(|loss| Moment::now() >= loss.give_up) {
                return loss.map(|loss| loss.reason);
            }
        }
    }

    /// Polls the control socket and the owners. `None` if the kernel does not allow any poll.
    fn poll(&self, loss: Option<&Loss>) -> Option<Vec<PollFlags>> {
        let mut polled = vec![PollFd::new(&self.control, PollFlags::IN)];
        polled.extend(self.watches.iter().map(Watch::poll));
        let timeout = loss.map(|loss| timeout_until(loss.give_up, Moment::now()));
        match poll::poll(&mut polled, timeout.as_ref()) {
            Sight::Clear => Some(polled.iter().map(PollFd::revents).collect()),
            Sight::Blind => None,
        }
    }

    /// Reads all messages that have arrived.
    fn hear(&mut self) -> Hearing {
        loop {
            match channel::receive(self.control.as_fd()) {
                Heard::Message(Word::Hold(key, lien)) => drop(self.held.liens.insert(key, lien)),
                Heard::Message(Word::Ended(key, end)) => {
                    self.held.liens.remove(&key);
                    if let Some(end) = end {
                        name_end(&mut self.held.ended, *end);
                    }
                }
                Heard::Message(Word::Anew) => self.held = Held::default(),
                Heard::Message(Word::Ending) => self.ending = true,
                Heard::Message(Word::Done) => return Hearing::Done,
                Heard::Nothing => return Hearing::Nothing,
                Heard::Closed => return Hearing::Gone,
            }
        }
    }

    /// Waits for a new gateway and hands the sessions over. Returns true if another gateway has taken the book over.
    /// Also true if our gateway was killed before it had made an older gateway's book its own.
    fn is_succeeded(&mut self) -> bool {
        if !self.is_ours() {
            return true;
        }
        let (Some(door), Some(patience)) = (self.door.take(), self.orders.takeover_ms) else { return false };
        // No session has the facts that another gateway needs to resume it.
        if self.held.read().values().all(|lien| lien.stay.is_none()) {
            return false;
        }
        let give_up = Moment::now() + Duration::from_millis(patience);
        loop {
            let left = timeout_until(give_up, Moment::now());
            let mut polled = [PollFd::new(&door, PollFlags::IN)];
            if matches!(poll::poll(&mut polled, Some(&left)), Sight::Blind) {
                return false;
            }
            if !polled[0].revents().is_empty() {
                // The keeper is out of descriptors and cannot serve the new gateway.
                let Ok(heir) = handover::accept(&door) else { return false };
                if let Some(heir) = heir {
                    handover::give(heir, self.lock.as_fd(), &self.held.liens);
                }
                if !self.is_ours() {
                    return true;
                }
            }
            if Moment::now() >= give_up {
                return false;
            }
        }
    }

    /// True if the book still belongs to the process that started this keeper, or cannot be read.
    fn is_ours(&self) -> bool {
        let cover = Book::cover_of(&self.orders.runtime_dir, &self.orders.book);
        !matches!((cover, &self.orders.cover), (Some(now), Some(then)) if now != *then)
    }

    /// Ends all sessions, writes the receipts, and removes the book.
    fn end(mut self, reason: Reason) {
        // Closes the socket, so that a new gateway does not wait.
        drop(self.door.take());
        // A book that cannot be read stays for the next start.
        let Ok(book) = Abandoned::inherited(&self.orders.runtime_dir, &self.orders.book, self.lock) else { return };
        match &self.orders.terms {
            Some(terms) => end_together(&self.orders, terms, &self.held, book, reason),
            None => end_each(&self.orders, &self.held, book, reason),
        }
    }
}

/// The result of reading the messages.
enum Hearing {
    Nothing,
    Done,
    /// The watched process is gone.
    Gone,
}

/// Ends the sessions of a connection, with one receipt for all of them.
fn end_together(orders: &Orders, terms: &Terms, held: &Held, book: Abandoned, reason: Reason) {
    let began = Moment::now();
    if !held.is_empty() {
        // Out of memory or descriptors: the book stays for the next start.
        let Some(ended) = let_go(held.read()) else { return };
        let mut ends = held.ended.clone();
        ended.into_values().for_each(|end| name_end(&mut ends, end));
        let receipt = terms.receipt(reason, EndedBy::Keeper, Moment::now() - began, ends);
        // The keeper ignores a full disk: the sessions are ended, and it has no process to report to. If it has no free
        // descriptor, the book stays for the next start.
        if receipts::append_once(&orders.receipts, &receipt).is_err_and(|error| receipts::is_shortage(&error)) {
            return;
        }
    }
    // leash may die before it has told a replacement keeper of its sessions. Then the book stays, and the next start
    // ends them.
    if !held.liens.is_empty() || book.open.is_empty() {
        book.remove();
    }
}

/// Ends all sessions at the same time. `None` if there is no runtime to try it with.
fn let_go(liens: BTreeMap<&str, Lien>) -> Option<BTreeMap<String, UpstreamEnd>> {
    let (runtime, client, mut ended) = (runtime()?, Client::new(), BTreeMap::new());
    runtime.block_on(async {
        let mut under_way = JoinSet::new();
        for (key, lien) in liens {
            let Some(url) = lien.url() else { continue };
            let (key, client) = (key.to_owned(), client.clone());
            under_way.spawn_local(async move {
                let (deleted, id) = match lien.ticket() {
                    Some(ticket) => (delete::delete(&client, &ticket).await, ticket.session_id),
                    // The connection was closed when leash died, which ended the session.
                    None => (Deleted::closed(), String::new()),
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
fn end_each(orders: &Orders, held: &Held, mut book: Abandoned, reason: Reason) {
    let liens = held.read();
    let liens_now = liens.iter().map(|(key, lien)| (*key, lien));
    book.open.extend(unwritten(liens_now, &book.open, &orders.receipts));
    if book.open.is_empty() {
        return book.remove();
    }
    let known = |entry: &Entry| liens.get(&*entry.session)?.known();
    // Out of memory or descriptors: the book stays for the next start.
    let Some(runtime) = runtime() else { return };
    let (client, tell) = (Client::new(), |_| ());
    let sweep =
        Sweep { client: &client, receipts: &orders.receipts, known: &known, tell: &tell, heir: Heir::Keeper, reason };
    runtime.block_on(sweep.end(vec![book]));
    runtime.shutdown_timeout(Duration::ZERO);
}

/// Returns the sessions that are not in the book because the disk was full. A session with a receipt is left out: it
/// has ended, and the gateway was killed before it could tell the keeper.
pub fn unwritten<'a>(
    liens: impl Iterator<Item = (&'a str, &'a Lien)>,
    written: &[Entry],
    receipts: &Path,
) -> Vec<Entry> {
    let written: HashSet<&str> = written.iter().map(|entry| &*entry.session).collect();
    let missing = liens.filter(|(session, _)| !written.contains(session));
    let missing: Vec<Entry> = missing.filter_map(|(session, lien)| lien.entry(session)).collect();
    if missing.is_empty() {
        return missing;
    }
    let told = sweep::told_in([receipts]);
    missing.into_iter().filter(|entry| !sweep::has_ended(&told, entry)).collect()
}

fn runtime() -> Option<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use leash_tree::ledger::book::{Cover, Membership};
    use leash_tree::places::Places;
    use testkit::Scratch;

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
            let terms = Terms {
                session: "s".to_owned(),
                run: book.run().to_owned(),
                name: "x".to_owned(),
                labels: Default::default(),
                shown: None,
                started_ms: 5,
            };
            let orders = Orders {
                runtime_dir: places.runtime_dir.clone(),
                book: book.run().to_owned(),
                receipts: places.receipts.clone(),
                terms: Some(terms),
                owners: vec![],
                cover: None,
                takeover_ms: None,
            };
            let lock = book.lock().try_clone_to_owned().expect("a descriptor");
            let control = lock.try_clone().expect("a descriptor");
            drop(book);
            let keeper =
                Watching { control, orders, lock, watches: vec![], door: None, held: Held::default(), ending: false };
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
        let other = Cover { started_ms: book.whose().started_ms + 1, ..book.whose().clone() };
        for (cover, is_ours) in [(Some(book.whose().clone()), true), (None, true), (Some(other), false)] {
            let orders = Orders {
                runtime_dir: places.runtime_dir.clone(),
                book: book.run().to_owned(),
                receipts: places.receipts.clone(),
                terms: None,
                owners: vec![],
                cover,
                takeover_ms: None,
            };
            let lock = book.lock().try_clone_to_owned().expect("a descriptor");
            let control = lock.try_clone().expect("a descriptor");
            let (watches, held) = (vec![], Held::default());
            let mut keeper = Watching { control, orders, lock, watches, door: None, held, ending: false };
            assert_eq!(keeper.is_succeeded(), !is_ours, "{:?}", keeper.orders.cover);
        }
    }
}
