//! The notices of a gateway to its user. The library itself prints nothing.

use std::{net::SocketAddr, path::PathBuf};

use leash_model::client::GatewayClient;
use leash_model::receipt::{Reason, Receipt};

/// A notice of one line.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The gateway listens at this address.
    Listening(SocketAddr),
    /// The gateway serves this server.
    Serves {
        /// The server's name.
        server: String,
        /// The address for its clients.
        url: String,
    },
    /// The control API is at this socket.
    ControlSocket(PathBuf),
    /// The control API is at this address.
    ControlListening(SocketAddr),
    /// This many sessions of a killed gateway go on in this one.
    TakenOver(usize),
    /// leash ended a session that a dead gateway had left.
    Swept(Box<Receipt>),
    /// A session began.
    Opened {
        /// leash's own id for it.
        session: String,
        /// The server's name.
        server: String,
        /// Its client.
        client: Option<GatewayClient>,
    },
    /// A session is ending.
    Ending {
        /// leash's own id for it.
        session: String,
        /// The server's name.
        server: String,
        /// Its client.
        client: Option<GatewayClient>,
        /// The reason.
        why: Reason,
    },
    /// Tells the keeper that a session is over.
    Ended(Box<Receipt>),
    /// leash has read the configuration again.
    Reloaded {
        /// Servers that are new or different.
        changed: Vec<String>,
        /// Servers that were removed.
        removed: Vec<String>,
    },
    /// The gateway stops and ends this many sessions.
    Draining(usize),
    /// Something failed, and leash goes on.
    Warning(String),
}
