//! The sessions that are alive. Each has its members, as the ledger records them, and the answer of the gateway that
//! holds it, if one does. `leash_tree::session::alive` reads the ledger, the client of the control API asks the gateway.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::client::GatewayClient;
use crate::owner::{Owner, Role};
use crate::record::{Phase, Record};
use crate::view::{SessionView, StateView};
use crate::{book::Entry, identity::Identity};

/// A session that is alive.
#[derive(Clone, Debug)]
pub struct AliveSession {
    /// Its id.
    pub id: String,
    /// The answer of the gateway that holds it; `None` if it was read from the ledger alone. It contains URLs that other
    /// users must not see.
    pub held: Option<SessionView>,
    /// Its members in the ledger, the oldest first; those that the gateway started, too.
    pub members: Vec<SessionMember>,
}

/// A member of a session.
#[derive(Clone, Debug)]
pub struct SessionMember {
    /// The session.
    pub session: String,
    /// Its own id.
    pub run: String,
    /// The server's name.
    pub name: String,
    /// Labels as given.
    pub labels: BTreeMap<String, String>,
    /// Its owners: when one is gone, leash ends it.
    pub owners: Vec<Owner>,
    /// The client for which a gateway holds it, if it is known.
    pub client: Option<GatewayClient>,
    /// The processes of leash that look after it, as recorded.
    pub attendants: Vec<Identity>,
    /// True if leash looked and found that none of them is alive: then the next start of leash ends it.
    pub abandoned: bool,
    /// Its start, milliseconds since 1970.
    pub started_ms: u64,
    /// The runtime directory with its record or book.
    pub runtime_dir: PathBuf,
    /// The file for its receipt.
    pub receipts: PathBuf,
    /// Its kind, and what is known of this kind only.
    pub kind: MemberKind,
}

/// The kind of a member.
#[derive(Clone, Debug)]
pub enum MemberKind {
    /// A process tree.
    Tree {
        /// Its record.
        record: Box<Record>,
        /// Its processes; empty if leash did not look for them.
        processes: Vec<TreeProcess>,
    },
    /// A `leash connect`.
    Connection {
        /// Its upstream session, if one is open.
        open: Option<Entry>,
    },
    /// An upstream session that a gateway has open for a client. The gateway itself ends it.
    Upstream {
        /// The upstream session.
        open: Entry,
    },
}

/// A process of a tree, as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeProcess {
    /// Its number.
    pub pid: i32,
    /// Its parent.
    pub ppid: i32,
    /// Its start in clock ticks since boot.
    pub start: u64,
    /// `R`, `S`, `D`, `Z`, `T`...
    pub state: char,
    /// Its command line.
    pub command: String,
    /// Its memory: proportional if we may read that, otherwise its private pages.
    pub memory_bytes: u64,
}

impl AliveSession {
    /// Makes sessions of all members and of the answer of a gateway, in the order in which they began.
    pub fn join(mut members: Vec<SessionMember>, held: Vec<SessionView>) -> Vec<AliveSession> {
        members.sort_by_key(|member| member.started_ms);
        let living = held.into_iter().filter(|held| held.state != StateView::Ended);
        let begin = |held: SessionView| AliveSession { id: held.id.clone(), held: Some(held), members: Vec::new() };
        let mut sessions: Vec<AliveSession> = living.map(begin).collect();
        for member in members {
            match sessions.iter_mut().find(|session| session.id == member.session) {
                Some(session) => session.members.push(member),
                None => sessions.push(AliveSession { id: member.session.clone(), held: None, members: vec![member] }),
            }
        }
        sessions.sort_by_key(AliveSession::started_ms);
        sessions
    }

    /// Its only member, if that says everything about the session.
    pub fn only(&self) -> Option<&SessionMember> {
        match &self.members[..] {
            [only] if self.held.is_none() => Some(only),
            _ => None,
        }
    }

    /// Its name besides its id.
    pub fn name(&self) -> Option<&str> {
        self.held.as_ref()?.name.as_deref()
    }

