//! What dead gateways have left open at upstream servers is ended by their keepers, and where those are dead too by the next gateway,
//! in the background.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::io;
use std::path::Path;
use std::time::Duration;

use hyper::{HeaderMap, Uri};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinSet;

use super::delete;
use super::delete::{Deleted, Ticket};
use super::notice::Notice;
use crate::client::Client;
use leash_model::clock::Moment;
use leash_model::limits;
use leash_model::receipt::{DeleteHow, EndedBy, Fate, Reason, Receipt};
use leash_protocol::headers;
use leash_tree::ledger::book::{Abandoned, Book, Entry};
use leash_tree::ledger::receipts;
use leash_tree::places::Places;

/// What this process knows of a server in a dead gateway's book: the whole address, and headers that were not written down.
pub struct Known {
    pub url: Uri,
    pub headers: HeaderMap,
}

/// A DELETE that is over.
pub struct Done {
    book: usize,
    /// The whole address and the headers were known.
    known: bool,
    entry: Entry,
    url: Uri,
    pub deleted: Deleted,
    took: Duration,
}

/// Ends what is open in every book whose process is gone, and writes the receipts where that process would have.
pub async fn books(client: &Client, places: &Places, known: &dyn Fn(&Entry) -> Option<Known>, tell: &dyn Fn(Notice)) {
    let books = match Book::abandoned(&places.runtime_dir) {
        Ok(books) => books,
        Err(error) => return tell(Notice::Warning(format!("cannot read the ledger: {error}"))),
    };
    let sweep = Sweep { client, receipts: &places.receipts, known, tell, heir: Heir::NextStart, reason: Reason::Swept };
    sweep.end(books).await;
}

/// Who ends what a dead process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// Its keeper. A session whose server can't be reached stays in the book, and one whose credentials the keeper was not told: the
    /// next start tries again, with the headers in its configuration.
    Keeper,
    /// A process that started later. There is no other, so it settles everything.
    NextStart,
}

/// The end of everything in some books.
pub(crate) struct Sweep<'a> {
    pub(crate) client: &'a Client,
    /// Where receipts go if a book does not say it any more.
    pub(crate) receipts: &'a Path,
    pub(crate) known: &'a dyn Fn(&Entry) -> Option<Known>,
    pub(crate) tell: &'a dyn Fn(Notice),
    pub(crate) heir: Heir,
    /// What the receipts say.
    pub(crate) reason: Reason,
}

impl Sweep<'_> {
    /// Ends everything. Books in which nothing is left are removed.
    pub(crate) async fn end(&self, mut books: Vec<Abandoned>) {
        let all =
            books.iter().enumerate().flat_map(|(at, book)| book.open.iter().map(move |entry| (at, entry.clone())));
        let mut waiting: VecDeque<(usize, Entry)> = all.collect();
        let told = if waiting.is_empty() { Told::new() } else { told(&books, self.receipts) };
        let mut unreachable = HashSet::new();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < limits::SWEEP_AT_ONCE
                && let Some((book, entry)) = waiting.pop_front()
            {
                // Thousands of sessions of one dead server would take hours.
                if !unreachable.contains(&entry.url) {
                    let known = (self.known)(&entry);
                    under_way.spawn_local(end(self.client.clone(), book, entry, known));
                }
            }
            match under_way.join_next().await {
                // What was cut short stays for the next start.
                Some(Ok(Some(done))) if done.deleted.cut_short => {}
                Some(Ok(Some(done))) => match outcome(self.heir, done.known, &done.deleted) {
                    Outcome::Settled => {
                        let written = self.write(&books[done.book], &done, &told);
                        settle(&mut books[done.book], &done, &written, self.tell);
                    }
                    Outcome::Unreachable => {
                        // Whether that could be written or not, the session stays in the book.
                        let _ = self.write(&books[done.book], &done, &told);
                        unreachable.insert(done.entry.url.clone());
                    }
                    Outcome::NoCredentials => {}
                },
                // An entry that no leash could have written.
                Some(Ok(None) | Err(_)) => {}
                None => break,
            }
        }
        // And so does what could not be told.
        let cut = |book: &Abandoned| book.open.iter().any(is_sound);
        books.into_iter().filter(|book| !cut(book)).for_each(Abandoned::remove);
    }

    /// Writes the receipt, unless there is one.
    fn write(&self, book: &Abandoned, done: &Done, told: &Told) -> io::Result<()> {
        let receipt = done.receipt(self.heir, self.reason.clone());
        if is_told(told, &receipt) {
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

/// What a DELETE came to, for the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The session is over, or nothing more can be done for it.
    Settled,
    /// The server is not there now. There is a receipt, and the session stays in the book.
    Unreachable,
    /// The server wants credentials that the keeper was not told. The session stays in the book.
    NoCredentials,
}

fn outcome(heir: Heir, known: bool, deleted: &Deleted) -> Outcome {
    match (heir, deleted.how) {
        (Heir::NextStart, _) => Outcome::Settled,
        (Heir::Keeper, DeleteHow::Unreachable) if deleted.status.is_none() => Outcome::Unreachable,
        (Heir::Keeper, DeleteHow::Denied) if !known => Outcome::NoCredentials,
        (Heir::Keeper, _) => Outcome::Settled,
    }
}

/// Writes down that the session is over, after its receipt. Where that could not be written because there was no descriptor, the session
/// stays in the book: the next start has some.
fn settle(book: &mut Abandoned, done: &Done, written: &io::Result<()>, tell: &dyn Fn(Notice)) {
    if written.as_ref().is_err_and(receipts::is_shortage) {
        return;
    }
    if let Err(error) = book.over(&done.entry.session) {
        tell(Notice::Warning(format!("cannot write the ledger: {error}")));
    }
}

/// The same for a program that is no gateway: returns when it is done, with the receipts and what else there is to say.
pub fn at_once(places: &Places) -> (Vec<Receipt>, Vec<String>) {
    let (receipts, warnings) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => return (Vec::new(), vec![format!("cannot end abandoned upstream sessions: {error}")]),
    };
    let tell = |notice| match notice {
        Notice::Swept(receipt) => receipts.borrow_mut().push(*receipt),
        Notice::Warning(warning) => warnings.borrow_mut().push(warning),
        _ => {}
    };
    // No server is configured here, and so nothing is known of any but what its book says.
    runtime.block_on(books(&Client::new(), places, &|_| None, &tell));
    // A name may still be looked up on another thread; nobody waits for it.
    runtime.shutdown_background();
    (receipts.into_inner(), warnings.into_inner())
}

