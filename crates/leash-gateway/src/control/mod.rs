//! Sessions as an API: `POST /v1/sessions` and the other routes, on the control socket. In code a session of this API
//! is a *job*, because [`crate::state::session::ClientSession`] is one client's MCP session; a job has servers, and
//! those have such sessions.
//!
//! The modules in the order in which they handle a request: this file (performs the operation), `routes` (the table of
//! all operations), `create`, then `jobs` and `job` (which live longer than a request). `look` makes the views of jobs,
//! `events` sends their events, `problem` has the errors. `calls` connects the
//! front to the servers of a job.

mod calls;
mod create;
mod events;
mod job;
mod job_machine;
mod jobs;
mod joined;
mod look;
mod openapi;
mod problem;
mod query;
mod routes;
#[cfg(test)]
mod tests;
mod view;

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::{HeaderMap, Request, StatusCode};
use serde::Serialize;

use super::respond::{self, Answer};
use crate::config::lease_request;
use leash_model::limits;
use leash_model::receipt::{Reason, Receipt};
use leash_protocol::headers;
use leash_tree::blocking;
use leash_tree::ledger::receipts;
pub(super) use problem::Problem;
use query::Query;
use routes::{Operation, Route, Routing};
use view::{AbortedView, ReceiptsView, SessionView, SessionsView, VersionView};

pub(crate) use calls::{CallTarget, serve};
pub(crate) use job::Job;
pub(crate) use jobs::Jobs;

/// The version of this API.
const API: u32 = 1;

/// Answers a request of the control API. The listener that accepted the connection has already checked that the caller
/// may ask.
pub(crate) async fn answer(jobs: Rc<Jobs>, request: Request<Incoming>) -> Answer {
    match asked(&jobs, request).await {
        Ok(answer) => answer,
        Err(problem) => problem.answer(),
    }
}

async fn asked(jobs: &Rc<Jobs>, request: Request<Incoming>) -> Result<Answer, Problem> {
    let (head, body) = request.into_parts();
    let (route, id) = match routes::find(head.method.as_str(), head.uri.path()) {
        Routing::Route(route, id) => (route, id),
        Routing::Other(methods) => return Err(Problem::method(methods)),
        Routing::Nothing => return Err(Problem::no_such_path(head.uri.path())),
    };
    let query = Query::read(route.query, head.uri.query().unwrap_or_default()).map_err(Problem::invalid)?;
    let body = if route.body.is_some() { read_body(&head.headers, body).await? } else { String::new() };
    act(jobs, (route, id), &query, (&head.headers, &body)).await
}

async fn act(
    jobs: &Rc<Jobs>,
    (route, id): (&Route, &str),
    query: &Query,
    (headers, body): (&HeaderMap, &str),
) -> Result<Answer, Problem> {
    match route.act {
        Operation::Create => create::create(jobs, headers, body).await,
        Operation::List => list(jobs, query).await,
        Operation::EndAll => Ok(end_all(jobs, query).await),
        Operation::Show => show(jobs, id).await,
        Operation::End => end(jobs, id, query).await,
        Operation::Renew => renew(jobs, id, body).await,
        Operation::Abort => {
            let job = living(jobs, id).await?;
            Ok(respond_json(StatusCode::OK, &AbortedView { aborted: job.abort() }))
        }
        Operation::Events => listen(jobs, query).await,
        Operation::Document => Ok(respond_json(StatusCode::OK, &openapi::document())),
        Operation::Version => {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            Ok(respond_json(StatusCode::OK, &VersionView { version, pid: std::process::id(), api: API }))
        }
    }
}

/// The response with a value as JSON.
fn respond_json(status: StatusCode, value: &impl Serialize) -> Answer {
    // All views consist of text, numbers and lists, so this cannot fail.
    respond::json(status, serde_json::to_vec(value).unwrap_or_default())
}

/// The body of a request, bounded.
async fn read_body(headers: &HeaderMap, body: Incoming) -> Result<String, Problem> {
    let told = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if told.is_some_and(|told| told > limits::CONTROL_BODY) {
        return Err(Problem::too_large(limits::CONTROL_BODY));
    }
    let read = tokio::time::timeout(limits::BODY_READ, Limited::new(body, limits::CONTROL_BODY).collect()).await;
    let body: Bytes = match read {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(Problem::too_large(limits::CONTROL_BODY)),
        Ok(Err(_)) | Err(_) => return Err(Problem::broken()),
    };
    // An empty body needs no Content-Type.
    if (!body.is_empty() || headers.contains_key(CONTENT_TYPE)) && !headers::is_json(headers) {
        return Err(Problem::not_json());
    }
    String::from_utf8(body.into()).map_err(|_| Problem::broken())
}

