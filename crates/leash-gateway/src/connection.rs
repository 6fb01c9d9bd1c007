//! A client's connection, and who is at its other end.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName};

use super::session::Session;
use super::socket::Owed;
use leash_tree::owner::peer;
use leash_tree::owner::peer::{Lookup, PeerSocket};

/// One TCP connection of a client.
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    far: OnceCell<FarEnd>,
    owed: Cell<Owed>,
    /// The session it was used for last, which knows its owner.
    session: RefCell<Weak<Session>>,
}

/// The client's end of a connection, as the kernel described it when the connection was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarEnd {
    /// A process of this machine holds it.
    Socket(PeerSocket),
    /// It was on this machine, and was closed before it was looked at.
    Closed,
    /// It is on another machine, or behind an address translation.
    Elsewhere,
}

/// What a connection is known by after it is gone. Its two addresses alone are not enough: as soon as it is closed, another process may
/// connect from the same port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// The client's.
    pub(crate) socket: PeerSocket,
}

/// The process at the other end of a connection, as far as its user matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// On this machine; its uid, if that can be found.
    Local(Option<u32>),
    /// On another machine.
    Remote,
}

impl Peer {
    /// Its user, if it is on this machine and known.
    pub(crate) fn uid(self) -> Option<u32> {
        if let Peer::Local(uid) = self { uid } else { None }
    }
}

/// Who asks, as far as a session is bound to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Principal {
    /// The credential, as a keyed hash: two clients with the same one are the same to us.
    pub(crate) credential: Option<u128>,
    /// The user of a local client, where it is known.
    pub(crate) uid: Option<u32>,
}

/// A forwarder's note: the connection's other end is not the client.
const FORWARDED: [HeaderName; 2] = [HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("forwarded")];

impl Connection {
    pub(crate) fn new(peer: SocketAddr, local: SocketAddr) -> Connection {
        Connection { peer, local, far: OnceCell::new(), owed: Cell::default(), session: RefCell::default() }
    }

    /// Asks the kernel for the client's end. Called right after accepting, because a client may be gone soon.
    pub(crate) fn look(&self, lookup: &Lookup) -> FarEnd {
        *self.far.get_or_init(|| far_end(lookup, self.peer, self.local))
    }

    /// Whether a session that uses it knows that already.
    pub(crate) fn is_known_to(&self, session: &Rc<Session>) -> bool {
        let known = self.session.borrow().as_ptr() == Rc::as_ptr(session);
        if !known {
            // A dead session's place in memory is not given away while this is held.
            *self.session.borrow_mut() = Rc::downgrade(session);
        }
        known
    }

    /// Its ends, if the client's socket was found.
    pub(crate) fn ends(&self) -> Option<Ends> {
        match self.far.get() {
            Some(FarEnd::Socket(socket)) => Some(Ends { peer: self.peer, local: self.local, socket: *socket }),
            _ => None,
        }
    }

    /// The process at the other end, which may forward what others ask: no header changes whose it is.
    pub(crate) fn peer(&self, lookup: &Lookup) -> Peer {
        match self.look(lookup) {
            FarEnd::Socket(socket) => Peer::Local(Some(socket.uid)),
            // A closed socket has no user any more.
            FarEnd::Closed => Peer::Local(None),
            FarEnd::Elsewhere if peer::is_local(&self.peer, &self.local) => Peer::Local(None),
            FarEnd::Elsewhere => Peer::Remote,
        }
    }

    /// Whether a process has the client's socket now; `None` where the kernel does not know it.
    pub(super) fn is_held(&self, lookup: &Lookup) -> Option<bool> {
        match self.far.get()? {
            FarEnd::Socket(before) => {
                let now = lookup.socket(self.peer, self.local).ok()?;
                Some(now.is_some_and(|now| now.inode == before.inode))
            }
            FarEnd::Closed => Some(false),
            FarEnd::Elsewhere => None,
        }
    }

    /// What it owes its client.
    pub(super) fn owed(&self) -> Owed {
        self.owed.get()
    }

    /// It owes this from now on.
    pub(super) fn owe(&self, owed: Owed) {
        self.owed.set(owed);
    }

    /// Whether the client itself, on this machine, is or was at the other end.
    pub(crate) fn is_clients_own(&self, headers: &HeaderMap) -> bool {
        matches!(self.far.get(), Some(FarEnd::Socket(_) | FarEnd::Closed)) && !is_forwarded(headers)
    }
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(name))
}

fn far_end(lookup: &Lookup, peer: SocketAddr, local: SocketAddr) -> FarEnd {
    if !peer::is_local(&peer, &local) {
        return FarEnd::Elsewhere;
    }
    match lookup.socket(peer, local) {
        // A socket without an inode belongs to no process any more.
        Ok(Some(PeerSocket { inode: 0, .. })) => FarEnd::Closed,
        Ok(Some(socket)) => FarEnd::Socket(socket),
        // A reset removes both ends. Where ours is there, an address translation hides the client's.
        Ok(None) if !lookup.has_own_end(peer, local) => FarEnd::Closed,
        Ok(None) | Err(_) => FarEnd::Elsewhere,
    }
}

/// Makes principals; the key is new in each process, so a hash is worth nothing outside of it.
#[derive(Default)]
pub(crate) struct Principals {
    keys: [std::hash::RandomState; 2],
}

impl Principals {
    pub(crate) fn of(&self, headers: &HeaderMap, uid: Option<u32>) -> Principal {
        use std::hash::BuildHasher as _;
        let credential = headers.get(AUTHORIZATION).map(|value| {
            let [high, low] = self.keys.each_ref().map(|key| u128::from(key.hash_one(value.as_bytes())));
            high << 64 | low
        });
        Principal { credential, uid }
    }
}
