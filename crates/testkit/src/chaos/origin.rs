//! The HTTP servers behind leash, which log every session and its opener, and the network in front of them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::action::Origin;
use super::promise::{Session, State};
use crate::fixture::{Fixture, Report};
use crate::relay::Relay;

/// A server that can crash, behind a network that can be cut.
#[derive(Debug)]
pub(crate) struct Upstream {
    origin: Origin,
    fixture: Fixture,
    relay: Relay,
    /// The log of earlier servers that crashed.
    crashed: Log,
}

/// Sessions by their ids, as a server saw them: the opener and the state of each.
pub(crate) type Log = BTreeMap<String, (String, State)>;

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

    /// The URL that a leash uses: it goes through the relay. The query tells the server which leash opened a session.
    pub(crate) fn url(&self, opener: &str) -> String {
        format!("{}?{opener}", self.relay.url(self.fixture.url()))
    }

    pub(crate) fn cut(&self) -> usize {
        self.relay.cut()
    }

    /// Makes it unreachable, until [`Upstream::up`].
    pub(crate) fn down(&self) {
        self.relay.down();
    }

    pub(crate) fn up(&self) {
        self.relay.up();
    }

    /// Crashes the server, which loses its sessions, and starts another one at the same address.
    pub(crate) fn restart(&mut self) {
        let mut log = self.log();
        self.fixture.kill();
        // Sessions that it opened between the last look and its end are lost as well, and were never seen.
        log.values_mut().filter(|(_, state)| *state == State::Open).for_each(|(_, state)| *state = State::Lost);
        self.crashed = log;
        self.fixture = Fixture::http(options(self.origin));
        self.relay.aim(self.fixture.address());
    }

    /// The log of all servers so far.
    pub(crate) fn log(&self) -> Log {
        let mut log = self.crashed.clone();
        log.extend(read(&self.fixture.report()));
        log
    }

    /// The same log, as the checker takes it.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = Session> {
        let origin = self.origin;
        self.log().into_iter().map(move |(id, (opener, state))| Session { origin, id, opener, state })
    }
}

/// Reads the log of one server.
fn read(report: &Report) -> Log {
    let text = |seen: &Value, name: &str| seen[name].as_str().unwrap_or_default().to_owned();
    let asked = || report.requests().iter().filter(|seen| seen["rpc"] == "initialize");
    let mut log: Log = asked()
        .filter(|seen| seen["opened"].is_string())
        .map(|seen| (text(seen, "opened"), (text(seen, "query"), State::Lost)))
        .collect();
    for id in report.open() {
        // A client that did not wait for the answer leaves a request without a status. A session that no answer names
        // belongs to one of those.
        let unheard = || asked().find(|seen| seen["status"].is_null()).map(|seen| text(seen, "query"));
        let known = log.entry(id).or_insert_with(|| (unheard().unwrap_or_default(), State::Open));
        known.1 = State::Open;
    }
    // A server refuses a session that an earlier server opened: that does not end it.
    let is_done = |seen: &&Value| seen["http"] == "DELETE" && matches!(seen["status"].as_u64(), Some(200..300));
    for seen in report.requests().iter().filter(is_done) {
        log.entry(text(seen, "session")).or_insert_with(|| (String::new(), State::Ended)).1 = State::Ended;
    }
    log
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn log_has_opener_and_state_of_each_session() {
        let asked = |query: &str, opened: Option<&str>| json!({"http": "POST", "rpc": "initialize", "query": query, "status": opened.map(|_| 200), "opened": opened});
        let delete = |id: &str, status: u16| json!({"http": "DELETE", "session": id, "status": status});
        let requests = [
            asked("serve-1", Some("a")),
            asked("connect-2", Some("b")),
            asked("connect-3", None),
            delete("a", 202),
            delete("b", 500),
            delete("x", 404),
        ];
        let log = read(&Report(json!({"requests": requests, "open": ["b", "c"]})));
        let entry = |id: &str, opener: &str, state| (id.to_owned(), (opener.to_owned(), state));
        let expected = [
            entry("a", "serve-1", State::Ended),
            entry("b", "connect-2", State::Open),
            entry("c", "connect-3", State::Open),
        ];
        assert_eq!(log, Log::from(expected));
    }
}
