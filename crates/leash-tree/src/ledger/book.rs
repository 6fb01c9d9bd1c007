//! A gateway's book: the sessions that it has open at upstream servers. If the gateway is killed, the next start can
//! end them.
//!
//! The living process locks `RUN.lock`, as for trees ([`super::store`]). `RUN.jsonl` is a journal: one write per line,
//! and no fsync, because the kernel keeps what a killed process has written. The gateway writes a session down before
//! its client learns of it. It never writes credentials, nor the query of a URL.

mod journal;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::journal::{BookJournal, JournalContent, JournalLine, ListedClient, read, text_of};
use super::store::{self, StoreError, path};
use crate::ledger::receipts::is_shortage;
use crate::places::Places;
use crate::platform::identity::{self, boot_id};
use crate::platform::private_file;
use crate::platform::proc::Proc;
use leash_model::client::GatewayClient;
use leash_model::identity::Identity;
use leash_model::owner::Owner;
use leash_model::{clock, id};

/// The reason why a book can't be kept.
pub use super::store::StoreError as BookError;
pub use leash_model::book::Entry;

/// The version of the book's format.
pub const BOOK_VERSION: u32 = 1;

/// The directory of the books, below the runtime directory.
pub(super) const DIR: &str = "gateways";

/// The owner of a book.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// [`BOOK_VERSION`].
    pub version: u32,
    /// The boot in which the process below was alive.
    pub boot: String,
    /// The id of this book.
    pub run: String,
    /// The process that keeps it, if it knows its own identity.
    pub process: Option<Identity>,
    /// The command that keeps it.
    #[serde(flatten)]
    pub command: BookCommand,
    /// The file for its receipts.
    pub receipts: PathBuf,
    /// Its start, milliseconds since 1970.
    pub started_ms: u64,
}

/// The command that keeps a book.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum BookCommand {
    /// `leash serve`.
    Serve {
        /// The address on which it listens: the next gateway there takes its sessions over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        listen: Option<SocketAddr>,
    },
    /// `leash connect`.
    Connect {
        /// The session that it belongs to from its start, even if it has nothing open.
        member: Membership,
    },
}

impl BookCommand {
    /// Its membership in a session; a gateway has none.
    pub fn member(&self) -> Option<&Membership> {
        match self {
            BookCommand::Serve { .. } => None,
            BookCommand::Connect { member } => Some(member),
        }
    }
}

/// The membership of a process in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The session.
    pub session: String,
    /// The member's name.
    pub name: String,
    /// Labels as given.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its owners.
    #[serde(default)]
    pub owners: Vec<Owner>,
}

/// A book that this process keeps. When the process is gone, for whatever reason, the kernel drops its lock.
#[derive(Debug)]
pub struct Book {
    cover: Cover,
    dir: PathBuf,
    lock: OwnedFd,
    journal: RefCell<BookJournal>,
    /// The last write failed, and the failure was reported.
    failing: Cell<bool>,
}

/// A book whose gateway is gone. While we have it, no other process does.
#[derive(Debug)]
pub struct AbandonedBook {
    /// Its owner; `None` if the cover can't be read any more.
    pub cover: Option<Cover>,
    /// The sessions that it had open.
    pub open: Vec<Entry>,
    run: String,
    dir: PathBuf,
    _lock: OwnedFd,
}

/// A book as a reader sees it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its owner.
    pub cover: Cover,
    /// The sessions that it has open.
    pub open: Vec<Entry>,
    /// The clients of a gateway, by the run that each uses.
    pub clients: BTreeMap<String, GatewayClient>,
    /// True if its process is alive. If not, the next start of a gateway ends the open sessions.
    pub attended: bool,
    /// Its runtime directory.
    pub runtime_dir: PathBuf,
}

impl Listed {
    /// The socket of its keeper.
    pub fn handover_socket(&self) -> PathBuf {
        path(&self.runtime_dir.join(DIR), &self.cover.run, "sock")
    }
}

impl Book {
    /// Begins a book for a gateway, at an address if it listens on one.
    pub fn of_gateway(places: &Places, listen: Option<SocketAddr>) -> Result<Book, BookError> {
        Book::begin(places, Book::new_cover(places, BookCommand::Serve { listen }, id::random()))
    }

    /// Begins a book for a connection, which belongs to a session itself. The book has the connection's own run id, so
    /// that its receipt can be found by that id.
    pub fn of_connection(places: &Places, run: &str, member: Membership) -> Result<Book, BookError> {
        Book::begin(places, Book::new_cover(places, BookCommand::Connect { member }, run.to_owned()))
    }

    fn new_cover(places: &Places, command: BookCommand, run: String) -> Cover {
        Cover {
            version: BOOK_VERSION,
            boot: boot_id(),
            run,
            process: Proc::own().ok().and_then(|proc| identity::current(&proc)),
            command,
            receipts: places.receipts.clone(),
            started_ms: clock::unix_ms(),
        }
    }