    /// Its start, milliseconds since 1970.
    pub fn started_ms(&self) -> u64 {
        let held = self.held.as_ref().map(|held| held.started_at_ms);
        self.members.iter().map(|member| member.started_ms).chain(held).min().unwrap_or_default()
    }

    /// The number of its processes.
    pub fn processes(&self) -> usize {
        self.members.iter().filter_map(SessionMember::processes).map(<[TreeProcess]>::len).sum()
    }

    /// Memory of all its processes together.
    pub fn memory_bytes(&self) -> u64 {
        self.members.iter().filter_map(SessionMember::memory_bytes).sum()
    }

    /// The phase of the part that needs the most attention.
    pub fn phase(&self) -> Phase {
        let is_held = |state| self.held.as_ref().is_some_and(|held| held.state == state);
        let is_one = |phase| self.members.iter().any(|member| member.phase() == phase);
        if is_held(StateView::Ending) || is_one(Phase::Ending) {
            Phase::Ending
        } else if is_held(StateView::Starting) || is_one(Phase::Starting) {
            Phase::Starting
        } else {
            Phase::Running
        }
    }

    /// True if leash can end it from outside. A living gateway ends the upstream sessions of its clients by itself.
    pub fn can_be_ended(&self) -> bool {
        self.held.is_some() || self.members.iter().any(|member| member.abandoned || !member.is_upstream())
    }
}

impl SessionMember {
    /// The phase of its life.
    pub fn phase(&self) -> Phase {
        match &self.kind {
            MemberKind::Tree { record, .. } => record.phase,
            MemberKind::Connection { .. } | MemberKind::Upstream { .. } => Phase::Running,
        }
    }

    /// Its processes; `None` if it is not a tree.
    pub fn processes(&self) -> Option<&[TreeProcess]> {
        match &self.kind {
            MemberKind::Tree { processes, .. } => Some(processes),
            MemberKind::Connection { .. } | MemberKind::Upstream { .. } => None,
        }
    }

    /// Memory of all its processes together; `None` if it is not a tree.
    pub fn memory_bytes(&self) -> Option<u64> {
        Some(self.processes()?.iter().map(|process| process.memory_bytes).sum())
    }

    /// Its open upstream session.
    pub fn open(&self) -> Option<&Entry> {
        match &self.kind {
            MemberKind::Tree { .. } => None,
            MemberKind::Connection { open } => open.as_ref(),
            MemberKind::Upstream { open } => Some(open),
        }
    }

    /// True for an upstream session of a gateway, which leash cannot end alone.
    pub fn is_upstream(&self) -> bool {
        matches!(self.kind, MemberKind::Upstream { .. })
    }

    /// True if a process started it and holds it, as the gateway holds its trees.
    pub fn is_held_by(&self, pid: i32) -> bool {
        let holds =
            |owner: &Owner| matches!(owner, Owner::Process { role: Role::Parent, pid: owner, .. } if *owner == pid);
        self.owners.contains(&Owner::Handle) && self.owners.iter().any(holds)
    }

