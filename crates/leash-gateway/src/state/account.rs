//! The part of a job that its servers see: its ids and labels, and the record of what the servers held.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use leash_model::receipt::{Holding, Receipt};
use leash_model::{id, limits};
use leash_tree::contain::caps::Caps;

/// A job as its servers see it.
pub(crate) struct JobAccount {
    /// The session in the ledger, in receipts and in the API.
    pub(crate) id: Rc<str>,
    /// The secret part of its paths. The id is no secret: other users can see it, in `ps` for instance.
    pub(crate) secret: Rc<str>,
    pub(crate) labels: BTreeMap<String, String>,
    /// The budget that its trees share.
    pub(crate) budget: Caps,
    /// The number of its client sessions so far.
    sessions: Cell<u64>,
    held: RefCell<JobHoldings>,
}

/// The ends of everything that a job held.
#[derive(Default)]
pub(crate) struct JobHoldings {
    /// The last holdings.
    pub(crate) holdings: VecDeque<Holding>,
    /// The number of earlier holdings, which were dropped.
    pub(crate) dropped: u64,
}

impl JobAccount {
    pub(crate) fn new(labels: BTreeMap<String, String>, budget: Caps) -> Rc<JobAccount> {
        Rc::new(JobAccount {
            id: id::random().into(),
            secret: id::random().into(),
            labels,
            budget,
            sessions: Cell::new(0),
            held: RefCell::default(),
        })
    }

    /// Returns leash's own id for a new client session.
    pub(crate) fn next_session(&self) -> String {
        self.sessions.update(|sessions| sessions + 1);
        format!("{}.{}", self.id, self.sessions.get())
    }

    /// Records the holdings of a receipt, which are over.
    pub(crate) fn ended(&self, receipt: &Receipt) {
        receipt.holdings.iter().for_each(|holding| self.held(holding.clone()));
    }

    /// Records a holding that has no receipt of its own.
    pub(crate) fn held(&self, holding: Holding) {
        let mut held = self.held.borrow_mut();
        held.holdings.push_back(holding);
        if held.holdings.len() > limits::JOB_HOLDINGS {
            held.holdings.pop_front();
            held.dropped += 1;
        }
    }

    /// Takes the record of everything that the job held, when it is over.
    pub(crate) fn take(&self) -> JobHoldings {
        self.held.take()
    }
}
