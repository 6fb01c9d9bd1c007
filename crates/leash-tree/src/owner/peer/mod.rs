//! Exact owners of local HTTP clients: from the two addresses of an accepted connection to the client's socket, from
//! the socket to the processes that hold it, from each process to its pidfd.
//!
//! ```text
//! accept ─ peer, local ─> sock_diag ─ inode, uid ─> holders ─ pidfds ─> watch ─ gone!
//!                         at once, 3 us             blocking thread     one descriptor a process
//! ```
//! If the owner can't be found exactly, the result is [`Holders::Unknown`] with the reason. Such a session has the idle
//! timer instead.

use std::net::SocketAddr;

pub mod hints;
pub mod holders;
#[cfg(feature = "tokio")]
mod reserve;
#[cfg(feature = "tokio")]
pub mod resolver;
pub mod sock_diag;
pub mod stand_in;
pub mod table;
#[cfg(feature = "tokio")]
pub mod watch;

pub use holders::{FoundPlace, Holders, SocketHolder, UnknownReason, holders};
pub use sock_diag::Lookup;

/// The client's socket, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerSocket {
    /// Its inode, as in `socket:[INODE]`. 0 if no process has it any more and the kernel only finishes the connection.
    pub inode: u64,
    /// The uid of the process that made it; without meaning when the inode is 0.
    pub uid: u32,
}

/// True if the client of an accepted connection is on this machine, so that leash can look for its process.
///
/// A client at a loopback address is local, and so is one that connected to a loopback address: no packet from outside
/// reaches it. A client whose address is the one it connected to is local too: for a connection to one of the machine's
/// own addresses the kernel takes that same address as the source, and no packet from outside may claim it. A local
/// client that connects to one of our addresses from *another* address of this machine counts as remote. That is the
/// safe side: its session has the idle timer.
pub fn is_local(peer: &SocketAddr, local: &SocketAddr) -> bool {
    let (peer, local) = (peer.ip().to_canonical(), local.ip().to_canonical());
    peer.is_loopback() || local.is_loopback() || peer == local
}

/// The two ends of a connection, as seen from the side whose socket is looked for. An IPv4-mapped IPv6 address is the
/// IPv4 address: a listener on `[::]` sees `::ffff:127.0.0.1`, while the client's own socket may be of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketEnds {
    from: SocketAddr,
    to: SocketAddr,
    /// The interface of a link-local address; 0 otherwise.
    scope: u32,
}

impl SocketEnds {
    /// The ends of the client's socket, by the addresses that the accepting side has.
    fn of_client(peer: SocketAddr, local: SocketAddr) -> SocketEnds {
        let scope = match (peer, local) {
            (SocketAddr::V6(peer), SocketAddr::V6(local)) => peer.scope_id().max(local.scope_id()),
            _ => 0,
        };
        // A new address has no scope and no flow label, so that equal ends compare equal.
        let plain = |addr: SocketAddr| SocketAddr::new(addr.ip().to_canonical(), addr.port());
        SocketEnds { from: plain(peer), to: plain(local), scope }
    }

    /// The ends of the accepted socket, which is our own.
    fn reversed(self) -> SocketEnds {
        SocketEnds { from: self.to, to: self.from, scope: self.scope }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_local(peer: &str, local: &str, expected: bool) {
        assert_eq!(is_local(&peer.parse().unwrap(), &local.parse().unwrap()), expected, "{peer} -> {local}");
    }

    #[test]
    fn loopback_is_local() {
        check_local("127.0.0.1:40000", "127.0.0.1:5327", true);
        check_local("127.8.9.10:40000", "127.0.0.1:5327", true);
        check_local("[::1]:40000", "[::1]:5327", true);
        check_local("[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:5327", true);
    }

    #[test]
    fn the_address_that_was_connected_to_is_local() {
        check_local("192.0.2.7:40000", "192.0.2.7:5327", true);
        check_local("[::ffff:192.0.2.7]:40000", "192.0.2.7:5327", true);
        check_local("[2001:db8::7]:40000", "[2001:db8::7]:5327", true);
    }

    #[test]
    fn client_at_another_address_is_remote() {
        check_local("192.0.2.8:40000", "192.0.2.7:5327", false);
        check_local("[2001:db8::8]:40000", "[2001:db8::7]:5327", false);
        check_local("[::ffff:192.0.2.8]:40000", "[::ffff:192.0.2.7]:5327", false);
    }
}
