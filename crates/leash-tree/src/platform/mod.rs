//! Linux as leash sees it: /proc, pidfds, signals, files and descriptors. Another system would have another one of these.

pub mod activity;
pub mod channel;
pub mod command;
pub mod descriptors;
pub mod identity;
pub mod launcher;
pub mod linux;
pub mod mappings;
pub mod poll;
pub mod pressure;
pub mod private_file;
pub mod proc;
pub mod resolve;
pub mod spawn;
