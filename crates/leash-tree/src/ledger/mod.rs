//! The ledger: the durable, per-host record of live sessions, and the receipts of ended ones. No daemon keeps it.

pub mod book;
pub mod receipts;
pub mod store;
