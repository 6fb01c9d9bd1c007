//! `leash connect`: a stdio server towards the host, an HTTP client towards the upstream. Whatever ends the connection,
//! leash DELETEs the upstream session. If this process is killed, its keeper does it.
//!
//! A line of the host meets the modules in this order; each uses only modules further down:
//!
//! ```text
//! guard            holds the sessions of a program that speaks HTTP itself; needs no other module but the last row
//! run              the main loop: reads the host's lines, starts tasks, ends the connection
//! revive           opens a lost session again
//! send             sends a message and ends its exchange
//! initialize       begins a session; http_sse is the transport of 2024-11-05, listen the server's own stream
//! receive, post    a response to its end; a POST by either transport; get_stream requests a stream
//! connection       the shared state; its life.rs drives the machine, its host_line.rs fills the outbox
//! machine          the life of the connection, pure: what ends or changes is an event, what follows is an effect
//! outbox           the messages that wait, pure; exchange: a message that was sent
//! upstream_sessions  the ledger and the keeper; http, event_stream, response, message, pipe: the edges
//! ```

mod backoff;
mod connection;
mod event_stream;
mod exchange;
mod get_stream;
mod guard;
mod http;
mod http_sse;
mod initialize;
mod listen;
mod machine;
mod message;
mod notices;
mod outbox;
mod pipe;
mod post;
mod process_events;
mod receive;
mod response;
mod revive;
mod run;
mod send;
mod upstream_sessions;

use std::{collections::BTreeMap, io, time::Duration};

use thiserror::Error;

use leash_model::owner::{OwnerError, OwnerWish};
use leash_model::receipt::{Reason, Receipt};
use leash_tree::{ledger::book::BookError, places::Places};
use leash_upstream::{address::UpstreamServer, notice::Notice};

pub use guard::{GuardEnd, GuardReport, GuardSettings, guard};
pub use run::connect;

/// The settings of a connection.
pub struct ConnectSettings {
    /// The upstream's address and headers.
    pub upstream: UpstreamServer,
    /// The text that listings and receipts show instead of the address, if the address is a secret.
    pub shown: Option<String>,
    /// The upstream's transport.
    pub transport: TransportChoice,
    /// True if leash opens a session that the upstream has lost again, on the host's behalf.
    pub revive: bool,
    /// The owners. The connection ends when one of them is gone.
    pub owners: Vec<OwnerWish>,
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
pub enum TransportChoice {
    /// leash finds out, as the specification describes: it tries Streamable HTTP, and HTTP+SSE if that is refused.
    #[default]
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    HttpSse,
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
pub struct ConnectionEnd {
    /// The reason of the end.
    pub reason: Reason,
    /// The receipt with the fate of the upstream session. `None` if the upstream was never reached, or if the keeper
    /// will end the session.
    pub receipt: Option<Receipt>,
}
