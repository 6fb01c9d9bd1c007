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
mod reply;
mod routes;
mod status;
#[cfg(test)]
mod tests;
mod view;

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, USER_AGENT};
use hyper::{HeaderMap, Request, body::Incoming};

use crate::config::{LeaseRequest, read_request};
use crate::control_client::END_AGENT;
use crate::respond::Answer;
use leash_model::receipt::{Reason, Receipt};
use leash_model::view::PageLinkView;
use leash_model::{duration::as_ms, limits};
use leash_protocol::headers;
use leash_tree::{blocking, ledger::receipts};
pub(super) use problem::Problem;
use query::{EndOptions, Filter, Only};
use reply::Reply;
use routes::{Operation, Routing};
use view::{AbortedView, EventView, ReceiptsView, SessionView, SessionsView, VersionView};

pub(crate) use calls::{CallTarget, serve};
pub(crate) use job::Job;
pub(crate) use jobs::Jobs;

/// The address of the control API that accepted a request; not set on the control socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlAddress(pub(crate) SocketAddr);

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
    let text = head.uri.query().unwrap_or_default();
    // An operation without a query refuses every parameter.
    if !matches!(route.act, Operation::List(..) | Operation::EndAll(..) | Operation::End(..) | Operation::Events(..)) {
        query::read(&query::NONE, text)?;
    }
    match &route.act {
        Operation::Create(table, created, stream) => {
            let body = read_body(&head.headers, body).await?;
            create::create(jobs, &head.headers, &body, (table, created, stream)).await
        }
        Operation::List(query, listed) => Ok(list(jobs, query::read(query, text)?, listed).await),
        Operation::EndAll(query, ended, ending) => Ok(end_all(jobs, query::read(query, text)?, ended, ending).await),
        Operation::Show(shown) => show(jobs, id, shown).await,
        Operation::End(query, ended, ending) => {
            let is_command = head.headers.get(USER_AGENT).is_some_and(|agent| agent == END_AGENT);
            let reason = if is_command { Reason::LEASH_END } else { Reason::CONTROL_API };
            end(jobs, id, (query::read(query, text)?, reason), (ended, ending)).await
        }
        Operation::Renew(table, renewed) => {
            let body = read_body(&head.headers, body).await?;
            renew(jobs, id, read_request(table, &body).map_err(Problem::misread)?, renewed).await
        }
        Operation::Abort(aborted) => Ok(aborted.send(&AbortedView { aborted: living(jobs, id).await?.abort() })),
        Operation::Events(query, stream) => listen(jobs, query::read(query, text)?, stream).await,
        Operation::Document(document) => Ok(document.send(&openapi::document())),
        Operation::PageLink(made) => {
            let page = jobs.page().ok_or_else(Problem::no_page)?;
            let address = head.extensions.get().map_or_else(|| jobs.gateway.reached_at(), |ControlAddress(at)| *at);
            let (url, expires_ms) = (page.link(address), as_ms(limits::PAGE_LINK));
            Ok(made.send(&PageLinkView { url, expires_ms }))
        }
        Operation::Status(shown) => Ok(shown.send(&status::now(jobs).await)),
        Operation::Version(version) => {
            let own = env!("CARGO_PKG_VERSION").to_owned();
            Ok(version.send(&VersionView { version: own, pid: std::process::id(), api: API }))
        }
    }
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

async fn list(jobs: &Jobs, filter: Filter, listed: &Reply<SessionsView>) -> Answer {
    let has = |view: &SessionView, name: &str, value: &str| view.labels.get(name).is_some_and(|known| known == value);
    let mut sessions = if filter.all { jobs.all_ended() } else { Vec::new() };
    sessions.extend(look::now(jobs, &jobs.list()).await);
    sessions.retain(|view| filter.labels.iter().all(|(name, value)| has(view, name, value)));
    listed.send(&SessionsView { sessions })
}

async fn end_all(jobs: &Jobs, how: EndOptions, ended: &Reply<ReceiptsView>, ending: &Reply<SessionsView>) -> Answer {
    let all = jobs.list();
    all.iter().for_each(|job| job.end(Reason::CONTROL_API, how.force));
    if !how.wait {
        return ending.send(&SessionsView { sessions: look::now(jobs, &all).await });
    }
    let mut receipts = Vec::new();
    for job in all {
        receipts.push(Receipt::clone(&*job.over().await));
    }
    ended.send(&ReceiptsView { receipts })
}

async fn show(jobs: &Jobs, id: &str, shown: &Reply<SessionView>) -> Result<Answer, Problem> {
    Ok(shown.send(&match jobs.get(id) {
        Some(job) => look::one(jobs, &job).await,
        None => over(jobs, id).await?,
    }))
}

async fn end(
    jobs: &Jobs,
    id: &str,
    (how, reason): (EndOptions, Reason),
    (ended, ending): (&Reply<Receipt>, &Reply<SessionView>),
) -> Result<Answer, Problem> {
    let Some(job) = jobs.get(id) else {
        // A caller that asks again gets the same receipt.
        let receipt = over(jobs, id).await?.receipt;
        return Ok(ended.send(&receipt.ok_or_else(|| Problem::no_such_session(id))?));
    };
    job.end(reason, how.force);
    if how.wait {
        return Ok(ended.send(&*job.over().await));
    }
    Ok(ending.send(&look::one(jobs, &job).await))
}

async fn renew(jobs: &Jobs, id: &str, lease: LeaseRequest, renewed: &Reply<SessionView>) -> Result<Answer, Problem> {
    let job = living(jobs, id).await?;
    if lease.ttl.is_none() && job.look(|life| life.times().ttl.is_none()) {
        return Err(Problem::no_lease(id));
    }
    job.renew(lease.ttl);
    // The job may have ended just before the renewal.
    still(&job)?;
    Ok(renewed.send(&look::one(jobs, &job).await))
}

async fn listen(jobs: &Jobs, query: Only, stream: &Reply<EventView>) -> Result<Answer, Problem> {
    let only = match query.session.as_deref() {
        None => None,
        Some(id) => match jobs.get(id) {
            Some(job) => Some(Rc::clone(job.id())),
            None => return Err(over(jobs, id).await.map_or_else(|unknown| unknown, |view| ended(id, &view))),
        },
    };
    Ok(jobs.bus.listen(only).answer(stream))
}

/// A job that can be used.
async fn living(jobs: &Jobs, id: &str) -> Result<Rc<Job>, Problem> {
    let Some(job) = jobs.get(id) else { return Err(ended(id, &over(jobs, id).await?)) };
    still(&job)?;
    Ok(job)
}

fn still(job: &Job) -> Result<(), Problem> {
    job.why().map_or(Ok(()), |why| Err(Problem::ended(job.id(), &why.describe())))
}

fn ended(id: &str, view: &SessionView) -> Problem {
    let why = view.receipt.as_ref().map(Receipt::why);
    Problem::ended(id, &why.unwrap_or_default())
}

/// The view of a job that is over: one of the last, or one whose receipt is still kept.
async fn over(jobs: &Jobs, id: &str) -> Result<SessionView, Problem> {
    if let Some(view) = jobs.ended(id) {
        return Ok(view);
    }
    let (path, session) = (jobs.gateway.places.receipts.clone(), id.to_owned());
    let find = move || receipts::find(&path, &session).ok().flatten();
    let found = blocking::spawn(find).await.ok().flatten();
    found.map(|receipt| look::from_receipt(&receipt)).ok_or_else(|| Problem::no_such_session(id))
}
