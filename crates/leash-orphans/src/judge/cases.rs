//! Finds the cases to judge: the servers, the topmost process of each, and the processes that belong to it.

use std::collections::HashMap;

use super::Pids;
use super::verdict::TreeRole;
use crate::clients::{CLIENTS, Client};
use crate::facts::{Evidence, Facts, Process};
use crate::knowledge::identify::{self, Matcher};
use crate::knowledge::{Knowledge, LeashedRun};
use leash_model::launch::short_package;
use leash_tree::owner::wrapper::is_wrapper;
use leash_tree::tree::spec;

/// A server and its process tree.
pub(super) struct Case<'a> {
    pub(super) role: TreeRole,
    pub(super) root: &'a Process,
    /// The root first.
    pub(super) tree: Vec<&'a Process>,
    pub(super) members: Pids,
    pub(super) identified_by: Evidence,
    pub(super) client: Option<String>,
    pub(super) server: Option<String>,
    pub(super) leashed: Option<&'a LeashedRun>,
    /// The session in its mark, if our ledger does not contain that session.
    pub(super) foreign_leash: Option<String>,
    /// The nearest program of a client above it.
    pub(super) host: Option<(&'a Process, String)>,
}

/// All cases of a machine.
pub(super) struct Cases<'a> {
    /// Servers, and processes that ended sessions left behind.
    pub(super) all: Vec<Case<'a>>,
    /// Programs of clients.
    pub(super) hosts: Vec<Case<'a>>,
}

struct CaseSearch<'a> {
    facts: &'a Facts,
    knowledge: &'a Knowledge,
    children: HashMap<i32, Vec<&'a Process>>,
    matcher: Matcher<'a>,
    servers: HashMap<i32, (Evidence, Option<&'a LeashedRun>)>,
    /// Processes of leash that look after a run.
    attendants: HashMap<i32, &'a LeashedRun>,
    hosts: HashMap<i32, &'static str>,
}

impl<'a> Cases<'a> {
    pub(super) fn find(facts: &'a Facts, knowledge: &'a Knowledge) -> Cases<'a> {
        let search = CaseSearch::new(facts, knowledge);
        let mut roots: Vec<(&'a Process, &'a Process)> = Vec::new();
        for process in facts.processes.iter().filter(|process| search.servers.contains_key(&process.id.pid)) {
            let root = search.root(process);
            if !roots.iter().any(|(known, _)| known.id.pid == root.id.pid) {
                roots.push((root, process));
            }
        }
        let mut all: Vec<Case<'a>> = roots.into_iter().filter_map(|(root, named)| search.case(root, named)).collect();
        // A process that has left a server's tree may look like a server too, because it is a fork of it: it is judged
        // with the tree.
        all.sort_by_key(|case| (case.root.id.start, case.root.id.pid));
        let mut taken = Pids::new();
        all.retain(|case| {
            let is_new = !taken.contains(&case.root.id.pid);
            if is_new {
                taken.extend(case.members.iter().copied());
            }
            is_new
        });
        let known: Pids = all.iter().flat_map(|case| case.members.iter().copied()).collect();
        all.extend(search.remnants(&known));
        let mut hosts: Vec<Case<'a>> = facts.processes.iter().filter_map(|process| search.host_case(process)).collect();
        hosts.iter_mut().for_each(|host| host.take_servers(&all));
        Cases { all, hosts }
    }
}

impl<'a> Case<'a> {
    /// Adds processes that have left the tree of a host's server.
    fn take_servers(&mut self, servers: &[Case<'a>]) {
        for server in servers {
            if !self.members.contains(&server.root.id.pid) {
                continue;
            }
            for member in &server.tree {
                if self.members.insert(member.id.pid) {
                    self.tree.push(*member);
                }
            }
        }
    }
}

impl<'a> CaseSearch<'a> {
    fn new(facts: &'a Facts, knowledge: &'a Knowledge) -> CaseSearch<'a> {
        let matcher = Matcher::new(knowledge);
        let mut children: HashMap<i32, Vec<&'a Process>> = HashMap::new();
        let mut servers = HashMap::new();
        let mut hosts = HashMap::new();
        for process in &facts.processes {
            // A child is not older than its parent.
            if facts.process(process.ppid).is_some_and(|parent| parent.id.start <= process.id.start) {
                children.entry(process.ppid).or_default().push(process);
            }
            if let Some(evidence) = matcher.server(process, None) {
                servers.insert(process.id.pid, (evidence, None));
            } else if let Some(client) = identify::client_of(&process.comm, &process.argv) {
                hosts.insert(process.id.pid, client.name);
            }
        }
        let mut attendants = HashMap::new();
        for leashed in &knowledge.leashed {
            for process in leashed.attendants.iter().filter_map(|id| facts.same(id)) {
                attendants.entry(process.id.pid).or_insert(leashed);
            }
            for process in leashed.processes.iter().filter_map(|id| facts.same(id)) {
                let mark = || Evidence::Mark { session: leashed.session.clone() };
                let (_, by) = servers.entry(process.id.pid).or_insert_with(|| (mark(), None));
                *by = Some(leashed);
            }
        }
        // leash is not the server, also where its own command line is in a client's configuration.
        servers.retain(|pid, _| !attendants.contains_key(pid));
        CaseSearch { facts, knowledge, children, matcher, servers, attendants, hosts }
    }

