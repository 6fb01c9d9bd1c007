//! What the gateway tells its keeper: every session that is open upstream, with its credentials, so that the keeper can end it when the
//! gateway is killed.
//!
//! Only the latest state of a session matters, so what waits for room in the keeper's socket are keys, not messages: a keeper that is
//! stopped costs no memory and holds up no request. The book on disk has everything but the credentials.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::gateway::Gateway;
use super::guard;
use super::session::Session;
use crate::config::Settings;
use leash_model::clock::Moment;
use leash_model::limits;
use leash_tree::platform::linux;
use leash_tree::platform::linux::AsyncPidfd;
use leash_upstream::keeper::{Keeper, Lien, Orders, Word, handover};

/// The keeper of a gateway, and everything that it has to know.
#[derive(Default)]
pub(crate) struct Keeping {
    /// The gateway is a process of its own, which may have a keeper.
    enabled: Cell<bool>,
    /// Where the next gateway asks the keeper of this one for its sessions.
    door: OnceCell<OwnedFd>,
    keeper: RefCell<Option<Keeper>>,
    sessions: RefCell<HashMap<Rc<str>, Kept>>,
    /// Sessions of which the keeper does not know the latest.
    news: RefCell<HashSet<Rc<str>>>,
    /// There is another keeper, or the socket of this one is full.
    wake: Notify,
    /// No keeper could be started, and that was reported.
    failing: Cell<bool>,
}

struct Kept {
    what: What,
    /// The keeper knows of it.
    told: bool,
}

enum What {
    Session(Weak<Session>),
    /// A session that no client has, on its way to its end.
    Refused(Box<Lien>),
}

impl Keeping {
    /// From now on there may be a keeper. It waits for the next gateway where there can be one: at an address that was chosen.
    pub(crate) fn enable(&self, gateway: &Gateway) {
        self.enabled.set(true);
        if !takes_over(&gateway.settings()) {
            return;
        }
        let path = gateway.book.door();
        match handover::door(&path) {
            Ok(door) => drop(self.door.set(door)),
            Err(error) => gateway.warn(format!(
                "cannot make {}: {error}; if leash is killed, the next one does not take its upstream sessions over",
                path.display()
            )),
        }
    }

