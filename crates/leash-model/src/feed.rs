//! The feed: what is alive, as rows, and then what changes. `leash top`, `leash ps --watch` and the page of `leash serve`
//! show it. The code that looks makes a [`FeedLook`]; [`LiveFeed`] compares it with the look before. A look after which
//! nothing is different makes no revision, so a reader has nothing to draw.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::alive::TreeProcess;
use crate::containment::Containment;
use crate::identity::Identity;
use crate::receipt::Receipt;

/// Readers show rows that were looked at longer ago than this as old, in milliseconds.
pub const OLD_MS: u64 = 3_000;

/// One thing that is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedRow {
    /// Its name in the feed: the same as long as it is alive, and never used again.
    pub key: String,
    /// Its kind.
    pub kind: RowKind,
    /// The session that it is, or belongs to; null for a server of another program.
    pub session: Option<String>,
    /// The id of its run; null for a session and for a server of another program.
    pub run: Option<String>,
    /// The name of the server; for a session, the name that its creator gave it, or its id.
    pub name: String,
    /// The program that it works for, with its PID; null if that is not known.
    pub client: Option<String>,
    /// Its owners, as `leash ps` shows them; null for a server of another program.
    pub owner: Option<String>,
    /// The containment of a tree; null until the server has started.
    pub containment: Option<Containment>,
    /// The URL of an upstream session, without parts that may be secret.
    pub url: Option<String>,
    /// The state or the verdict, as `leash ps` shows it.
    pub state: String,
    /// The evidence for the state, one sentence each; empty until leash has judged it.
    pub evidence: Vec<String>,
    /// Its topmost process.
    pub root: Option<Identity>,
    /// Its processes on this machine.
    pub processes: Vec<TreeProcess>,
    /// The memory of these processes; null if it has none.
    pub memory_bytes: Option<u64>,
    /// Requests of clients since it began; null where leash does not forward the requests.
    pub calls: Option<u64>,
    /// Those of them that were not answered yet; null where leash does not forward the requests.
    pub in_flight: Option<usize>,
    /// Its start, milliseconds since 1970.
    pub started_ms: u64,
    /// What leash can do about it.
    pub remedy: RowRemedy,
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// A session with several members, or one that a gateway holds.
    Session,
    /// A process tree.
    Tree,
    /// A `leash connect`, before its session at the server is open.
    Connection,
    /// A session at an HTTP server.
    Upstream,
    /// A server that another program started, without leash.
    Other,
}

/// What leash can do about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RowRemedy {
    /// `leash end` ends it.
    End,
    /// `leash reap` ends it, because it is proved to be an orphan.
    Reap,
    /// Nothing: it is in use, or its gateway ends it.
    None,
}

/// One look at everything.
#[derive(Clone, Debug, Default)]
pub struct FeedLook {
    /// The time of the look, milliseconds since 1970.
    pub at_ms: u64,
    /// What is alive, in the order in which it is shown.
    pub rows: Vec<FeedRow>,
    /// The receipts that were written since the last look.
    pub ended: Vec<Receipt>,
    /// Memory that ended sessions have given back since boot.
    pub given_back_bytes: u64,
    /// The time at which servers of other programs were judged, milliseconds since 1970; `None` if they were not.
    pub judged_ms: Option<u64>,
    /// The parts that could not be read, one sentence each.
    pub warnings: Vec<String>,
}

/// Sums over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedTotals {
    /// Sessions of leash.
    pub sessions: usize,
    /// Process trees of leash.
    pub trees: usize,
    /// The processes of these trees.
    pub processes: usize,
    /// Their memory.
    pub memory_bytes: u64,
    /// Servers that other programs started.
    pub others: usize,
    /// The memory of those.
    pub others_memory_bytes: u64,
    /// Those of them that are proved to be orphans.
    pub orphans: usize,
    /// Memory that ended sessions have given back since boot.
    pub given_back_bytes: u64,
}

/// A document of the feed: the first is a snapshot, all others are changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedDocument {
    /// A snapshot or a change.
    pub kind: DocumentKind,
    /// The number of the state that it leads to; one more than that of the document before.
    pub revision: u64,
    /// The time of the look, milliseconds since 1970.
    pub at_ms: u64,
    /// Rows that are new; all rows in a snapshot.
    pub added: Vec<FeedRow>,
    /// Rows that have changed, whole.
    pub changed: Vec<FeedRow>,
    /// The keys of rows that are gone.
    pub removed: Vec<String>,
    /// The receipts that were written since the document before.
    pub ended: Vec<Receipt>,
    /// Sums over all rows.
    pub totals: FeedTotals,
    /// The time at which servers of other programs were judged, milliseconds since 1970; null if they were not.
    pub judged_ms: Option<u64>,
    /// The parts that could not be read, one sentence each.
    pub warnings: Vec<String>,
}

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DocumentKind {
    /// Everything that is alive: a reader forgets what it knew.
    Snapshot,
    /// The differences to the document before.
    Change,
}

