//! Tells the gateway's keeper of every upstream session, with its credentials, so that the keeper can end the sessions
//! when the gateway is killed.
//!
//! Only the latest state of a session matters, so the queue for the keeper's socket holds keys, not messages. A stopped
//! keeper costs no memory and delays no request. The book on disk has everything except the credentials.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::{Rc, Weak};

use tokio::sync::Notify;

use super::{gateway::Gateway, session::ClientSession};
use crate::config::Settings;
use leash_model::{clock::Moment, duration::as_ms, limits};
use leash_tree::platform::linux::{self, AsyncPidfd};
use leash_upstream::keeper::{HeldSession, KeeperMessage, KeeperOrders, KeeperProcess, handover};

/// The keeper of a gateway, and the sessions that it must know.
#[derive(Default)]
pub(crate) struct KeeperLink {
    /// True if the gateway is a process of its own, which may have a keeper.
    enabled: Cell<bool>,
    /// The socket at which the next gateway asks this gateway's keeper for the sessions.
    handover_socket: OnceCell<OwnedFd>,
    keeper: RefCell<Option<KeeperProcess>>,
    sessions: RefCell<HashMap<Rc<str>, KeptSession>>,
    /// The sessions whose latest state the keeper does not know.
    unsent: RefCell<HashSet<Rc<str>>>,
    /// Wakes `watch_keeper`: there is a new keeper, or the keeper's socket is full.
    wake: Notify,
    /// No keeper could be started, and the user was warned.
    failing: Cell<bool>,
}

struct KeptSession {
    state: KeptState,
    /// The keeper knows the session.
    told: bool,
}

enum KeptState {
    Session(Weak<ClientSession>),
    /// A session without a client that is being ended.
    Refused(Box<HeldSession>),
}

impl KeeperLink {
    /// Allows a keeper from now on. If the address has a fixed port, the keeper of a killed gateway waits for the next
    /// gateway.
    pub(crate) fn enable(&self, gateway: &Gateway) {
        self.enabled.set(true);
        if !takes_over(&gateway.settings()) {
            return;
        }
        let path = gateway.book.handover_socket();
        match handover::listen(&path) {
            Ok(socket) => drop(self.handover_socket.set(socket)),
            Err(error) => gateway.warn(format!(
                "cannot create {}: {error}; if leash is killed, the next one cannot take its upstream sessions over",
                path.display()
            )),
        }
    }

    /// Starts a keeper if there is none, before there is a session. Without a keeper, the book still has the sessions.
    pub(crate) fn prepare(&self, gateway: &Gateway) {
        if !self.enabled.get() || self.keeper.borrow().is_some() {
            return;
        }
        let orders = KeeperOrders {
            runtime_dir: gateway.places.runtime_dir.clone(),
            book: gateway.book.run().to_owned(),
            receipts: gateway.places.receipts.clone(),
            connection_facts: None,
            owners: Vec::new(),
            cover: Some(gateway.book.cover().clone()),
            takeover_ms: self.handover_socket.get().map(|_| as_ms(gateway.settings().takeover)),
        };
        let handover_socket = self.handover_socket.get().map(|socket| socket.as_fd());
        match KeeperProcess::start(&gateway.places.program, &orders, gateway.book.lock(), &[], handover_socket) {
            Ok(keeper) => {
                self.failing.set(false);
                *self.keeper.borrow_mut() = Some(keeper);
                self.wake.notify_one();
                self.flush();
            }
            Err(error) if !self.failing.replace(true) => gateway.warn(format!(
                "cannot start a keeper: {error}; if leash is killed, its upstream sessions stay until the next start"
            )),
            Err(_) => {}
        }
    }

    /// Tells the keeper of a session that exists upstream.
    pub(crate) fn hold(&self, session: &Rc<ClientSession>) {
        self.enter(Rc::clone(&session.id), KeptState::Session(Rc::downgrade(session)));
    }

    /// Tells the keeper of an upstream session without a client.
    pub(crate) fn hold_refused(&self, key: &str, held: HeldSession) {
        self.enter(key.into(), KeptState::Refused(Box::new(held)));
    }

    fn enter(&self, key: Rc<str>, state: KeptState) {
        if self.enabled.get() {
            self.sessions.borrow_mut().insert(Rc::clone(&key), KeptSession { state, told: false });
            self.unsent.borrow_mut().insert(key);
            self.flush();
        }
    }

    /// Tells the keeper that a session has changed.
    pub(crate) fn changed(&self, session: &ClientSession) {
        if self.sessions.borrow().contains_key(&session.id) {
            self.unsent.borrow_mut().insert(Rc::clone(&session.id));
            self.flush();
        }
    }

    /// Tells the keeper that a session is over.
    pub(crate) fn over(&self, key: &str) {
        let Some((key, kept)) = self.sessions.borrow_mut().remove_entry(key) else { return };
        if kept.told {
            self.unsent.borrow_mut().insert(key);
            self.flush();
        } else {
            self.unsent.borrow_mut().remove(&key);
        }
    }

    /// Tells the keeper that the gateway is shutting down.
    pub(crate) fn ending(&self) {
        if let Some(keeper) = &*self.keeper.borrow() {
            // A keeper that misses this message takes the exit for a kill and ends the sessions anyway.
            let _ = keeper.tell(&KeeperMessage::Ending);
        }
    }

