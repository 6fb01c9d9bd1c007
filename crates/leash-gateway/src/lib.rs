//! The gateway of `leash serve`.
//!
//! Everything here runs on one thread: a function borrows state and never holds it across an `.await`, so no lock is
//! needed and no task sees half-changed state. The files in the order in which they handle a request: `listen`
//! (sockets), `front` and `admission` (which client may use which server), then `stdio` or `guard` (the server), or
//! `page` (what is alive, for a browser).
//! `session` and `gateway` hold the state that lives longer than a request.

mod admission;
mod budget;
mod call;
pub mod config;
mod connection;
mod control;
pub mod control_client;
mod daemon;
mod error;
mod front;
mod guard;
mod keep_alive;
mod listen;
mod metrics;
mod metrics_page;
mod notified;
mod page;
mod respond;
mod response_memory;
mod serve;
mod socket;
mod state;
mod stdio;
mod sweep;
mod takeover;
mod timers;
mod watch_file;

pub use daemon::{ControlListen, ControlSettings, ControlSocket, Starter};
pub use error::{ControlError, ServeError};
pub use leash_upstream::notice::Notice;
pub use page::{PageEnd, PageReceipt, PageSource, PageTarget};
pub use serve::{ConfigSource, GatewayInputs, serve};
pub use state::gateway::ServerLog;