    /// A tree as its record says; leash has not looked at its processes.
    pub fn of_record(record: Record, runtime_dir: &Path) -> SessionMember {
        SessionMember {
            session: record.session.clone(),
            run: record.run.clone(),
            name: record.name.clone(),
            labels: record.labels.clone(),
            owners: record.owners.clone(),
            client: record.client.clone(),
            attendants: record.supervisor.into_iter().chain(record.keeper).collect(),
            abandoned: false,
            started_ms: record.started_ms,
            runtime_dir: runtime_dir.to_owned(),
            receipts: record.receipts.clone(),
            kind: MemberKind::Tree { record: Box::new(record), processes: Vec::new() },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tree(session: &str, started_ms: u64, phase: Phase) -> SessionMember {
        let record = json!({
            "version": 1, "boot": "", "pid_namespace": 1, "run": format!("run-{started_ms}"), "session": session, "name": "x",
            "command": [], "owners": [], "phase": phase, "supervisor": null, "keeper": null, "leader": null, "members": [],
            "memory_bytes": 0, "containment": "leaf", "leaf": null, "grace_ms": 0, "started_ms": started_ms, "receipts": "",
        });
        SessionMember::of_record(serde_json::from_value(record).expect("a record"), Path::new(""))
    }

    fn upstream(session: &str, started_ms: u64, abandoned: bool) -> SessionMember {
        let open = json!({ "session": session, "server": "web", "url": "", "id": "", "started_ms": started_ms });
        let open: Entry = serde_json::from_value(open).expect("an entry");
        SessionMember { abandoned, kind: MemberKind::Upstream { open }, ..tree(session, started_ms, Phase::Running) }
    }

    fn held(id: &str, started_ms: u64, state: &str) -> SessionView {
        let held = json!({
            "id": id, "state": state, "owner": { "kind": "none" }, "labels": {}, "startedAtMs": started_ms, "idleForMs": 0,
            "servers": [], "later": "a field of a later version",
        });
        serde_json::from_value(held).expect("a session of a gateway")
    }

    #[test]
    fn sessions_are_joined_by_id_and_ordered_by_age() {
        let members = vec![
            tree("red", 5, Phase::Running),
            tree("blue", 4, Phase::Running),
            upstream("shop", 3, false),
            tree("red", 2, Phase::Running),
        ];
        let held = vec![held("idle", 6, "live"), held("shop", 1, "live"), held("over", 0, "ended")];
        let sessions = AliveSession::join(members, held);
        let shown = |session: &AliveSession| {
            let members: Vec<u64> = session.members.iter().map(|member| member.started_ms).collect();
            format!("{} {} {members:?} {}", session.id, session.started_ms(), session.held.is_some())
        };
        let shown: Vec<String> = sessions.iter().map(shown).collect();
        assert_eq!(shown, ["shop 1 [3] true", "red 2 [2, 5] false", "blue 4 [4] false", "idle 6 [] true"]);
        let only: Vec<bool> = sessions.iter().map(|session| session.only().is_some()).collect();
        assert_eq!(only, [false, false, true, false]);
    }

    #[test]
    fn phase_is_that_of_the_part_that_needs_attention() {
        let check = |state: &str, phases: &[Phase], expected| {
            let members = phases.iter().map(|phase| tree("red", 1, *phase)).collect();
            let [session] = &AliveSession::join(members, vec![held("red", 1, state)])[..] else {
                panic!("one session")
            };
            assert_eq!(session.phase(), expected, "{state} {phases:?}");
        };
        check("live", &[], Phase::Running);
        check("live", &[Phase::Running, Phase::Starting], Phase::Starting);
        check("live", &[Phase::Starting, Phase::Ending], Phase::Ending);
        check("starting", &[Phase::Running], Phase::Starting);
        check("ending", &[Phase::Starting], Phase::Ending);
    }

    #[test]
    fn upstream_session_of_a_living_gateway_cannot_be_ended_from_outside() {
        let check = |member: SessionMember, held: Vec<SessionView>, expected| {
            let [session] = &AliveSession::join(vec![member], held)[..] else { panic!("one session") };
            assert_eq!(session.can_be_ended(), expected, "{session:?}");
        };
        check(tree("red", 1, Phase::Running), Vec::new(), true);
        check(upstream("red", 1, false), Vec::new(), false);
        check(upstream("red", 1, true), Vec::new(), true);
        check(upstream("red", 1, false), vec![held("red", 1, "live")], true);
    }

    #[test]
    fn member_is_held_by_the_process_that_started_it() {
        let parent = Owner::Process { role: Role::Parent, pid: 7, name: "leash".to_owned() };
        let check = |owners: &[Owner], pid, expected| {
            let member = SessionMember { owners: owners.to_vec(), ..tree("red", 1, Phase::Running) };
            assert_eq!(member.is_held_by(pid), expected, "{owners:?} {pid}");
        };
        check(&[Owner::Handle, parent.clone()], 7, true);
        check(&[Owner::Handle, parent.clone()], 8, false);
        check(&[parent], 7, false);
        check(&[Owner::Handle], 7, false);
    }
}
