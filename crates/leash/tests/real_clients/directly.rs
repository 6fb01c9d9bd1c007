//! The clients without leash, as the reference for the other tests.

use std::ffi::OsString;

use rustix::process::Signal;
use serde_json::Value;
use testkit::client::{Client, Mode, Order, Sdk, Target};
use testkit::deps::Deps;
use testkit::fixture::Fixture;
use testkit::relay::Relay;
use testkit::{leash, or_skip};

use super::{WORK, check_acts, check_close, each_client, each_legacy_client};

/// The ways from a client to the fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Http,
    Stdio,
}

/// The fixture behind a way, and the target for the client.
struct Road {
    target: Target,
    /// `None` if the client starts the fixture itself.
    fixture: Option<Fixture>,
}

impl Way {
    fn build(self) -> Road {
        match self {
            Self::Http => {
                let fixture = Fixture::http(&[]);
                Road { target: Target::Http(fixture.url().to_owned()), fixture: Some(fixture) }
            }
            Self::Stdio => Road { target: Target::Stdio(vec![leash::fixture().into(), "stdio".into()]), fixture: None },
        }
    }
}

each_client!(over_http: |sdk, mode| check_work(sdk, mode, Way::Http));
each_client!(over_stdio: |sdk, mode| check_work(sdk, mode, Way::Stdio));
each_legacy_client!(a_cut_connection_is_resumed: check_resume);
each_legacy_client!(who_vanishes_leaves_a_session: check_vanish);

/// The work of a client without leash: the other tests must see no difference.
fn check_work(sdk: Sdk, mode: Mode, way: Way) {
    let deps = or_skip!(Deps::find());
    let road = way.build();
    let acts = [&WORK[..], &["close"]].concat();
    let mut client = Client::start(&deps, &Order { sdk, mode, acts: &acts, target: road.target.clone() });
    // Over HTTP without sessions the server keeps no state between calls; a process does.
    check_acts(&mut client, mode, mode == Mode::Legacy || way == Way::Stdio);
    check_close(&mut client);
    if let Some(fixture) = &road.fixture {
        check_sessions(fixture, sdk, mode != Mode::Legacy);
    }
}

/// Checks that there is one session in the legacy era, which only some SDKs are known to end, and none in the modern
/// one.
fn check_sessions(fixture: &Fixture, sdk: Sdk, is_modern: bool) {
    let report = fixture.report();
    assert_eq!(report.opened(), u64::from(!is_modern));
    let is_deleted = !is_modern && sdk.deletes_on_close();
    assert_eq!(report.deleted().into_values().collect::<Vec<_>>(), vec![1; usize::from(is_deleted)]);
    assert_eq!(report.open().len(), usize::from(!is_modern && !is_deleted));
}

/// The connection is cut in the middle of a call, and the answer arrives on another one.
fn check_resume(sdk: Sdk) {
    let deps = or_skip!(Deps::find());
    let fixture = Fixture::http(&[]);
    let relay = Relay::to(fixture.address());
    let target = Target::Http(relay.url(fixture.url()));
    let mut client = Client::start(&deps, &Order { sdk, mode: Mode::Legacy, acts: &["resume", "close"], target });
    client.outcome("connect");
    assert_eq!(client.outcome("resume")["started"], true);
    assert!(relay.cut() > 0);
    assert_eq!(client.outcome("resume")["text"], "slept 1000 ms");
    client.outcome("close");
    assert!(client.wait().success());
    let report = fixture.report();
    let resumed = |seen: &&Value| seen["http"] == "GET" && seen["lastEventId"].is_string();
    assert!(report.requests().iter().any(|seen| resumed(&seen)), "{:#?}", report.requests());
    assert_eq!(report.cancelled(), 0);
}

/// If a client exits without DELETE, its session stays. This is the reason for leash, and it proves that the witness of
/// the other tests can see a left session.
fn check_vanish(sdk: Sdk) {
    let deps = or_skip!(Deps::find());
    let fixture = Fixture::http(&[]);
    let target = Target::Http(fixture.url().to_owned());
    let start = |ending: &'static str| {
        let order = Order { sdk, mode: Mode::Legacy, acts: &["call", ending], target: target.clone() };
        let mut client = Client::start(&deps, &order);
        client.outcome("connect");
        client.outcome("call");
        client.outcome(ending);
        client
    };
    start("vanish").wait();
    let mut killed = start("hang");
    killed.signal(Signal::KILL);
    killed.wait();
    let report = fixture.report();
    assert_eq!((report.opened(), report.open().len(), report.deleted().len()), (2, 2, 0));
}

/// The modern era has no resumption: a client that disconnects in the middle of a call has cancelled it.
#[test]
fn a_cut_connection_cancels_a_modern_call() {
    let deps = or_skip!(Deps::find());
    for sdk in [Sdk::TypeScript2, Sdk::Python2, Sdk::Rust] {
        let fixture = Fixture::http(&[]);
        let relay = Relay::to(fixture.address());
        let target = Target::Http(relay.url(fixture.url()));
        let mut client = Client::start(&deps, &Order { sdk, mode: Mode::Modern, acts: &["wait", "close"], target });
        client.outcome("connect");
        assert_eq!(client.outcome("wait")["started"], true);
        assert!(relay.cut() > 0);
        // The rest depends on the client's SDK: one of them waits for its own timeout.
        fixture.wait("the cancellation", |report| (report.cancelled() == 1).then_some(()));
    }
}

/// Clients that probe the server notice that it is older, and fall back to the handshake.
#[test]
fn probing_client_falls_back() {
    let deps = or_skip!(Deps::find());
    for sdk in [Sdk::TypeScript2, Sdk::Python2, Sdk::Rust] {
        let fixture = Fixture::http(&["--era", "legacy"]);
        let pipe = ["stdio", "--era", "legacy"].map(OsString::from);
        let pipe: Vec<OsString> = [leash::fixture().into()].into_iter().chain(pipe).collect();
        for target in [Target::Http(fixture.url().to_owned()), Target::Stdio(pipe)] {
            let mut client = Client::start(&deps, &Order { sdk, mode: Mode::Auto, acts: &["call", "close"], target });
            assert_eq!(client.outcome("connect")["version"], "2025-11-25");
            assert_eq!(client.outcome("call")["text"], "hello, wörld ✓");
        }
        assert_eq!(fixture.report().count("POST", Some("server/discover")), 1);
    }
}

/// A TypeScript client that ends its session does so once.
#[test]
fn terminating_client_deletes_its_session_once() {
    let deps = or_skip!(Deps::find());
    for sdk in [Sdk::TypeScript1, Sdk::TypeScript2] {
        let road = Way::Http.build();
        let order = Order { sdk, mode: Mode::Legacy, acts: &["call", "terminate"], target: road.target };
        let mut client = Client::start(&deps, &order);
        assert!(client.wait().success());
        let report = road.fixture.expect("there is one").report();
        assert_eq!(report.deleted().into_values().collect::<Vec<_>>(), [1]);
        assert_eq!(report.open(), [""; 0]);
    }
}
