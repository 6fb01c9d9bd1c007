//! The events that the stand-ins saw, as lines in a file to which all of them append.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The role of a stand-in process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StandInRole {
    /// A stdio server that exits at the end of its input.
    Polite,
    /// A stdio server that exits on SIGTERM only, as many do.
    Deaf,
    /// A helper of the deaf server; it exits on SIGTERM only.
    Helper,
    /// An HTTP server with sessions.
    Http,
    /// Not a server: it gives the host a controlling terminal.
    TerminalStarter,
}

impl StandInRole {
    /// The servers, as a host knows them.
    pub(super) const SERVERS: [StandInRole; 3] = [StandInRole::Polite, StandInRole::Deaf, StandInRole::Http];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            StandInRole::Polite => "polite",
            StandInRole::Deaf => "deaf",
            StandInRole::Helper => "helper",
            StandInRole::Http => "http",
            StandInRole::TerminalStarter => "terminal-starter",
        }
    }

    /// The description in the report.
    pub(super) fn describe(self) -> &'static str {
        match self {
            StandInRole::Polite => "the server that leaves at the end of its input",
            StandInRole::Deaf => "the server that leaves on SIGTERM only",
            StandInRole::Helper => "a helper of that server",
            StandInRole::Http => "the HTTP server",
            StandInRole::TerminalStarter => "the program that gives a host its terminal",
        }
    }
}

/// An event of a stand-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum StandInEvent {
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
    pub part: StandInRole,
    /// Its process.
    pub pid: i32,
    /// The event.
    #[serde(flatten)]
    pub event: StandInEvent,
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
    pub fn write(&self, part: StandInRole, event: StandInEvent) -> io::Result<()> {
        let entry = JournalEntry { part, pid: rustix::process::getpid().as_raw_pid(), event };
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
pub(super) fn connected(entries: &[JournalEntry]) -> BTreeSet<StandInRole> {
    let done = entries.iter().filter(|entry| entry.event == StandInEvent::Connected);
    done.map(|entry| entry.part).collect()
}

/// The opened sessions, and the ended ones among them.
pub(super) fn sessions(entries: &[JournalEntry]) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut opened, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries {
        match &entry.event {
            StandInEvent::Opened { session } => drop(opened.insert(session.as_str())),
            StandInEvent::Deleted { session } => drop(deleted.insert(session.as_str())),
            StandInEvent::Started | StandInEvent::Connected | StandInEvent::Asked | StandInEvent::Eof => {}
        }
    }
    (opened, deleted)
}
