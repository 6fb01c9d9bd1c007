//! The configuration of a gateway: text in, [`Settings`] out, or every mistake at once with its place and a hint.
//!
//! The shape is the one every MCP client has, `{"mcpServers": {NAME: {...}}}`, plus a `leash` object per server and at top level;
//! docs/reference/config.md names every key. Nothing here reads a file or the environment: the caller passes both in.

mod mistake;
mod settings;
mod single;
mod upstream;

pub use mistake::{Mistake, Mistakes};
pub use settings::{
    CommandLine, Origin, OwnerPolicy, PORT, Policy, Secret, Server, Settings, Target, Transport, Upstream,
};
pub use single::single;
pub use upstream::{UpstreamError, upstream};
