//! A client's connection, and who is at its other end.

use std::cell::{OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName};

use super::session::Session;
use crate::owner::peer::{self, Lookup, PeerSocket};

/// One TCP connection of a client.
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    socket: OnceCell<Option<PeerSocket>>,
    /// The session it was used for last, which knows its owner.
    session: RefCell<Weak<Session>>,
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
        Connection { peer, local, socket: OnceCell::new(), session: RefCell::default() }
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

    /// Its ends, once the [client's socket](Connection::client_socket) was found.
    pub(crate) fn ends(&self) -> Option<Ends> {
        let socket = self.socket.get().copied().flatten()?;
        Some(Ends { peer: self.peer, local: self.local, socket })
    }

    /// The process at the other end, which may forward what others ask: no header changes whose it is.
    pub(crate) fn peer(&self, lookup: &Lookup) -> Peer {
        // Loopback is reached from this machine alone, whatever address a client has bound itself to.
        if !peer::is_local(&self.peer, &self.local) && !self.local.ip().to_canonical().is_loopback() {
            return Peer::Remote;
        }
        // A socket that nobody holds any more has no user either.
        let held = |socket: &PeerSocket| socket.inode != 0;
        let look = || lookup.socket(self.peer, self.local).ok().flatten().filter(held);
        Peer::Local(self.socket.get_or_init(look).map(|socket| socket.uid))
    }

    /// The client's own socket, if the client is on this machine and is not known to speak for somebody else.
    pub(crate) fn client_socket(&self, lookup: &Lookup, headers: &HeaderMap) -> Option<PeerSocket> {
        if FORWARDED.iter().any(|name| headers.contains_key(name)) || !peer::is_local(&self.peer, &self.local) {
            return None;
        }
        self.peer(lookup).uid()?;
        self.socket.get().copied().flatten()
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
