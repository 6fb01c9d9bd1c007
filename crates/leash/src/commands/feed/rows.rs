//! The rows of the feed.

use std::collections::HashMap;

use leash_model::alive::{AliveSession, MemberKind, SessionMember, TreeProcess};
use leash_model::feed::{FeedRow, RowKind, RowRemedy};
use leash_model::identity::Identity;
use leash_model::owner::{Owner, Role};
use leash_model::status::{StatusSessionView, StatusView};
use leash_model::view::{HoldingView, OwnerView, ServerView, SessionView};
use leash_orphans::{Finding, Verdict};

use super::super::ps;
use crate::output::evidence;

/// The rows of the sessions of leash: one for each member, and before them one for a session that is more than its only
/// member.
pub(super) fn of_sessions(sessions: &[AliveSession], findings: &[Finding]) -> Vec<FeedRow> {
    let leashed = findings.iter().filter(|finding| finding.leashed.is_some());
    let by_process: HashMap<i32, &Finding> =
        leashed.flat_map(|finding| finding.tree.iter().map(move |id| (id.pid, finding))).collect();
    let mut rows = Vec::new();
    for session in sessions {
        if session.only().is_none() {
            rows.push(of_session(session));
        }
        for member in &session.members {
            let leader = leader(member);
            let finding = leader.and_then(|leader| by_process.get(&leader.pid).copied());
            let evidence = finding.map(|finding| finding.evidence.iter().map(evidence::sentence).collect());
            rows.push(FeedRow { evidence: evidence.unwrap_or_default(), ..of_member(member, session.held.as_ref()) });
        }
    }
    rows
}

fn leader(member: &SessionMember) -> Option<Identity> {
    match &member.kind {
        MemberKind::Tree { record, .. } => record.leader,
        MemberKind::Connection { .. } | MemberKind::Upstream { .. } => None,
    }
}

fn of_session(session: &AliveSession) -> FeedRow {
    let held = session.held.as_ref();
    let owner = held.and_then(|held| match &held.owner {
        OwnerView::Pid { pid } => Some(format!("pid {pid}")),
        OwnerView::Connection | OwnerView::None => None,
    });
    FeedRow {
        key: format!("session:{}", session.id),
        kind: RowKind::Session,
        session: Some(session.id.clone()),
        run: None,
        name: session.name().unwrap_or(&session.id).to_owned(),
        client: owner.or_else(|| session.members.iter().find_map(client)),
        owner: Some(ps::session_owners(session)),
        containment: None,
        url: None,
        state: ps::session_state(session).to_owned(),
        evidence: Vec::new(),
        root: None,
        processes: Vec::new(),
        memory_bytes: Some(session.memory_bytes()),
        calls: held.and_then(|held| held.servers.iter().map(|server| server.calls).sum()),
        in_flight: held.map(|held| held.servers.iter().map(|server| server.in_flight).sum()),
        started_ms: session.started_ms(),
        remedy: if session.can_be_ended() { RowRemedy::End } else { RowRemedy::None },
    }
}

fn of_member(member: &SessionMember, held: Option<&SessionView>) -> FeedRow {
    let kind = match &member.kind {
        MemberKind::Tree { .. } => RowKind::Tree,
        MemberKind::Connection { open: None } => RowKind::Connection,
        MemberKind::Connection { open: Some(_) } | MemberKind::Upstream { .. } => RowKind::Upstream,
    };
    let containment = match &member.kind {
        MemberKind::Tree { record, .. } => record.containment,
        MemberKind::Connection { .. } | MemberKind::Upstream { .. } => None,
    };
    let server = held.and_then(|held| server_of(held, &member.run));
    FeedRow {
        key: format!("run:{}", member.run),
        kind,
        session: Some(member.session.clone()),
        run: Some(member.run.clone()),
        name: member.name.clone(),
        client: client(member),
        owner: Some(ps::owners(member)),
        containment,
        url: member.open().map(|open| open.shown().to_owned()),
        state: ps::state(member).to_owned(),
        evidence: Vec::new(),
        root: leader(member),
        processes: member.processes().unwrap_or_default().to_vec(),
        memory_bytes: member.memory_bytes(),
        calls: server.and_then(|server| server.calls),
        in_flight: server.map(|server| server.in_flight),
        started_ms: member.started_ms,
        remedy: if member.abandoned || !member.is_upstream() { RowRemedy::End } else { RowRemedy::None },
    }
}

