//! `leash connect`: a stdio server towards the host, an HTTP client towards the upstream. Whatever ends the connection, the
//! upstream session is DELETEd; if this process is killed, by its keeper.
//!
//! The files, in the order a line meets them: `pipe` (the host's pipes), `parcel` (what it is), `outbox` (when it may go), `carry`
//! (going), `wire` (HTTP), `receive` (what comes back), with `exchange` for what is awaited and `link` for all that is shared.
//! `open`, `revive`, `listen` and `old` begin sessions and streams; `lease` and the keeper (`http/keeper`) see to their end; `run`
//! holds all of it together.

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

/// What a connection needs from the program around it.
pub struct Connecting {
    /// Where to.
    pub upstream: Upstream,
    /// What listings and receipts show in the place of the address, where that is a secret.
    pub shown: Option<String>,
    /// How the upstream speaks.
    pub speaks: Speaks,
    /// Whether a session that the upstream has lost is opened again on the host's behalf.
    pub revive: bool,
    /// What it lives for.
    pub owners: Vec<Wish>,
    /// The session it belongs to; else it is a session of its own.
    pub session: Option<String>,
    /// A name for listings; else the host of the URL.
    pub name: Option<String>,
    /// Labels for listings.
    pub labels: BTreeMap<String, String>,
    /// How long requests may be answered after the host closed stdin.
    pub grace: Duration,
    /// The longest it may live.
    pub max_age: Option<Duration>,
    /// Where things are kept.
    pub places: Places,
    /// Called for everything that people may want to know.
    pub tell: Box<dyn Fn(Notice)>,
}

/// How an upstream speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// To be found out, as the specification describes: Streamable HTTP, and if that is refused, HTTP+SSE.
    #[default]
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// Why a connection could not begin. Nothing was sent.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Nobody to live for.
    #[error(transparent)]
    Owner(OwnerError),
    /// The ledger can't be kept.
    #[error(transparent)]
    Ledger(BookError),
    /// Signals can't be listened to.
    #[error("cannot listen to signals")]
    Signals(#[source] rustix::io::Errno),
    /// The runtime could not be made, or stdin and stdout can't be used.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// How a connection ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Why.
    pub reason: Reason,
    /// What became of the upstream session; `None` when the upstream was never reached, or when the keeper goes on with it.
    pub receipt: Option<Receipt>,
}
