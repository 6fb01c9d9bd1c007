//! Uses real connections of this very process: `fstat` of a descriptor returns the inode of its socket.

use std::net::{TcpListener, TcpStream};

use super::*;

/// A connection: the addresses that the accepting side knows, and both streams.
struct Connection {
    peer: SocketAddr,
    local: SocketAddr,
    client: TcpStream,
    _server: TcpStream,
}

/// `None` if the machine lacks the address family.
fn connect_to(listen: &str, connect: &str) -> Option<Connection> {
    let listener = TcpListener::bind((listen, 0)).ok()?;
    let client = TcpStream::connect((connect, listener.local_addr().unwrap().port())).ok()?;
    let (server, peer) = listener.accept().unwrap();
    Some(Connection { peer, local: server.local_addr().unwrap(), client, _server: server })
}

fn inode_of(stream: &TcpStream) -> u64 {
    rustix::fs::fstat(stream).unwrap().st_ino
}

fn tables_only() -> Lookup {
    Lookup { netlink: None, sequence: Cell::new(0), proved: Cell::new(false) }
}

/// Checks that netlink and the tables find exactly the client's socket.
fn check(listen: &str, connect: &str) {
    let Some(connection) = connect_to(listen, connect) else { return };
    let expected = PeerSocket { inode: inode_of(&connection.client), uid: rustix::process::geteuid().as_raw() };
    for lookup in [Lookup::open(), tables_only()] {
        let found = lookup.socket(connection.peer, connection.local).unwrap();
        assert_eq!(found, Some(expected), "{connect} at {listen}, {lookup:?}");
    }
}

#[test]
fn ipv4() {
    check("127.0.0.1", "127.0.0.1");
    check("0.0.0.0", "127.0.0.1");
}

#[test]
fn ipv6() {
    check("::1", "::1");
    check("::", "::1");
}

#[test]
fn ipv4_client_at_an_ipv6_listener() {
    check("::", "127.0.0.1");
}

#[test]
fn ipv6_client_with_a_mapped_address() {
    check("::", "::ffff:127.0.0.1");
    check("127.0.0.1", "::ffff:127.0.0.1");
}

#[test]
fn one_round_trip_is_enough_here() {
    let connection = connect_to("127.0.0.1", "127.0.0.1").unwrap();
    let lookup = Lookup::open();
    let asked = lookup.ask(SocketEnds::of_client(connection.peer, connection.local));
    let expected = PeerSocket { inode: inode_of(&connection.client), uid: rustix::process::geteuid().as_raw() };
    // If netlink is refused, the tests above have checked the tables.
    assert!(lookup.netlink.is_none() || asked == NetlinkAnswer::Found(expected), "{asked:?}");
    assert!(lookup.netlink.is_none() || lookup.sequence.get() == 1, "{lookup:?}");
}

#[test]
fn a_closed_client_has_no_inode() {
    let Connection { peer, local, client, _server } = connect_to("127.0.0.1", "127.0.0.1").unwrap();
    drop(client);
    for lookup in [Lookup::open(), tables_only()] {
        // FIN_WAIT2 for a minute: the kernel has the socket, but no process does.
        let found = lookup.socket(peer, local).unwrap();
        assert_eq!(found.map(|socket| socket.inode), Some(0), "{lookup:?}");
    }
}

/// After the server has closed, a client that has not is in CLOSE_WAIT and still has its socket.
#[test]
fn a_client_that_the_server_left_is_still_found() {
    let Connection { peer, local, client, _server } = connect_to("127.0.0.1", "127.0.0.1").unwrap();
    _server.shutdown(std::net::Shutdown::Both).unwrap();
    let found = Lookup::open().socket(peer, local).unwrap();
    assert_eq!(found.map(|socket| socket.inode), Some(inode_of(&client)));
}

#[test]
fn a_listener_is_not_a_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = connect_to("127.0.0.1", "127.0.0.1").unwrap();
    // Netlink answers with the listener if nothing is connected from its port.
    for lookup in [Lookup::open(), tables_only()] {
        let found = lookup.socket(listener.local_addr().unwrap(), connection.local).unwrap();
        assert_eq!(found, None, "{lookup:?}");
    }
}

#[test]
fn absent_connection_is_proved_after_netlink_found_a_socket() {
    let connection = connect_to("127.0.0.1", "127.0.0.1").unwrap();
    let lookup = Lookup::open();
    let no_socket = SocketEnds::of_client("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
    // Neither end exists, so the kernel module may be missing.
    assert_eq!(lookup.ask(no_socket), NetlinkAnswer::NoAnswer);
    if let NetlinkAnswer::Found(_) = lookup.ask(SocketEnds::of_client(connection.peer, connection.local)) {
        assert_eq!(lookup.ask(no_socket), NetlinkAnswer::Absent);
    }
    assert_eq!(lookup.socket(no_socket.from, no_socket.to).unwrap(), None);
}

#[test]
fn ends_of_two_address_families_make_no_request() {
    let ends = SocketEnds::of_client("127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap());
    assert!(request(ends, 1).is_none());
}

#[test]
fn short_and_strange_answers_are_refused() {
    let ends = SocketEnds::of_client("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
    assert!(NetlinkMessage::parse(&[0; 15]).is_none());
    let said = |kind, body: &[u8]| NetlinkMessage { kind, sequence: 1, body }.socket(ends);
    assert_eq!(said(SOCK_DIAG_BY_FAMILY, &[2; 71]), Err(Errno::BADMSG));
    assert_eq!(said(3, &[0; 72]), Err(Errno::BADMSG));
    assert_eq!(said(NLMSG_ERROR, &[]), Err(Errno::BADMSG));
    let failed = |errno: i32| said(NLMSG_ERROR, &errno.to_ne_bytes());
    assert_eq!(failed(-libc::ENOENT), Ok(None));
    assert_eq!(failed(-libc::EPERM), Err(Errno::PERM));
    for strange in [0, 1, i32::MIN, -4096] {
        assert_eq!(failed(strange), Err(Errno::BADMSG), "{strange}");
    }
}
