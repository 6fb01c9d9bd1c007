//! The control of a gateway: a socket in the runtime directory, an optional address with a token, and the lifetime of a
//! gateway that was started on demand.

mod caller;
mod listeners;
mod socket;
mod starter;

use std::{net::SocketAddr, path::PathBuf};

use crate::config::Secret;

pub(super) use listeners::{ControlListeners, RunningListeners};
pub use starter::Starter;
pub(super) use starter::unused;

/// The settings of the control API.
#[derive(Debug, Default)]
pub struct ControlSettings {
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

#[cfg(test)]
mod tests;
