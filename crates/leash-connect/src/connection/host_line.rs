//! The lines of the host: leash queues a line for the upstream, or answers it itself.

use super::{Connection, Traffic};
use crate::message::{HostMessage, MessageKind};
use crate::notices::Warning;
use leash_model::limits;
use leash_protocol::envelope::{IdKey, codes, error_body};
use leash_protocol::{era::Era, frame::Line};

impl Connection {
    /// Queues a line of the host. Returns a response if leash answers the line itself.
    pub(crate) fn queue_line(&self, line: Line) -> Option<Vec<u8>> {
        let line = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => return None,
            Line::Whole(line) => line,
            Line::TooLong { length } => {
                let text = format!("a line of {length} bytes was not sent: the limit is {} bytes", limits::LINE);
                self.notices.warn(&text);
                return Some(error_body(None, codes::INVALID_REQUEST, &text, None));
            }
        };
        let mut traffic = self.traffic.borrow_mut();
        let number = traffic.lines;
        traffic.lines += 1;
        let message = match HostMessage::read(number, line) {
            Ok(message) => message,
            Err(fault) => {
                self.notices.warn_once(Warning::NotJson, || {
                    "the host wrote a line that is not JSON; leash did not send it".to_owned()
                });
                return Some(error_body(None, fault.code(), &format!("Parse error: {fault}"), None));
            }
        };
        match &message.kind {
            MessageKind::Cancel(key) if self.cancel(&mut traffic, key) => None,
            MessageKind::Subscription if traffic.outbox.has_all_subscriptions() => {
                let id = message.requests.first().map(|request| &*request.id);
                Some(error_body(id, codes::SERVER, "too many subscriptions are open; cancel one", None))
            }
            MessageKind::Request if let Some(refused) = refusal(&traffic, &message) => Some(refused),
            _ => {
                traffic.outbox.push(message);
                None
            }
        }
    }

    /// Cancels a request. Returns true if the upstream needs no notification: the request was not sent yet, or it is a
    /// modern request, which ends with its connection.
    fn cancel(&self, traffic: &mut Traffic, key: &IdKey) -> bool {
        if traffic.outbox.withdraw(key) {
            return true;
        }
        let found = traffic.exchanges.iter().find(|exchange| exchange.awaits(key));
        match found {
            Some(exchange) if exchange.message.era == Era::Modern => {
                exchange.drop_now();
                true
            }
            Some(exchange) => {
                exchange.cancel();
                // The host no longer waits for it. Servers that never answer cancelled requests must not use up the
                // limit.
                if !exchange.is_initialize() && exchange.stop_counting() {
                    traffic.outbox.done(exchange.message.number, &exchange.message.kind);
                }
                false
            }
            // The request was answered meanwhile. A modern upstream does not need the notification.
            None => self.life().session().is_none() && traffic.modern_version.is_some(),
        }
    }
}

/// Returns the error for a modern call that leash must not make. HTTP clients must not call tools with an invalid
/// `x-mcp-header`, and a host that speaks over a pipe need not know that.
fn refusal(traffic: &Traffic, message: &HostMessage) -> Option<Vec<u8>> {
    let request = message.requests.first().filter(|_| message.era == Era::Modern)?;
    let tool = traffic.header_copies.invalid_tool(&message.line)?;
    let text = format!("`{tool}` can't be called over HTTP: an `x-mcp-header` in its schema is not valid");
    Some(error_body(Some(&request.id), codes::INVALID_PARAMS, &text, None))
}
