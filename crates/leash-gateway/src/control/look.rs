//! Makes the views of jobs.

use std::{collections::HashMap, rc::Rc};

use super::job::{self, Job};
use super::jobs::Jobs;
use super::view::{HoldingView, KindView, OwnerView, ServerView, SessionView, StateView};
use crate::{config::ServerTarget, control::job_machine::State, guard, state::server::Server};
use leash_model::clock::{self, Moment};
use leash_model::{duration::as_ms, receipt::Receipt};
use leash_tree::{blocking, ledger::store::Store};

/// The size of a tree according to the ledger.
#[derive(Clone, Copy, Debug)]
struct Size {
    processes: usize,
    memory_bytes: u64,
}

/// The current views of jobs.
pub(super) async fn now(jobs: &Jobs, shown: &[Rc<Job>]) -> Vec<SessionView> {
    let servers = shown.iter().flat_map(|job| job.servers.values());
    let runs: Vec<Rc<str>> = servers.flat_map(|server| server.trees()).map(|tree| tree.run).collect();
    let sizes = sizes(jobs, &runs).await;
    shown.iter().map(|job| view(jobs, job, &sizes)).collect()
}

/// The current view of a job.
pub(super) async fn one(jobs: &Jobs, job: &Rc<Job>) -> SessionView {
    let mut views = now(jobs, std::slice::from_ref(job)).await;
    views.pop().unwrap_or_else(|| view(jobs, job, &HashMap::new()))
}

/// The sizes that the keepers recorded last.
async fn sizes(jobs: &Jobs, runs: &[Rc<str>]) -> HashMap<String, Size> {
    let (dir, runs) =
        (jobs.gateway.places.runtime_dir.clone(), runs.iter().map(|run| run.to_string()).collect::<Vec<_>>());
    if runs.is_empty() {
        return HashMap::new();
    }
    // This reads a file per tree, so it runs on the blocking pool and not on the thread that serves all requests.
    let read = move || {
        let Ok(Some(store)) = Store::look(&dir) else { return HashMap::new() };
        let size = |run: String| {
            let record = store.read(&run).ok()??;
            Some((run, Size { processes: record.members.len(), memory_bytes: record.memory_bytes }))
        };
        runs.into_iter().filter_map(size).collect()
    };
    blocking::spawn(read).await.unwrap_or_default()
}

/// The memory of trees that their keepers recorded last, by run.
pub(super) async fn memory(jobs: &Jobs, runs: &[Rc<str>]) -> HashMap<String, u64> {
    sizes(jobs, runs).await.into_iter().map(|(run, size)| (run, size.memory_bytes)).collect()
}

fn view(jobs: &Jobs, job: &Job, sizes: &HashMap<String, Size>) -> SessionView {
    // The job may have ended while the ledger was read.
    if let Some(receipt) = job.receipt() {
        return over(job, receipt);
    }
    let servers = job.servers.values().map(|server| server_view(jobs, job, server, sizes)).collect();
    let (now, unix) = (Moment::on_runtime(), clock::unix_ms());
    let at = |moment: Moment| unix + as_ms(moment.since(now));
    job.look(|life| {
        let terms = life.times();
        let deadline = life.deadline();
        SessionView {
            id: job.id().to_string(),
            name: job.name.clone(),
            state: match life.state() {
                State::Starting => StateView::Starting,
                State::Live => StateView::Live,
                State::Ending { .. } => StateView::Ending,
                State::Ended(_) => StateView::Ended,
            },
            owner: job.owner.clone(),
            labels: job.account.labels.clone(),
            started_at_ms: job.started_ms,
            ttl_ms: terms.ttl.map(as_ms),
            lease_until_ms: life.lease_until().map(at),
            idle_ms: terms.idle.map(as_ms),
            max_age_ms: terms.max_age.map(as_ms),
            deadline_ms: deadline.as_ref().map(|(moment, _)| at(*moment)),
            deadline_reason: deadline.map(|(_, reason)| reason.label().to_owned()),
            idle_for_ms: as_ms(life.idle_for(now)),
            servers,
            receipt: None,
        }
    })
}

fn server_view(jobs: &Jobs, job: &Job, server: &Server, sizes: &HashMap<String, Size>) -> ServerView {
    let trees = server.trees().into_iter().map(|tree| {
        // A tree that its keeper has not counted yet has at least its first process.
        let size = sizes.get(&*tree.run).copied().unwrap_or(Size { processes: 0, memory_bytes: 0 });
        HoldingView::Tree {
            run: tree.run.to_string(),
            pid: tree.pid,
            containment: tree.containment,
            processes: size.processes.max(1),
            memory_bytes: size.memory_bytes,
        }
    });
    let upstreams = guard::upstreams(server).into_iter();
    let upstreams = upstreams.map(|(url, session_id)| HoldingView::Upstream { url, session_id });
    let (holdings, in_flight) = (trees.chain(upstreams).collect(), job::in_flight(server));
    let mut sessions = server.all();
    sessions.sort_by_key(|session| session.started_ms);
    let clients = sessions.iter().map(|session| session.known_client.get()).collect();
    ServerView { holdings, clients, calls: Some(server.called.get()), in_flight, ..plain(jobs, job, server) }
}

/// The view of a server without its current holdings and requests.
fn plain(jobs: &Jobs, job: &Job, server: &Server) -> ServerView {
    let attach = jobs.attach();
    let target = format!("{}/{}", job.id(), server.name);
    ServerView {
        name: server.name.to_string(),
        kind: kind(server),
        url: format!("http://{}/{}/mcp", jobs.gateway.reached_at(), server.path),
        command: attach.command.clone(),
        args: attach.args.iter().cloned().chain([target]).collect(),
        holdings: Vec::new(),
        clients: Vec::new(),
        calls: Some(0),
        in_flight: 0,
    }
}

pub(super) fn kind(server: &Server) -> KindView {
    match server.settings().target {
        ServerTarget::Command(_) => KindView::Stdio,
        ServerTarget::Url(_) => KindView::Http,
    }
}

/// The view of a job that is over. Its paths no longer work, so they are not shown.
pub(super) fn over(job: &Job, receipt: &Receipt) -> SessionView {
    SessionView { owner: job.owner.clone(), name: job.name.clone(), ..from_receipt(receipt) }
}

/// The view of a job of which only the receipt is left.
pub(super) fn from_receipt(receipt: &Receipt) -> SessionView {
    SessionView {
        id: receipt.session.clone(),
        name: None,
        state: StateView::Ended,
        owner: OwnerView::None,
        labels: receipt.labels.clone(),
        started_at_ms: receipt.started_ms,
        ttl_ms: None,
        lease_until_ms: None,
        idle_ms: None,
        max_age_ms: None,
        deadline_ms: None,
        deadline_reason: None,
        idle_for_ms: 0,
        servers: Vec::new(),
        receipt: Some(receipt.clone()),
    }
}
