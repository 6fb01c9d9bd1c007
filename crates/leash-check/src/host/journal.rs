//! The events that the stand-ins saw, as lines in a file to which all of them append.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The role of a stand-in process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// A stdio server that exits at the end of its input.
    Polite,
    /// A stdio server that exits on SIGTERM only, as many do.
    Deaf,
    /// A helper of the deaf server; it exits on SIGTERM only.
    Helper,
    /// An HTTP server with sessions.
    Http,
    /// Not a server: it gives the host a controlling terminal.
    Usher,
}

impl Part {
    /// The servers, as a host knows them.
    pub(super) const SERVERS: [Part; 3] = [Part::Polite, Part::Deaf, Part::Http];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Part::Polite => "polite",
            Part::Deaf => "deaf",
            Part::Helper => "helper",
            Part::Http => "http",
            Part::Usher => "usher",
        }
    }

    /// The description in the report.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Part::Polite => "the server that leaves at the end of its input",
            Part::Deaf => "the server that leaves on SIGTERM only",
            Part::Helper => "a helper of that server",
            Part::Http => "the HTTP server",
            Part::Usher => "the program that gives a host its terminal",
        }
    }
}

/// An event of a stand-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Happened {
    /// The process runs.
    Started,
    /// The handshake is done.
    Connected,
    /// It received another message.
    Asked,
    /// Its stdin was closed.
    Eof,
    /// A session was opened.
    Opened {
        /// Its id.
        session: String,
    },
    /// A client ended a session with DELETE.
    Deleted {
        /// Its id.
        session: String,
    },
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The role.
    pub part: Part,
    /// Its process.
    pub pid: i32,
    /// The event.
    #[serde(flatten)]
    pub happened: Happened,
}

/// The file.
#[derive(Clone, Debug)]
pub struct Journal(PathBuf);

impl Journal {
    /// The journal at a path; the first entry creates the file.
    pub fn at(path: impl Into<PathBuf>) -> Journal {
        Journal(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Adds an event of the calling process in its role.
    pub fn write(&self, part: Part, happened: Happened) -> io::Result<()> {
        let entry = JournalEntry { part, pid: rustix::process::getpid().as_raw_pid(), happened };
        let line = serde_json::to_string(&entry)? + "\n";
        // One write to the end of the file, so that lines of several processes do not mix.
        OpenOptions::new().create(true).append(true).open(&self.0)?.write_all(line.as_bytes())
    }

    /// All entries; an incomplete line is skipped.
    pub(super) fn read(&self) -> Vec<JournalEntry> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// The servers that the host has connected to.
pub(super) fn connected(entries: &[JournalEntry]) -> BTreeSet<Part> {
    let done = entries.iter().filter(|entry| entry.happened == Happened::Connected);
    done.map(|entry| entry.part).collect()
}

/// The opened sessions, and the ended ones among them.
pub(super) fn sessions(entries: &[JournalEntry]) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut opened, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries {
        match &entry.happened {
            Happened::Opened { session } => drop(opened.insert(session.as_str())),
            Happened::Deleted { session } => drop(deleted.insert(session.as_str())),
            Happened::Started | Happened::Connected | Happened::Asked | Happened::Eof => {}
        }
    }
    (opened, deleted)
}
