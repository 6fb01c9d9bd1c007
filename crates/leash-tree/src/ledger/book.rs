//! A gateway's book: the sessions that it has open at upstream servers, so that the next start can end them if the gateway
//! is killed.
//!
//! `RUN.lock` is locked by the living process, as for trees ([`super::store`]). `RUN.jsonl` is a journal: one write per line, and
//! no fsync, because what a killed process has written is not lost. A session is written down before its client learns of it.
//! Credentials never are, nor the query of an address.

mod journal;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::journal::{Journal, Line, Pages, read, text_of};
use super::store;
use super::store::StoreError;
use crate::ledger::receipts::is_shortage;
use crate::places::Places;
use crate::platform::identity::{self, boot_id};
use crate::platform::private_file;
use crate::platform::proc::Proc;
use leash_model::identity::Identity;
use leash_model::owner::Owner;
use leash_model::receipt::{EndedBy, Holding, Reason, Receipt, UpstreamEnd, VERSION};
use leash_model::{clock, id};

/// Why a book can't be kept.
pub use super::store::StoreError as BookError;

/// Version of the book's shape.
pub const BOOK_VERSION: u32 = 1;

/// Where books are, below the runtime directory.
const DIR: &str = "gateways";

/// Whose book it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// [`BOOK_VERSION`].
    pub version: u32,
    /// The boot in which the process below was alive.
    pub boot: String,
    /// This book.
    pub run: String,
    /// The process that keeps it, where it knows itself.
    pub process: Option<Identity>,
    /// `serve` or `connect`.
    pub command: String,
    /// Where its receipts go.
    pub receipts: PathBuf,
    /// When it began, milliseconds since 1970.
    pub started_ms: u64,
    /// The session that the process itself is in, if it is in one: a `connect` is, from its first moment on and whether or not it
    /// has anything open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Membership>,
    /// Where it listens, if it is a gateway: the next one there takes its sessions over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

/// What makes a process a member of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The session.
    pub session: String,
    /// The member's name.
    pub name: String,
    /// Labels as given.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What it lives for.
    #[serde(default)]
    pub owners: Vec<Owner>,
}

/// A session that is open at an upstream server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// leash's own id of it.
    pub session: String,
    /// The server's name.
    pub server: String,
    /// The server's address, without the query: that may hold a secret.
    pub url: String,
    /// The session's id there.
    pub id: String,
    /// The protocol version, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What is shown in the place of the address, where that is a secret: the book is for our own eyes, listings are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// When it began, milliseconds since 1970.
    pub started_ms: u64,
}

impl Entry {
    /// The address for people.
    pub fn shown(&self) -> &str {
        self.shown.as_deref().unwrap_or(&self.url)
    }

    /// The receipt of its end.
    pub fn receipt(&self, reason: Reason, ended_by: EndedBy, took: Duration, end: UpstreamEnd) -> Receipt {
        let end = match &self.shown {
            Some(shown) => UpstreamEnd { url: shown.clone(), ..end },
            None => end,
        };
        Receipt {
            version: VERSION,
            session: self.session.clone(),
            // A session at a server is a run by itself.
            run: self.session.clone(),
            name: self.server.clone(),
            labels: BTreeMap::new(),
            reason,
            containment: None,
            refused: Vec::new(),
            holdings: vec![Holding::Upstream(end)],
            dropped_holdings: 0,
            ended_by,
            started_ms: self.started_ms,
            ended_ms: clock::unix_ms(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// A book that is being kept. The kernel drops its lock when the process is gone, however it went.
#[derive(Debug)]
pub struct Book {
    cover: Cover,
    dir: PathBuf,
    lock: OwnedFd,
    journal: RefCell<Journal>,
    /// The last write failed, and that was reported.
    failing: Cell<bool>,
}

/// A book whose gateway is gone. It is ours alone while we have it.
#[derive(Debug)]
pub struct Abandoned {
    /// Whose it was; `None` when that can't be read any more.
    pub cover: Option<Cover>,
    /// What it had open.
    pub open: Vec<Entry>,
    run: String,
    dir: PathBuf,
    _lock: OwnedFd,
}

/// A book, as one who only looks sees it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Whose it is.
    pub cover: Cover,
    /// What it has open.
    pub open: Vec<Entry>,
    /// Whether its process is alive; otherwise the next start of a gateway ends what is open.
    pub attended: bool,
}

impl Listed {
    /// Where its keeper is asked for it.
    pub fn door(&self, runtime_dir: &Path) -> PathBuf {
        path(&runtime_dir.join(DIR), &self.cover.run, "sock")
    }

    /// The session that the process is in: as its cover says, or, before covers did, as what it has open says.
    pub fn session(&self) -> Option<&str> {
        let open = || self.open.first().filter(|_| self.cover.command == "connect").map(|entry| entry.session.as_str());
        self.cover.member.as_ref().map(|member| member.session.as_str()).or_else(open)
    }

    /// The session that something open belongs to. A gateway numbers what it opens for a session of its own: `SESSION.N`.
    pub fn session_of<'e>(&self, entry: &'e Entry) -> &'e str {
        match entry.session.rsplit_once('.') {
            Some((session, _)) if self.cover.command != "connect" => session,
            _ => &entry.session,
        }
    }

    /// The name of the process, where it is in a session.
    pub fn name(&self) -> Option<&str> {
        let open = || self.open.first().map(|entry| entry.server.as_str());
        self.cover.member.as_ref().map(|member| member.name.as_str()).or_else(open)
    }
}

impl Book {
    /// Begins a book for this process.
    pub fn create(places: &Places, command: &str) -> Result<Book, BookError> {
        Book::begin(places, Book::cover(places, command, id::random()))
    }

