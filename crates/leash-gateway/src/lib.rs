//! The gateway of `leash serve`.
//!
//! Everything here runs on one thread: state is borrowed for the length of a function and never across an `.await`, so no
//! lock is needed and nothing is ever seen half changed. The files, in the order a request meets them: `listen` (sockets),
//! `front` and `admission` (who may speak to whom), then `stdio` or `guard` (the server), with `session` and `gateway` holding what lives
//! longer than a request.

mod admission;
mod budget;
pub mod config;
mod connection;
mod control;
pub mod control_client;
mod daemon;
mod front;
mod gateway;
mod guard;
mod held;
mod keep_alive;
mod keeping;
mod listen;
mod metrics;
mod respond;
mod serve;
mod server;
mod session;
mod socket;
mod stdio;
mod sweep;
mod takeover;
mod timers;
mod watch_file;

pub use daemon::{Control, ControlError, ControlListen, ControlSocket, Starter};
pub use leash_upstream::notice::Notice;
pub use serve::{ServeError, Serving, Source, serve};