fn is_sound(entry: &Entry) -> bool {
    headers::valid_session_id(&entry.id) && entry.url.parse::<Uri>().is_ok()
}

pub async fn end(client: Client, book: usize, entry: Entry, known: Option<Known>) -> Option<Done> {
    let (began, is_known) = (Moment::now(), known.is_some());
    let plain = || Some(Known { url: entry.url.parse().ok()?, headers: HeaderMap::new() });
    let Known { url, headers } = known.or_else(plain).filter(|_| is_sound(&entry))?;
    let ticket = Ticket { url, session_id: entry.id.clone(), version: entry.version.clone(), headers };
    let deleted = delete::delete(&client, &ticket).await;
    Some(Done { book, known: is_known, entry, url: ticket.url, deleted, took: Moment::now() - began })
}

/// Sessions at upstream servers that have a receipt, by its run and the beginning of their ids, and whether it says that they are gone:
/// somebody may have written one, and then been killed or met a disk that was read-only before the book said so.
pub type Told = HashSet<(String, String, bool)>;

fn told(books: &[Abandoned], otherwise: &Path) -> Told {
    let paths: BTreeSet<&Path> = books.iter().map(|book| receipts(book, otherwise)).collect();
    told_in(paths)
}

/// The same for the receipts in these files.
pub fn told_in<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Told {
    // What can't be read can't be known; two receipts are better than none.
    let known = paths.into_iter().filter_map(|path| receipts::read(path).ok()).flat_map(|(known, _)| known);
    known.flat_map(|receipt| upstreams(&receipt).collect::<Vec<_>>()).collect()
}

fn upstreams(receipt: &Receipt) -> impl Iterator<Item = (String, String, bool)> {
    receipt.upstreams().map(|end| (receipt.run.clone(), end.id.clone(), end.fate == Fate::Gone))
}

/// Whether there is nothing new in a receipt. What was left before and is gone now is news.
pub fn is_told(told: &Told, receipt: &Receipt) -> bool {
    upstreams(receipt).all(|(run, id, is_gone)| {
        told.contains(&(run.clone(), id.clone(), true)) || !is_gone && told.contains(&(run, id, false))
    })
}

/// Whether there is a receipt that says that a session is gone.
pub fn has_ended(told: &Told, entry: &Entry) -> bool {
    told.contains(&(entry.session.clone(), delete::shortened(&entry.id), true))
}

/// Where the receipts of a book go.
fn receipts<'a>(book: &'a Abandoned, otherwise: &'a Path) -> &'a Path {
    book.cover.as_ref().map_or(otherwise, |cover| &cover.receipts)
}

impl Done {
    pub fn receipt(&self, heir: Heir, reason: Reason) -> Receipt {
        let end = self.deleted.receipt(&self.url, &self.entry.id);
        let ended_by = match heir {
            Heir::Keeper => EndedBy::Keeper,
            Heir::NextStart => EndedBy::Sweep,
        };
        self.entry.receipt(reason, ended_by, self.took, end)
    }
}

#[cfg(test)]
mod tests;