async fn list(jobs: &Rc<Jobs>, query: &Query) -> Result<Answer, Problem> {
    let wanted = |view: &SessionView| {
        query.labels().iter().all(|(name, value)| view.labels.get(name).is_some_and(|known| known == value))
    };
    let mut sessions = if query.is("all", false) { jobs.all_ended() } else { Vec::new() };
    sessions.extend(look::now(jobs, &jobs.list()).await);
    sessions.retain(wanted);
    Ok(respond_json(StatusCode::OK, &SessionsView { sessions }))
}

async fn end_all(jobs: &Rc<Jobs>, query: &Query) -> Answer {
    let all = jobs.list();
    all.iter().for_each(|job| job.end(Reason::Requested, query.is("force", false)));
    if !query.is("wait", true) {
        let sessions = look::now(jobs, &all).await;
        return respond_json(StatusCode::ACCEPTED, &SessionsView { sessions });
    }
    let mut receipts = Vec::new();
    for job in all {
        receipts.push(Receipt::clone(&*job.over().await));
    }
    respond_json(StatusCode::OK, &ReceiptsView { receipts })
}

async fn show(jobs: &Rc<Jobs>, id: &str) -> Result<Answer, Problem> {
    let view = match jobs.get(id) {
        Some(job) => look::one(jobs, &job).await,
        None => over(jobs, id).await?,
    };
    Ok(respond_json(StatusCode::OK, &view))
}

async fn end(jobs: &Rc<Jobs>, id: &str, query: &Query) -> Result<Answer, Problem> {
    let Some(job) = jobs.get(id) else {
        // A caller that asks again gets the same receipt.
        let view = over(jobs, id).await?;
        return Ok(respond_json(StatusCode::OK, &view.receipt));
    };
    job.end(Reason::Requested, query.is("force", false));
    if query.is("wait", true) {
        return Ok(respond_json(StatusCode::OK, &*job.over().await));
    }
    Ok(respond_json(StatusCode::ACCEPTED, &look::one(jobs, &job).await))
}

async fn renew(jobs: &Rc<Jobs>, id: &str, body: &str) -> Result<Answer, Problem> {
    let ttl = lease_request(body).map_err(Problem::misread)?;
    let job = living(jobs, id).await?;
    if ttl.is_none() && job.look(|life| life.times().ttl.is_none()) {
        return Err(Problem::no_lease(id));
    }
    job.renew(ttl);
    // The job may have ended just before the renewal.
    still(&job)?;
    Ok(respond_json(StatusCode::OK, &look::one(jobs, &job).await))
}

async fn listen(jobs: &Rc<Jobs>, query: &Query) -> Result<Answer, Problem> {
    let only = match query.text("session") {
        None => None,
        Some(id) => match jobs.get(id) {
            Some(job) => Some(Rc::clone(job.id())),
            None => return Err(over(jobs, id).await.map_or_else(|unknown| unknown, |view| ended(id, &view))),
        },
    };
    Ok(jobs.bus.listen(only).answer(StatusCode::OK))
}

/// A job that can be used.
async fn living(jobs: &Rc<Jobs>, id: &str) -> Result<Rc<Job>, Problem> {
    let Some(job) = jobs.get(id) else { return Err(ended(id, &over(jobs, id).await?)) };
    still(&job)?;
    Ok(job)
}

fn still(job: &Job) -> Result<(), Problem> {
    job.why().map_or(Ok(()), |why| Err(Problem::ended(job.id(), &why.describe())))
}

fn ended(id: &str, view: &SessionView) -> Problem {
    let why = view.receipt.as_ref().map(|receipt| receipt.reason.describe());
    Problem::ended(id, &why.unwrap_or_default())
}

/// The view of a job that is over: one of the last, or one whose receipt is still kept.
async fn over(jobs: &Rc<Jobs>, id: &str) -> Result<SessionView, Problem> {
    if let Some(view) = jobs.ended(id) {
        return Ok(view);
    }
    let (path, session) = (jobs.gateway.places.receipts.clone(), id.to_owned());
    let find = move || receipts::find(&path, &session).ok().flatten();
    let found = blocking::spawn(find).await.ok().flatten();
    found.map(|receipt| look::from_receipt(&receipt)).ok_or_else(|| Problem::no_such_session(id))
}