    /// Sees to it that there is a keeper, before there is something to keep. Without one the book remains.
    pub(crate) fn prepare(&self, gateway: &Gateway) {
        if !self.enabled.get() || self.keeper.borrow().is_some() {
            return;
        }
        let orders = Orders {
            runtime_dir: gateway.places.runtime_dir.clone(),
            book: gateway.book.run().to_owned(),
            receipts: gateway.places.receipts.clone(),
            terms: None,
            owners: Vec::new(),
            cover: Some(gateway.book.whose().clone()),
            takeover_ms: self.door.get().map(|_| as_ms(gateway.settings().takeover)),
        };
        let door = self.door.get().map(|door| door.as_fd());
        match Keeper::start(&gateway.places.program, &orders, gateway.book.lock(), &[], door) {
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

    /// A session holds something upstream.
    pub(crate) fn hold(&self, session: &Rc<Session>) {
        self.enter(Rc::clone(&session.id), What::Session(Rc::downgrade(session)));
    }

    /// A session that no client has is open upstream.
    pub(crate) fn hold_refused(&self, key: &str, lien: Lien) {
        self.enter(key.into(), What::Refused(Box::new(lien)));
    }

    fn enter(&self, key: Rc<str>, what: What) {
        if self.enabled.get() {
            self.sessions.borrow_mut().insert(Rc::clone(&key), Kept { what, told: false });
            self.news.borrow_mut().insert(key);
            self.flush();
        }
    }

    /// Something about a session is different now.
    pub(crate) fn changed(&self, session: &Session) {
        if self.sessions.borrow().contains_key(&session.id) {
            self.news.borrow_mut().insert(Rc::clone(&session.id));
            self.flush();
        }
    }

    /// A session is over.
    pub(crate) fn over(&self, key: &str) {
        let Some((key, kept)) = self.sessions.borrow_mut().remove_entry(key) else { return };
        if kept.told {
            self.news.borrow_mut().insert(key);
            self.flush();
        } else {
            self.news.borrow_mut().remove(&key);
        }
    }

    /// The gateway ends by itself.
    pub(crate) fn ending(&self) {
        if let Some(keeper) = &*self.keeper.borrow() {
            // A keeper that can't hear it takes the end for a kill, and does the same.
            let _ = keeper.tell(&Word::Ending);
        }
    }

    /// The gateway is over. The keeper is sent off, or goes on with what is left.
    pub(crate) fn close(&self) {
        let keeper = self.keeper.take();
        if let Some(keeper) = keeper.filter(|_| self.sessions.borrow().is_empty()) {
            keeper.dismiss();
        }
    }

    /// Whether the keeper knows of a session, and ends it if the gateway does not.
    pub(crate) fn is_told_of(&self, key: &str) -> bool {
        self.keeper.borrow().is_some() && self.sessions.borrow().get(key).is_some_and(|kept| kept.told)
    }

    /// How many sessions there are of which the keeper does not know the latest.
    pub(crate) fn backlog(&self) -> usize {
        self.news.borrow().len()
    }

    /// Tells the keeper all news, as far as there is room in its socket.
    fn flush(&self) {
        let keeper = self.keeper.borrow();
        let Some(keeper) = &*keeper else { return };
        let (mut news, mut sessions) = (self.news.borrow_mut(), self.sessions.borrow_mut());
        let mut error = None;
        news.retain(|key| {
            if error.is_some() {
                return true;
            }
            let kept = sessions.get_mut(key);
            let tell = |stays| word(key, kept.as_deref(), stays).and_then(|word| keeper.tell(&word));
            // Without a client's long `initialize` it can at least be ended.
            let told = tell(true).or_else(|error| if is_too_long(&error) { tell(false) } else { Err(error) });
            match told {
                Ok(()) => {
                    if let Some(kept) = kept {
                        kept.told = true;
                    }
                    false
                }
                // A message that no socket takes. The book has the rest.
                Err(error) if is_too_long(&error) => false,
                Err(other) => {
                    error = Some(other.kind());
                    true
                }
            }
        });
        // Any other error is the keeper's death, which is noticed by itself.
        if error == Some(io::ErrorKind::WouldBlock) {
            self.wake.notify_one();
        }
    }

    /// The keeper is dead: the next one has to be told everything.
    fn lost(&self) {
        if let Some(keeper) = &mut *self.keeper.borrow_mut() {
            // Reaped.
            keeper.is_gone();
        }
        *self.keeper.borrow_mut() = None;
        let mut sessions = self.sessions.borrow_mut();
        sessions.values_mut().for_each(|kept| kept.told = false);
        *self.news.borrow_mut() = sessions.keys().cloned().collect();
    }

    /// What a task waits for.
    fn watched(&self) -> Option<io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)>> {
        self.keeper.borrow().as_ref().map(Keeper::watched_by_task)
    }
}

/// Whether the sessions of a gateway outlast it, for the next one at the same address.
pub(crate) fn takes_over(settings: &Settings) -> bool {
    !settings.takeover.is_zero() && settings.listen.port() != 0
}

fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// The latest of a session.
fn word(key: &str, kept: Option<&Kept>, stays: bool) -> io::Result<Word> {
    let mut lien = match kept.map(|kept| &kept.what) {
        Some(What::Session(session)) => session.upgrade().and_then(|session| guard::lien(&session)),
        Some(What::Refused(lien)) => Some((**lien).clone()),
        None => None,
    };
    if !stays {
        lien = lien.map(|lien| lien.staying(None));
    }
    lien.map_or_else(|| Ok(Word::Ended(key.into(), None)), |lien| Word::hold(key, &lien))
}

/// Looks after the keeper: tells it what had no room in its socket, and starts another one when it is dead.
pub(crate) async fn tend(gateway: Rc<Gateway>) {
    let keeping = &gateway.keeping;
    loop {
        let began = Moment::now();
        let watched = match keeping.watched() {
            None => {
                keeping.wake.notified().await;
                continue;
            }
            Some(watched) => {
                watched.and_then(|(pidfd, control)| Ok((AsyncPidfd::new(pidfd)?, linux::writable(control)?)))
            }
        };
        let Ok((pidfd, control)) = watched else {
            // Out of descriptors: it is tried again later. Without this the keeper works as well, as long as it lives.
            tokio::time::sleep_until(tokio::time::Instant::now() + limits::KEEPER_PAUSE).await;
            continue;
        };
        let relay = async {
            loop {
                keeping.wake.notified().await;
                // Woken by the kernel when there is room, also when the keeper is dead.
                let Ok(mut ready) = control.writable().await else { return std::future::pending().await };
                ready.clear_ready();
                keeping.flush();
            }
        };
        tokio::select! {
            _ = pidfd.ended() => {}
            () = relay => {}
        }
        // Whatever kills it may kill the next one at once.
        let pause = limits::KEEPER_PAUSE.saturating_sub(Moment::now().since(began));
        keeping.lost();
        tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
        keeping.prepare(&gateway);
    }
}
