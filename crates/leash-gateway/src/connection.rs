//! A client's connection, and the process at its other end.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName};
use tokio::sync::Notify;

use leash_model::limits;
use leash_tree::owner::peer::resolver::Resolver;
use leash_tree::owner::peer::{self, FoundPlace, Lookup, PeerSocket, SocketHolder};
use leash_tree::platform::identity::HeldProcess;

/// One TCP connection of a client. A session keeps it after it is closed: its two addresses alone do not identify it,
/// because another process may connect from the same port as soon as it is closed.
pub(crate) struct ClientConnection {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    client_end: OnceCell<ClientEnd>,
    owed: Cell<OwedResponse>,
    /// The number of responses; `answered` is notified of each.
    answers: Cell<u32>,
    answered: Notify,
    /// True if the body of the last request was read to its end.
    request_read: Cell<bool>,
    /// True if hyper may have bytes for the client that were not written to the socket.
    unsent: Cell<bool>,
    /// The session that it was used for last, which knows its owner.
    session: RefCell<Option<Weak<dyn ConnectionUser>>>,
    /// The places where the last search found the client's socket.
    owners: RefCell<Vec<FoundPlace>>,
}

/// A session, as a connection knows it.
pub(crate) trait ConnectionUser {
    /// A connection was used for it.
    fn connection_began(self: Rc<Self>);
    /// A connection is closed, or was used for another session.
    fn connection_ended(self: Rc<Self>);
}

/// The response that a connection owes its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OwedResponse {
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing yet: leash is reading a request.
    Request,
    /// A whole response: nothing of it was written yet.
    Answer,
    /// The rest of a response.
    Rest,
}

/// The client's end of a connection, as the kernel described it when the connection was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientEnd {
    /// A process of this machine holds it.
    Socket(PeerSocket),
    /// It was on this machine, and the client closed it before leash asked the kernel.
    Closed,
    /// It is on another machine, or behind an address translation.
    Elsewhere,
}

/// The user of the process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerUser {
    /// On this machine; with its uid, if it can be found.
    Local(Option<u32>),
    /// On another machine.
    Remote,
}

impl PeerUser {
    /// Its uid, if it is on this machine and its user is known.
    pub(crate) fn uid(self) -> Option<u32> {
        if let PeerUser::Local(uid) = self { uid } else { None }
    }
}

/// The identity of a caller that a session is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Principal {
    /// The credential, as a keyed hash: leash cannot tell apart two clients with the same one.
    pub(crate) credential: Option<u128>,
    /// The user of a local client, if it is known.
    pub(crate) uid: Option<u32>,
}

/// Headers that a proxy adds: with one of them, the other end of the connection is not the client.
const FORWARDED: [HeaderName; 2] = [HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("forwarded")];

impl ClientConnection {
    pub(crate) fn new(peer: SocketAddr, local: SocketAddr) -> ClientConnection {
        ClientConnection {
            peer,
            local,
            client_end: OnceCell::new(),
            owed: Cell::default(),
            answers: Cell::new(0),
            answered: Notify::new(),
            request_read: Cell::new(false),
            unsent: Cell::new(false),
            session: RefCell::default(),
            owners: RefCell::default(),
        }
    }

    /// Asks the kernel for the client's end. Called right after accepting, because a client may exit soon.
    pub(crate) fn find_client_end(&self, lookup: &Lookup) -> ClientEnd {
        *self.client_end.get_or_init(|| client_end_of(lookup, self.peer, self.local))
    }

