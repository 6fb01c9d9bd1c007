//! How a gateway is controlled: a socket of its own in the runtime directory, an address with a token when asked for, and the
//! life of a gateway that was started on demand.

mod doors;
mod entry;
mod socket;
mod starter;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::config::Secret;
use leash_model::limits;
use leash_tree::ledger::store::StoreError;

pub(super) use doors::{Doors, Open};
pub use starter::Starter;
pub(super) use starter::alone;

/// How a gateway is controlled.
#[derive(Debug, Default)]
pub struct Control {
    /// Its socket.
    pub socket: ControlSocket,
    /// The same on an address.
    pub listen: Option<ControlListen>,
    /// It was started by somebody who needed one: it ends itself when its last session is gone and its starter is dead. If another
    /// one has the socket, it does not even begin.
    pub on_demand: Option<Starter>,
}

/// Where the control socket is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControlSocket {
    /// In the runtime directory. Where that can't be, or another gateway has it, there is none, and people are told.
    #[default]
    Runtime,
    /// At this path, or the gateway does not start.
    At(PathBuf),
    /// Nowhere.
    None,
}

/// The control API on an address. Whoever can reach it can start any program: there is no such thing without a token, not even
/// on loopback, where other users are.
#[derive(Clone, Debug)]
pub struct ControlListen {
    /// Where it listens; port 0 is any free one.
    pub address: SocketAddr,
    /// What callers must present as their bearer token.
    pub token: Secret,
}

/// Why there is no control socket.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Another gateway has it.
    #[error("another `leash serve`{} has the control socket `{}`", by(*pid), path.display())]
    Held {
        /// The socket.
        path: PathBuf,
        /// Its process, if that is known.
        pid: Option<i32>,
    },
    /// No socket can have such a path.
    #[error("`{}` is too long for a socket: {} bytes, and the kernel takes {}", .0.display(), .0.as_os_str().len(), limits::SOCKET_PATH)]
    TooLong(PathBuf),
    /// The runtime directory can't be used.
    #[error(transparent)]
    Runtime(#[from] StoreError),
    /// Its directory is not one for a socket that only we may use.
    #[error("`{}` is no place for a control socket: {why}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Something that is no socket of a dead gateway has its place.
    #[error("`{}` is there already, and it is {what}", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It could not be made.
    #[error("cannot make the control socket `{}`", path.display())]
    Make {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn by(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

#[cfg(test)]
mod tests;
