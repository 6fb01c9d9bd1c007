//! The HTTP servers behind leash, which log every session, and the network in front of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::action::Origin;
use crate::fixture::Fixture;
use crate::relay::Relay;

/// A server that can crash, behind a network that can be cut.
#[derive(Debug)]
pub(crate) struct Upstream {
    origin: Origin,
    fixture: Fixture,
    relay: Relay,
    /// What was logged by those that crashed.
    crashed: Log,
}

/// Sessions, as a server saw them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// Those that were ended by a DELETE.
    pub(crate) ended: BTreeSet<String>,
    /// How many were lost in a crash.
    pub(crate) lost: u64,
    /// Those that are open now.
    pub(crate) open: Vec<String>,
}

fn options(origin: Origin) -> &'static [&'static str] {
    match origin {
        Origin::Honest => &[],
        Origin::Keeper => &["--delete-status", "405"],
    }
}

impl Upstream {
    pub(crate) fn start(origin: Origin) -> Self {
        let fixture = Fixture::http(options(origin));
        let relay = Relay::to(fixture.address());
        Self { origin, fixture, relay, crashed: Log::default() }
    }

    /// Where leash and clients find it: behind the network.
    pub(crate) fn url(&self) -> String {
        self.relay.url(self.fixture.url())
    }

    pub(crate) fn cut(&self) -> usize {
        self.relay.cut()
    }

    /// A crash: its sessions are gone with it. The next one is found at the same place.
    pub(crate) fn restart(&mut self) {
        let log = self.log();
        self.fixture.kill();
        // What it opened between the last look and its end is lost as well, and was never counted.
        self.crashed = Log { lost: log.lost + log.open.len() as u64, open: Vec::new(), ..log };
        self.fixture = Fixture::http(options(self.origin));
        self.relay.aim(self.fixture.address());
    }

    /// Everything that was logged.
    pub(crate) fn log(&self) -> Log {
        let report = self.fixture.report();
        let open = report.open();
        let mut log = self.crashed.clone();
        // One that a server before it had opened is refused, and not ended here.
        let is_done = |seen: &&Value| seen["http"] == "DELETE" && matches!(seen["status"].as_u64(), Some(200..300));
        let done = report.requests().iter().filter(is_done);
        log.ended.extend(done.filter_map(|seen| seen["session"].as_str().map(str::to_owned)));
        log.open = open;
        log
    }
}
