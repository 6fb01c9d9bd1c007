//! What a gateway has to tell people while it runs. The library prints nothing.

use std::net::SocketAddr;
use std::path::PathBuf;

use leash_model::receipt::{Reason, Receipt};

/// Something worth a line.
#[derive(Clone, Debug)]
pub enum Notice {
    /// It listens.
    Listening(SocketAddr),
    /// It can be controlled through this socket.
    ControlSocket(PathBuf),
    /// It can be controlled at this address.
    ControlListening(SocketAddr),
    /// So many sessions of a killed gateway go on here.
    TakenOver(usize),
    /// What a dead gateway had left was ended.
    Swept(Box<Receipt>),
    /// A session began.
    Opened {
        /// leash's own id of it.
        session: String,
        /// The server.
        server: String,
    },
    /// A session is ending.
    Ending {
        /// leash's own id of it.
        session: String,
        /// The server.
        server: String,
        /// Why.
        why: Reason,
    },
    /// A session is over, and what became of it.
    Ended(Box<Receipt>),
    /// The configuration was read again.
    Reloaded {
        /// Servers that are new or different.
        changed: Vec<String>,
        /// Servers that are gone.
        removed: Vec<String>,
    },
    /// It stops: so many sessions are being ended.
    Draining(usize),
    /// Something is not as it should be, and leash goes on.
    Warning(String),
}
