//! The JSON of `leash ps`.

use std::collections::BTreeMap;

use leash_model::alive::{AliveSession, MemberKind, SessionMember, TreeProcess};
use leash_model::client::GatewayClient;
use leash_model::clock;
use leash_model::containment::{Containment, Refusal};
use leash_model::identity::Identity;
use leash_model::owner::Owner;
use leash_model::record::{IdleStop, Phase};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::unleashed::{Unleashed, UnleashedServer};
use super::{command, session_state, short_id, state};

/// What `leash ps --json` prints.
#[derive(Serialize, JsonSchema)]
pub(in super::super) struct PsAnswer<'a> {
    /// The servers that run under leash.
    sessions: Vec<RunAnswer<'a>>,
    /// The sessions that leash has open at HTTP servers.
    upstream: Vec<UpstreamAnswer<'a>>,
    /// The sessions that these belong to.
    groups: Vec<SessionAnswer<'a>>,
    /// The servers that do not run under leash; none with `--leashed`.
    servers: &'a [UnleashedServer],
}

/// A server that runs under leash.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
struct RunAnswer<'a> {
    /// The session that it belongs to.
    session: &'a str,
    /// Its own id.
    run: &'a str,
    /// The server's name.
    name: &'a str,
    /// Labels as given.
    labels: &'a BTreeMap<String, String>,
    /// The command line.
    command: &'a [String],
    /// The owners: the server ends with the first that is gone.
    owners: &'a [Owner],
    /// The client of a gateway for which it runs; null if it has none.
    client: Option<&'a GatewayClient>,
    /// The phase of its life.
    phase: Phase,
    /// True if a process of leash watches it.
    attended: bool,
    /// The means that keeps its processes together; null until the server has started.
    containment: Option<Containment>,
    /// The stronger containments that were refused, with reasons.
    refused: &'a [Refusal],
    /// Permission to end it while its owners live; null if there is none.
    idle_stop: Option<IdleStop>,
    /// The promise of the containment.
    promise: Option<&'static str>,
    /// The processes that the promise does not cover.
    does_not_cover: Option<&'static str>,
    /// The process of leash that the host started.
    supervisor: Option<Identity>,
    /// The second process of leash, which ends the tree.
    keeper: Option<Identity>,
    /// The server's first process.
    leader: Option<Identity>,
    /// The number of its processes.
    processes: usize,
    /// Its processes.
    members: &'a [TreeProcess],
    /// The memory of all its processes.
    memory_bytes: Option<u64>,
    /// Milliseconds since its start.
    age_ms: u64,
    /// Its start, milliseconds since 1970.
    started_ms: u64,
}

/// A session that leash has open at an HTTP server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UpstreamSession")]
struct UpstreamAnswer<'a> {
    /// The session that it belongs to.
    session: &'a str,
    /// The server's name.
    name: &'a str,
    /// The server's URL, without parts that may be secret.
    url: &'a str,
    /// The beginning of the session's id at the server.
    id: String,
    /// The MCP version that both agreed on.
    protocol_version: &'a Option<String>,
    /// The command of leash that has it open: `serve` or `connect`.
    command: Option<&'static str>,
    /// The client of a gateway for which it is open; null if it has none.
    client: Option<&'a GatewayClient>,
    /// The process of leash that has it open.
    process: Option<&'a Identity>,
    /// True if that process is alive.
    attended: bool,
    /// Milliseconds since it began.
    age_ms: u64,
    /// Its beginning, milliseconds since 1970.
    started_ms: u64,
}

/// A session: what `leash end` ends.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
struct SessionAnswer<'a> {
    /// Its id.
    session: &'a str,
    /// The name that its creator gave it.
    name: Option<&'a str>,
    /// The names of its servers; null for a session that no `leash serve` holds.
    servers: Option<Vec<&'a str>>,
    /// Its members, the oldest first.
    members: Vec<MemberAnswer<'a>>,
    /// The number of processes of all members.
    processes: usize,
    /// The memory of all members.
    memory_bytes: u64,
    /// One word, as in the table.
    state: &'static str,
    /// Milliseconds since it began.
    age_ms: u64,
    /// Its beginning, milliseconds since 1970.
    started_ms: u64,
}

