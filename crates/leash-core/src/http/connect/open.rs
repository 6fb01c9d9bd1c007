//! How a legacy session begins, and begins again when the upstream has lost it.

use std::rc::Rc;

use hyper::{Method, StatusCode};

use super::super::delete::{self, Deleted};
use super::super::notice::Notice;
use super::backoff::BackOff;
use super::exchange::{self, End, Exchange};
use super::lease::{Claim, closed};
use super::link::{Complaint, Link, Mode, Session};
use super::parcel::{Parcel, What};
use super::reply::{Reply, Trouble};
use super::wire::{Answer, Outgoing};
use super::{listen, old};
use crate::limits;
use crate::protocol::envelope::Envelope;
use crate::protocol::headers::{SESSION_ID, valid_session_id};

/// Sends `initialize` and passes its answer on.
pub(super) async fn initialize(link: &Rc<Link>, exchange: &Rc<Exchange>) -> End {
    // Before there can be a session.
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
        // A redirect is learned anew each time.
        url: link.upstream.url.clone(),
        headers: link.post_headers(&exchange.what, exchange.era, exchange.line()),
        body: exchange.line().clone(),
        handed: None,
    };
    let answer = match exchange::deliver(link, exchange, outgoing).await {
        Ok(answer) => answer,
        Err(trouble) => return End::Failed(trouble),
    };
    link.works();
    if Reply::of(answer.response.status(), answer.response.headers()) != Reply::Refused {
        opened(link, &answer);
        return exchange::receive(link, exchange, answer.response).await;
    }
    let refusal = exchange::refused(answer.response).await;
    let unknown = link.state.borrow().mode == Mode::Unknown;
    if unknown && refusal.may_be_old() && old::connect(link).await.is_ok() {
        return old::initialize(link, exchange).await;
    }
    End::Failed(Trouble::Refused(refusal))
}

/// The head of the answer to `initialize` is here: if there is a session, it is written down before anybody learns of it.
fn opened(link: &Rc<Link>, answer: &Answer) {
    let id = answer.response.headers().get(SESSION_ID).and_then(|id| id.to_str().ok());
    let id = id.filter(|id| valid_session_id(id)).map(str::to_owned);
    {
        let mut state = link.state.borrow_mut();
        state.mode = Mode::Streamable;
        state.endpoint = answer.from.clone();
        state.session = Some(Session { id: id.clone(), version: None });
        state.generation += 1;
        if let Some(listening) = state.listening.take() {
            listening.cancel();
        }
    }
    let claim = id.map(|session_id| {
        Claim::Session(delete::Ticket {
            url: answer.from.clone(),
            session_id,
            version: None,
            headers: link.base_headers(),
        })
    });
    hold(link, claim);
}

/// From now on this is held; what was held before is let go of.
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
    // It goes on when the connection ends: the end waits for it.
    link.tasks.spawn_local(async move {
        let how = match &before {
            Claim::Session(ticket) => delete::delete(&task.client, ticket).await,
            Claim::Stream(_) => closed(),
        };
        task.lease.borrow_mut().note(&before, &how);
    });
}

/// The answer to an `initialize`, before the host sees it.
pub(super) fn agreed(link: &Rc<Link>, exchange: &Exchange, answer: &Envelope<'_>) {
    let mut state = link.state.borrow_mut();
    if answer.result.is_none() {
        // Refused after all. What the upstream may have opened is let go of at the end.
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

/// The upstream has lost the session.
pub(super) fn lost(link: &Rc<Link>, trouble: Trouble) {
    let known_gone = match &trouble {
        Trouble::Refused(refusal) if refusal.status == StatusCode::NOT_FOUND => {
            Some(Deleted::forgotten(refusal.status))
        }
        Trouble::Closed => Some(closed()),
        // It said so in other words: DELETE will show.
        _ => None,
    };
    let reviving = link.state.borrow().reviving;
    if reviving {
        return;
    }
    if let Some(how) = known_gone {
        let written = link.lease.borrow_mut().lost(&how);
        link.check_written(written);
    }
    if !link.revives {
        return link.give_up();
    }
    suspend(link);
    let task = Rc::clone(link);
    link.spawn(async move { revive(&task).await });
}

fn suspend(link: &Link) {
    let mut state = link.state.borrow_mut();
    state.reviving = true;
    state.outbox.suspend();
}

/// Opens the session again. Where that fails, what waits is sent all the same, so that it is answered; with Streamable HTTP
/// the next request tries again. The old transport has only its stream to hear of anything, so there it is tried until it works.
async fn revive(link: &Rc<Link>) {
    let mut back_off = BackOff::default();
    loop {
        let again = tokio::time::timeout(limits::INIT_TIMEOUT, reopen(link)).await.unwrap_or(Err(Trouble::Late));
        {
            let mut state = link.state.borrow_mut();
            state.reviving = false;
            state.outbox.resume();
        }
        link.wake.notify_one();
        match again {
            Ok(()) => {
                return link.tell(Notice::Warning("upstream had lost the session; a new one was opened".to_owned()));
            }
            Err(trouble) => {
                link.complain(Complaint::Unreachable, || format!("the lost session cannot be opened again: {trouble}"));
            }
        }
        let idle = || link.state.borrow().mode == Mode::Old(None) && !link.state.borrow().reviving;
        if !idle() {
            return;
        }
        tokio::time::sleep_until(tokio::time::Instant::now() + back_off.next()).await;
        // A request may have brought it back meanwhile.
        if !idle() {
            return;
        }
        suspend(link);
    }
}

/// Opens the session again, with the host's own words. The host notices nothing: the answers are swallowed.
pub(super) async fn reopen(link: &Rc<Link>) -> Result<(), Trouble> {
    let (initialize, initialized) = {
        let state = link.state.borrow();
        (state.initialize.clone(), state.initialized.clone())
    };
    // Without a handshake there was no session to lose.
    let initialize = initialize.ok_or(Trouble::Nothing)?;
    silently(link, initialize, |link, exchange| Box::pin(async move { self::initialize(link, exchange).await }))
        .await?;
    if link.state.borrow().session.is_none() {
        return Err(Trouble::Nothing);
    }
    let Some(line) = initialized else { return Ok(()) };
    let parcel = Parcel { line, what: What::Initialized, asks: Vec::new(), ..blank() };
    silently(link, parcel, |link, exchange| Box::pin(async move { exchange::accept(link, exchange).await })).await?;
    if link.state.borrow().mode == Mode::Streamable {
        listen::begin(link);
    }
    Ok(())
}

type Carrying<'a> = std::pin::Pin<Box<dyn Future<Output = End> + 'a>>;

/// Carries out an exchange of which the host is told nothing.
async fn silently(
    link: &Rc<Link>,
    parcel: Parcel,
    carry: impl for<'a> FnOnce(&'a Rc<Link>, &'a Rc<Exchange>) -> Carrying<'a>,
) -> Result<(), Trouble> {
    let exchange = Exchange::silent(parcel, link.state.borrow().generation);
    link.state.borrow_mut().exchanges.push(Rc::clone(&exchange));
    let end = carry(link, &exchange).await;
    link.forget(&exchange);
    match end {
        End::Settled => Ok(()),
        End::Failed(trouble) | End::Lost(trouble) => Err(trouble),
    }
}

/// A parcel of leash's own, which has no place among the host's.
fn blank() -> Parcel {
    Parcel {
        number: u64::MAX,
        line: bytes::Bytes::new(),
        what: What::Notice,
        era: crate::protocol::era::Era::Legacy,
        asks: Vec::new(),
        repeated: true,
    }
}
