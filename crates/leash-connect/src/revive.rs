//! Opens a session again that the upstream has lost.
//!
//! `leash serve` decides by the same rules whether a session is lost ([`leash_upstream::lost`]), but opens it in
//! another way: there each waiting request sends itself again. Here the machine keeps the order of the host's messages,
//! and HTTP+SSE, which the gateway does not open again, needs pauses between tries.

use std::rc::Rc;

use bytes::Bytes;

use crate::backoff::BackOff;
use crate::connection::Connection;
use crate::exchange::ExchangeOutcome;
use crate::machine::{Event, State, UpstreamTransport};
use crate::message::{HostMessage, MessageKind};
use crate::notices::Warning;
use crate::response::RequestFailure;
use crate::{listen, send};
use leash_model::limits;
use leash_protocol::era::Era;

/// Opens the session again. If that fails, leash sends the waiting messages anyway, so that they get a response. With
/// Streamable HTTP the next request tries again. HTTP+SSE gets messages only on its stream, so leash tries until it
/// works.
pub(crate) async fn revive(connection: Rc<Connection>) {
    let mut back_off = BackOff::default();
    loop {
        let again = tokio::time::timeout(limits::INIT_TIMEOUT, reopen(&connection)).await;
        match again.unwrap_or(Err(RequestFailure::InitializeTimeout)) {
            Ok(()) => {
                connection.apply(Event::Revived);
                if connection.is(&State::Live) {
                    connection.notices.warn("the upstream server had lost the session; a new one was opened");
                }
            }
            Err(failure) => {
                let text = || format!("the lost session cannot be opened again: {failure}");
                connection.notices.warn_once(Warning::Unreachable, text);
                connection.traffic.borrow_mut().exchanges.retain(|exchange| !exchange.silent);
                connection.apply(Event::RevivalFailed);
            }
        }
        if connection.is(&State::Paused) {
            // A message that needs the session ends the pause.
            let _ = tokio::time::timeout(back_off.next(), connection.end_pause.notified()).await;
            connection.apply(Event::PauseOver);
        }
        if !connection.is(&State::Reviving) {
            return;
        }
    }
}

/// Opens the session again with the host's own messages. The host does not get the responses.
async fn reopen(connection: &Rc<Connection>) -> Result<(), RequestFailure> {
    let (initialize, initialized) = {
        let traffic = connection.traffic.borrow();
        (traffic.initialize.clone(), traffic.initialized.clone())
    };
    let initialize = initialize.ok_or(RequestFailure::NotAnswered)?;
    send_silently(connection, initialize).await?;
    if connection.life().session().is_none() {
        return Err(RequestFailure::NotAnswered);
    }
    let Some(line) = initialized else { return Ok(()) };
    send_silently(connection, notification(line)).await?;
    let is_streamable = matches!(connection.life().transport(), UpstreamTransport::Streamable(_));
    if is_streamable {
        listen::begin(connection);
    }
    Ok(())
}

/// Runs an exchange whose response the host does not get.
async fn send_silently(connection: &Rc<Connection>, message: HostMessage) -> Result<(), RequestFailure> {
    let exchange = connection.silent_exchange(message);
    let outcome = send::run(connection, &exchange).await;
    connection.forget(&exchange);
    match outcome {
        ExchangeOutcome::Done => Ok(()),
        ExchangeOutcome::Failed(failure) | ExchangeOutcome::SessionLost(failure) => Err(failure),
    }
}

/// The host's `notifications/initialized` as a message of leash, without a number among the host's lines.
fn notification(line: Bytes) -> HostMessage {
    let (kind, requests) = (MessageKind::Initialized, Vec::new());
    HostMessage { number: u64::MAX, line, kind, era: Era::Legacy, requests, repeated: true }
}