    /// True if the session was the last to use this connection; otherwise it is from now on.
    pub(crate) fn is_known_to<S: ConnectionUser + 'static>(&self, session: &Rc<S>) -> bool {
        // The weak reference keeps the allocation of a dead session, so a new session cannot get the same address.
        let is_same = |known: &Weak<dyn ConnectionUser>| known.as_ptr().cast::<S>() == Rc::as_ptr(session);
        let known = self.session.borrow().as_ref().is_some_and(is_same);
        if !known {
            self.closed();
            let session: Rc<dyn ConnectionUser> = Rc::clone(session) as _;
            *self.session.borrow_mut() = Some(Rc::downgrade(&session));
            session.connection_began();
        }
        known
    }

    /// Tells the last session that it no longer has this connection.
    pub(crate) fn closed(&self) {
        let last = self.session.take();
        if let Some(session) = last.and_then(|session| session.upgrade()) {
            session.connection_ended();
        }
    }

    /// The client's socket, if it was found.
    pub(crate) fn socket(&self) -> Option<PeerSocket> {
        match self.client_end.get() {
            Some(ClientEnd::Socket(socket)) => Some(*socket),
            _ => None,
        }
    }

    /// Remembers the processes that a search found at the other end.
    pub(crate) fn is_held_by(&self, holders: &[SocketHolder]) {
        *self.owners.borrow_mut() = holders.iter().map(FoundPlace::of).collect();
    }

    /// The remembered processes at the other end, if all of them still hold the client's socket.
    pub(crate) fn remembered_owners(&self, resolver: &Resolver) -> Option<Vec<HeldProcess>> {
        resolver.still_holding(&self.owners.borrow(), self.socket()?)
    }

    /// The user at the other end. The process there may forward the requests of others; no header changes the result.
    pub(crate) fn peer(&self, lookup: &Lookup) -> PeerUser {
        match self.find_client_end(lookup) {
            ClientEnd::Socket(socket) => PeerUser::Local(Some(socket.uid)),
            // A closed socket has no user.
            ClientEnd::Closed => PeerUser::Local(None),
            ClientEnd::Elsewhere if peer::is_local(&self.peer, &self.local) => PeerUser::Local(None),
            ClientEnd::Elsewhere => PeerUser::Remote,
        }
    }

    /// True if a process still holds the client's socket; `None` if the kernel does not know the socket.
    pub(super) fn is_held(&self, lookup: &Lookup) -> Option<bool> {
        match self.client_end.get()? {
            ClientEnd::Socket(before) => {
                let now = lookup.socket(self.peer, self.local).ok()?;
                Some(now.is_some_and(|now| now.inode == before.inode))
            }
            ClientEnd::Closed => Some(false),
            ClientEnd::Elsewhere => None,
        }
    }

    /// The part of an exchange that the gateway still owes the client.
    pub(super) fn owed(&self) -> OwedResponse {
        self.owed.get()
    }

    /// Sets what the gateway owes the client.
    pub(super) fn owe(&self, owed: OwedResponse) {
        self.owed.set(owed);
        if owed == OwedResponse::Nothing {
            self.answers.update(|answers| answers.wrapping_add(1));
            self.answered.notify_one();
        }
    }

    /// Notes whether the body of the current request was read to its end.
    pub(super) fn request_read(&self, read: bool) {
        self.request_read.set(read);
    }

    /// Notes whether hyper may have bytes for the client that were not written to the socket.
    pub(super) fn unsent(&self, unsent: bool) {
        self.unsent.set(unsent);
    }

    /// Returns when the connection is between two requests and was not used for a while. hyper's state for it has
    /// nothing then but unread input.
    pub(super) async fn rests(&self) {
        loop {
            self.answered.notified().await;
            let before = self.answers.get();
            tokio::time::sleep_until(tokio::time::Instant::now() + limits::CONNECTION_RESTS).await;
            let is_done = self.owed.get() == OwedResponse::Nothing && self.request_read.get() && !self.unsent.get();
            if is_done && self.answers.get() == before {
                return;
            }
        }
    }

    /// True if the client itself, on this machine, is or was at the other end.
    pub(crate) fn is_clients_own(&self, headers: &HeaderMap) -> bool {
        matches!(self.client_end.get(), Some(ClientEnd::Socket(_) | ClientEnd::Closed)) && !is_forwarded(headers)
    }
}

/// True if a proxy passed the request on.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(name))
}

fn client_end_of(lookup: &Lookup, peer: SocketAddr, local: SocketAddr) -> ClientEnd {
    if !peer::is_local(&peer, &local) {
        return ClientEnd::Elsewhere;
    }
    match lookup.socket(peer, local) {
        // A socket without an inode no longer belongs to a process.
        Ok(Some(PeerSocket { inode: 0, .. })) => ClientEnd::Closed,
        Ok(Some(socket)) => ClientEnd::Socket(socket),
        // A reset removes both ends. If our end exists, an address translation hides the client's.
        Ok(None) if !lookup.has_own_end(peer, local) => ClientEnd::Closed,
        Ok(None) | Err(_) => ClientEnd::Elsewhere,
    }
}

/// Makes principals. The key is new in each process, so a hash is useless outside of it.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn connection() -> ClientConnection {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        ClientConnection::new(at(1), at(2))
    }

    /// Plays one request.
    fn answer(connection: &ClientConnection, read: bool) {
        connection.request_read(read);
        connection.owe(OwedResponse::Rest);
        connection.owe(OwedResponse::Nothing);
    }

    async fn rests_within(connection: &ClientConnection, time: Duration) -> bool {
        tokio::time::timeout(time, connection.rests()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn connection_rests_after_its_last_response() {
        let (connection, long) = (connection(), limits::CONNECTION_RESTS * 10);
        assert!(!rests_within(&connection, long).await, "it was never used");
        answer(&connection, true);
        assert!(!rests_within(&connection, limits::CONNECTION_RESTS / 2).await, "the next request may come");
        answer(&connection, true);
        assert!(rests_within(&connection, long).await);
        assert!(!rests_within(&connection, long).await, "it rests once for each use");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_in_use_does_not_rest() {
        let long = limits::CONNECTION_RESTS * 10;
        let (unread, unsent, owing) = (connection(), connection(), connection());
        answer(&unread, false);
        assert!(!rests_within(&unread, long).await, "the rest of a body would be read as a request");
        unsent.unsent(true);
        answer(&unsent, true);
        assert!(!rests_within(&unsent, long).await, "the end of a response would be lost");
        answer(&owing, true);
        owing.owe(OwedResponse::Request);
        assert!(!rests_within(&owing, long).await, "a request is being read");
    }
}