    /// Begins a book for a gateway that listens here.
    pub fn create_at(places: &Places, command: &str, listen: SocketAddr) -> Result<Book, BookError> {
        Book::begin(places, Cover { listen: Some(listen), ..Book::cover(places, command, id::random()) })
    }

    /// Begins a book for this process, which is in a session itself. The book has the process's own run id, so that its receipt is
    /// found by it.
    pub fn create_for(places: &Places, command: &str, run: &str, member: Membership) -> Result<Book, BookError> {
        Book::begin(places, Cover { member: Some(member), ..Book::cover(places, command, run.to_owned()) })
    }

    fn cover(places: &Places, command: &str, run: String) -> Cover {
        Cover {
            version: BOOK_VERSION,
            boot: boot_id(),
            run,
            process: Proc::own().ok().and_then(|proc| identity::current(&proc)),
            command: command.to_owned(),
            receipts: places.receipts.clone(),
            started_ms: clock::unix_ms(),
            member: None,
            listen: None,
        }
    }

    fn begin(places: &Places, cover: Cover) -> Result<Book, BookError> {
        let dir = store::prepare(&places.runtime_dir, DIR)?;
        let path = path(&dir, &cover.run, "lock");
        let lock = store::new_lock(&path).map_err(|source| StoreError::Write { path, source })?;
        let path = self::path(&dir, &cover.run, "jsonl");
        match Journal::create(&path, &cover, &[]) {
            Ok(journal) => Ok(Book { cover, dir, lock, journal: RefCell::new(journal), failing: Cell::new(false) }),
            Err(source) => {
                remove(&dir, &cover.run);
                Err(StoreError::Write { path, source })
            }
        }
    }

    /// The book of a dead gateway, to be kept by this process from [`Book::own`] on. Its lock was handed over by that gateway's keeper;
    /// `unwritten` is what the dead one could not write down.
    pub fn adopt(
        places: &Places,
        old: &Cover,
        lock: OwnedFd,
        unwritten: impl FnOnce(&[Entry]) -> Vec<Entry>,
    ) -> io::Result<(Book, Vec<Entry>)> {
        let dir = places.runtime_dir.join(DIR);
        let cover = Cover { listen: old.listen, ..Book::cover(places, &old.command, old.run.clone()) };
        let mut open = pages_of(&dir, &old.run)?.open;
        open.extend(unwritten(&open));
        let journal = Journal::create(&path(&dir, &old.run, "new"), &cover, &open)?;
        Ok((Book { cover, dir, lock, journal: RefCell::new(journal), failing: Cell::new(false) }, open))
    }

    /// Makes an adopted book ours, in one step: before it the dead gateway's keeper ends what the book names, and after it ours does.
    pub fn own(&self) -> Result<(), BookError> {
        let path = self.path("jsonl");
        fs::rename(self.path("new"), &path).map_err(|source| StoreError::Write { path, source })
    }

    /// Its id.
    pub fn run(&self) -> &str {
        &self.cover.run
    }

    /// Whose it is.
    pub fn whose(&self) -> &Cover {
        &self.cover
    }

    /// Where its keeper is asked for it.
    pub fn door(&self) -> PathBuf {
        self.path("sock")
    }

    fn path(&self, kind: &str) -> PathBuf {
        path(&self.dir, &self.cover.run, kind)
    }

    /// The lock, to be inherited by whoever finishes what this process leaves.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// A session is open. Call it before anybody else learns of the session. As with all that is written here, a failure is no
    /// reason to stop, and of several in a row only the first is reported.
    pub fn open(&self, entry: &Entry) -> io::Result<()> {
        self.journal.borrow_mut().open += 1;
        self.write(&Line::Open(entry))
    }

    /// A session that is open has another id or version now.
    pub fn change(&self, entry: &Entry) -> io::Result<()> {
        self.write(&Line::Open(entry))
    }

    /// A session is over.
    pub fn over(&self, session: &str) -> io::Result<()> {
        let open = self.journal.borrow().open;
        self.journal.borrow_mut().open = open.saturating_sub(1);
        self.write(&Line::Over(session))
    }

    /// The process ends in order. A book with sessions that are still open stays, for the next start.
    pub fn close(&self) {
        if self.journal.borrow().open == 0 {
            remove(&self.dir, &self.cover.run);
        }
    }

