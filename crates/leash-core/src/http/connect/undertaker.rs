//! The keeper of a connection as a process: it waits, in one blocking call and without a runtime, for the connection to say that
//! all is done. When it dies without having said so, or is stopped while its host is gone, the keeper ends what is held upstream.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use tokio::runtime::{Builder, LocalOptions};

use super::super::delete::{self, Deleted};
use super::super::upstream::Client;
use super::keeper::{Lien, Orders, Word, fds};
use crate::clock::{Moment, timeout_until};
use crate::ledger::book::Abandoned;
use crate::ledger::receipt::{self, EndedBy, Reason};
use crate::limits;
use crate::owner::Watch;
use crate::tree::control::{self, Heard};
use crate::tree::poll::{self, Sight};
use crate::tree::{keeper, linux, spawn};

/// Its first argument. The tool's name is not in it, so that `pkill -9 -f leash` does not take both.
pub(crate) const ROLE: &str = "mcp-undertaker";

/// Runs as the keeper of a connection. Returns when nothing is left to do.
pub(crate) fn run() {
    if let Some(mut undertaker) = Undertaker::prepare()
        && let Some(reason) = undertaker.wait()
    {
        spawn::make_room();
        undertaker.end(reason);
    }
}

struct Undertaker {
    control: OwnedFd,
    orders: Orders,
    /// Shared with the connection: the book is nobody's only when both are gone.
    lock: OwnedFd,
    watches: Vec<Watch>,
    /// What is held now.
    lien: Option<Lien>,
    /// The connection has begun to end by itself.
    ending: bool,
}

/// An owner that is gone, and how long the connection may take to notice.
struct Loss {
    reason: Reason,
    give_up: Moment,
}

impl Undertaker {
    /// Takes what was inherited.
    fn prepare() -> Option<Undertaker> {
        linux::survive_file_size_limit();
        let _ = rustix::thread::set_name(c"keeper");
        let control = linux::inherited_fd(fds::CONTROL).ok()?;
        let orders: Orders = control::read_memfd(linux::inherited_fd(fds::ORDERS).ok()?)?;
        let lock = linux::inherited_fd(fds::LOCK).ok()?;
        let mut watches = Vec::new();
        for (owner, number) in orders.owners.iter().zip(fds::OWNERS..) {
            watches.push(Watch::new(owner.clone(), linux::inherited_fd(number).ok()?));
        }
        linux::close_from(fds::OWNERS + watches.len() as i32);
        // Blocked and never looked at: no signal but SIGKILL ends a keeper.
        drop(linux::listen(&keeper::SIGNALS).ok()?);
        let _ = rustix::process::setsid();
        spawn::let_go_of_stdio();
        Some(Undertaker { control, orders, lock, watches, lien: None, ending: false })
    }

    /// Waits for something to do; `None` when there is nothing.
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
                // Whatever else was noticed: this is why the keeper has to do it.
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
                // It is awake and at work; only its death matters now.
                (loss, self.watches) = (None, Vec::new());
            }
            if loss.as_ref().is_some_and(|loss| Moment::now() >= loss.give_up) {
                return loss.map(|loss| loss.reason);
            }
        }
    }

    /// `None` when no descriptor may be polled.
    fn poll(&self, loss: Option<&Loss>) -> Option<Vec<PollFlags>> {
        let mut polled = vec![PollFd::new(&self.control, PollFlags::IN)];
        polled.extend(self.watches.iter().map(Watch::poll));
        let timeout = loss.map(|loss| timeout_until(loss.give_up, Moment::now()));
        match poll::poll(&mut polled, timeout.as_ref()) {
            Sight::Clear => Some(polled.iter().map(PollFd::revents).collect()),
            Sight::Blind => None,
        }
    }

    /// Hears everything that was said.
    fn hear(&mut self) -> Hearing {
        loop {
            match control::receive(self.control.as_fd()) {
                Heard::Message(Word::Hold(lien)) => self.lien = lien,
                Heard::Message(Word::Ending) => self.ending = true,
                Heard::Message(Word::Done) => return Hearing::Done,
                Heard::Nothing => return Hearing::Nothing,
                Heard::Closed => return Hearing::Gone,
            }
        }
    }

    /// Ends what is held, writes the receipt, and closes the book.
    fn end(self, reason: Reason) {
        let began = Moment::now();
        let Orders { terms, runtime_dir, book, .. } = self.orders;
        if let Some(lien) = &self.lien {
            // Out of memory or descriptors: the book stays, and the next start finds it.
            let Some(end) = let_go(lien) else { return };
            let receipt = terms.receipt(reason, EndedBy::Keeper, Moment::now() - began, vec![end]);
            // A full disk never stops an end, and nobody is left to be told. Without a descriptor, see above.
            if receipt::append_once(&terms.receipts, &receipt).is_err_and(|error| receipt::is_shortage(&error)) {
                return;
            }
        }
        let is_told = self.lien.is_some();
        // A book that can't be read stays: the next start finds it.
        let Ok(book) = Abandoned::inherited(&runtime_dir, &book, self.lock) else { return };
        // A keeper in the place of another may be left before it was told what is held: the book knows, and the next start finds it.
        if is_told || book.open.is_empty() {
            book.remove();
        }
    }
}

/// What was heard.
enum Hearing {
    Nothing,
    Done,
    /// The connection is gone.
    Gone,
}

/// Ends what is held; `None` when it can't even be tried.
fn let_go(lien: &Lien) -> Option<receipt::UpstreamEnd> {
    let url = lien.url()?;
    let Some(ticket) = lien.ticket() else {
        // The connection died with leash, and the session with it.
        let closed = Deleted::closed();
        return Some(closed.receipt(&url, ""));
    };
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).ok()?;
    let deleted = runtime.block_on(delete::delete(&Client::new(), &ticket));
    // A name that is still being looked up on another thread is nobody's any more.
    runtime.shutdown_timeout(Duration::ZERO);
    Some(deleted.receipt(&url, &ticket.session_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connect::terms::Terms;
    use crate::ledger::book::{Book, Entry};
    use crate::scratch::Scratch;
    use crate::tree::Places;

    /// Found by chaos: the first keeper was killed, and leash as soon as there was another one.
    #[test]
    fn a_keeper_that_was_told_nothing_leaves_the_book_with_what_is_open() {
        for (open, left) in [(true, 1), (false, 0)] {
            let scratch = Scratch::new();
            let places = Places::below(&*scratch);
            let book = Book::create(&places, "connect").expect("a book");
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
                receipts: places.receipts.clone(),
            };
            let orders =
                Orders { terms, runtime_dir: places.runtime_dir.clone(), book: book.run().to_owned(), owners: vec![] };
            let lock = book.lock().try_clone_to_owned().expect("a descriptor");
            let control = lock.try_clone().expect("a descriptor");
            drop(book);
            let keeper = Undertaker { control, orders, lock, watches: vec![], lien: None, ending: false };
            keeper.end(Reason::SupervisorKilled);
            assert_eq!(Book::abandoned(&places.runtime_dir).expect("read").len(), left, "open: {open}");
        }
    }
}