    /// Dismisses the keeper if no session is left. Otherwise the keeper ends the remaining sessions.
    pub(crate) fn close(&self) {
        let keeper = self.keeper.take();
        if let Some(keeper) = keeper.filter(|_| self.sessions.borrow().is_empty()) {
            keeper.dismiss();
        }
    }

    /// True if the keeper knows a session, and so ends it if the gateway does not.
    pub(crate) fn is_told_of(&self, key: &str) -> bool {
        self.keeper.borrow().is_some() && self.sessions.borrow().get(key).is_some_and(|kept| kept.told)
    }

    /// The number of sessions whose latest state the keeper does not know.
    pub(crate) fn backlog(&self) -> usize {
        self.unsent.borrow().len()
    }

    /// Sends the changes to the keeper, as far as its socket has room.
    fn flush(&self) {
        let keeper = self.keeper.borrow();
        let Some(keeper) = &*keeper else { return };
        let (mut unsent, mut sessions) = (self.unsent.borrow_mut(), self.sessions.borrow_mut());
        let mut error = None;
        unsent.retain(|key| {
            if error.is_some() {
                return true;
            }
            let kept = sessions.get_mut(key);
            let tell = |resumable| message(key, kept.as_deref(), resumable).and_then(|message| keeper.tell(&message));
            // Without the client's long `initialize`, the keeper can at least end the session.
            let told = tell(true).or_else(|error| if is_too_long(&error) { tell(false) } else { Err(error) });
            match told {
                Ok(()) => {
                    if let Some(kept) = kept {
                        kept.told = true;
                    }
                    false
                }
                // The message is too long for the socket even so. The book has the session.
                Err(error) if is_too_long(&error) => false,
                Err(other) => {
                    error = Some(other.kind());
                    true
                }
            }
        });
        // Any other error means that the keeper is dead, which `watch_keeper` notices.
        if error == Some(io::ErrorKind::WouldBlock) {
            self.wake.notify_one();
        }
    }

    /// Handles the keeper's death: the next keeper must be told everything.
    fn lost(&self) {
        if let Some(keeper) = &mut *self.keeper.borrow_mut() {
            keeper.is_gone();
        }
        *self.keeper.borrow_mut() = None;
        let mut sessions = self.sessions.borrow_mut();
        sessions.values_mut().for_each(|kept| kept.told = false);
        *self.unsent.borrow_mut() = sessions.keys().cloned().collect();
    }

    /// Returns the descriptors on which `watch_keeper` waits, if there is a keeper.
    fn watched(&self) -> Option<io::Result<(OwnedFd, OwnedFd)>> {
        self.keeper.borrow().as_ref().map(KeeperProcess::watched_by_task)
    }
}

/// True if the sessions of a killed gateway can go on in the next gateway at the same address.
pub(crate) fn takes_over(settings: &Settings) -> bool {
    !settings.takeover.is_zero() && settings.listen.port() != 0
}

fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// Builds the message with the latest state of a session.
fn message(key: &str, kept: Option<&KeptSession>, resumable: bool) -> io::Result<KeeperMessage> {
    let mut held = match kept.map(|kept| &kept.state) {
        Some(KeptState::Session(session)) => {
            session.upgrade().and_then(|session| session.holding()?.held_session(&session))
        }
        Some(KeptState::Refused(held)) => Some((**held).clone()),
        None => None,
    };
    if !resumable {
        held = held.map(|held| held.resumable(None));
    }
    held.map_or_else(|| Ok(KeeperMessage::Ended(key.into(), None)), |held| KeeperMessage::hold(key, &held))
}

/// Watches the keeper: sends the changes when its socket has room again, and starts another keeper when it is dead.
pub(crate) async fn watch_keeper(gateway: Rc<Gateway>) {
    let keeper_link = &gateway.keeper_link;
    loop {
        let began = Moment::on_runtime();
        let watched = match keeper_link.watched() {
            None => {
                keeper_link.wake.notified().await;
                continue;
            }
            Some(watched) => {
                watched.and_then(|(pidfd, control)| Ok((AsyncPidfd::new(pidfd)?, linux::writable(control)?)))
            }
        };
        let Ok((pidfd, control)) = watched else {
            // Out of descriptors: tries again later. The keeper works without being watched, as long as it lives.
            tokio::time::sleep_until(tokio::time::Instant::now() + limits::KEEPER_PAUSE).await;
            continue;
        };
        let relay = async {
            loop {
                keeper_link.wake.notified().await;
                // The kernel wakes this task when the socket has room, and also when the keeper is dead.
                let Ok(mut ready) = control.writable().await else { return std::future::pending().await };
                ready.clear_ready();
                keeper_link.flush();
            }
        };
        tokio::select! {
            _ = pidfd.ended() => {}
            () = relay => {}
        }
        // The cause of the keeper's death may kill the next one at once, so there is a pause.
        let pause = limits::KEEPER_PAUSE.saturating_sub(Moment::on_runtime().since(began));
        keeper_link.lost();
        tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
        keeper_link.prepare(&gateway);
    }
}
