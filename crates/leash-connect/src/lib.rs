//! `leash connect`: a stdio server towards the host, an HTTP client towards the upstream. Whatever ends the connection,
//! leash DELETEs the upstream session. If this process is killed, its keeper does it.
//!
//! The files, in the order in which a line of the host meets them: `pipe` (the host's pipes), `parcel` (the kind of
//! line), `outbox` (the send queue), `carry` (sending), `wire` (HTTP), `receive` (responses). `exchange` holds the
//! unanswered requests of a line, `link` the shared state. `open`, `revive`, `listen` and `old` begin sessions and
//! streams, `lease` and the keeper (`http/keeper`) end them. `run` is the main loop.

mod backoff;
mod carry;
mod exchange;
mod feed;
mod headers;
mod lease;
mod link;
mod listen;
mod old;
mod open;
mod outbox;
mod parcel;
mod pipe;
mod receive;
mod reply;
mod revive;
mod run;
mod watchtower;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use thiserror::Error;

use leash_model::owner::Wish;
use leash_model::receipt::{Reason, Receipt};
use leash_tree::ledger::book::BookError;
use leash_tree::owner::OwnerError;
use leash_tree::places::Places;
use leash_upstream::address::Upstream;
use leash_upstream::notice::Notice;

pub use run::connect;

/// The settings of a connection.
pub struct Connecting {
    /// The upstream's address and headers.
    pub upstream: Upstream,
    /// The text that listings and receipts show instead of the address, if the address is a secret.
    pub shown: Option<String>,
    /// The upstream's transport.
    pub speaks: Speaks,
    /// True if leash opens a session that the upstream has lost again, on the host's behalf.
    pub revive: bool,
    /// The owners. The connection ends when one of them is gone.
    pub owners: Vec<Wish>,
    /// The session to which the connection belongs. `None`: a session of its own.
    pub session: Option<String>,
    /// The name in listings. `None`: the host of the URL.
    pub name: Option<String>,
    /// Labels for listings.
    pub labels: BTreeMap<String, String>,
    /// The time for responses after the host closed stdin.
    pub grace: Duration,
    /// The longest time that the connection may live.
    pub max_age: Option<Duration>,
    /// The directories for the ledger and the receipts.
    pub places: Places,
    /// Called with each notice for the user.
    pub tell: Box<dyn Fn(Notice)>,
}

/// The transport of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// leash finds out, as the specification describes: it tries Streamable HTTP, and HTTP+SSE if that is refused.
    #[default]
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// The errors that keep a connection from beginning. leash has sent nothing.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// An owner cannot be watched or does not exist.
    #[error(transparent)]
    Owner(OwnerError),
    /// The ledger cannot be created.
    #[error(transparent)]
    Ledger(BookError),
    /// Signals cannot be received.
    #[error("cannot listen to signals")]
    Signals(#[source] rustix::io::Errno),
    /// The runtime could not be created, or stdin or stdout cannot be used.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// The end of a connection.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The reason of the end.
    pub reason: Reason,
    /// The receipt with the fate of the upstream session. `None` if the upstream was never reached, or if the keeper
    /// will end the session.
    pub receipt: Option<Receipt>,
}
