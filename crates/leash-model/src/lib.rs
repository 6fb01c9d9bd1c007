//! The vocabulary of leash: what its crates say to each other, as values. Nothing here touches a process, a socket or a file.

pub mod alive;
pub mod book;
pub mod client;
pub mod client_session;
pub mod clock;
pub mod containment;
pub mod delete;
pub mod duration;
pub mod error;
pub mod escape;
pub mod event;
pub mod feed;
pub mod id;
pub mod identity;
pub mod launch;
pub mod limits;
pub mod owner;
pub mod pressure;
pub mod receipt;
pub mod record;
pub mod start_failure;
pub mod status;
pub mod stderr;
pub mod view;
