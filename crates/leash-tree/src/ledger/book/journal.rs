//! The journal of a book: one line for each change. Reading it back gives the open sessions.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Cover, Entry};
use crate::platform::private_file;
use leash_model::{client::GatewayClient, limits};

/// A line of the journal, for writing.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum JournalLine<'a> {
    /// The first line.
    Book(&'a Cover),
    /// A session is open, or its entry has changed.
    Open(&'a Entry),
    /// Records that a session is over.
    Over(&'a str),
    /// A client has a session, or more is known of it. Only shown in listings.
    Client(&'a ListedClient),
    /// Records that the client of this run is gone.
    Gone(&'a str),
}

/// A client of a gateway, with the run that it uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ListedClient {
    pub(super) run: String,
    #[serde(flatten)]
    pub(super) client: GatewayClient,
}

/// A line of the journal, for reading.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReadJournalLine {
    Book(Cover),
    Open(Entry),
    Over(String),
    Client(ListedClient),
    Gone(String),
}

/// The content of a journal.
#[derive(Debug, Default)]
pub(super) struct JournalContent {
    pub(super) cover: Option<Cover>,
    /// The open sessions, in the order in which they were opened.
    pub(super) open: Vec<Entry>,
    /// The clients of a gateway, by the run that each uses.
    pub(super) clients: BTreeMap<String, GatewayClient>,
}

/// The open journal, with counters that need no reading of the file.
#[derive(Debug)]
pub(super) struct BookJournal {
    pub(super) file: File,
    pub(super) bytes: u64,
    lines: usize,
    pub(super) open: usize,
    pub(super) clients: usize,
    /// The last write was incomplete, so the next write begins with a new line.
    pub(super) torn: bool,
    /// The size from which on it is rewritten.
    pub(super) rewrite_at: u64,
}

impl BookJournal {
    pub(super) fn create(path: &Path, cover: &Cover, content: &JournalContent) -> io::Result<BookJournal> {
        let JournalContent { open, clients, .. } = content;
        // A left-over file of this name comes from an earlier attempt of ours.
        let _ = fs::remove_file(path);
        let file = File::options().create_new(true).append(true).mode(0o600).open(path)?;
        let mut text = text_of(&JournalLine::Book(cover))?;
        for entry in open {
            text.extend_from_slice(&text_of(&JournalLine::Open(entry))?);
        }
        for (run, client) in clients {
            let listed = ListedClient { run: run.clone(), client: client.clone() };
            text.extend_from_slice(&text_of(&JournalLine::Client(&listed))?);
        }
        (&file).write_all(&text)?;
        let bytes = text.len() as u64;
        let rewrite_at = limits::BOOK_REWRITE;
        let (lines, open, clients) = (open.len() + clients.len() + 1, open.len(), clients.len());
        Ok(BookJournal { file, bytes, lines, open, clients, torn: false, rewrite_at })
    }

    /// Uses one write, so that a process that dies has written the whole line or nothing.
    pub(super) fn write(&mut self, line: &JournalLine<'_>) -> io::Result<()> {
        let mut text = text_of(line)?;
        if self.torn {
            text.insert(0, b'\n');
        }
        // A full disk may take only a part of it.
        self.torn = true;
        self.file.write_all(&text)?;
        self.torn = false;
        self.bytes += text.len() as u64;
        self.lines += 1;
        Ok(())
    }

    pub(super) fn wants_rewriting(&self) -> bool {
        self.bytes >= self.rewrite_at && self.lines > 2 * (self.open + self.clients) + 1
    }
}

pub(super) fn text_of(line: &JournalLine<'_>) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// Reads a journal. Skips lines that can't be read (torn writes, empty lines).
pub(super) fn read(path: &Path) -> io::Result<JournalContent> {
    let mut pages = JournalContent::default();
    let mut places = HashMap::new();
    let mut open: Vec<Option<Entry>> = Vec::new();
    for line in BufReader::new(private_file::read(path)?.take(limits::BOOK_MAX)).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(ReadJournalLine::Book(cover)) => pages.cover = Some(cover),
            Ok(ReadJournalLine::Open(entry)) => match places.get(&entry.session) {
                Some(place) => open[*place] = Some(entry),
                None => {
                    places.insert(entry.session.clone(), open.len());
                    open.push(Some(entry));
                }
            },
            Ok(ReadJournalLine::Over(session)) => {
                if let Some(place) = places.remove(&session) {
                    open[place] = None;
                }
            }
            Ok(ReadJournalLine::Client(ListedClient { run, client })) => drop(pages.clients.insert(run, client)),
            Ok(ReadJournalLine::Gone(run)) => drop(pages.clients.remove(&run)),
            Err(_) => {}
        }
    }
    pages.open = open.into_iter().flatten().collect();
    Ok(pages)
}
