//! Finds the client's socket by its exact addresses, with one request to the kernel (`NETLINK_SOCK_DIAG`).
//!
//! The kernel answers within the call that asks, so this code never waits. If netlink is refused (seccomp, gVisor) or
//! gives no certain answer (the module `tcp_diag` is missing), the tables in /proc are read instead.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{PeerSocket, SocketEnds, table};

/// From linux/netlink.h and linux/sock_diag.h.
pub const NLMSG_ERROR: u16 = 2;
/// A request for sockets, from linux/sock_diag.h.
pub const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The flag of every request, from linux/netlink.h.
pub const NLM_F_REQUEST: u16 = 1;
/// Bytes of a netlink header.
pub const HEADER: usize = 16;

const NOT_FOUND: i64 = libc::ENOENT as i64;

/// `struct inet_diag_req_v2` and `struct inet_diag_msg` of linux/inet_diag.h.
const REQUEST: usize = HEADER + 56;
const ANSWER: usize = 72;

/// From linux/tcp_states.h. If there is no connection, the kernel answers with the listener of the port, which is not
/// the client.
const TCP_LISTEN: u8 = 10;

/// `lo` has this number in every network namespace. A local connection comes in through it, and the kernel compares the
/// number only with sockets that are bound to an interface.
const LOOPBACK: u32 = 1;

/// The answer of netlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetlinkAnswer {
    /// This socket.
    Found(PeerSocket),
    /// There is no such socket, and netlink is known to work.
    Absent,
    /// The answer is not reliable, so the tables must be read.
    NoAnswer,
}

/// Finds clients' sockets. For one thread only: it has one netlink socket.
#[derive(Debug)]
pub struct Lookup {
    /// `None` if the kernel or a sandbox refuses netlink.
    netlink: Option<OwnedFd>,
    sequence: Cell<u32>,
    /// Netlink has found a TCP socket before, so "no such socket" is a reliable answer.
    proved: Cell<bool>,
}

impl Lookup {
    /// Opens a netlink socket. If that fails, the tables in /proc are read instead.
    pub fn open() -> Lookup {
        Lookup { netlink: connect().ok(), sequence: Cell::new(0), proved: Cell::new(false) }
    }

    /// The client's socket of an accepted connection. `None` if no such socket exists on this machine (any more).
    ///
    /// Netlink takes 3 us. The tables take 3 us for each connection of the machine. Only reading them can fail.
    pub fn socket(&self, peer: SocketAddr, local: SocketAddr) -> Result<Option<PeerSocket>, io::Error> {
        let ends = SocketEnds::of_client(peer, local);
        match self.ask(ends) {
            NetlinkAnswer::Found(socket) => Ok(Some(socket)),
            NetlinkAnswer::Absent => Ok(None),
            NetlinkAnswer::NoAnswer => table::find(ends),
        }
    }

    /// True if the accepted socket of a connection is still connected, or if the kernel does not say.
    pub fn has_own_end(&self, peer: SocketAddr, local: SocketAddr) -> bool {
        let own = SocketEnds::of_client(peer, local).reversed();
        match self.exact(own) {
            Ok(found) => found.is_some(),
            Err(_) => table::find(own).map_or(true, |found| found.is_some()),
        }
    }

    /// Asks netlink only.
    pub(super) fn ask(&self, ends: SocketEnds) -> NetlinkAnswer {
        match self.exact(ends) {
            Ok(Some(socket)) => {
                self.proved.set(true);
                NetlinkAnswer::Found(socket)
            }
            Ok(None) if self.proves_itself(ends) => NetlinkAnswer::Absent,
            Ok(None) | Err(_) => NetlinkAnswer::NoAnswer,
        }
    }

    /// True if netlink is known to find sockets. The kernel also answers "no such socket" if it lacks the module, so
    /// this asks for our own end of the same connection, which does exist.
    fn proves_itself(&self, ends: SocketEnds) -> bool {
        if !self.proved.get() {
            self.proved.set(matches!(self.exact(ends.reversed()), Ok(Some(_))));
        }
        self.proved.get()
    }

    fn exact(&self, ends: SocketEnds) -> Result<Option<PeerSocket>, Errno> {
        let netlink = self.netlink.as_ref().ok_or(Errno::PROTONOSUPPORT)?;
        let Some(request) = request(ends, self.next_sequence()) else { return Ok(None) };
        rustix::net::send(netlink, &request, SendFlags::empty())?;
        let mut buffer = [0; 1024];
        loop {
            // The answer is already there; DONTWAIT is for an emulated kernel that does not answer in time.
            let (got, _) = rustix::net::recv(netlink, &mut buffer, RecvFlags::DONTWAIT)?;
            let message = NetlinkMessage::parse(&buffer[..got]).ok_or(Errno::BADMSG)?;
            // Skip an answer to an earlier request that failed half-way.
            if message.sequence == self.sequence.get() {
                return message.socket(ends);
            }
        }
    }

