//! Living sessions: runs and connections from anywhere that share an id.

use std::collections::BTreeMap;

use leash_model::owner::Owner;
use leash_model::record::Phase;
use leash_tree::ledger::book::{Entry, Listed};
use leash_tree::session::Live;
use serde_json::Value;

/// A session and its members, the oldest first.
pub(super) struct Group<'a> {
    pub(super) session: &'a str,
    pub(super) parts: Vec<Part<'a>>,
    /// The daemon's description, if the session belongs to the daemon. It contains URLs that other users must not see.
    held: Option<&'a Value>,
}

/// A member of a session.
pub(super) enum Part<'a> {
    /// A process tree.
    Run(&'a Live),
    /// A `leash connect`, and its open upstream session.
    Connection(&'a Listed, Option<&'a Entry>),
    /// An upstream session that a gateway has open for a client.
    Upstream(&'a Listed, &'a Entry),
}

/// The sessions in the order in which their oldest members began, including those of a daemon with or without members.
pub(super) fn groups<'a>(runs: &'a [Live], books: &'a [Listed], held: &'a [Value]) -> Vec<Group<'a>> {
    let mut parts: Vec<Part<'a>> = runs.iter().map(Part::Run).collect();
    for book in books {
        if book.session().is_some() {
            parts.push(Part::Connection(book, book.open.first()));
        } else {
            parts.extend(book.open.iter().map(|entry| Part::Upstream(book, entry)));
        }
    }
    parts.sort_by_key(Part::started_ms);
    let begin = |held: &'a Value| Some(Group { session: held["id"].as_str()?, parts: Vec::new(), held: Some(held) });
    let mut groups: Vec<Group<'a>> = held.iter().filter_map(begin).collect();
    for part in parts {
        let session = part.session();
        match groups.iter_mut().find(|group| group.session == session) {
            Some(group) => group.parts.push(part),
            None => groups.push(Group { session, parts: vec![part], held: None }),
        }
    }
    groups.sort_by_key(Group::started_ms);
    groups
}

impl<'a> Group<'a> {
    /// The only member, if the session needs no line of its own.
    pub(super) fn only(&self) -> Option<&Part<'a>> {
        match &self.parts[..] {
            [only] if self.held.is_none() => Some(only),
            _ => None,
        }
    }

    /// Its name, if it belongs to the daemon and has a name besides its id.
    pub(super) fn name(&self) -> Option<&'a str> {
        self.held?["name"].as_str()
    }

    /// The servers that the daemon has for it, running or not.
    pub(super) fn servers(&self) -> Option<Vec<&'a str>> {
        let servers = self.held?["servers"].as_array()?;
        Some(servers.iter().filter_map(|server| server["name"].as_str()).collect())
    }

    /// Its name and its members.
    pub(super) fn members(&self) -> String {
        let members = match self.parts.len() {
            1 => "1 member".to_owned(),
            count => format!("{count} members"),
        };
        self.name().map_or(members.clone(), |name| format!("{name}, {members}"))
    }

    pub(super) fn started_ms(&self) -> u64 {
        let held = self.held.and_then(|held| held["startedAtMs"].as_u64());
        self.parts.iter().map(Part::started_ms).chain(held).min().unwrap_or_default()
    }

    pub(super) fn processes(&self) -> usize {
        self.parts.iter().filter_map(Part::live).map(|run| run.members.len()).sum()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.parts.iter().filter_map(Part::live).map(Live::memory_bytes).sum()
    }

    /// The owners of all members, each once; for a session of a daemon, the owner for which the daemon holds it.
    pub(super) fn owners(&self) -> String {
        if let Some(owner) = self.held.map(|held| &held["owner"]) {
            let kind = owner["kind"].as_str().unwrap_or("none");
            return owner["pid"].as_i64().map_or_else(|| kind.to_owned(), |pid| format!("{kind}({pid})"));
        }
        let mut names: Vec<String> = Vec::new();
        for owner in self.parts.iter().flat_map(Part::owner_list) {
            let name = owner.describe();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    }

    /// The state of the member that needs the most attention.
    pub(super) fn state(&self) -> &'static str {
        let held = self.held.and_then(|held| held["state"].as_str());
        let held = ["ending", "starting"].into_iter().find(|state| held == Some(state));
        let states: Vec<&'static str> = self.parts.iter().map(Part::state).chain(held).collect();
        let abandoned = states.iter().find(|state| state.starts_with("abandoned"));
        let other = || ["ending", "starting"].into_iter().find(|state| states.contains(state));
        abandoned.copied().or_else(other).unwrap_or("running")
    }
}

