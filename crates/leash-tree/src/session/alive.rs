//! Reads the members of sessions from the ledger, wherever they were started.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use crate::contain::leaf::Leaf;
use crate::ledger::book::{Book, BookCommand, Entry, Listed, Membership};
use crate::ledger::store::{self, Store};
use crate::places::Places;
use crate::platform::identity;
use crate::platform::proc::{Proc, Stat};
use leash_model::alive::{MemberKind, SessionMember, TreeProcess};
use leash_model::client::GatewayClient;
use leash_model::record::Record;

/// All members in every runtime directory of this user, the oldest first: trees, connections, and upstream sessions that
/// gateways have open.
pub fn members(places: &Places) -> io::Result<Vec<SessionMember>> {
    let mut members = Vec::new();
    for store in Store::look_all(places).map_err(io::Error::other)? {
        members.append(&mut trees(&store)?);
    }
    members.append(&mut open(places)?);
    members.sort_by_key(|member| member.started_ms);
    Ok(members)
}

/// Every tree in the ledger of this boot and PID namespace, as its record says.
fn trees(store: &Store) -> io::Result<Vec<SessionMember>> {
    let records = store.list()?.into_iter().filter_map(|found| found.record);
    let member = |record| SessionMember::of_record(record, store.runtime_dir());
    Ok(records.filter(store::is_of_this_place).map(member).collect())
}

/// Every connection, and every upstream session that a gateway has open, in every runtime directory of this user.
pub fn open(places: &Places) -> io::Result<Vec<SessionMember>> {
    Ok(Book::list_all(places)?.into_iter().flat_map(of_book).collect())
}

/// Every tree, and whether a process of leash still looks after it.
pub fn trees_now(store: &Store) -> io::Result<Vec<SessionMember>> {
    let mut trees = trees(store)?;
    trees.iter_mut().for_each(|tree| tree.abandoned = !store.locked(&tree.run));
    Ok(trees)
}

/// Finds the clients for which gateways run the trees.
pub fn find_clients(members: &mut [SessionMember], places: &Places) {
    let books = Book::list_all(places).unwrap_or_default();
    let mut clients: HashMap<String, GatewayClient> = books.into_iter().flat_map(|book| book.clients).collect();
    for member in members.iter_mut().filter(|member| member.client.is_none()) {
        member.client = clients.remove(&member.run);
    }
}

/// Looks which processes the trees have now.
pub fn find_processes(members: &mut [SessionMember], proc: &Proc) {
    for member in members {
        if let MemberKind::Tree { record, processes } = &mut member.kind {
            let below = |keeper| all_below(keeper, proc);
            let processes_now = stats_of(record, proc, &below).into_iter().map(|stat| TreeProcess {
                pid: stat.pid,
                ppid: stat.ppid,
                start: stat.start,
                state: stat.state,
                command: proc.command_line(stat.pid),
                memory_bytes: proc.proportional_bytes(stat.pid),
            });
            *processes = processes_now.collect();
        }
    }
}

/// Memory and swap of a tree whose processes were [found](find_processes).
pub fn footprint(member: &SessionMember, proc: &Proc) -> u64 {
    let processes = member.processes().unwrap_or_default().iter();
    processes.map(|process| process.memory_bytes + proc.proportional_swap(process.pid)).sum()
}

/// The connection that keeps a book, or the open sessions of the gateway that does.
fn of_book(book: Listed) -> Vec<SessionMember> {
    let Listed { cover, open, mut clients, attended, runtime_dir } = book;
    let member = |member: Membership, run: String, started_ms: u64, kind: MemberKind| SessionMember {
        session: member.session,
        run,
        name: member.name,
        labels: member.labels,
        owners: member.owners,
        client: None,
        attendants: cover.process.into_iter().collect(),
        abandoned: !attended,
        started_ms,
        runtime_dir: runtime_dir.clone(),
        receipts: cover.receipts.clone(),
        kind,
    };
    if let BookCommand::Connect { member: joined } = cover.command {
        let kind = MemberKind::Connection { open: open.into_iter().next() };
        return vec![member(joined, cover.run, cover.started_ms, kind)];
    }
    let upstream = |open: Entry| {
        let client = clients.remove(&open.session);
        // A gateway numbers the entries that it opens for one of its sessions: `SESSION.N`.
        let session = open.session.rsplit_once('.').map_or(&*open.session, |(session, _)| session).to_owned();
        let (name, labels, owners) = (open.server.clone(), BTreeMap::new(), Vec::new());
        let of_gateway = Membership { session, name, labels, owners };
        let kept = member(of_gateway, open.session.clone(), open.started_ms, MemberKind::Upstream { open });
        SessionMember { client, ..kept }
    };
    open.into_iter().map(upstream).collect()
}