    fn next_sequence(&self) -> u32 {
        let next = self.sequence.get().wrapping_add(1);
        self.sequence.set(next);
        next
    }
}

/// Opens a netlink socket for requests about sockets.
pub fn connect() -> Result<OwnedFd, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(SOCK_DIAG),
    )?;
    // A socket connected to the kernel takes messages from no other process.
    rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

/// The beginning of a request: struct nlmsghdr with length, type, flags, sequence and port.
pub fn header(length: usize, flags: u16, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes
}

/// The request, or `None` for two addresses of different families, which no connection has.
fn request(ends: SocketEnds, sequence: u32) -> Option<[u8; REQUEST]> {
    let family = match (ends.from, ends.to) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => AddressFamily::INET,
        (SocketAddr::V6(_), SocketAddr::V6(_)) => AddressFamily::INET6,
        _ => return None,
    };
    let mut bytes = header(REQUEST, NLM_F_REQUEST, sequence);
    // Family, protocol, no extensions, padding, all states.
    bytes.extend([family.as_raw() as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    // struct inet_diag_sockid: ports and addresses in network order, interface, no cookie.
    bytes.extend(ends.from.port().to_be_bytes());
    bytes.extend(ends.to.port().to_be_bytes());
    bytes.extend(octets(ends.from.ip()));
    bytes.extend(octets(ends.to.ip()));
    let device = if ends.scope == 0 { LOOPBACK } else { ends.scope };
    bytes.extend(device.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes.try_into().ok()
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
    }
}

/// One message of netlink.
struct NetlinkMessage<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

impl NetlinkMessage<'_> {
    fn parse(bytes: &[u8]) -> Option<NetlinkMessage<'_>> {
        let kind = u16::from_ne_bytes(field(bytes, 4)?);
        let sequence = u32::from_ne_bytes(field(bytes, 8)?);
        Some(NetlinkMessage { kind, sequence, body: bytes.get(HEADER..)? })
    }

    /// Reads the socket with these ends from the message.
    fn socket(&self, ends: SocketEnds) -> Result<Option<PeerSocket>, Errno> {
        match self.kind {
            SOCK_DIAG_BY_FAMILY => Ok(FoundSocket::parse(self.body).ok_or(Errno::BADMSG)?.matching(ends)),
            NLMSG_ERROR => match -i64::from(field(self.body, 0).map_or(0, i32::from_ne_bytes)) {
                NOT_FOUND => Ok(None),
                errno @ 1..4096 => Err(Errno::from_raw_os_error(errno as i32)),
                _ => Err(Errno::BADMSG),
            },
            _ => Err(Errno::BADMSG),
        }
    }
}

/// The socket that netlink found. It is not always the requested one.
struct FoundSocket {
    state: u8,
    from: SocketAddr,
    to: SocketAddr,
    socket: PeerSocket,
}

impl FoundSocket {
    fn parse(body: &[u8]) -> Option<FoundSocket> {
        let body = body.get(..ANSWER)?;
        let v4 = AddressFamily::from_raw(u16::from(body[0])) == AddressFamily::INET;
        let addr = |ip: usize, port: usize| -> Option<SocketAddr> {
            let ip = match v4 {
                true => IpAddr::from(field::<4>(body, ip)?),
                false => Ipv6Addr::from(field::<16>(body, ip)?).to_canonical(),
            };
            Some(SocketAddr::new(ip, u16::from_be_bytes(field(body, port)?)))
        };
        let number = |at: usize| field(body, at).map(u32::from_ne_bytes);
        let socket = PeerSocket { inode: number(68)?.into(), uid: number(64)? };
        Some(FoundSocket { state: body[1], from: addr(8, 4)?, to: addr(24, 6)?, socket })
    }

    fn matching(self, ends: SocketEnds) -> Option<PeerSocket> {
        let same = self.state != TCP_LISTEN && (self.from, self.to) == (ends.from, ends.to);
        same.then_some(self.socket)
    }
}

/// Some bytes of a message, if it is long enough.
pub fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
#[path = "sock_diag_tests.rs"]
mod tests;
