//! What the servers of a job know of it, and what they tell it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use leash_model::id;
use leash_model::limits;
use leash_model::receipt::{Holding, Receipt};

/// A job, as its servers see it.
pub(crate) struct Account {
    /// The session in the ledger, in receipts and in the API.
    pub(crate) id: Rc<str>,
    /// The part of its paths that nobody can guess. Ids are seen by others, in `ps` for instance.
    pub(crate) secret: Rc<str>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Sessions of its clients so far.
    sessions: Cell<u64>,
    held: RefCell<Held>,
}

/// What became of all that it held.
#[derive(Default)]
pub(crate) struct Held {
    /// The last ones.
    pub(crate) holdings: VecDeque<Holding>,
    /// Those before them.
    pub(crate) dropped: u64,
}

impl Account {
    pub(crate) fn new(labels: BTreeMap<String, String>) -> Rc<Account> {
        Rc::new(Account {
            id: id::random().into(),
            secret: id::random().into(),
            labels,
            sessions: Cell::new(0),
            held: RefCell::default(),
        })
    }

    /// leash's own id of a client's session that begins.
    pub(crate) fn next_session(&self) -> String {
        self.sessions.update(|sessions| sessions + 1);
        format!("{}.{}", self.id, self.sessions.get())
    }

    /// Something that it held is over.
    pub(crate) fn ended(&self, receipt: &Receipt) {
        receipt.holdings.iter().for_each(|holding| self.held(holding.clone()));
    }

    /// The same, of something that has no receipt of its own.
    pub(crate) fn held(&self, holding: Holding) {
        let mut held = self.held.borrow_mut();
        held.holdings.push_back(holding);
        if held.holdings.len() > limits::JOB_HOLDINGS {
            held.holdings.pop_front();
            held.dropped += 1;
        }
    }

    /// All that it held, when it is over.
    pub(super) fn take(&self) -> Held {
        self.held.take()
    }
}
