//! What can go wrong between us and the user manager.

use std::fmt;

use rustix::io::Errno;
use thiserror::Error;

use super::address::BusAddress;
use super::wire::{Malformed, Unsendable};

/// Why the user manager could not be asked, or what it answered instead.
#[derive(Debug, Error)]
pub(crate) enum BusError {
    /// The environment names no place to look at.
    #[error("neither a session bus address nor a runtime directory is known")]
    NoAddress,
    /// No place that the environment names has a manager.
    #[error("no user manager answers: {0}")]
    NoAnswer(Attempts),
    /// There is nobody at the socket, or we may not talk to it.
    #[error("cannot connect")]
    Connect(#[source] Errno),
    /// The socket belongs to another user.
    #[error("the bus belongs to uid {owner}, not to uid {us}")]
    Stranger {
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// The bus does not believe that we are who we are.
    #[error("the bus refuses uid {uid}")]
    Rejected {
        /// Who we are.
        uid: u32,
    },
    /// The time is over.
    #[error("the bus did not answer in time")]
    TimedOut,
    /// The other side hung up.
    #[error("the bus closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the bus connection failed")]
    Io(#[source] Errno),
    /// What came back is not D-Bus.
    #[error("the bus sent a malformed message")]
    Malformed(#[from] Malformed),
    /// The arguments can't be put into a message.
    #[error("the call cannot be sent")]
    Unsendable(#[from] Unsendable),
    /// The call arrived, and the answer is no.
    #[error("`{method}` was refused with `{name}`: {text}")]
    Refused {
        /// The method.
        method: &'static str,
        /// The D-Bus name of the error.
        name: String,
        /// What the other side says about it.
        text: String,
    },
    /// After an answer that did not come, or made no sense, it is not known what the next bytes belong to.
    #[error("the bus connection broke earlier")]
    Broken,
}

/// Every place that was tried, and why it was not good.
#[derive(Debug)]
pub(crate) struct Attempts(pub(crate) Vec<(BusAddress, BusError)>);

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (address, error)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}`{address}`: {error}")?;
            // The list has many causes and `source` has room for one: they are told here.
            if let Some(cause) = std::error::Error::source(error) {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}
