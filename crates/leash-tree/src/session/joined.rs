//! The members of a session, wherever they were started. leash finds them by the ledger.

use crate::ledger::book::{Book, Listed, Membership};
use crate::ledger::store::{self, Store};
use crate::places::Places;
use leash_model::owner::{Owner, Role};
use leash_model::record::Record;
use std::collections::BTreeMap;
use std::io;

/// A member of a session.
#[derive(Clone, Debug)]
pub enum Joined {
    /// A process tree, and the store with its record.
    Run(Box<Record>, Store),
    /// A connection to an HTTP server, and its membership.
    Connection(Box<Listed>, Membership),
}

/// The session or member that a user wants to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A session with all its members.
    Session(String),
    /// One member, by its run.
    Run(String),
}

impl Target {
    /// The id of the session or run.
    pub fn id(&self) -> &str {
        let (Target::Session(id) | Target::Run(id)) = self;
        id
    }

    /// True if it includes this member.
    pub fn means(&self, member: &Joined) -> bool {
        match self {
            Target::Session(session) => member.session() == session,
            Target::Run(run) => member.run() == run,
        }
    }
}

impl Joined {
    /// The session.
    pub fn session(&self) -> &str {
        match self {
            Joined::Run(record, _) => &record.session,
            Joined::Connection(_, member) => &member.session,
        }
    }

    /// The member's own id.
    pub fn run(&self) -> &str {
        match self {
            Joined::Run(record, _) => &record.run,
            Joined::Connection(book, _) => &book.cover.run,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Joined::Run(record, _) => &record.name,
            Joined::Connection(_, member) => &member.name,
        }
    }

    /// Labels as given.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        match self {
            Joined::Run(record, _) => &record.labels,
            Joined::Connection(_, member) => &member.labels,
        }
    }

    /// Its owners.
    pub fn owners(&self) -> &[Owner] {
        match self {
            Joined::Run(record, _) => &record.owners,
            Joined::Connection(_, member) => &member.owners,
        }
    }

    /// True if a process started it and holds it, as the gateway holds its trees.
    pub fn is_held_by(&self, pid: i32) -> bool {
        let holds = |owner: &Owner| matches!(owner, Owner::Process { role, pid: owner, .. } if *role == Role::Parent && *owner == pid);
        self.owners().contains(&Owner::Handle) && self.owners().iter().any(holds)
    }
}

/// All current members of sessions, in every runtime directory of this user, the oldest first. A process that belongs to
/// no session (a gateway's own book) is not included.
pub fn joined(places: &Places) -> io::Result<Vec<Joined>> {
    let mut members: Vec<(u64, Joined)> = Vec::new();
    for store in Store::look_all(places).map_err(io::Error::other)? {
        let records = store.list()?.into_iter().filter_map(|found| found.record).filter(store::is_of_this_place);
        members.extend(records.map(|record| (record.started_ms, Joined::Run(Box::new(record), store.clone()))));
    }
    for book in Book::list_all(places)? {
        if let Some(member) = book.cover.command.member().cloned() {
            members.push((book.cover.started_ms, Joined::Connection(Box::new(book), member)));
        }
    }
    members.sort_by_key(|(started_ms, _)| *started_ms);
    Ok(members.into_iter().map(|(_, member)| member).collect())
}
