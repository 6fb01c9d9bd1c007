//! The ledger: the durable, per-host record of live sessions, and the receipts of ended ones. No daemon keeps it.

#[cfg(feature = "http")]
pub mod book;
pub(crate) mod private_file;
pub mod receipt;
pub mod record;
pub mod store;
pub mod sweep;
