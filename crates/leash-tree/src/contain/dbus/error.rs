//! The errors of the connection to the user manager.

use std::fmt;

use rustix::io::Errno;
use thiserror::Error;

use super::address::BusAddress;
use super::wire::{MalformedMessage, Unsendable};

/// The reason why a call to the user manager failed.
#[derive(Debug, Error)]
pub(crate) enum BusError {
    /// The environment names no address.
    #[error("neither a session bus address nor a runtime directory is known")]
    NoAddress,
    /// No manager answers at any address that the environment names.
    #[error("no user manager answers: {0}")]
    NoAnswer(Attempts),
    /// No process listens on the socket, or we may not connect to it.
    #[error("cannot connect")]
    Connect(#[source] Errno),
    /// The socket belongs to another user.
    #[error("the bus belongs to uid {owner}, not to uid {us}")]
    OtherUser {
        /// The uid of the socket's owner.
        owner: u32,
        /// Our uid.
        us: u32,
    },
    /// The bus did not accept our uid.
    #[error("the bus refuses uid {uid}")]
    Rejected {
        /// Our uid.
        uid: u32,
    },
    /// The deadline has passed.
    #[error("the bus did not answer in time")]
    TimedOut,
    /// The other side closed the connection.
    #[error("the bus closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the bus connection failed")]
    Io(#[source] Errno),
    /// The other side sent bytes that are not D-Bus.
    #[error("the bus sent a malformed message")]
    Malformed(#[from] MalformedMessage),
    /// The arguments can't be encoded in a message.
    #[error("the call cannot be sent")]
    Unsendable(#[from] Unsendable),
    /// The other side answered the call with an error.
    #[error("`{method}` was refused with `{name}`: {text}")]
    Refused {
        /// The method.
        method: &'static str,
        /// The D-Bus name of the error.
        name: String,
        /// The other side's error text.
        text: String,
    },
    /// An earlier reply was missing or malformed, so we do not know which call the next bytes belong to.
    #[error("the bus connection broke earlier")]
    Broken,
}

impl BusError {
    /// True if the manager refused a new unit because it has one of this name.
    pub(crate) fn is_existing_unit(&self) -> bool {
        matches!(self, BusError::Refused { name, .. } if name == "org.freedesktop.systemd1.UnitExists")
    }
}

/// Every address that was tried, and its error.
#[derive(Debug)]
pub(crate) struct Attempts(pub(crate) Vec<(BusAddress, BusError)>);

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (address, error)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}`{address}`: {error}")?;
            // The list has many causes, and `source` can hold only one. So the text names them here.
            if let Some(cause) = std::error::Error::source(error) {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}