/// The current processes of a tree: the keeper's descendants, the leaf's members, and recorded members that still live.
/// `below` finds the descendants of a process.
pub(super) fn stats_of(record: &Record, proc: &Proc, below: &dyn Fn(i32) -> Vec<Stat>) -> Vec<Stat> {
    let keeper = record.keeper.filter(|keeper| identity::is_alive(*keeper, proc));
    let mut found: Vec<Stat> = keeper.map(|keeper| below(keeper.pid)).unwrap_or_default();
    let mut seen: HashSet<i32> = found.iter().map(|stat| stat.pid).collect();
    let mut pids = Vec::new();
    let leaf = record.leaf.as_deref().and_then(|dir| Leaf::open(dir).ok());
    pids.extend(leaf.map(|leaf| leaf.procs().found).unwrap_or_default());
    pids.extend(record.members.iter().filter(|id| identity::is_alive(**id, proc)).map(|id| id.pid));
    found.extend(pids.into_iter().filter(|pid| seen.insert(*pid)).filter_map(|pid| proc.stat(pid)));
    servers_of(found, keeper.map(|keeper| keeper.pid), proc)
}

/// Those of the processes below a keeper that live and are not leash.
pub(super) fn servers_of(mut found: Vec<Stat>, keeper: Option<i32>, proc: &Proc) -> Vec<Stat> {
    let ours = |stat: &Stat| stat.comm == "keeper" && keeper.is_some_and(|keeper| is_ours(proc, stat.pid, keeper));
    found.retain(|stat| !stat.dead() && !ours(stat));
    found
}

/// The descendants of a process.
pub(super) fn all_below(root: i32, proc: &Proc) -> Vec<Stat> {
    proc.descendants(root).found.into_iter().filter_map(|pid| proc.stat(pid)).collect()
}

/// True for the two processes of leash inside a sealed namespace. They are forks of the keeper: same program, same
/// arguments.
fn is_ours(proc: &Proc, pid: i32, keeper: i32) -> bool {
    proc.argv(pid) == proc.argv(keeper)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leash_model::owner::Owner;
    use testkit::Scratch;

    fn entry(session: &str, started_ms: u64) -> Entry {
        let (server, url, id) = ("web".to_owned(), "http://127.0.0.1:1/mcp".to_owned(), "id".to_owned());
        Entry { session: session.to_owned(), server, url, id, version: None, shown: None, started_ms }
    }

    #[test]
    fn books_have_connections_and_upstream_sessions_of_gateways() {
        let scratch = Scratch::new();
        let places = Places::below(&*scratch);
        let gateway = Book::of_gateway(&places, None).expect("a book");
        for (session, started_ms) in [("job.1", 3), ("job.2", 4), ("plain", 2)] {
            gateway.open(&entry(session, started_ms)).expect("written");
        }
        let (session, name, owners) = ("red".to_owned(), "mail".to_owned(), vec![Owner::Stdin]);
        let labels = [("team".to_owned(), "red".to_owned())].into();
        let member = Membership { session, name, labels, owners };
        let connection = Book::of_connection(&places, "run-1", member).expect("a book");
        let found = members(&places).expect("the ledger is read");
        let shown: Vec<_> = found.iter().map(|one| (&*one.session, &*one.run, &*one.name, one.abandoned)).collect();
        let expected = [
            ("plain", "plain", "web", false),
            ("job", "job.1", "web", false),
            ("job", "job.2", "web", false),
            ("red", "run-1", "mail", false),
        ];
        assert_eq!(shown, expected);
        assert!(found[..3].iter().all(SessionMember::is_upstream) && found[3].open().is_none());
        assert_eq!((found[3].labels.len(), &found[3].owners[..]), (1, &[Owner::Stdin][..]));
        assert!(found.iter().all(|member| member.attendants.len() == 1 && member.receipts == places.receipts));

        // The connection opens a session, and both processes die.
        connection.open(&entry("red", 4)).expect("written");
        drop((gateway, connection));
        let found = members(&places).expect("the ledger is read");
        assert!(found.iter().all(|member| member.abandoned && member.open().is_some()), "{found:?}");
    }
}
