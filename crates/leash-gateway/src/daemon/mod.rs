//! The control of a gateway: a socket in the runtime directory, an optional address with a token, and the lifetime of a
//! gateway that was started on demand.

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

/// The settings of the control API.
#[derive(Debug, Default)]
pub struct Control {
    /// The control socket.
    pub socket: ControlSocket,
    /// The control API at an address.
    pub listen: Option<ControlListen>,
    /// The process that started the gateway on demand. The gateway ends when its last session is gone and its starter
    /// is dead. It does not start if another gateway has the socket.
    pub on_demand: Option<Starter>,
}

/// The place of the control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ControlSocket {
    /// In the runtime directory. If it cannot be created there, or another gateway has it, leash warns and runs without
    /// one.
    #[default]
    Runtime,
    /// At this path, or the gateway does not start.
    At(PathBuf),
    /// There is no control socket.
    None,
}

/// The control API at an address. A caller can start any program, so the token is mandatory, even on loopback, which
/// other users of the machine can reach.
#[derive(Clone, Debug)]
pub struct ControlListen {
    /// The address to listen at. Port 0 means any free port.
    pub address: SocketAddr,
    /// The bearer token that callers must send.
    pub token: Secret,
}

/// The reason why there is no control socket.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Another gateway has it.
    #[error("another `leash serve`{} has the control socket `{}`", by(*pid), path.display())]
    Held {
        /// The socket.
        path: PathBuf,
        /// The other gateway's process id, if it is known.
        pid: Option<i32>,
    },
    /// The path is too long for a socket.
    #[error("`{}` is too long for a socket: {} bytes, and the kernel takes {}", .0.display(), .0.as_os_str().len(), limits::SOCKET_PATH)]
    TooLong(PathBuf),
    /// The runtime directory cannot be used.
    #[error(transparent)]
    Runtime(#[from] StoreError),
    /// Other users may write to the socket's directory, or it cannot be used.
    #[error("`{}` cannot hold a control socket: {why}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The problem with it.
        why: String,
    },
    /// A file that is not the socket of a dead gateway exists at the path.
    #[error("`{}` already exists, and it is {what}", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
        /// The kind of file.
        what: &'static str,
    },
    /// The socket could not be created.
    #[error("cannot create the control socket `{}`", path.display())]
    Make {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

fn by(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

#[cfg(test)]
mod tests;
