//! The HTTP servers behind leash, which count their sessions, and the network in front of them.

use super::action::Origin;
use crate::fixture::Fixture;
use crate::relay::Relay;

/// A server that can crash, behind a network that can be cut.
#[derive(Debug)]
pub(crate) struct Upstream {
    origin: Origin,
    fixture: Fixture,
    relay: Relay,
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
        Self { origin, fixture, relay }
    }

    /// Where leash and clients find it: behind the network.
    pub(crate) fn url(&self) -> String {
        self.relay.url(self.fixture.url())
    }

    pub(crate) fn cut(&self) -> usize {
        self.relay.cut()
    }

    /// A crash: its sessions are gone with it. The next one is at the same place.
    pub(crate) fn restart(&mut self) {
        let port = self.fixture.address().port().to_string();
        self.fixture.kill();
        self.fixture = Fixture::http(&[&["--port", &port], options(self.origin)].concat());
    }

    /// The sessions that are open there.
    pub(crate) fn open(&self) -> Vec<String> {
        self.fixture.report().open()
    }

    pub(crate) fn opened(&self) -> u64 {
        self.fixture.report().opened()
    }
}
