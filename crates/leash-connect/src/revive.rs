//! Opens a session again that the upstream has lost.

use std::rc::Rc;

use hyper::StatusCode;

use super::backoff::BackOff;
use super::exchange::{End, Exchange};
use super::link::{Complaint, Link, Mode, Reviving};
use super::parcel::{Parcel, What};
use super::reply::Trouble;
use super::{carry, listen};
use leash_model::limits;
use leash_protocol::era::Era;
use leash_upstream::delete::Deleted;
use leash_upstream::notice::Notice;

/// Handles a session that the upstream has lost.
pub(super) fn lost(link: &Rc<Link>, trouble: Trouble) {
    let known_gone = match &trouble {
        Trouble::Refused(refusal) if refusal.status == StatusCode::NOT_FOUND => {
            Some(Deleted::forgotten(refusal.status))
        }
        Trouble::Closed => Some(Deleted::closed()),
        // The upstream was not explicit. The response to DELETE will show if the session is gone.
        _ => None,
    };
    let reviving = link.state.borrow().reviving;
    if reviving == Reviving::Now {
        return;
    }
    if let Some(how) = known_gone {
        let written = link.lease.borrow_mut().lost(&how);
        link.check_written(written);
    }
    if !link.revives {
        return link.give_up();
    }
    if link.state.borrow().initialize.is_none() {
        // There was no handshake, so there is nothing to repeat. The next line is sent as it is.
        return;
    }
    set(link, Reviving::Now);
    if reviving == Reviving::Later {
        // A revival is pausing. It need not wait any longer.
        return link.retry.notify_one();
    }
    let task = Rc::clone(link);
    link.spawn(async move { revive(&task).await });
}

/// Sets the state of the revival. leash sends nothing while the session is being opened.
fn set(link: &Link, reviving: Reviving) {
    let mut state = link.state.borrow_mut();
    state.reviving = reviving;
    match reviving {
        Reviving::Now => state.outbox.suspend(),
        Reviving::Later | Reviving::No => state.outbox.resume(),
    }
    drop(state);
    link.wake.notify_one();
}

/// Opens the session again. If that fails, leash sends the waiting lines anyway, so that they get a response. With
/// Streamable HTTP the next request tries again. The old transport gets messages only on its stream, so leash tries
/// until it works.
async fn revive(link: &Rc<Link>) {
    let mut back_off = BackOff::default();
    loop {
        let again = tokio::time::timeout(limits::INIT_TIMEOUT, reopen(link)).await.unwrap_or(Err(Trouble::Late));
        let trouble = match again {
            Ok(()) => {
                set(link, Reviving::No);
                return link.tell(Notice::Warning("upstream had lost the session; a new one was opened".to_owned()));
            }
            Err(trouble) => trouble,
        };
        link.complain(Complaint::Unreachable, || format!("the lost session cannot be opened again: {trouble}"));
        link.state.borrow_mut().exchanges.retain(|exchange| !exchange.is_silent());
        let is_closed = || link.state.borrow().mode == Mode::Old(None);
        if is_closed() {
            set(link, Reviving::Later);
            // A request that comes meanwhile ends the pause.
            let _ = tokio::time::timeout(back_off.next(), link.retry.notified()).await;
        }
        // The host may have opened a new session itself.
        if !is_closed() {
            return set(link, Reviving::No);
        }
        set(link, Reviving::Now);
    }
}

/// Opens the session again with the host's own messages. The host does not get the responses.
async fn reopen(link: &Rc<Link>) -> Result<(), Trouble> {
    let (initialize, initialized) = {
        let state = link.state.borrow();
        (state.initialize.clone(), state.initialized.clone())
    };
    let initialize = initialize.ok_or(Trouble::Nothing)?;
    silently(link, initialize).await?;
    if link.state.borrow().session.is_none() {
        return Err(Trouble::Nothing);
    }
    let Some(line) = initialized else { return Ok(()) };
    let parcel = Parcel { line, what: What::Initialized, asks: Vec::new(), ..blank() };
    silently(link, parcel).await?;
    if link.state.borrow().mode == Mode::Streamable {
        listen::begin(link);
    }
    Ok(())
}

/// Runs an exchange whose response the host does not get.
async fn silently(link: &Rc<Link>, parcel: Parcel) -> Result<(), Trouble> {
    let exchange = Exchange::silent(parcel, link.state.borrow().generation);
    link.state.borrow_mut().exchanges.push(Rc::clone(&exchange));
    let end = carry::carry(link, &exchange).await;
    link.forget(&exchange);
    match end {
        End::Settled => Ok(()),
        End::Failed(trouble) | End::Lost(trouble) => Err(trouble),
    }
}

/// A parcel of leash's own, without a number among the host's lines.
fn blank() -> Parcel {
    Parcel {
        number: u64::MAX,
        line: bytes::Bytes::new(),
        what: What::Notice,
        era: Era::Legacy,
        asks: Vec::new(),
        repeated: true,
    }
}
