//! The interfaces through which the shared state reaches the two kinds of servers: programs (`stdio`) and HTTP servers (`guard`).

use std::{any::Any, future::Future, pin::Pin, rc::Rc};

use leash_model::receipt::{Reason, Receipt};
use leash_upstream::keeper::HeldSession;

use super::{gateway::Gateway, session::ClientSession};

/// The end of a holding, with its receipt if there is one.
pub(crate) type Release<'a> = Pin<Box<dyn Future<Output = Option<Receipt>> + 'a>>;

/// The resource that a session holds: a process tree, or a session at an HTTP server.
pub(crate) trait SessionHolding: Any {
    /// Releases it. The future ends when it is gone, or is known to be left.
    fn release<'a>(&'a self, gateway: &'a Rc<Gateway>, session: &'a ClientSession, reason: Reason) -> Release<'a>;

    /// The facts with which the gateway's keeper can end it. `None` if the keeper has nothing to do for it.
    fn held_session(&self, session: &ClientSession) -> Option<HeldSession>;
}

/// Trees of a server that belong to no session.
pub(crate) trait SharedTrees: Any {
    /// Begins the end of all of them; returns their number.
    fn end_all(&self, reason: &Reason) -> usize;
}
