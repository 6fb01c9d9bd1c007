//! Where the client of a session is.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The part of a client's identity that it cannot choose itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A user of this machine.
    User(u32),
    /// An address; for IPv6 the /64 network, because its owner can use all addresses in it.
    Address(IpAddr),
}

impl Origin {
    /// The user of a local client, or the address of a remote one.
    pub fn of(uid: Option<u32>, peer: IpAddr) -> Origin {
        match (uid, peer.to_canonical()) {
            (Some(uid), _) => Origin::User(uid),
            (None, IpAddr::V6(address)) if !address.is_loopback() => {
                Origin::Address(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into())
            }
            (None, address) => Origin::Address(address),
        }
    }
}
