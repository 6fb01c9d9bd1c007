//! A request that passed the front.

use std::{net::SocketAddr, rc::Rc};

use bytes::Bytes;
use hyper::{HeaderMap, Method};

use crate::budget::BudgetClient;
use crate::connection::{ClientConnection, Principal};

/// A request that may be served.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// The whole body; empty unless it is a POST.
    pub(crate) body: Bytes,
    pub(crate) principal: Principal,
    /// The other end of its connection.
    pub(crate) peer: SocketAddr,
    /// The client that it is counted for.
    pub(crate) client: BudgetClient,
    /// The connection, if the client itself, on this machine, is at its other end; the client may have closed it
    /// meanwhile.
    pub(crate) local: Option<Rc<ClientConnection>>,
}
