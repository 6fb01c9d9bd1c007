//! Sessions over HTTP: the gateway of `leash serve` and the guard under `leash connect`.
//!
//! Everything here runs on one thread: a function borrows state and never holds it across an `.await`, so no lock is
//! needed and no task sees half-changed state. The files in the order in which they handle a request: `listen`
//! (sockets), `front` and `admission` (which client may use which server), then `stdio` or `guard` (the server).
//! `session` and `gateway` hold the state that lives longer than a request.

mod admission;
mod body;
mod budget;
pub mod connect;
mod connection;
mod control;
pub mod control_client;
mod daemon;
pub(crate) mod delete;
mod front;
mod gateway;
mod guard;
mod held;
mod keep_alive;
pub(crate) mod keeper;
mod keeping;
mod listen;
mod metrics;
mod mirror;
mod notice;
mod respond;
#[cfg(test)]
pub(crate) mod scripted;
mod serve;
mod server;
mod session;
mod socket;
mod stdio;
pub(crate) mod sweep;
mod takeover;
mod tide;
mod timers;
pub(crate) mod upstream;
mod watch_file;

pub use daemon::{Control, ControlError, ControlListen, ControlSocket, Starter};
pub use notice::Notice;
pub use serve::{ServeError, Serving, Source, serve};
