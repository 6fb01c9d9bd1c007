//! Finds the peers of UNIX sockets with one request to the kernel (`NETLINK_SOCK_DIAG`) for all of them. It takes 0.1
//! ms for some hundred sockets, needs no permission, and covers the sockets of our own network namespace.

use std::collections::HashMap;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags};

use leash_tree::owner::peer::sock_diag::{
    HEADER, NLM_F_REQUEST, NLMSG_ERROR, SOCK_DIAG_BY_FAMILY, connect, field, header,
};

/// From linux/netlink.h.
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;

/// From linux/unix_diag.h: show the peer; its attribute; the sizes of request and response.
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
/// The attribute with the directions that are shut down, and the value for both.
const UNIX_DIAG_SHUTDOWN: u16 = 6;
const BOTH: u8 = 3;
const REQUEST: usize = HEADER + 24;
const ANSWER: usize = 16;

/// `TCP_ESTABLISHED`: sockets that were connected, even if the peer is closed. A listener has no peer either, but is
/// no orphan.
const ESTABLISHED: u8 = 1;

/// The largest response that the kernel sends at once.
const ROOM: usize = 64 * 1024;

/// All connected UNIX sockets of this network namespace, each with the inode of its peer: 0 if the peer is closed.
pub(super) fn pairs() -> Result<HashMap<u64, u64>, Errno> {
    let netlink = connect()?;
    rustix::net::send(&netlink, &request(), SendFlags::empty())?;
    let mut pairs = HashMap::new();
    let mut room = vec![0; ROOM];
    loop {
        // The kernel produces the next part of the response when it is asked for it; it never blocks.
        let (got, _) = rustix::net::recv(&netlink, &mut room[..], RecvFlags::DONTWAIT)?;
        if read(&room[..got], &mut pairs)? {
            return Ok(pairs);
        }
    }
}

fn request() -> Vec<u8> {
    let mut bytes = header(REQUEST, NLM_F_REQUEST | NLM_F_DUMP, 1);
    // struct unix_diag_req: family, protocol, padding, states, no inode, what to show, no cookie.
    bytes.extend([AddressFamily::UNIX.as_raw() as u8, 0, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(UDIAG_SHOW_PEER.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes
}

/// Reads one packet of messages; returns true if it was the last one.
fn read(mut bytes: &[u8], pairs: &mut HashMap<u64, u64>) -> Result<bool, Errno> {
    while !bytes.is_empty() {
        let length = field(bytes, 0).map(u32::from_ne_bytes).ok_or(Errno::BADMSG)? as usize;
        let message = bytes.get(..length).filter(|message| message.len() >= HEADER).ok_or(Errno::BADMSG)?;
        let kind = field(message, 4).map(u16::from_ne_bytes).ok_or(Errno::BADMSG)?;
        let flags = field(message, 6).map(u16::from_ne_bytes).ok_or(Errno::BADMSG)?;
        if flags & NLM_F_DUMP_INTR != 0 {
            // The list changed while the kernel wrote it and may be incomplete.
            return Err(Errno::AGAIN);
        }
        match kind {
            SOCK_DIAG_BY_FAMILY => {
                if let Some((inode, peer)) = pair(&message[HEADER..]) {
                    pairs.insert(inode, peer);
                }
            }
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let errno = field(message, HEADER).map_or(0, i32::from_ne_bytes).saturating_neg();
                return Err(if (1..4096).contains(&errno) { Errno::from_raw_os_error(errno) } else { Errno::BADMSG });
            }
            _ => {}
        }
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    Ok(false)
}

fn pair(body: &[u8]) -> Option<(u64, u64)> {
    if *body.get(2)? != ESTABLISHED {
        return None;
    }
    let inode = u32::from_ne_bytes(field(body, 4)?);
    let mut attributes = body.get(ANSWER..)?;
    let (mut peer, mut shutdown) = (0, 0);
    while let (Some(length), Some(kind)) = (field(attributes, 0), field(attributes, 2)) {
        let length = usize::from(u16::from_ne_bytes(length));
        if u16::from_ne_bytes(kind) == UNIX_DIAG_PEER {
            peer = u32::from_ne_bytes(field(attributes, 4)?);
        } else if u16::from_ne_bytes(kind) == UNIX_DIAG_SHUTDOWN {
            shutdown = *attributes.get(4)?;
        }
        attributes = attributes.get(aligned(length.max(4))..).unwrap_or_default();
    }
    // A peer that was not accepted yet has no inode either. When a peer is closed, the kernel shuts this socket down.
    (peer != 0 || shutdown == BOTH).then_some((inode.into(), peer.into()))
}

fn aligned(length: usize) -> usize {
    (length + 3) & !3
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use testkit::Scratch;

    fn inode(fd: impl std::os::fd::AsFd) -> u64 {
        rustix::fs::fstat(fd).unwrap().st_ino
    }

    #[test]
    fn peers_are_listed_until_one_is_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let found = pairs().unwrap();
        assert_eq!(found.get(&inode(&ours)), Some(&inode(&theirs)));
        assert_eq!(found.get(&inode(&theirs)), Some(&inode(&ours)));
        drop(theirs);
        assert_eq!(pairs().unwrap().get(&inode(&ours)), Some(&0));
    }

    #[test]
    fn a_socket_that_was_only_shut_down_still_has_its_peer() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(pairs().unwrap().get(&inode(&ours)), Some(&inode(&theirs)));
    }

    #[test]
    fn a_connection_that_was_not_accepted_yet_is_not_closed() {
        let dir = Scratch::new();
        let listener = UnixListener::bind(dir.join("socket")).unwrap();
        let waiting = UnixStream::connect(dir.join("socket")).unwrap();
        assert_eq!(pairs().unwrap().get(&inode(&waiting)), None);
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(pairs().unwrap().get(&inode(&waiting)), Some(&inode(&accepted)));
    }

    #[test]
    fn a_listener_has_no_peer() {
        let dir = Scratch::new();
        let listener = UnixListener::bind(dir.join("socket")).unwrap();
        assert_eq!(pairs().unwrap().get(&inode(&listener)), None);
    }

    #[test]
    fn hundreds_of_sockets_fill_several_responses() {
        let all: Vec<_> = (0..400).map(|_| UnixStream::pair().unwrap()).collect();
        let found = pairs().unwrap();
        assert!(all.iter().all(|(a, b)| found.get(&inode(a)) == Some(&inode(b))));
    }

    #[test]
    fn malformed_messages_are_errors() {
        let mut pairs = HashMap::new();
        for bytes in [&[1_u8][..], &[0; 16], &[255; 40], &[16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(read(bytes, &mut pairs).is_err(), "{bytes:?}");
        }
        assert!(pairs.is_empty());
    }
}