/// A member of a session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Member")]
struct MemberAnswer<'a> {
    /// The kind of member.
    kind: MemberWord,
    /// Its own id.
    run: &'a str,
    /// The server's name.
    name: &'a str,
    /// Labels as given; null for an upstream session.
    labels: Option<&'a BTreeMap<String, String>>,
    /// Its owners.
    owners: &'a [Owner],
    /// True if a process of leash watches it.
    attended: bool,
    /// One word, as in the table.
    state: &'static str,
    /// The number of its processes; null if it has none on this machine.
    processes: Option<usize>,
    /// Their memory.
    memory_bytes: Option<u64>,
    /// The server's URL; null for a process tree.
    url: Option<&'a str>,
    /// Its start, milliseconds since 1970.
    started_ms: u64,
}

/// The kind of a member.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "MemberKind")]
enum MemberWord {
    /// A process tree under `leash run` or `leash serve`.
    Run,
    /// A `leash connect`, before its session at the server is open.
    Connection,
    /// A session at an HTTP server.
    Upstream,
}

impl<'a> PsAnswer<'a> {
    pub(super) fn new(sessions: &'a [AliveSession], others: &'a Unleashed) -> PsAnswer<'a> {
        let now = clock::unix_ms();
        let mut members: Vec<&SessionMember> = sessions.iter().flat_map(|session| &session.members).collect();
        members.sort_by_key(|member| member.started_ms);
        PsAnswer {
            sessions: members.iter().filter_map(|member| RunAnswer::new(member, now)).collect(),
            upstream: members.iter().filter_map(|member| UpstreamAnswer::new(member, now)).collect(),
            groups: sessions.iter().map(|session| SessionAnswer::new(session, now)).collect(),
            servers: others.servers(),
        }
    }
}

impl<'a> RunAnswer<'a> {
    fn new(member: &'a SessionMember, now: u64) -> Option<RunAnswer<'a>> {
        let MemberKind::Tree { record, processes } = &member.kind else { return None };
        Some(RunAnswer {
            session: &record.session,
            run: &record.run,
            name: &record.name,
            labels: &record.labels,
            command: &record.command,
            owners: &record.owners,
            client: member.client.as_ref(),
            phase: record.phase,
            attended: !member.abandoned,
            containment: record.containment,
            refused: &record.refused,
            idle_stop: record.idle_stop,
            promise: record.containment.map(Containment::promise),
            does_not_cover: record.containment.map(Containment::does_not_cover),
            supervisor: record.supervisor,
            keeper: record.keeper,
            leader: record.leader,
            processes: processes.len(),
            members: processes,
            memory_bytes: member.memory_bytes(),
            age_ms: now.saturating_sub(record.started_ms),
            started_ms: record.started_ms,
        })
    }
}

impl<'a> UpstreamAnswer<'a> {
    fn new(member: &'a SessionMember, now: u64) -> Option<UpstreamAnswer<'a>> {
        let open = member.open()?;
        Some(UpstreamAnswer {
            session: &open.session,
            name: &open.server,
            url: open.shown(),
            id: short_id(&open.id),
            protocol_version: &open.version,
            command: command(member),
            client: member.client.as_ref(),
            process: member.attendants.first(),
            attended: !member.abandoned,
            age_ms: now.saturating_sub(open.started_ms),
            started_ms: open.started_ms,
        })
    }
}

impl<'a> SessionAnswer<'a> {
    fn new(session: &'a AliveSession, now: u64) -> SessionAnswer<'a> {
        let held = session.held.as_ref();
        SessionAnswer {
            session: &session.id,
            name: session.name(),
            servers: held.map(|held| held.servers.iter().map(|server| &*server.name).collect()),
            members: session.members.iter().map(MemberAnswer::new).collect(),
            processes: session.processes(),
            memory_bytes: session.memory_bytes(),
            state: session_state(session),
            age_ms: now.saturating_sub(session.started_ms()),
            started_ms: session.started_ms(),
        }
    }
}

impl<'a> MemberAnswer<'a> {
    fn new(member: &'a SessionMember) -> MemberAnswer<'a> {
        let kind = match &member.kind {
            MemberKind::Tree { .. } => MemberWord::Run,
            MemberKind::Connection { .. } => MemberWord::Connection,
            MemberKind::Upstream { .. } => MemberWord::Upstream,
        };
        MemberAnswer {
            kind,
            run: &member.run,
            name: &member.name,
            labels: (!member.is_upstream()).then_some(&member.labels),
            owners: &member.owners,
            attended: !member.abandoned,
            state: state(member),
            processes: member.processes().map(<[TreeProcess]>::len),
            memory_bytes: member.memory_bytes(),
            url: member.open().map(|open| open.shown()),
            started_ms: member.started_ms,
        }
    }
}