/// The state of the feed: the last look, and its number.
#[derive(Clone, Debug, Default)]
pub struct LiveFeed {
    revision: u64,
    look: FeedLook,
}

impl LiveFeed {
    /// Takes a look. Returns the document for readers; `None` if nothing is different.
    pub fn take(&mut self, look: FeedLook) -> Option<FeedDocument> {
        let before = std::mem::replace(&mut self.look, look);
        if self.revision == 0 {
            self.revision = 1;
            return Some(self.snapshot());
        }
        let change = self.change_from(&before)?;
        self.revision = change.revision;
        Some(change)
    }

    /// The document for a reader that begins now.
    pub fn snapshot(&self) -> FeedDocument {
        FeedDocument { kind: DocumentKind::Snapshot, added: self.look.rows.clone(), ..self.document(self.revision) }
    }

    /// A document about the last look, without rows.
    fn document(&self, revision: u64) -> FeedDocument {
        FeedDocument {
            kind: DocumentKind::Change,
            revision,
            at_ms: self.look.at_ms,
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            ended: Vec::new(),
            totals: self.totals(),
            judged_ms: self.look.judged_ms,
            warnings: self.look.warnings.clone(),
        }
    }

    /// The rows of the last look.
    pub fn rows(&self) -> &[FeedRow] {
        &self.look.rows
    }

    /// The last look.
    pub fn last_look(&self) -> &FeedLook {
        &self.look
    }

    /// Sums over all rows.
    pub fn totals(&self) -> FeedTotals {
        totals(&self.look)
    }

    /// True if the last look is too long ago for its rows to be called current.
    pub fn is_old(&self, now_ms: u64) -> bool {
        self.revision > 0 && now_ms.saturating_sub(self.look.at_ms) > OLD_MS
    }

    /// The age of the verdicts about servers of other programs, if they are too old to be called current, milliseconds.
    pub fn old_verdicts(&self, now_ms: u64) -> Option<u64> {
        let age = now_ms.saturating_sub(self.look.judged_ms?);
        (age > OLD_MS).then_some(age)
    }

    fn change_from(&self, before: &FeedLook) -> Option<FeedDocument> {
        let mut known: HashMap<&str, &FeedRow> = before.rows.iter().map(|row| (&*row.key, row)).collect();
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        for row in &self.look.rows {
            match known.remove(&*row.key) {
                None => added.push(row.clone()),
                Some(old) if old != row => changed.push(row.clone()),
                Some(_) => {}
            }
        }
        let gone = before.rows.iter().filter(|row| known.contains_key(&*row.key));
        let removed: Vec<String> = gone.map(|row| row.key.clone()).collect();
        let ended = self.look.ended.clone();
        let is_same = added.is_empty() && changed.is_empty() && removed.is_empty() && ended.is_empty();
        if is_same && before.warnings == self.look.warnings {
            return None;
        }
        Some(FeedDocument { added, changed, removed, ended, ..self.document(self.revision + 1) })
    }
}

fn totals(look: &FeedLook) -> FeedTotals {
    let mut totals = FeedTotals { given_back_bytes: look.given_back_bytes, ..FeedTotals::default() };
    let mut sessions: BTreeSet<&str> = BTreeSet::new();
    for row in &look.rows {
        let memory = row.memory_bytes.unwrap_or_default();
        if let Some(session) = &row.session {
            sessions.insert(session);
        }
        match row.kind {
            RowKind::Tree => {
                totals.trees += 1;
                totals.processes += row.processes.len();
                totals.memory_bytes += memory;
            }
            RowKind::Other => {
                totals.others += 1;
                totals.others_memory_bytes += memory;
                totals.orphans += usize::from(row.remedy == RowRemedy::Reap);
            }
            // The trees of a session are rows of their own.
            RowKind::Session | RowKind::Connection | RowKind::Upstream => {}
        }
    }
    totals.sessions = sessions.len();
    totals
}

#[cfg(test)]
mod tests;
