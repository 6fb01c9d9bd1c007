//! A server behind the gateway, and its sessions.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::session::Session;
use super::stdio::ModernTrees;
use crate::config;
use crate::session::machine::Terms;

/// A server as it runs. A reload that changes only its terms changes them in place.
pub(crate) struct Server {
    pub(crate) name: Rc<str>,
    settings: RefCell<Rc<config::Server>>,
    /// By what the client presents as `Mcp-Session-Id`; while a session is opening, by leash's own id of it.
    pub(crate) sessions: RefCell<HashMap<Rc<str>, Rc<Session>>>,
    /// Sessions and trees that have not ended; also those whose end is under way.
    pub(crate) count: Cell<usize>,
    /// Trees for requests that have no session.
    pub(crate) modern: ModernTrees,
    /// It was removed from the configuration, or replaced: nothing begins here any more.
    pub(crate) retired: Cell<bool>,
}

impl Server {
    pub(crate) fn new(settings: config::Server) -> Rc<Server> {
        Rc::new(Server {
            name: settings.name.as_str().into(),
            settings: RefCell::new(Rc::new(settings)),
            sessions: RefCell::default(),
            count: Cell::new(0),
            modern: ModernTrees::default(),
            retired: Cell::new(false),
        })
    }

    pub(crate) fn settings(&self) -> Rc<config::Server> {
        Rc::clone(&self.settings.borrow())
    }

    /// Takes over new terms; the target is the same.
    pub(crate) fn adopt(&self, settings: config::Server) {
        *self.settings.borrow_mut() = Rc::new(settings);
    }

    /// The times its sessions live by.
    pub(crate) fn terms(&self) -> Terms {
        let policy = &self.settings.borrow().policy;
        Terms { idle: policy.idle, max_age: policy.max_age, linger: policy.linger, init_timeout: policy.init_timeout }
    }

    /// The session that a client means.
    pub(crate) fn session(&self, token: &str) -> Option<Rc<Session>> {
        self.sessions.borrow().get(token).cloned()
    }

    /// All sessions, for what concerns all of them.
    pub(crate) fn all(&self) -> Vec<Rc<Session>> {
        self.sessions.borrow().values().cloned().collect()
    }
}
