//! The lines of the list: clients, below them their sessions and servers, below these their processes; then the servers
//! of other programs.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use leash_model::alive::TreeProcess;
use leash_model::feed::{FeedRow, RowKind};

/// The order of sessions, and of clients by their first session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortOrder {
    /// The oldest first.
    #[default]
    Age,
    /// The largest first.
    Memory,
    /// The one with the most processes first.
    Processes,
    /// By name.
    Name,
}

impl SortOrder {
    /// The order that follows.
    pub(super) fn next(self) -> SortOrder {
        match self {
            SortOrder::Age => SortOrder::Memory,
            SortOrder::Memory => SortOrder::Processes,
            SortOrder::Processes => SortOrder::Name,
            SortOrder::Name => SortOrder::Age,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            SortOrder::Age => "age",
            SortOrder::Memory => "memory",
            SortOrder::Processes => "processes",
            SortOrder::Name => "name",
        }
    }
}

/// What the user has chosen to see.
#[derive(Clone, Debug, Default)]
pub(super) struct ListView {
    pub(super) order: SortOrder,
    /// Processes are shown below their servers.
    pub(super) tree: bool,
    pub(super) filter: String,
}

/// A line of the list.
#[derive(Debug)]
pub(super) enum TopLine<'f> {
    /// A client with servers under leash.
    Client { name: &'f str, servers: usize, processes: usize, memory: u64 },
    /// The title of the servers of other programs.
    Others,
    /// A row of the feed; the only lines that can be selected.
    Row { row: &'f FeedRow, depth: usize, processes: usize },
    /// A process of the row above.
    Process { process: &'f TreeProcess, depth: usize },
}

/// The name of the client of servers whose client is not known.
const NO_CLIENT: &str = "no client";

/// A session with its own row, if it has one, and its members; or a server of another program.
struct Group<'f> {
    head: Option<&'f FeedRow>,
    members: Vec<&'f FeedRow>,
}

impl<'f> Group<'f> {
    fn first(&self) -> Option<&'f FeedRow> {
        self.head.or_else(|| self.members.first().copied())
    }

    fn client(&self) -> &'f str {
        self.first().and_then(|row| row.client.as_deref()).unwrap_or(NO_CLIENT)
    }

    fn memory(&self) -> u64 {
        self.members.iter().filter_map(|row| row.memory_bytes).sum()
    }

    fn processes(&self) -> usize {
        self.members.iter().map(|row| row.processes.len()).sum()
    }

    /// The part that matches the filter; `None` if nothing does.
    fn filtered(mut self, filter: &str) -> Option<Group<'f>> {
        if self.head.is_some_and(|head| matches(head, filter)) {
            return Some(self);
        }
        self.members.retain(|row| matches(row, filter));
        (!self.members.is_empty()).then_some(self)
    }
}

/// The lines for these rows.
pub(super) fn lines<'f>(rows: &'f [FeedRow], view: &ListView) -> Vec<TopLine<'f>> {
    let filter = view.filter.to_lowercase();
    let (others, ours): (Vec<&FeedRow>, Vec<&FeedRow>) = rows.iter().partition(|row| row.kind == RowKind::Other);
    let mut groups: Vec<Group<'f>> = groups(&ours).into_iter().filter_map(|group| group.filtered(&filter)).collect();
    sort(&mut groups, view.order);
    let mut lines = Vec::new();
    let (mut clients, mut told): (Vec<&str>, HashSet<&str>) = (Vec::new(), HashSet::new());
    clients.extend(groups.iter().map(Group::client).filter(|client| told.insert(client)));
    let mut by_client: HashMap<&str, Vec<Group<'f>>> = HashMap::new();
    groups.into_iter().for_each(|group| by_client.entry(group.client()).or_default().push(group));
    for name in clients {
        let groups = by_client.remove(name).unwrap_or_default();
        lines.push(TopLine::Client {
            name,
            servers: groups.iter().map(|group| group.members.len()).sum(),
            processes: groups.iter().map(Group::processes).sum(),
            memory: groups.iter().map(Group::memory).sum(),
        });
        groups.iter().for_each(|group| add_group(&mut lines, group, 1, view.tree));
    }
    let one = |row: &'f FeedRow| Group { head: None, members: vec![row] }.filtered(&filter);
    let mut others: Vec<Group<'f>> = others.into_iter().filter_map(one).collect();
    sort(&mut others, view.order);
    if !others.is_empty() {
        lines.push(TopLine::Others);
        others.iter().for_each(|group| add_group(&mut lines, group, 1, view.tree));
    }
    lines
}

/// The rows of each session, which follow each other in the feed.
fn groups<'f>(rows: &[&'f FeedRow]) -> Vec<Group<'f>> {
    let mut groups: Vec<Group<'f>> = Vec::new();
    for row in rows {
        let is_same = |group: &Group<'f>| group.head.is_some_and(|head| head.session == row.session);
        match (row.kind, groups.last_mut()) {
            (RowKind::Session, _) => groups.push(Group { head: Some(row), members: Vec::new() }),
            (_, Some(last)) if is_same(last) => last.members.push(row),
            _ => groups.push(Group { head: None, members: vec![row] }),
        }
    }
    groups
}

fn sort(groups: &mut [Group<'_>], order: SortOrder) {
    match order {
        SortOrder::Age => groups.sort_by_key(|group| group.first().map(|row| row.started_ms)),
        SortOrder::Memory => groups.sort_by_key(|group| Reverse(group.memory())),
        SortOrder::Processes => groups.sort_by_key(|group| Reverse(group.processes())),
        SortOrder::Name => groups.sort_by_key(|group| group.first().map(|row| row.name.to_lowercase())),
    }
}

fn add_group<'f>(lines: &mut Vec<TopLine<'f>>, group: &Group<'f>, depth: usize, tree: bool) {
    let mut below = depth;
    if let Some(row) = group.head {
        lines.push(TopLine::Row { row, depth, processes: group.processes() });
        below += 1;
    }
    for row in &group.members {
        lines.push(TopLine::Row { row, depth: below, processes: row.processes.len() });
        if tree {
            add_processes(lines, &row.processes, below + 1);
        }
    }
}

/// The processes of a row, each below its parent. A process whose parent is not among them is not indented.
fn add_processes<'f>(lines: &mut Vec<TopLine<'f>>, processes: &'f [TreeProcess], depth: usize) {
    let known: HashSet<i32> = processes.iter().map(|process| process.pid).collect();
    let mut children: HashMap<i32, Vec<&TreeProcess>> = HashMap::new();
    for process in processes.iter().rev() {
        let parent = if known.contains(&process.ppid) { process.ppid } else { 0 };
        children.entry(parent).or_default().push(process);
    }
    let mut stack: Vec<(usize, &TreeProcess)> =
        children.remove(&0).unwrap_or_default().into_iter().map(|process| (depth, process)).collect();
    while let Some((depth, process)) = stack.pop() {
        lines.push(TopLine::Process { process, depth });
        let below = children.remove(&process.pid).unwrap_or_default();
        stack.extend(below.into_iter().map(|child| (depth + 1, child)));
    }
}

/// True if a text of the row has the filter, which is in lower case.
fn matches(row: &FeedRow, filter: &str) -> bool {
    let texts = [&row.client, &row.owner, &row.session, &row.url].into_iter().flatten();
    let commands = row.processes.iter().map(|process| &process.command);
    let texts = texts.chain([&row.name, &row.state]).chain(commands);
    filter.is_empty() || texts.into_iter().any(|text| text.to_lowercase().contains(filter))
}

#[cfg(test)]
mod tests;
