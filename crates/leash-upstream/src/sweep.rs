//! Ends the upstream sessions that dead gateways and connections have left. Their keepers do it; if a keeper is dead
//! too, the next gateway or connection does it in the background. A book is one process's file in the ledger.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::{cell::RefCell, io, path::Path, time::Duration};

use hyper::{HeaderMap, Uri};
use tokio::task::JoinSet;

use crate::delete::{self, DeleteResult, DeleteTarget};
use crate::{client::UpstreamClient, notice::Notice, runtime::runtime};
use leash_model::receipt::{DeleteHow, EndedBy, Fate, Reason, Receipt};
use leash_model::{clock::Moment, limits};
use leash_protocol::headers;
use leash_tree::ledger::book::{AbandonedBook, Book, Entry};
use leash_tree::ledger::{self, receipts};
use leash_tree::places::Places;

/// The facts about a server that are not in a book: the address with its query, and the headers.
pub struct ServerAccess {
    /// The whole address.
    pub url: Uri,
    /// The headers to send.
    pub headers: HeaderMap,
}

/// A DELETE that is over.
pub struct FinishedDelete {
    book: usize,
    /// The address with its query and the headers were known.
    had_access: bool,
    entry: Entry,
    url: Uri,
    /// The result.
    pub deleted: DeleteResult,
    took: Duration,
}

/// Ends the open sessions of every book whose process is gone. Writes the receipts to that process's file.
pub async fn books(
    client: &UpstreamClient,
    places: &Places,
    access: &dyn Fn(&Entry) -> Option<ServerAccess>,
    tell: &dyn Fn(Notice),
) {
    let mut books = Vec::new();
    for dir in ledger::runtime_dirs(places) {
        match Book::abandoned(dir) {
            Ok(found) => books.extend(found),
            Err(error) => tell(Notice::Warning(format!("cannot read the ledger: {error}"))),
        }
    }
    let sweep =
        Sweep { client, receipts: &places.receipts, access, tell, sweeper: SweptBy::NextStart, reason: Reason::Swept };
    sweep.end(books).await;
}

/// The process that ends the sessions of a dead process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweptBy {
    /// The dead process's keeper. A session stays in the book if its server cannot be reached or if the keeper was not
    /// told the credentials. The next start tries again, with the headers in its configuration.
    Keeper,
    /// A process that started later. No other process will try again, so its results are final.
    NextStart,
}

/// The settings of one sweep.
pub(crate) struct Sweep<'a> {
    pub(crate) client: &'a UpstreamClient,
    /// The file for receipts if a book has no cover.
    pub(crate) receipts: &'a Path,
    pub(crate) access: &'a dyn Fn(&Entry) -> Option<ServerAccess>,
    pub(crate) tell: &'a dyn Fn(Notice),
    pub(crate) sweeper: SweptBy,
    /// The reason in the receipts.
    pub(crate) reason: Reason,
}

impl Sweep<'_> {
    /// Ends all sessions, and removes the books that have no open session left.
    pub(crate) async fn end(&self, mut books: Vec<AbandonedBook>) {
        let all =
            books.iter().enumerate().flat_map(|(at, book)| book.open.iter().map(move |entry| (at, entry.clone())));
        let mut waiting: VecDeque<(usize, Entry)> = all.collect();
        let receipted = if waiting.is_empty() { Receipted::new() } else { receipted(&books, self.receipts) };
        let mut unreachable = HashSet::new();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < limits::SWEEP_AT_ONCE
                && let Some((book, entry)) = waiting.pop_front()
            {
                // Skips the rest of an unreachable server: thousands of its sessions would take hours.
                if !unreachable.contains(&entry.url) {
                    let access = (self.access)(&entry);
                    under_way.spawn_local(end(self.client.clone(), book, entry, access));
                }
            }
            match under_way.join_next().await {
                // A DELETE that was cut short leaves the session in the book for the next start.
                Some(Ok(Some(done))) if done.deleted.cut_short => {}
                Some(Ok(Some(done))) => match outcome(self.sweeper, done.had_access, &done.deleted) {
                    SweepOutcome::Settled => {
                        let written = self.write(&books[done.book], &done, &receipted);
                        settle(&mut books[done.book], &done, &written, self.tell);
                    }
                    SweepOutcome::Unreachable => {
                        // The session stays in the book even if the receipt could not be written.
                        let _ = self.write(&books[done.book], &done, &receipted);
                        unreachable.insert(done.entry.url.clone());
                    }
                    SweepOutcome::NoCredentials => {}
                },
                // An entry that leash cannot have written, or a task that panicked.
                Some(Ok(None) | Err(_)) => {}
                None => break,
            }
        }
        // A book also stays if a receipt could not be written.
        let cut = |book: &AbandonedBook| book.open.iter().any(is_sound);
        books.into_iter().filter(|book| !cut(book)).for_each(AbandonedBook::remove);
    }

    /// Writes the receipt, unless there is one already.
    fn write(&self, book: &AbandonedBook, done: &FinishedDelete, receipted: &Receipted) -> io::Result<()> {
        let receipt = done.receipt(self.sweeper, self.reason.clone());
        if is_repeated(receipted, &receipt) {
            return Ok(());
        }
        let path = receipts(book, self.receipts);
        let written = receipts::append(path, &receipt);
        if let Err(error) = &written {
            (self.tell)(Notice::Warning(format!("cannot write {}: {error}", path.display())));
        }
        (self.tell)(Notice::Swept(Box::new(receipt)));
        written
    }
}

