//! The benches of `leash serve`: speed, memory and churn of sessions over HTTP, next to a bare bridge and to its peers.

mod builds;
mod churn;
mod client;
mod gateway;
mod load;
mod memory;
pub(crate) mod peers;
mod pipe;
mod reply;
pub(crate) mod roles;
mod speed;

use super::Bench;

pub(crate) use roles::play;

pub(super) const BENCHES: [Bench; 4] = [
    Bench { name: "http", peers: true, measure: speed::measure },
    Bench { name: "memory-http", peers: true, measure: memory::measure },
    Bench { name: "churn", peers: false, measure: churn::measure },
    Bench { name: "builds", peers: false, measure: builds::measure },
];
