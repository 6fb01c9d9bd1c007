//! Metrics for Prometheus. The gateway's one thread counts them and writes them as text on request.

use std::cell::{Cell, RefCell};
use std::{collections::BTreeMap, rc::Rc};

use hyper::StatusCode;

use leash_model::{clock::Moment, receipt::Reason};

/// Upper bounds of the latency histogram, in seconds: from a local echo to a long tool call.
pub(crate) const BUCKETS: [f64; 12] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// The statuses that are counted from the start: those that leash itself answers in front of a server.
const STATUSES: [u16; 11] = [200, 202, 400, 404, 405, 406, 409, 500, 502, 503, 504];

/// All counters. Each is there with 0 before it counts: Prometheus cannot tell the rate of a series from its first
/// sample.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) servers: RefCell<BTreeMap<Rc<str>, Rc<Counters>>>,
    /// The number of DELETEs under way.
    pub(crate) deletes_pending: Cell<u64>,
    pub(crate) connections: Cell<u64>,
}

/// The counters of one server.
pub(crate) struct Counters {
    pub(crate) opened: Cell<u64>,
    pub(crate) refused: Cell<u64>,
    pub(crate) ending: Cell<u64>,
    pub(crate) ended: RefCell<BTreeMap<&'static str, u64>>,
    pub(crate) trees: Cell<u64>,
    pub(crate) trees_started: Cell<u64>,
    pub(crate) deletes_sent: Cell<u64>,
    pub(crate) deletes_failed: Cell<u64>,
    pub(crate) garbage_lines: Cell<u64>,
    pub(crate) bytes_in: Cell<u64>,
    pub(crate) bytes_out: Cell<u64>,
    pub(crate) answers: RefCell<BTreeMap<u16, u64>>,
    pub(crate) latency: Histogram,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            opened: Cell::default(),
            refused: Cell::default(),
            ending: Cell::default(),
            ended: RefCell::new(Reason::OF_CLIENT_SESSIONS.iter().map(|reason| (reason.label(), 0)).collect()),
            trees: Cell::default(),
            trees_started: Cell::default(),
            deletes_sent: Cell::default(),
            deletes_failed: Cell::default(),
            garbage_lines: Cell::default(),
            bytes_in: Cell::default(),
            bytes_out: Cell::default(),
            answers: RefCell::new(STATUSES.map(|status| (status, 0)).into()),
            latency: Histogram::default(),
        }
    }
}

#[derive(Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: [Cell<u64>; BUCKETS.len()],
    pub(crate) count: Cell<u64>,
    pub(crate) sum: Cell<f64>,
}

/// Adds `more` to a counter.
pub(crate) fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

/// Measures the time of a request.
pub(crate) struct Timing {
    counters: Rc<Counters>,
    began: Moment,
}

impl Timing {
    /// Records the status and the time. Call when the head of the response is ready.
    pub(crate) fn done(self, status: StatusCode) {
        *self.counters.answers.borrow_mut().entry(status.as_u16()).or_default() += 1;
        self.counters.latency.observe((Moment::on_runtime() - self.began).as_secs_f64());
    }
}

impl Counters {
    /// Counts bytes of a response.
    pub(crate) fn sent(&self, bytes: usize) {
        add(&self.bytes_out, bytes as u64);
    }
}

impl Histogram {
    fn observe(&self, seconds: f64) {
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            add(&self.buckets[bucket], 1);
        }
        add(&self.count, 1);
        self.sum.set(self.sum.get() + seconds);
    }
}

impl Metrics {
    /// Returns the counters of a server.
    pub(crate) fn of(&self, server: &Rc<str>) -> Rc<Counters> {
        let mut servers = self.servers.borrow_mut();
        match servers.get(server) {
            Some(counters) => Rc::clone(counters),
            None => Rc::clone(servers.entry(Rc::clone(server)).or_default()),
        }
    }

    pub(crate) fn session_opened(&self, server: &Rc<str>) {
        add(&self.of(server).opened, 1);
    }

    pub(crate) fn session_refused(&self, server: &Rc<str>) {
        add(&self.of(server).refused, 1);
    }

    pub(crate) fn session_ending(&self, server: &Rc<str>) {
        add(&self.of(server).ending, 1);
    }

    pub(crate) fn session_ended(&self, server: &Rc<str>, reason: &Reason) {
        let counters = self.of(server);
        counters.ending.set(counters.ending.get().saturating_sub(1));
        let mut ended = counters.ended.borrow_mut();
        debug_assert!(ended.contains_key(reason.label()), "{reason:?} is in `OF_CLIENT_SESSIONS`");
        *ended.entry(reason.label()).or_default() += 1;
    }

    /// Counts a request with a body of so many bytes, and starts to measure its time.
    pub(crate) fn request(&self, server: &Rc<str>, bytes: usize) -> Timing {
        let counters = self.of(server);
        add(&counters.bytes_in, bytes as u64);
        Timing { counters, began: Moment::on_runtime() }
    }
}