    /// Takes every book whose process is gone. Books of a later leash are left to it.
    pub fn abandoned(runtime_dir: &Path) -> io::Result<Vec<Abandoned>> {
        let dir = runtime_dir.join(DIR);
        let mut found = Vec::new();
        for run in runs(&dir)? {
            let lock = match store::seize_lock(&path(&dir, &run, "lock")) {
                Ok(Some(lock)) => lock,
                Err(error) if is_shortage(&error) => return Err(error),
                // In use, or not a lock.
                Ok(None) | Err(_) => continue,
            };
            // What can't be read stays for the next start.
            let Some(pages) = unless_short(pages_of(&dir, &run))? else { continue };
            match pages.cover {
                Some(cover) if cover.version > BOOK_VERSION => {}
                cover => found.push(Abandoned { cover, open: pages.open, run, dir: dir.clone(), _lock: lock }),
            }
        }
        Ok(found)
    }

    /// Every book there is.
    pub fn list(runtime_dir: &Path) -> io::Result<Vec<Listed>> {
        let dir = runtime_dir.join(DIR);
        let mut found = Vec::new();
        for run in runs(&dir)? {
            let Some(Pages { cover: Some(cover), open }) = unless_short(pages_of(&dir, &run))? else { continue };
            found.push(Listed { attended: store::is_locked(&path(&dir, &run, "lock")), cover, open });
        }
        found.sort_by_key(|book| book.cover.started_ms);
        Ok(found)
    }

    /// Whose a book is, if that can be read.
    pub fn cover_of(runtime_dir: &Path, run: &str) -> Option<Cover> {
        pages_of(&runtime_dir.join(DIR), run).ok()?.cover
    }

    /// Whether somebody looks after a book.
    pub fn is_attended(runtime_dir: &Path, run: &str) -> bool {
        store::is_locked(&path(&runtime_dir.join(DIR), run, "lock"))
    }

    fn write(&self, line: &Line<'_>) -> io::Result<()> {
        let written = self.try_write(line);
        let known = self.failing.replace(written.is_err());
        if known { Ok(()) } else { written }
    }

    fn try_write(&self, line: &Line<'_>) -> io::Result<()> {
        let mut journal = self.journal.borrow_mut();
        journal.write(line)?;
        if journal.wants_rewriting() {
            // What can't be rewritten now still serves; it is tried again when it has grown as much again.
            journal.rewrite_at = journal.bytes.saturating_mul(2);
            let open = read(&path(&self.dir, &self.cover.run, "jsonl"))?.open;
            *journal = self.rewrite(&open)?;
        }
        Ok(())
    }

    /// The same book without what is over, in the place of the old one.
    fn rewrite(&self, open: &[Entry]) -> io::Result<Journal> {
        let young = path(&self.dir, &self.cover.run, "new");
        let written = Journal::create(&young, &self.cover, open).and_then(|journal| {
            fs::rename(&young, path(&self.dir, &self.cover.run, "jsonl"))?;
            Ok(journal)
        });
        written.inspect_err(|_| drop(fs::remove_file(&young)))
    }
}

impl Abandoned {
    /// The book of a process that is gone, whose lock was inherited from it.
    pub fn inherited(runtime_dir: &Path, run: &str, lock: OwnedFd) -> io::Result<Abandoned> {
        let dir = runtime_dir.join(DIR);
        let pages = pages_of(&dir, run)?;
        Ok(Abandoned { cover: pages.cover, open: pages.open, run: run.to_owned(), dir, _lock: lock })
    }

    /// A session of it is over. Written down, so that a sweep that is killed does not begin from the start.
    pub fn over(&mut self, session: &str) -> io::Result<()> {
        self.open.retain(|entry| entry.session != session);
        let mut text = text_of(&Line::Over(session))?;
        // The last write of the dead process may have broken off.
        text.insert(0, b'\n');
        let path = path(&self.dir, &self.run, "jsonl");
        private_file::open(File::options().append(true), &path)?.write_all(&text)
    }

    /// Nothing is left to be done for it.
    pub fn remove(self) {
        remove(&self.dir, &self.run);
    }
}

/// What a book says; one without a journal says nothing.
fn pages_of(dir: &Path, run: &str) -> io::Result<Pages> {
    match read(&path(dir, run, "jsonl")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Pages::default()),
        pages => pages,
    }
}

/// `None` for a file that is no journal. Without descriptors none can be read, and a list of the others would be wrong.
fn unless_short<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The ids of all books; none where there is no directory.
fn runs(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    store::check_ours(dir).map_err(io::Error::other)?;
    let mut runs = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        if let Some(run) = name.to_str().and_then(|name| name.strip_suffix(".lock")) {
            runs.push(run.to_owned());
        }
    }
    runs.sort();
    Ok(runs)
}

fn path(dir: &Path, run: &str, kind: &str) -> PathBuf {
    dir.join(format!("{run}.{kind}"))
}

/// Removes a book's files, the lock last.
fn remove(dir: &Path, run: &str) {
    for kind in ["sock", "jsonl", "new", "lock"] {
        // Already gone is as good; a directory that became read-only is met again by the next sweep.
        let _ = fs::remove_file(path(dir, run, kind));
    }
}

#[cfg(test)]
mod tests;