/// The consequence of a DELETE for the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepOutcome {
    /// The session is over, or leash can do nothing more.
    Settled,
    /// The server cannot be reached. leash writes a receipt, and the session stays in the book.
    Unreachable,
    /// The server needs credentials that the keeper was not told. The session stays in the book.
    NoCredentials,
}

fn outcome(sweeper: SweptBy, had_access: bool, deleted: &DeleteResult) -> SweepOutcome {
    match (sweeper, deleted.how) {
        (SweptBy::NextStart, _) => SweepOutcome::Settled,
        (SweptBy::Keeper, DeleteHow::Unreachable) if deleted.status.is_none() => SweepOutcome::Unreachable,
        (SweptBy::Keeper, DeleteHow::Denied) if !had_access => SweepOutcome::NoCredentials,
        (SweptBy::Keeper, _) => SweepOutcome::Settled,
    }
}

/// Records in the book that the session is over, after its receipt was written. If the receipt could not be written
/// because no descriptor was free, the session stays in the book for the next start.
fn settle(book: &mut AbandonedBook, done: &FinishedDelete, written: &io::Result<()>, tell: &dyn Fn(Notice)) {
    if written.as_ref().is_err_and(receipts::is_shortage) {
        return;
    }
    if let Err(error) = book.over(&done.entry.session) {
        tell(Notice::Warning(format!("cannot write the ledger: {error}")));
    }
}

/// Sweeps for a program that is not a gateway. Blocks until it is done. Returns the receipts and the warnings.
pub fn at_once(places: &Places) -> (Vec<Receipt>, Vec<String>) {
    let (receipts, warnings) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return (Vec::new(), vec![format!("cannot end abandoned upstream sessions: {error}")]),
    };
    let tell = |notice| match notice {
        Notice::Swept(receipt) => receipts.borrow_mut().push(*receipt),
        Notice::Warning(warning) => warnings.borrow_mut().push(warning),
        _ => {}
    };
    // This program has no configured servers, so it only knows the books.
    runtime.block_on(books(&UpstreamClient::new(), places, &|_| None, &tell));
    // Another thread may still be resolving a name. This function does not wait for it.
    runtime.shutdown_background();
    (receipts.into_inner(), warnings.into_inner())
}

fn is_sound(entry: &Entry) -> bool {
    headers::valid_session_id(&entry.id) && entry.url.parse::<Uri>().is_ok()
}

/// Sends DELETE for one session of a book. `None` for an entry that leash cannot have written.
pub async fn end(
    client: UpstreamClient,
    book: usize,
    entry: Entry,
    access: Option<ServerAccess>,
) -> Option<FinishedDelete> {
    let (began, had_access) = (Moment::on_runtime(), access.is_some());
    let plain = || Some(ServerAccess { url: entry.url.parse().ok()?, headers: HeaderMap::new() });
    let ServerAccess { url, headers } = access.or_else(plain).filter(|_| is_sound(&entry))?;
    let target = DeleteTarget { url, session_id: entry.id.clone(), version: entry.version.clone(), headers };
    let deleted = delete::delete(&client, &target).await;
    Some(FinishedDelete { book, had_access, entry, url: target.url, deleted, took: Moment::on_runtime() - began })
}

/// The upstream sessions that have a receipt: the receipt's run, the beginning of the session id, and true if the
/// session is gone. A process may have written a receipt and then been killed, or met a read-only disk, before it
/// changed the book.
pub type Receipted = HashSet<(String, String, bool)>;

fn receipted(books: &[AbandonedBook], otherwise: &Path) -> Receipted {
    let paths: BTreeSet<&Path> = books.iter().map(|book| receipts(book, otherwise)).collect();
    receipted_in(paths)
}

/// Reads the sessions that have a receipt in these files.
pub fn receipted_in<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Receipted {
    // A file that cannot be read is skipped: two receipts are better than none.
    let access = paths.into_iter().filter_map(|path| receipts::read(path).ok()).flat_map(|(access, _)| access);
    access.flat_map(|receipt| upstreams(&receipt).collect::<Vec<_>>()).collect()
}

fn upstreams(receipt: &Receipt) -> impl Iterator<Item = (String, String, bool)> {
    receipt.upstreams().map(|end| (receipt.run.clone(), end.id.clone(), end.fate == Fate::Gone))
}

/// True if a receipt has nothing new. A session that was left before and is gone now is new.
pub fn is_repeated(receipted: &Receipted, receipt: &Receipt) -> bool {
    upstreams(receipt).all(|(run, id, is_gone)| {
        receipted.contains(&(run.clone(), id.clone(), true)) || !is_gone && receipted.contains(&(run, id, false))
    })
}

/// True if a receipt says that the session is gone.
pub fn has_ended(receipted: &Receipted, entry: &Entry) -> bool {
    receipted.contains(&(entry.session.clone(), delete::shortened(&entry.id), true))
}

/// Returns the file for the receipts of a book.
fn receipts<'a>(book: &'a AbandonedBook, otherwise: &'a Path) -> &'a Path {
    book.cover.as_ref().map_or(otherwise, |cover| &cover.receipts)
}

impl FinishedDelete {
    /// The receipt of this end.
    pub fn receipt(&self, sweeper: SweptBy, reason: Reason) -> Receipt {
        let end = self.deleted.receipt(&self.url, &self.entry.id);
        let ended_by = match sweeper {
            SweptBy::Keeper => EndedBy::Keeper,
            SweptBy::NextStart => EndedBy::Sweep,
        };
        self.entry.receipt(reason, ended_by, self.took, end)
    }
}

#[cfg(test)]
mod tests;