/// The server of a tree, if it is the only one of that server: then the requests of the server are its own.
fn server_of<'h>(held: &'h SessionView, member: &str) -> Option<&'h ServerView> {
    let is_only = |holding: &HoldingView| matches!(holding, HoldingView::Tree { run, .. } if run == member);
    held.servers.iter().find(|server| matches!(&server.holdings[..], [only] if is_only(only)))
}

/// Adds the requests of the client sessions of a gateway.
pub(super) fn add_calls(rows: &mut [FeedRow], status: &StatusView) {
    let sessions: HashMap<&str, &StatusSessionView> =
        status.servers.iter().flat_map(|server| &server.sessions).map(|session| (&*session.id, session)).collect();
    let Some(length) = sessions.keys().next().map(|id| id.len()) else { return };
    for row in rows.iter_mut().filter(|row| row.calls.is_none() && row.kind != RowKind::Other) {
        // The gateway tells the beginning of each id only, because clients present the whole id as a credential.
        let session = row.session.as_deref().and_then(|id| sessions.get(id.get(..length)?));
        row.calls = session.and_then(|session| session.calls);
        row.in_flight = session.and_then(|session| session.in_flight);
    }
}

/// The program that a member works for: the client of the gateway, else the host, which is the ancestor rather than a
/// wrapper between it and leash.
fn client(member: &SessionMember) -> Option<String> {
    if let Some(client) = &member.client {
        return Some(client.to_string());
    }
    let of_role = |wanted: Role| {
        member.owners.iter().find_map(|owner| match owner {
            Owner::Process { role, pid, name } if *role == wanted => Some(format!("{name} ({pid})")),
            _ => None,
        })
    };
    let gateway = || member.attendants.first().map(|process| format!("leash serve ({})", process.pid));
    of_role(Role::Ancestor)
        .or_else(|| of_role(Role::Parent))
        .or_else(|| of_role(Role::Pid))
        .or_else(|| member.is_upstream().then(gateway).flatten())
}

/// The rows of the servers that other programs started. `find` reads a process.
pub(super) fn of_others(
    findings: &[Finding],
    sessions: &[FeedRow],
    booted_ms: u64,
    find: &mut dyn FnMut(Identity) -> Option<TreeProcess>,
) -> Vec<FeedRow> {
    // A run of leash that began after the scan.
    let is_leashed = |finding: &Finding| {
        let mut known = sessions.iter().flat_map(|row| &row.processes);
        known.any(|process| process.pid == finding.root.pid && process.start == finding.root.start)
    };
    let mut rows = Vec::new();
    for finding in findings.iter().filter(|finding| finding.leashed.is_none() && !is_leashed(finding)) {
        let processes: Vec<TreeProcess> = finding.tree.iter().filter_map(|id| find(*id)).collect();
        // It has ended since the scan.
        if processes.is_empty() {
            continue;
        }
        rows.push(of_other(finding, processes, booted_ms));
    }
    rows
}

fn of_other(finding: &Finding, processes: Vec<TreeProcess>, booted_ms: u64) -> FeedRow {
    let Identity { pid, start, .. } = finding.root;
    FeedRow {
        key: format!("process:{pid}.{start}"),
        kind: RowKind::Other,
        session: None,
        run: None,
        name: finding.server.clone().unwrap_or_else(|| format!("pid {pid}")),
        client: evidence::holder(finding),
        owner: None,
        containment: None,
        url: None,
        state: finding.verdict.word().to_owned(),
        evidence: finding.evidence.iter().map(evidence::sentence).collect(),
        root: Some(finding.root),
        memory_bytes: Some(processes.iter().map(|process| process.memory_bytes).sum()),
        processes,
        calls: None,
        in_flight: None,
        started_ms: booted_ms + start * 1000 / rustix::param::clock_ticks_per_second().max(1),
        remedy: if finding.verdict == Verdict::OrphanProved { RowRemedy::Reap } else { RowRemedy::None },
    }
}
