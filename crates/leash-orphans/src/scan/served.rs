//! Finds the clients that are connected to servers over TCP. A server that speaks HTTP may have lost its stdin and
//! still be in use.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::facts::AcceptedConnection;
use leash_tree::owner::peer::table::{self, TcpEntry};
use leash_tree::platform::descriptors::{Descriptors, Link};

/// The sockets of one network namespace, by inode with their owners.
#[derive(Default)]
struct NetworkNamespace {
    /// The /proc directory of one of the owners.
    dir: String,
    sockets: HashMap<u64, Vec<i32>>,
}

/// The connections that these processes, each with its /proc directory, have accepted. Connections of an unreadable
/// process are missing, but such a process is never proved an orphan.
pub(super) fn served(processes: impl Iterator<Item = (i32, String)>) -> Vec<AcceptedConnection> {
    let mut spaces: HashMap<PathBuf, NetworkNamespace> = HashMap::new();
    for (pid, dir) in processes {
        let sockets = sockets(&dir);
        // Each network namespace has its own tables.
        if !sockets.is_empty()
            && let Ok(space) = fs::read_link(format!("{dir}/ns/net"))
        {
            let space = spaces.entry(space).or_default();
            sockets.into_iter().for_each(|inode| space.sockets.entry(inode).or_default().push(pid));
            space.dir = dir;
        }
    }
    spaces.values().flat_map(|space| accepted(&entries(&space.dir), &space.sockets)).collect()
}

fn sockets(dir: &str) -> Vec<u64> {
    let Ok(fds) = Descriptors::open(dir) else { return Vec::new() };
    let mut found = Vec::new();
    let _ = fds.each(|_, link| {
        if let Some(Link::Socket(inode)) = link {
            found.push(inode);
        }
    });
    found
}

/// The TCP tables as one of the owners sees them.
fn entries(dir: &str) -> Vec<TcpEntry> {
    let read = |name: &str| fs::read_to_string(format!("{dir}/net/{name}")).unwrap_or_default();
    ["tcp", "tcp6"].map(read).iter().flat_map(|table| table.lines()).filter_map(table::entry).collect()
}

/// Accepted connections of these sockets' owners: the local port is one on which an owner listens.
fn accepted(entries: &[TcpEntry], sockets: &HashMap<u64, Vec<i32>>) -> Vec<AcceptedConnection> {
    let owners = |entry: &TcpEntry| sockets.get(&entry.inode);
    let listeners = entries.iter().filter(|entry| entry.listens);
    let ports: HashMap<u16, &Vec<i32>> =
        listeners.filter_map(|entry| Some((entry.local.port(), owners(entry)?))).collect();
    if ports.is_empty() {
        return Vec::new();
    }
    let ends: HashMap<(SocketAddr, SocketAddr), u64> =
        entries.iter().map(|entry| ((entry.local, entry.remote), entry.inode)).collect();
    let mut served = Vec::new();
    for entry in entries.iter().filter(|entry| entry.established) {
        let port = entry.local.port();
        // A connection without an inode waits to be accepted.
        let by = if entry.inode == 0 { ports.get(&port).copied() } else { owners(entry) };
        let Some(by) = by.filter(|_| ports.contains_key(&port)) else { continue };
        let clients = ends.get(&(entry.remote, entry.local)).and_then(|inode| sockets.get(inode));
        let clients = clients.cloned().unwrap_or_default();
        served.extend(by.iter().map(|by| AcceptedConnection { by: *by, port, clients: clients.clone() }));
    }
    served
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn me() -> i32 {
        rustix::process::getpid().as_raw_pid()
    }

    fn entry(local: &str, remote: &str, listens: bool, inode: u64) -> String {
        let hex = |address: &str| {
            let address: std::net::SocketAddrV4 = address.parse().unwrap();
            format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
        };
        let state = if listens { "0A" } else { "01" };
        format!("0: {} {} {state} 0:0 00:0 0 1000 0 {inode} 1 0", hex(local), hex(remote))
    }

    fn check(lines: &[String], sockets: &[(u64, i32)], expected: &[(i32, u16, &[i32])]) {
        let entries: Vec<TcpEntry> = lines.iter().filter_map(|line| table::entry(line)).collect();
        assert_eq!(entries.len(), lines.len());
        let sockets = sockets.iter().map(|(inode, pid)| (*inode, vec![*pid])).collect();
        let served = accepted(&entries, &sockets);
        let served: Vec<_> = served.iter().map(|served| (served.by, served.port, &*served.clients)).collect();
        assert_eq!(served, expected);
    }

    #[test]
    fn accepted_connections_are_found() {
        let listener = || entry("127.0.0.1:80", "0.0.0.0:0", true, 1);
        let connection = || entry("127.0.0.1:80", "127.0.0.1:5000", false, 2);
        let client = || entry("127.0.0.1:5000", "127.0.0.1:80", false, 3);
        let all = [listener(), connection(), client()];
        // From an unrelated process, from an owner, from another machine, and no connection.
        check(&all, &[(1, 10), (2, 10)], &[(10, 80, &[])]);
        check(&all, &[(1, 10), (2, 10), (3, 11)], &[(10, 80, &[11])]);
        check(&all[..2], &[(1, 10), (2, 10)], &[(10, 80, &[])]);
        check(&all[..1], &[(1, 10)], &[]);
        let waits = entry("127.0.0.1:80", "127.0.0.1:5000", false, 0);
        check(&[listener(), waits, client()], &[(1, 10)], &[(10, 80, &[])]);
        // An outgoing connection to another process's port was not accepted here.
        check(&all, &[(3, 10)], &[]);
    }

    #[test]
    fn own_accepted_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ourselves = || std::iter::once((me(), "/proc/self".to_owned()));
        let mine = || served(ourselves()).into_iter().filter(|served| served.port == address.port());
        assert_eq!(mine().count(), 0);
        let _client = TcpStream::connect(address).unwrap();
        let _accepted = listener.accept().unwrap();
        let found: Vec<AcceptedConnection> = mine().collect();
        assert_eq!(found, [AcceptedConnection { by: me(), port: address.port(), clients: vec![me()] }]);
    }
}
