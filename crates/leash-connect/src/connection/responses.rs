//! The messages of the upstream: leash finds the requests that they answer.

use std::rc::Rc;

use super::Connection;
use crate::{exchange::Exchange, machine::Event, notices::Warning};
use leash_protocol::envelope::{Envelope, EnvelopeKind, IdKey, Message};

impl Connection {
    /// Finds the exchange that a response belongs to: the one in whose stream it came, or else any.
    fn exchange_of(&self, own: Option<&Rc<Exchange>>, key: &IdKey) -> Option<Rc<Exchange>> {
        let own = own.filter(|exchange| exchange.awaits(key)).cloned();
        own.or_else(|| self.traffic.borrow().exchanges.iter().find(|exchange| exchange.awaits(key)).cloned())
    }

    /// Records the facts that must be known before the host gets a message. Returns true if the host does not get it.
    pub(crate) fn before_passing(self: &Rc<Self>, own: Option<&Rc<Exchange>>, message: &Message<'_>) -> bool {
        let Message::One(envelope) = message else { return false };
        let key = envelope.key().filter(|_| envelope.kind == EnvelopeKind::Response);
        let Some(exchange) = key.and_then(|key| self.exchange_of(own, &key)) else { return false };
        if exchange.is_initialize() {
            self.handshake_answered(&exchange, envelope);
        }
        exchange.silent
    }

    fn handshake_answered(self: &Rc<Self>, exchange: &Exchange, answer: &Envelope<'_>) {
        if answer.result.is_none() {
            return self.apply(Event::HandshakeRefused);
        }
        let version = answer.result_protocol_version().map(|version| version.into_owned());
        if !exchange.silent {
            let mut traffic = self.traffic.borrow_mut();
            traffic.initialize = Some(exchange.message.clone());
            traffic.initialized = None;
        }
        self.apply(Event::HandshakeAnswered { by_host: !exchange.silent, version });
    }

    /// Records the requests that a message answers.
    pub(crate) fn after_passing(&self, own: Option<&Rc<Exchange>>, message: &Message<'_>) {
        for envelope in message.envelopes().iter().filter(|envelope| envelope.kind == EnvelopeKind::Response) {
            let Some(key) = envelope.key() else { continue };
            let Some(exchange) = self.exchange_of(own, &key) else { continue };
            let Some(request) = exchange.answer(&key) else { continue };
            if request.lists_tools {
                self.learn_header_copies(envelope);
            }
            if exchange.is_answered() {
                self.done(&exchange);
            }
        }
    }

    fn learn_header_copies(&self, tools: &Envelope<'_>) {
        let invalid = self.traffic.borrow_mut().header_copies.learn(tools);
        if invalid > 0 {
            self.notices.warn_once(Warning::HeaderCopies, || {
                format!(
                    "the upstream server lists {invalid} arguments with an `x-mcp-header` that is not valid; leash does not call their tools"
                )
            });
        }
    }
}
