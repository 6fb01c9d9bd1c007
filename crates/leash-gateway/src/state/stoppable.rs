//! The servers whose trees may be stopped when memory is short.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use tokio::sync::Notify;

use super::server::Server;
use crate::notified::wait_until;

/// The servers with `pressureStop` that have, or had, a tree.
#[derive(Default)]
pub(crate) struct StoppableServers {
    servers: RefCell<Vec<Weak<Server>>>,
    added: Notify,
}

impl StoppableServers {
    /// Adds a server if its trees may be stopped.
    pub(crate) fn add(&self, server: &Rc<Server>) {
        let is_known = |known: &Weak<Server>| std::ptr::eq(known.as_ptr(), Rc::as_ptr(server));
        if server.settings().policy.pressure_stop.is_some() && !self.servers.borrow().iter().any(is_known) {
            self.servers.borrow_mut().push(Rc::downgrade(server));
            self.added.notify_waiters();
        }
    }

    /// The servers that have trees now; forgets the others.
    pub(crate) fn with_trees(&self) -> Vec<Rc<Server>> {
        let mut servers = self.servers.borrow_mut();
        let may_stop = |server: &Server| server.settings().policy.pressure_stop.is_some() && !server.trees().is_empty();
        servers.retain(|server| server.upgrade().is_some_and(|server| may_stop(&server)));
        servers.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns when there is a server.
    pub(crate) async fn some(&self) {
        wait_until(&self.added, || !self.servers.borrow().is_empty()).await;
    }
}
