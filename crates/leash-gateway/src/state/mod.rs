//! The state that outlives a request: the gateway, its servers, and the client sessions at them.
//!
//! The three hold each other (a session is in its server's table, a server is in the gateway's), so they are one module. They reach
//! the servers themselves only through the traits in `backend`.

pub(crate) mod account;
pub(crate) mod backend;
pub(crate) mod gateway;
pub(crate) mod keeper_link;
pub(crate) mod known_client;
pub(crate) mod problems;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod stop;
pub(crate) mod stoppable;
#[cfg(test)]
mod tests;