    /// The topmost process of the server that `process` belongs to: it climbs over servers, and over wrappers with the
    /// same stdin.
    fn root(&self, process: &'a Process) -> &'a Process {
        let mut root = process;
        for above in self.facts.ancestors(process) {
            let pid = above.id.pid;
            if self.hosts.contains_key(&pid) || self.attendants.contains_key(&pid) || self.facts.is_reaper(pid) {
                break;
            }
            let shares_stdin = above.stdin.inode().is_some() && above.stdin.inode() == root.stdin.inode();
            let wraps = shares_stdin && above.uid == root.uid && is_wrapper(&above.comm, &above.argv);
            if wraps || self.servers.contains_key(&pid) {
                root = above;
            }
        }
        root
    }

    fn case(&self, root: &'a Process, named: &'a Process) -> Option<Case<'a>> {
        let known = if self.servers.contains_key(&root.id.pid) { root } else { named };
        let (identified_by, _) = self.servers.get(&known.id.pid)?.clone();
        let of_tree = |pid: &i32| self.servers.get(pid).and_then(|(_, leashed)| *leashed);
        let leashed = of_tree(&root.id.pid).or_else(|| of_tree(&named.id.pid)).or_else(|| {
            // A keeper is no server, but its descendants are leashed.
            let mut above = self.facts.ancestors(root).map(|above| above.id.pid);
            above.find_map(|pid| of_tree(&pid).or_else(|| self.attendants.get(&pid).copied()))
        });
        let session = root.marks.get(spec::MARK).or_else(|| named.marks.get(spec::MARK));
        // leash ends the servers that it has started, even if its host is gone.
        let is_leash = root.argv.first().is_some_and(|first| first.rsplit('/').next() == Some("leash"));
        let session = session.cloned().or_else(|| is_leash.then(String::new));
        let foreign_leash = session.filter(|_| leashed.is_none());
        let host = self.host_above(root);
        let marked = || client_by_mark(root).or_else(|| client_by_mark(named));
        // A configuration proves no client, because several clients may have a copy of it.
        let client = host.as_ref().map(|(_, client)| client.clone()).or_else(marked);
        // The client that holds it may call it otherwise than the first that has its command.
        let declared = |client: &str| self.matcher.server(known, Some(client));
        let by_holder = || root.stdin.holders().find_map(|id| self.hosts.get(&self.facts.same(id)?.id.pid).copied());
        let identified_by = match identified_by {
            Evidence::Declared { .. } | Evidence::Resembles { .. } => {
                by_holder().or(client.as_deref()).and_then(declared).unwrap_or(identified_by)
            }
            other => other,
        };
        let server = match (leashed, &identified_by) {
            (Some(leashed), _) => Some(leashed.name.clone()),
            (None, Evidence::Declared { name, .. } | Evidence::Resembles { name, .. }) => Some(name.clone()),
            (None, Evidence::Package { package }) => Some(short_package(package)),
            (None, _) => None,
        };
        let recorded = leashed.iter().flat_map(|leashed| &leashed.processes).filter_map(|id| self.facts.same(id));
        let case = self.bare_case(TreeRole::Server, root, recorded, identified_by);
        Some(Case { client, server, leashed, foreign_leash, host, ..case })
    }

