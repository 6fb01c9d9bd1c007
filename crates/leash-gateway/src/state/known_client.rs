//! What is known of the client of a session, for listings and receipts. Nothing here decides anything.

use std::{cell::RefCell, net::SocketAddr, rc::Rc};

use bytes::Bytes;

use leash_model::client::GatewayClient;
use leash_protocol::envelope::client_info;
use leash_tree::ledger::book::Book;

/// The client of a session.
pub(crate) struct KnownClient {
    client: RefCell<GatewayClient>,
    /// The run under which `ps` lists it: that of a tree, or the session of an entry in the book.
    run: RefCell<Option<Rc<str>>>,
}

impl KnownClient {
    /// A client by its connection.
    pub(crate) fn at(address: Option<SocketAddr>) -> KnownClient {
        KnownClient {
            client: RefCell::new(GatewayClient { address, ..GatewayClient::default() }),
            run: RefCell::default(),
        }
    }

    /// A client that another gateway knew.
    pub(crate) fn resumed(client: Option<GatewayClient>) -> KnownClient {
        KnownClient { client: RefCell::new(client.unwrap_or_default()), run: RefCell::default() }
    }

    /// The client as it is known now.
    pub(crate) fn get(&self) -> GatewayClient {
        self.client.borrow().clone()
    }

    /// Takes the name from the client's `initialize`; does nothing for another message.
    pub(crate) fn introduced(&self, book: &Book, message: &Bytes) {
        if let Some((name, version)) = client_info(message) {
            self.client.borrow_mut().introduce(name.as_deref(), version.as_deref());
            self.write(book);
        }
    }

    /// Notes the client's process.
    pub(crate) fn found(&self, book: &Book, pid: i32) {
        if self.client.borrow_mut().pid.replace(pid) != Some(pid) {
            self.write(book);
        }
    }

    /// Lists it in the book, under a run.
    pub(crate) fn list(&self, book: &Book, run: &str) {
        *self.run.borrow_mut() = Some(run.into());
        // It is only shown: a full disk changes nothing else.
        let _ = book.client_came(run, &self.client.borrow());
    }

    /// Removes it from the book.
    pub(crate) fn unlist(&self, book: &Book) {
        if let Some(run) = self.run.take() {
            let _ = book.client_gone(&run);
        }
    }

    fn write(&self, book: &Book) {
        if let Some(run) = &*self.run.borrow() {
            let _ = book.client_changed(run, &self.client.borrow());
        }
    }
}