    fn begin(places: &Places, cover: Cover) -> Result<Book, BookError> {
        let dir = store::prepare(&places.runtime_dir, DIR)?;
        let path = path(&dir, &cover.run, "lock");
        let lock = store::new_lock(&path).map_err(|source| StoreError::Write { path, source })?;
        let path = self::path(&dir, &cover.run, "jsonl");
        match BookJournal::create(&path, &cover, &JournalContent::default()) {
            Ok(journal) => Ok(Book { cover, dir, lock, journal: RefCell::new(journal), failing: Cell::new(false) }),
            Err(source) => {
                remove(&dir, &cover.run);
                Err(StoreError::Write { path, source })
            }
        }
    }

    /// The book of a dead gateway. This process keeps it from [`Book::own`] on. The dead gateway's keeper has handed
    /// over the lock; `unwritten` returns the entries that the dead gateway could not write.
    pub fn adopt(
        places: &Places,
        old: &Cover,
        lock: OwnedFd,
        unwritten: impl FnOnce(&[Entry]) -> Vec<Entry>,
    ) -> io::Result<(Book, Vec<Entry>)> {
        let dir = places.runtime_dir.join(DIR);
        let cover = Book::new_cover(places, old.command.clone(), old.run.clone());
        let mut open = pages_of(&dir, &old.run)?.open;
        open.extend(unwritten(&open));
        // The clients of the sessions that go on are listed again.
        let content = JournalContent { open, ..JournalContent::default() };
        let journal = BookJournal::create(&path(&dir, &old.run, "new"), &cover, &content)?;
        Ok((Book { cover, dir, lock, journal: RefCell::new(journal), failing: Cell::new(false) }, content.open))
    }

    /// Makes an adopted book ours, in one step. Before it the dead gateway's keeper ends the sessions that the book
    /// names, and after it our keeper does.
    pub fn own(&self) -> Result<(), BookError> {
        let path = self.path("jsonl");
        fs::rename(self.path("new"), &path).map_err(|source| StoreError::Write { path, source })
    }

    /// Its id.
    pub fn run(&self) -> &str {
        &self.cover.run
    }

    /// Its cover.
    pub fn cover(&self) -> &Cover {
        &self.cover
    }

    /// The socket of its keeper.
    pub fn handover_socket(&self) -> PathBuf {
        self.path("sock")
    }

    fn path(&self, kind: &str) -> PathBuf {
        path(&self.dir, &self.cover.run, kind)
    }

    /// The lock, to be inherited by the process that finishes the work of this one.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Records that a session is open. Call it before any other process learns of the session. As for all writes here,
    /// a failure is no reason to stop, and only the first of several failures in a row is reported.
    pub fn open(&self, entry: &Entry) -> io::Result<()> {
        self.journal.borrow_mut().open += 1;
        self.write(&JournalLine::Open(entry))
    }

    /// Records that an open session has another id or version now.
    pub fn change(&self, entry: &Entry) -> io::Result<()> {
        self.write(&JournalLine::Open(entry))
    }

    /// Records that a session is over.
    pub fn over(&self, session: &str) -> io::Result<()> {
        let open = self.journal.borrow().open;
        self.journal.borrow_mut().open = open.saturating_sub(1);
        self.write(&JournalLine::Over(session))
    }

    /// Records the client that uses a run from now on. Only listings read it.
    pub fn client_came(&self, run: &str, client: &GatewayClient) -> io::Result<()> {
        self.journal.borrow_mut().clients += 1;
        self.client_changed(run, client)
    }

    /// Records what is newly known of the client of a run.
    pub fn client_changed(&self, run: &str, client: &GatewayClient) -> io::Result<()> {
        self.write(&JournalLine::Client(&ListedClient { run: run.to_owned(), client: client.clone() }))
    }

    /// Records that the client of a run is gone.
    pub fn client_gone(&self, run: &str) -> io::Result<()> {
        let clients = self.journal.borrow().clients;
        self.journal.borrow_mut().clients = clients.saturating_sub(1);
        self.write(&JournalLine::Gone(run))
    }

    /// Closes the book at an orderly exit. A book with open sessions stays, for the next start.
    pub fn close(&self) {
        if self.journal.borrow().open == 0 {
            remove(&self.dir, &self.cover.run);
        }
    }

    /// Takes every book whose process is gone. Leaves books of a later version of leash to that version.
    pub fn abandoned(runtime_dir: &Path) -> io::Result<Vec<AbandonedBook>> {
        let dir = runtime_dir.join(DIR);
        let mut found = Vec::new();
        for run in runs(&dir)? {
            let lock = match store::seize_lock(&path(&dir, &run, "lock")) {
                Ok(Some(lock)) => lock,
                Err(error) if is_shortage(&error) => return Err(error),
                // Another process uses it, or it is not a lock.
                Ok(None) | Err(_) => continue,
            };
            // A book that can't be read stays for the next start.
            let Some(pages) = unless_short(pages_of(&dir, &run))? else { continue };
            match pages.cover {
                Some(cover) if cover.version > BOOK_VERSION => {}
                cover => found.push(AbandonedBook { cover, open: pages.open, run, dir: dir.clone(), _lock: lock }),
            }
        }
        Ok(found)
    }