    /// A case with its tree, which includes `recorded`, and without a client, the name of a server, a leash, and a host
    /// above it.
    fn bare_case(
        &self,
        role: TreeRole,
        root: &'a Process,
        recorded: impl Iterator<Item = &'a Process>,
        identified_by: Evidence,
    ) -> Case<'a> {
        let tree = self.tree(root, recorded);
        let members = tree.iter().map(|member| member.id.pid).collect();
        Case {
            role,
            root,
            tree,
            members,
            identified_by,
            client: None,
            server: None,
            leashed: None,
            foreign_leash: None,
            host: None,
        }
    }

    fn host_above(&self, process: &'a Process) -> Option<(&'a Process, String)> {
        let mut above = self.facts.ancestors(process);
        above.find_map(|above| Some((above, (*self.hosts.get(&above.id.pid)?).to_owned())))
    }

    /// All processes that are proved to come from `root`: the recorded ones, its descendants, processes in a session that one of them
    /// leads, and processes with the same stdin and stdout as the root.
    fn tree(&self, root: &'a Process, recorded: impl Iterator<Item = &'a Process>) -> Vec<&'a Process> {
        let mut tree = vec![root];
        let mut members = Pids::from([root.id.pid]);
        tree.extend(recorded.filter(|process| members.insert(process.id.pid)));
        let mut next = 0;
        loop {
            while let Some(member) = tree.get(next).copied() {
                next += 1;
                let children = self.children.get(&member.id.pid).into_iter().flatten();
                tree.extend(children.filter(|child| members.insert(child.id.pid)));
            }
            let joins = |process: &&Process| self.left_tree(process, root, &tree, &members);
            let joined: Vec<&'a Process> = self.facts.processes.iter().filter(joins).collect();
            if joined.is_empty() {
                return tree;
            }
            members.extend(joined.iter().map(|process| process.id.pid));
            tree.extend(joined);
        }
    }

    /// True if a child of a reaper belongs to the tree.
    fn left_tree(&self, process: &Process, root: &Process, tree: &[&Process], members: &Pids) -> bool {
        if members.contains(&process.id.pid) || !self.facts.is_reaper(process.ppid) || process.uid != root.uid {
            return false;
        }
        let led = process.session != process.id.pid
            && tree.iter().any(|member| member.session == member.id.pid && member.id.pid == process.session);
        let same = |ours: Option<u64>, its: Option<u64>| ours.is_some() && ours == its;
        let shares =
            same(root.stdin.inode(), process.stdin.inode()) && same(root.stdout.inode(), process.stdout.inode());
        (led || shares) && process.id.start >= root.id.start
    }

    /// Processes that ended sessions of leash left behind: they carry the session's mark and are in no living tree.
    fn remnants(&self, known: &Pids) -> Vec<Case<'a>> {
        let mut remnants: Vec<Case<'a>> = Vec::new();
        for process in self.facts.processes.iter().filter(|process| !known.contains(&process.id.pid)) {
            let Some(session) = process.marks.get(spec::MARK) else { continue };
            let lives = self.knowledge.leashed.iter().any(|leashed| leashed.session == *session);
            let on_purpose = self.knowledge.spared.iter().any(|(of, pid)| of == session && *pid == process.id.pid);
            let taken = remnants.iter().any(|case| case.members.contains(&process.id.pid));
            if lives
                || on_purpose
                || taken
                || !self.knowledge.ended.contains(session)
                || !self.facts.is_reaper(process.ppid)
            {
                continue;
            }
            let identified_by = Evidence::Mark { session: session.clone() };
            let case = self.bare_case(TreeRole::Remnant, process, std::iter::empty(), identified_by);
            remnants.push(Case { client: client_by_mark(process), ..case });
        }
        remnants
    }

    /// A client's topmost program.
    fn host_case(&self, process: &'a Process) -> Option<Case<'a>> {
        let client = *self.hosts.get(&process.id.pid)?;
        if self.facts.ancestors(process).any(|above| self.hosts.get(&above.id.pid) == Some(&client)) {
            return None;
        }
        let identified_by = Evidence::HostProgram { client: client.to_owned() };
        let case = self.bare_case(TreeRole::Host, process, std::iter::empty(), identified_by);
        Some(Case { client: Some(client.to_owned()), ..case })
    }
}

/// The client whose mark a process has in its environment.
fn client_by_mark(process: &Process) -> Option<String> {
    let is_marked = |client: &&Client| client.marks.iter().any(|mark| process.marks.contains_key(*mark));
    CLIENTS.iter().find(is_marked).map(|client| client.name.to_owned())
}
