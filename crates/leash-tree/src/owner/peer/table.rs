//! Reads the same facts from `/proc/net/tcp` and `tcp6`, if netlink is refused. They have one line for every connection
//! of the machine.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{PeerSocket, SocketEnds};

/// States from linux/tcp_states.h, as the tables write them.
const LISTEN: &str = "0A";
const ESTABLISHED: &str = "01";

/// A line of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEntry {
    /// Its own address.
    pub local: SocketAddr,
    /// The address of its peer.
    pub remote: SocketAddr,
    /// True if it accepts connections.
    pub listens: bool,
    /// True if it is connected.
    pub established: bool,
    uid: u32,
    /// 0 for a socket that no process has any more.
    pub inode: u64,
}

/// Finds the socket with these ends.
pub(super) fn find(ends: SocketEnds) -> io::Result<Option<PeerSocket>> {
    let mut found = None;
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match File::open(path) {
            Ok(file) => found = search(BufReader::with_capacity(1 << 16, file), ends)?.or(found),
            // A kernel without IPv6 has no second table.
            Err(error) if error.kind() == ErrorKind::NotFound && path.ends_with('6') => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn search(mut table: impl BufRead, ends: SocketEnds) -> io::Result<Option<PeerSocket>> {
    let (mut line, mut found) = (String::with_capacity(256), None);
    while table.read_line(&mut line)? > 0 {
        let entry = entry(&line).filter(|entry| !entry.listens && (entry.local, entry.remote) == (ends.from, ends.to));
        found = entry.map(|entry| PeerSocket { inode: entry.inode, uid: entry.uid }).or(found);
        line.clear();
    }
    Ok(found)
}

/// Reads `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ...`; `None` for the
/// heading and for malformed lines.
pub fn entry(line: &str) -> Option<TcpEntry> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = fields.next()?;
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(TcpEntry { local, remote, listens: state == LISTEN, established: state == ESTABLISHED, uid, inode })
}

/// Reads `0100007F:14CF`: each four bytes of the address are one number in this machine's byte order, and the port is a
/// number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| -> Option<[u8; 4]> {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut octets = [0; 16];
            for at in 0..4 {
                octets[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(octets).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

// The text was taken on a little-endian machine.
#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:14CF 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 16384640 1 0000000000000000 100 0 0 10 0
   1: 0100007F:EAB0 0100007F:14CF 01 00000000:00000000 00:00000000 00000000  1000        0 16384644 2 0000000000000000 20 4 30 10 -1
   2: 0100007F:14CF 0100007F:EAB0 01 00000000:00000000 00:00000000 00000000     0        0 16384645 1 0000000000000000 20 4 0 10 -1
   3: 0100007F:EAC2 0100007F:14CF 06 00000000:00000000 03:0000176F 00000000     0        0 0 3 0000000000000000
   4: 0702000A:EAC4 0702000A:14CF 08 00000000:00000001 00:00000000 00000000   33        0 99 1 0000000000000000
   5: nonsense 0100007F:14CF 01
";
    const TCP6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:DC50 00000000000000000000000001000000:14CF 01 00000000:00000000 00:00000000 00000000  1000        0 16384652 1 0000000000000000 20 4 30 10 -1
   1: 0000000000000000FFFF00000100007F:EAB8 0000000000000000FFFF00000100007F:14CF 01 00000000:00000000 00:00000000 00000000  1001        0 16384646 1 0000000000000000 20 4 30 10 -1
";

    fn check(peer: &str, local: &str, expected: Option<(u64, u32)>) {
        let ends = SocketEnds::of_client(peer.parse().unwrap(), local.parse().unwrap());
        let [v4, v6] = [TCP, TCP6].map(|table| search(table.as_bytes(), ends).unwrap());
        assert_eq!(v6.or(v4).map(|socket| (socket.inode, socket.uid)), expected, "{peer} -> {local}");
    }

    #[test]
    fn the_client_is_found_and_not_our_own_end() {
        check("127.0.0.1:60080", "127.0.0.1:5327", Some((16384644, 1000)));
        check("[::1]:56400", "[::1]:5327", Some((16384652, 1000)));
        check("10.0.2.7:60100", "10.0.2.7:5327", Some((99, 33)));
    }

    #[test]
    fn a_mapped_address_is_found_in_both_tables() {
        check("[::ffff:127.0.0.1]:60080", "[::ffff:127.0.0.1]:5327", Some((16384644, 1000)));
        check("127.0.0.1:60088", "127.0.0.1:5327", Some((16384646, 1001)));
        check("[::ffff:127.0.0.1]:60088", "[::ffff:127.0.0.1]:5327", Some((16384646, 1001)));
    }

    #[test]
    fn a_finished_connection_has_no_inode() {
        check("127.0.0.1:60098", "127.0.0.1:5327", Some((0, 0)));
    }

    #[test]
    fn listener_and_unknown_connection_are_not_found() {
        check("127.0.0.1:5327", "0.0.0.0:0", None);
        check("127.0.0.1:60080", "127.0.0.1:5328", None);
    }
}
