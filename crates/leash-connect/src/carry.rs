//! Sends a line to the upstream.

use std::rc::Rc;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Method, Response};
use tokio::sync::oneshot;

use super::exchange::{End, Exchange};
use super::link::{Complaint, Link, Mode};
use super::parcel::What;
use super::receive::receive;
use super::reply::{Refusal, Reply, Trouble};
use super::wire::{Answer, Outgoing};
use super::{listen, old, open, revive};
use leash_model::limits;
use leash_protocol::era::Era;

/// Sends a line and passes the response on, until the exchange ends.
pub(super) async fn run(link: Rc<Link>, exchange: Rc<Exchange>) {
    let end = tokio::select! {
        biased;
        () = exchange.cancelled() => End::Settled,
        () = exchange.given_up() => End::Settled,
        end = carry(&link, &exchange) => end,
    };
    match end {
        End::Settled => {}
        End::Failed(trouble) => fail(&link, &exchange, &trouble).await,
        End::Lost(trouble) => lose(&link, &exchange, trouble).await,
    }
    link.forget(&exchange);
}

/// Answers the unanswered requests of an exchange with an error.
pub(super) async fn fail(link: &Rc<Link>, exchange: &Exchange, trouble: &Trouble) {
    let open = exchange.take_open();
    if exchange.is_taken_back() || exchange.is_silent() {
        return;
    }
    if open.is_empty() {
        let complaint = if let Trouble::Refused(_) = trouble { Complaint::Refused } else { Complaint::Unreachable };
        return link.complain(complaint, || format!("a notification was not delivered: {trouble}"));
    }
    for ask in &open {
        // If the host is gone, the driver notices.
        let _ = link.voice.say(trouble.answer(ask)).await;
    }
}

/// Handles a session that the upstream has lost: the line is sent again in a new session, once.
async fn lose(link: &Rc<Link>, exchange: &Rc<Exchange>, trouble: Trouble) {
    let outdated = link.state.borrow().generation != exchange.generation();
    let again = link.revives && !exchange.parcel().repeated && !exchange.is_taken_back();
    if again {
        link.done(exchange);
        link.state.borrow_mut().outbox.give_back(exchange.parcel().clone());
    } else {
        fail(link, exchange, if link.revives { &trouble } else { &Trouble::Lost }).await;
    }
    if !outdated {
        revive::lost(link, trouble);
    }
    link.wake.notify_one();
}

/// Sends a line by the current transport, and passes the response on.
pub(super) async fn carry(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    if exchange.what == What::Initialize {
        // Without a timeout: the host decides how long it waits.
        return open::initialize(link, exchange).await;
    }
    let mode = link.state.borrow().mode.clone();
    let sent = match mode {
        Mode::Unknown | Mode::Streamable => post(link, exchange).await,
        Mode::Old(_) => return old::carry(link, exchange).await,
    };
    let answer = match sent {
        Ok(answer) => answer,
        Err(end) => return end,
    };
    if exchange.what == What::Initialized && !exchange.is_silent() {
        listen::begin(link);
    }
    receive(link, exchange, answer.response).await
}

/// POSTs a line. The next line may be sent as soon as this one is on its way or accepted.
async fn post(link: &Rc<Link>, exchange: &Rc<Exchange>) -> Result<Answer, End> {
    let headers = link.post_headers(&exchange.what, exchange.era, exchange.line());
    let url = link.state.borrow().endpoint.clone();
    let answer = deliver(
        link,
        exchange,
        Outgoing { method: Method::POST, url, headers, body: exchange.line().clone(), handed: None },
    );
    let answer = answer.await.map_err(End::Failed)?;
    link.works();
    let (status, head) = (answer.response.status(), answer.response.headers());
    if Reply::of(status, head) != Reply::Refused {
        link.state.borrow_mut().mode = Mode::Streamable;
        return Ok(answer);
    }
    let refusal = refused(answer.response).await;
    let in_session =
        exchange.era == Era::Legacy && link.state.borrow().session.as_ref().is_some_and(|session| session.id.is_some());
    let trouble = Trouble::Refused(refusal.clone());
    Err(if in_session && refusal.forgets_session() { End::Lost(trouble) } else { End::Failed(trouble) })
}

/// Sends an exchange's HTTP request and releases the next line: after a request when its body was handed over, after
/// anything else when the response came or took too long.
pub(super) async fn deliver(link: &Rc<Link>, exchange: &Exchange, mut outgoing: Outgoing) -> Result<Answer, Trouble> {
    let (handing, handed) = oneshot::channel();
    outgoing.handed = Some(handing);
    let answer = link.wire.send(outgoing);
    tokio::pin!(answer);
    let first = async {
        match exchange.what {
            // No line is sent before `initialize` is answered.
            What::Initialize => std::future::pending().await,
            // An error means that the body will never be handed over.
            What::Request | What::Listen => drop(handed.await),
            _ => drop(tokio::time::timeout(limits::ACCEPT, std::future::pending::<()>()).await),
        }
    };
    tokio::select! {
        biased;
        answer = &mut answer => return answer.map_err(Trouble::Wire),
        () = first => link.through(exchange),
    }
    answer.await.map_err(Trouble::Wire)
}

/// Reads the body of a refusal, as far as possible.
pub(super) async fn refused(response: Response<Incoming>) -> Refusal {
    let status = response.status();
    let body = Limited::new(response.into_body(), limits::REFUSAL).collect();
    let body = tokio::time::timeout(limits::ACCEPT, body).await;
    Refusal { status, body: body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default() }
}
