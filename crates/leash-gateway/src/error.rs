//! The reasons that a gateway cannot start.

use std::{io, net::SocketAddr, path::PathBuf};

use leash_model::limits;
use leash_tree::{ledger::book::BookError, ledger::store::StoreError};
use thiserror::Error;

/// The reason that a gateway could not start. Nothing was started.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// An address that other machines can reach needs a token.
    #[error("`{0}` can be reached by others, and no token is set")]
    Exposed(SocketAddr),
    /// The control API cannot be served.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The control API on TCP requires a token.
    #[error("the control API on `{0}` needs a token")]
    NoControlToken(SocketAddr),
    /// The book cannot be written.
    #[error(transparent)]
    Ledger(#[from] BookError),
    /// The runtime could not be created.
    #[error("cannot start")]
    Start(#[source] io::Error),
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