impl<'a> Part<'a> {
    pub(super) fn session(&self) -> &'a str {
        match self {
            Part::Run(run) => &run.record.session,
            Part::Connection(book, _) => book.session().unwrap_or(&book.cover.run),
            Part::Upstream(book, entry) => book.session_of(entry),
        }
    }

    /// Its own id.
    pub(super) fn run(&self) -> &'a str {
        match self {
            Part::Run(run) => &run.record.run,
            Part::Connection(book, _) => &book.cover.run,
            Part::Upstream(_, entry) => &entry.session,
        }
    }

    /// The part of its id that is enough to end it alone. A gateway's session has a number and ends with its gateway.
    pub(super) fn handle(&self) -> String {
        match self {
            Part::Run(_) | Part::Connection(..) => short_id(self.run()),
            Part::Upstream(_, entry) => entry.session.rsplit_once('.').map_or("-", |(_, number)| number).to_owned(),
        }
    }

    pub(super) fn name(&self) -> &'a str {
        match self {
            Part::Run(run) => &run.record.name,
            Part::Connection(book, _) => book.cover.command.member().map_or("connect", |member| &member.name),
            Part::Upstream(_, entry) => &entry.server,
        }
    }

    pub(super) fn labels(&self) -> Option<&'a BTreeMap<String, String>> {
        match self {
            Part::Run(run) => Some(&run.record.labels),
            Part::Connection(book, _) => book.cover.command.member().map(|member| &member.labels),
            Part::Upstream(..) => None,
        }
    }

    pub(super) fn live(&self) -> Option<&'a Live> {
        match self {
            Part::Run(run) => Some(run),
            Part::Connection(..) | Part::Upstream(..) => None,
        }
    }

    /// Its book, and its open upstream session.
    pub(super) fn upstream(&self) -> (Option<&'a Listed>, Option<&'a Entry>) {
        match self {
            Part::Run(_) => (None, None),
            Part::Connection(book, entry) => (Some(book), *entry),
            Part::Upstream(book, entry) => (Some(book), Some(entry)),
        }
    }

    /// The word for programs.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Part::Run(_) => "run",
            Part::Connection(..) => "connection",
            Part::Upstream(..) => "upstream",
        }
    }

    /// The kind for people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Part::Run(run) => run.record.containment.map_or("-", |containment| containment.name()),
            Part::Connection(_, None) => "connection",
            Part::Connection(_, Some(_)) | Part::Upstream(..) => "upstream",
        }
    }

    pub(super) fn owner_list(&self) -> &'a [Owner] {
        match self {
            Part::Run(run) => &run.record.owners,
            Part::Connection(book, _) => book.cover.command.member().map_or(&[], |member| &member.owners),
            Part::Upstream(..) => &[],
        }
    }

    /// Its owners; for an upstream session, the process that has it open.
    pub(super) fn owners(&self) -> String {
        if let (Some(book), _) = self.upstream() {
            let process = book.cover.process.map_or_else(|| "?".to_owned(), |process| process.pid.to_string());
            return format!("{}({process})", book.cover.command.name());
        }
        let names: Vec<String> = self.owner_list().iter().map(Owner::describe).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    }

    pub(super) fn started_ms(&self) -> u64 {
        match self {
            Part::Run(run) => run.record.started_ms,
            Part::Connection(book, _) => book.cover.started_ms,
            Part::Upstream(_, entry) => entry.started_ms,
        }
    }

    pub(super) fn attended(&self) -> bool {
        match self {
            Part::Run(run) => run.attended,
            Part::Connection(book, _) | Part::Upstream(book, _) => book.attended,
        }
    }

    pub(super) fn state(&self) -> &'static str {
        match self {
            Part::Run(run) => match (run.attended, run.record.phase) {
                (false, _) => "abandoned: the next `leash run` ends it",
                (true, Phase::Starting) => "starting",
                (true, Phase::Running) => "running",
                (true, Phase::Ending) => "ending",
            },
            part if part.attended() => "running",
            _ => "abandoned: the next `leash serve` or `connect` ends it",
        }
    }
}

/// The beginning of an id: enough to find it in a list or a server's log, but not enough to use it.
pub(super) fn short_id(id: &str) -> String {
    id.chars().take(8).collect()
}
