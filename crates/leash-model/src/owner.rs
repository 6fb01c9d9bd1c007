//! Owners: what a session lives for, as values.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::Cause;

/// An owner as the user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerWish {
    /// The parent process.
    Parent,
    /// The nearest ancestor that is not a wrapper (`sh -c`, `npx`, `env`...): the host itself.
    Ancestor,
    /// The other end of stdin.
    Stdin,
    /// The controlling terminal.
    Terminal,
    /// Any process.
    Pid(i32),
}

impl OwnerWish {
    /// The owners that are watched by default.
    pub const DEFAULT: [OwnerWish; 4] = [OwnerWish::Parent, OwnerWish::Ancestor, OwnerWish::Stdin, OwnerWish::Terminal];
}

/// The role of an owning process in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The parent of `leash run` or `leash connect`.
    Parent,
    /// The nearest ancestor that is not a wrapper.
    Ancestor,
    /// A process that was named by its pid.
    Pid,
    /// A local client of the gateway.
    Client,
    /// The owner of a session of the control API.
    Owner,
}

impl Role {
    /// The word in listings and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Role::Parent => "parent",
            Role::Ancestor => "ancestor",
            Role::Pid => "pid",
            Role::Client => "client",
            Role::Owner => "owner",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An owner that was found, as the ledger and `ps` show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Owner {
    /// A process.
    Process {
        /// Its role in the session.
        role: Role,
        /// Its pid.
        pid: i32,
        /// Its short name, for people.
        name: String,
    },
    /// The other end of stdin.
    Stdin,
    /// The controlling terminal.
    Terminal,
    /// A `Tree` in a program that uses the library.
    Handle,
}

impl Owner {
    /// For a listing.
    pub fn describe(&self) -> String {
        match self {
            Owner::Process { pid, name, .. } => format!("{name}({pid})"),
            Owner::Stdin => "stdin".to_owned(),
            Owner::Terminal => "tty".to_owned(),
            Owner::Handle => "handle".to_owned(),
        }
    }
}

/// The reason why owners could not be found.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OwnerError {
    /// There is no such process.
    #[error("owner `pid:{pid}` does not exist")]
    NoSuchProcess {
        /// Its pid.
        pid: i32,
    },
    /// The parent died before leash could watch it.
    #[error("the parent process {pid} is already gone")]
    ParentGone {
        /// Its pid.
        pid: i32,
    },
    /// The user asked for a terminal, but there is none.
    #[error("there is no controlling terminal to watch")]
    NoTerminal,
    /// An owner could not be watched.
    #[error("cannot watch {what}: {cause}")]
    Watch {
        /// The owner.
        what: String,
        /// The cause.
        cause: Cause,
    },
}

impl OwnerError {
    /// The one thing to do about it, if the user can do anything.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            OwnerError::NoSuchProcess { .. } => {
                Some("--owner pid:N names a process that must be alive when leash starts")
            }
            OwnerError::NoTerminal => Some("--owner tty needs a terminal; leave it out to be owned by the parent"),
            OwnerError::ParentGone { .. } | OwnerError::Watch { .. } => None,
        }
    }
}
