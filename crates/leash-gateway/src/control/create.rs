//! `POST /v1/sessions`: starts all servers of a session, or none.

use std::rc::Rc;

use hyper::HeaderMap;
use hyper::header::{ACCEPT, HeaderValue, LOCATION};
use tokio::sync::mpsc;

use super::job::{Job, Plan};
use super::view::{OwnerView, SessionView};
use super::{events::EventData, jobs::Jobs, look, problem::Problem, reply::Reply};
use crate::config::{RequestedOwner, ServerTarget, SessionRequest, Table, read_request};
use crate::{control::job_machine::JobTimes, respond::Answer, state::gateway::Gateway, state::server::Server, stdio};
use leash_model::{error::shown, receipt::Reason, start_failure::StartFailure};
use leash_protocol::headers;
use leash_tree::{platform::identity::HeldProcess, platform::proc::Proc};
use leash_upstream::delete;

/// A job whose id its caller does not have yet. Dropped before the caller gets the id, it ends the job.
struct Unknown(Option<Rc<Job>>);

impl Unknown {
    fn known(mut self) {
        self.0 = None;
    }
}

impl Drop for Unknown {
    fn drop(&mut self) {
        if let Some(job) = self.0.take() {
            job.end(Reason::ClientLeft, false);
        }
    }
}

/// The connection that owns a job.
struct OwningConnection(Rc<Job>);

impl Drop for OwningConnection {
    fn drop(&mut self) {
        self.0.owner_lost(Reason::ClientLeft);
    }
}

/// Answers a request for a session.
pub(super) async fn create(
    jobs: &Rc<Jobs>,
    headers: &HeaderMap,
    body: &str,
    (table, created, stream): (&Table<SessionRequest>, &Reply<SessionView>, &Reply<EventData<'static>>),
) -> Result<Answer, Problem> {
    if jobs.gateway.draining.get() || jobs.is_closed() {
        return Err(Problem::draining());
    }
    let request = read_request(table, body).map_err(Problem::misread)?;
    let connection = request.owner == Some(RequestedOwner::Connection);
    // A request without `Accept` accepts everything.
    if connection && headers.contains_key(ACCEPT) && !headers::accepts(headers, &["text/event-stream"]) {
        return Err(Problem::not_acceptable());
    }
    let owner = owner(&request)?;
    if !has_room(jobs, &request) {
        return Err(Problem::too_many());
    }
    let job = begin(jobs, request, owner.as_ref())?;
    let unknown = Unknown(Some(Rc::clone(&job)));
    start(jobs, &job).await?;
    let view = look::one(jobs, &job).await;
    // The job ended meanwhile, on another caller's request or because its owner is gone: nothing of it remains.
    if let Some(why) = job.why() {
        job.over().await;
        return Err(never_began(&job, &why));
    }
    let mut answer = if connection {
        let events = jobs.bus.listen(Some(Rc::clone(job.id())));
        events.beginning(&view).keeping(OwningConnection(Rc::clone(&job))).answer(stream)
    } else {
        created.send(&view)
    };
    unknown.known();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/sessions/{}", job.id())) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

/// The process that is to own the job.
fn owner(request: &SessionRequest) -> Result<Option<HeldProcess>, Problem> {
    let Some(RequestedOwner::Pid(pid)) = request.owner else { return Ok(None) };
    let held = Proc::own().ok().and_then(|proc| HeldProcess::open(&proc, pid)).filter(|held| !held.stat.dead());
    let missing = || {
        let hint = "give the pid of a running process, as this daemon sees it";
        Problem::fault("/owner/pid", format!("there is no process {pid}"), hint)
    };
    held.ok_or_else(missing).map(Some)
}

/// True if the limit of sessions allows its trees.
fn has_room(jobs: &Jobs, request: &SessionRequest) -> bool {
    let trees = request.servers.values().filter(|server| matches!(server.target, ServerTarget::Command(_))).count();
    let most = jobs.gateway.settings().max_sessions;
    jobs.gateway.count() + jobs.warm() + trees <= most && jobs.list().len() < most
}

fn begin(jobs: &Rc<Jobs>, request: SessionRequest, owner: Option<&HeldProcess>) -> Result<Rc<Job>, Problem> {
    let shown = match request.owner {
        Some(RequestedOwner::Pid(pid)) => OwnerView::Pid { pid },
        Some(RequestedOwner::Connection) => OwnerView::Connection,
        None => OwnerView::None,
    };
    let times = JobTimes { ttl: request.ttl, idle: request.idle, max_age: request.max_age };
    let plan = Plan {
        name: request.name,
        labels: request.labels,
        budget: request.budget,
        owner: shown,
        times,
        servers: request.servers,
    };
    let job = Job::new(jobs, plan);
    if let Some(owner) = owner {
        let unwatched = |error: std::io::Error| {
            let hint = "a limit of open files may be used up (ulimit -n)";
            Problem::fault("/owner/pid", format!("the process cannot be watched: {error}"), hint)
        };
        job.owned_by(&jobs.gateway, owner).map_err(unwatched)?;
    }
    jobs.add(&job);
    // Arms the timer: the job's age counts from here.
    job.tick();
    Ok(job)
}

/// Starts all servers at the same time. If one cannot be started, ends the others, so that nothing remains.
async fn start(jobs: &Rc<Jobs>, job: &Rc<Job>) -> Result<(), Problem> {
    let (sender, mut results) = mpsc::unbounded_channel();
    for server in job.servers.values() {
        if matches!(server.settings().target, ServerTarget::Command(_)) {
            stdio::expect_warm(server);
        }
        // Each start has its own task, which continues even if this request is dropped, so that every started server is
        // also ended.
        let (gateway, server, sender) = (Rc::clone(&jobs.gateway), Rc::clone(server), sender.clone());
        jobs.gateway.tasks.spawn_local(async move {
            let started = start_one(&gateway, &server).await;
            // If the receiver is gone, the job has ended.
            let _ = sender.send((server, started));
        });
    }
    drop(sender);
    while let Some((server, started)) = results.recv().await {
        if let Err(failure) = started {
            let others = job.why();
            job.end(Reason::StartFailed { why: None }, false);
            job.over().await;
            return Err(match others {
                Some(reason) => never_began(job, &reason),
                None => Problem::server_failed(&server.name, failure),
            });
        }
    }
    job.started();
    Ok(())
}

/// The problem of a job that ended before its caller got it. If the daemon shut down, it is the same as for a request
/// that comes too late: another daemon can serve it.
fn never_began(job: &Job, why: &Reason) -> Problem {
    match why {
        Reason::Shutdown => Problem::draining(),
        why => Problem::ended(job.id(), &why.describe()),
    }
}

async fn start_one(gateway: &Rc<Gateway>, server: &Rc<Server>) -> Result<(), StartFailure> {
    match &server.settings().target {
        ServerTarget::Command(_) => stdio::warm(gateway, server).await,
        ServerTarget::Url(upstream) => tokio::select! {
            reached = gateway.client.reach(&upstream.url) => {
                let address = delete::shown(&upstream.url);
                reached.map_err(|error| StartFailure::Unreachable { why: shown(error.at(&address)) })
            }
            () = server.stop.signal().given() => Err(StartFailure::Ended),
        },
    }
}
