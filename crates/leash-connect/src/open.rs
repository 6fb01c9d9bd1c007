//! Begins legacy sessions.

use std::rc::Rc;

use hyper::Method;
use tokio::sync::oneshot;

use super::exchange::{End, Exchange};
use super::lease::{Claim, Held};
use super::link::{Complaint, Link, Mode, Session};
use super::receive::receive;
use super::reply::{Reply, Trouble};
use super::wire::{Answer, Outgoing};
use super::{carry, old};
use leash_protocol::envelope::Envelope;
use leash_protocol::headers::{SESSION_ID, valid_session_id};
use leash_upstream::client::UpstreamError;
use leash_upstream::delete;
use leash_upstream::delete::Deleted;
use leash_upstream::notice::Notice;

/// Sends `initialize` and passes its response on.
pub(super) async fn initialize(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    // The keeper must exist before the upstream can open a session.
    let prepared = link.lease.borrow_mut().prepare();
    if let Err(error) = prepared {
        link.complain(Complaint::Keeper, || format!("cannot start a keeper: {error}"));
    }
    let is_old = matches!(link.state.borrow().mode, Mode::Old(_));
    if is_old {
        return old::initialize(link, exchange).await;
    }
    let outgoing = Outgoing {
        method: Method::POST,
        // Each `initialize` goes to the configured URL. It may redirect somewhere else than before.
        url: link.upstream.url.clone(),
        headers: link.post_headers(&exchange.what, exchange.era, exchange.line()),
        body: exchange.line().clone(),
        handed: None,
    };
    let answer = match post(link, outgoing).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return End::Failed(Trouble::Wire(error)),
        // `last_call` stopped the task.
        Err(_) => return End::Settled,
    };
    if Reply::of(answer.response.status(), answer.response.headers()) != Reply::Refused {
        return receive(link, exchange, answer.response).await;
    }
    let refusal = carry::refused(answer.response).await;
    let unknown = link.state.borrow().mode == Mode::Unknown;
    if unknown && refusal.may_be_old() && old::connect(link).await.is_ok() {
        return old::initialize(link, exchange).await;
    }
    End::Failed(Trouble::Refused(refusal))
}

/// POSTs an `initialize` in a task of its own, so that a session is not lost if the caller is dropped. leash records
/// the session before the caller gets the response. If the caller was dropped, leash DELETEs the session.
fn post(link: &Rc<Link>, outgoing: Outgoing) -> oneshot::Receiver<Result<Answer, UpstreamError>> {
    let (tell, told) = oneshot::channel();
    let task = Rc::clone(link);
    link.tasks.spawn_local(async move {
        let sent = tokio::select! {
            sent = task.wire.send(outgoing) => sent,
            () = task.last_call.cancelled() => return,
        };
        if sent.is_ok() {
            // Even if the caller was dropped: the upstream was reached, so there will be a receipt.
            task.works();
        }
        if let Ok(answer) = &sent
            && Reply::of(answer.response.status(), answer.response.headers()) != Reply::Refused
        {
            if !tell.is_closed() {
                opened(&task, answer);
            } else if let Some(claim) = claim(&task, answer) {
                let (held, told) = task.lease.borrow_mut().hold_until_ended(claim);
                task.check_written(told);
                let_go(&task, &held).await;
            }
        }
        let _ = tell.send(sent);
    });
    told
}

/// Handles the head of the response to `initialize`. It records a session before the caller gets the response.
fn opened(link: &Rc<Link>, answer: &Answer) {
    let claim = claim(link, answer);
    let id = claim.as_ref().and_then(Claim::id).map(str::to_owned);
    {
        let mut state = link.state.borrow_mut();
        state.mode = Mode::Streamable;
        state.endpoint = answer.from.clone();
        state.session = Some(Session { id, version: None });
        state.generation += 1;
        if let Some(listening) = state.listening.take() {
            listening.cancel();
        }
    }
    hold(link, claim);
}

/// Returns the session that the upstream opened, if its id is valid.
fn claim(link: &Link, answer: &Answer) -> Option<Claim> {
    let id = answer.response.headers().get(SESSION_ID)?.to_str().ok().filter(|id| valid_session_id(id))?;
    let (url, session_id) = (answer.from.clone(), id.to_owned());
    Some(Claim::Session(delete::Ticket { url, session_id, version: None, headers: link.base_headers() }))
}

/// Ends a session that was replaced or that the host does not need any more.
async fn let_go(link: &Link, held: &Held) {
    let how = match &held.claim {
        Claim::Session(ticket) => delete::delete(&link.client, ticket).await,
        Claim::Stream(_) => Deleted::closed(),
    };
    let told = link.lease.borrow_mut().ended(held, &how);
    link.check_written(told);
}

/// Holds a new claim and ends the previous one.
pub(super) fn hold(link: &Rc<Link>, claim: Option<Claim>) {
    let is_new = claim.is_some();
    let (before, written) = link.lease.borrow_mut().hold(claim);
    link.check_written(written);
    if is_new {
        let (session, server) = link.lease.borrow().names();
        link.tell(Notice::Opened { session, server });
    }
    let Some(before) = before else { return };
    let task = Rc::clone(link);
    // This task goes on when the connection ends, and the end waits for it.
    link.tasks.spawn_local(async move { let_go(&task, &before).await });
}

/// Reads the response to an `initialize` before the host gets it.
pub(super) fn agreed(link: &Rc<Link>, exchange: &Exchange, answer: &Envelope<'_>) {
    let mut state = link.state.borrow_mut();
    if answer.result.is_none() {
        // The upstream refused. If it opened a session, leash ends it when the connection ends.
        state.session = None;
        return;
    }
    let version = answer.result_protocol_version().map(|version| version.into_owned());
    state.session.get_or_insert_default().version.clone_from(&version);
    if !exchange.is_silent() {
        state.initialize = Some(exchange.parcel().clone());
        state.initialized = None;
    }
    drop(state);
    let Some(version) = version else { return };
    let written = link.lease.borrow_mut().agreed(&version);
    link.check_written(written);
}
