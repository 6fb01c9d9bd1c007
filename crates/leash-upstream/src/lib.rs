//! Sessions at HTTP servers, held and ended: what `leash serve` and `leash connect` share.
//!
//! [`client`] speaks HTTP and TLS; [`delete`] sends DELETE until the server gives a final answer; [`keeper`] is the
//! process that ends open sessions when the gateway or the connection was killed; [`sweep`] does the same at the next
//! start, from the book on disk; [`lost`] decides whether a server has lost a session.

pub mod address;
pub mod body;
pub mod client;
pub mod deadline;
pub mod delete;
pub mod heap;
pub mod keeper;
pub mod lost;
pub mod notice;
pub mod origin;
pub mod runtime;
#[cfg(any(test, feature = "testing"))]
pub mod scripted;
pub mod sweep;