    /// All books in one runtime directory.
    pub fn list(runtime_dir: &Path) -> io::Result<Vec<Listed>> {
        let dir = runtime_dir.join(DIR);
        let mut found = Vec::new();
        for run in runs(&dir)? {
            let Some(pages) = unless_short(pages_of(&dir, &run))? else { continue };
            let JournalContent { cover: Some(cover), open, clients } = pages else { continue };
            let attended = store::is_locked(&path(&dir, &run, "lock"));
            found.push(Listed { cover, open, clients, attended, runtime_dir: runtime_dir.to_owned() });
        }
        found.sort_by_key(|book| book.cover.started_ms);
        Ok(found)
    }

    /// All books in all runtime directories of this user.
    pub fn list_all(places: &Places) -> io::Result<Vec<Listed>> {
        let mut found = Vec::new();
        for dir in super::runtime_dirs(places) {
            found.append(&mut Book::list(dir)?);
        }
        found.sort_by_key(|book| book.cover.started_ms);
        Ok(found)
    }

    /// The cover of a book, if it can be read.
    pub fn cover_of(runtime_dir: &Path, run: &str) -> Option<Cover> {
        pages_of(&runtime_dir.join(DIR), run).ok()?.cover
    }

    /// True if a process holds the lock of a book.
    pub fn is_attended(runtime_dir: &Path, run: &str) -> bool {
        store::is_locked(&path(&runtime_dir.join(DIR), run, "lock"))
    }

    fn write(&self, line: &JournalLine<'_>) -> io::Result<()> {
        let written = self.try_write(line);
        let known = self.failing.replace(written.is_err());
        if known { Ok(()) } else { written }
    }

    fn try_write(&self, line: &JournalLine<'_>) -> io::Result<()> {
        let mut journal = self.journal.borrow_mut();
        journal.write(line)?;
        if journal.wants_rewriting() {
            // If rewriting fails, the old journal still works. The next attempt comes when it has doubled in size.
            journal.rewrite_at = journal.bytes.saturating_mul(2);
            let content = read(&self.path("jsonl"))?;
            *journal = self.rewrite(&content)?;
        }
        Ok(())
    }

    /// Replaces the journal with one that has only the open sessions.
    fn rewrite(&self, content: &JournalContent) -> io::Result<BookJournal> {
        let young = self.path("new");
        let written = BookJournal::create(&young, &self.cover, content).and_then(|journal| {
            fs::rename(&young, self.path("jsonl"))?;
            Ok(journal)
        });
        written.inspect_err(|_| drop(fs::remove_file(&young)))
    }
}

impl AbandonedBook {
    /// The book of a dead process, whose lock we inherited from it.
    pub fn inherited(runtime_dir: &Path, run: &str, lock: OwnedFd) -> io::Result<AbandonedBook> {
        let dir = runtime_dir.join(DIR);
        let pages = pages_of(&dir, run)?;
        Ok(AbandonedBook { cover: pages.cover, open: pages.open, run: run.to_owned(), dir, _lock: lock })
    }

    /// Records that one of its sessions is over, so that a sweep that is killed does not begin from the start.
    pub fn over(&mut self, session: &str) -> io::Result<()> {
        self.open.retain(|entry| entry.session != session);
        let mut text = text_of(&JournalLine::Over(session))?;
        // The last write of the dead process may be incomplete.
        text.insert(0, b'\n');
        let path = path(&self.dir, &self.run, "jsonl");
        private_file::open(File::options().append(true), &path)?.write_all(&text)
    }

    /// Removes the book after its last session.
    pub fn remove(self) {
        remove(&self.dir, &self.run);
    }
}

/// The content of a book; empty if it has no journal.
fn pages_of(dir: &Path, run: &str) -> io::Result<JournalContent> {
    match read(&path(dir, run, "jsonl")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(JournalContent::default()),
        pages => pages,
    }
}

/// `None` for a file that is not a journal. Without descriptors no journal can be read, and then a list of the others
/// would be wrong.
fn unless_short<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The ids of all books; none if there is no directory.
fn runs(dir: &Path) -> io::Result<BTreeSet<String>> {
    match store::runs(dir, &["lock"]) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        runs => store::check_ours(dir).map_err(io::Error::other).and(runs),
    }
}

/// Removes a book's files, the lock last.
fn remove(dir: &Path, run: &str) {
    store::remove(dir, run, &["sock", "jsonl", "new", "lock"]);
}

#[cfg(test)]
mod tests;
