//! The ways in which a client exits, through leash: none of them leaves a session.

use rustix::process::Signal;
use testkit::client::{Mode, Order, Sdk, Target};
use testkit::deps::Deps;
use testkit::or_skip;

use super::each_legacy_client;
use super::road::Way;

/// These tests do not use it: the road sets the target.
const ANY: Target = Target::Http(String::new());

/// The TypeScript SDKs have a separate method for ending a session, which nearly no program calls.
#[test]
fn session_of_a_client_that_only_closes_is_deleted_once() {
    let deps = or_skip!(Deps::find());
    for sdk in [Sdk::TypeScript1, Sdk::TypeScript2] {
        for (way, reason) in [(Way::ServeHttp, "owner_gone"), (Way::Connect, "stdin_closed")] {
            let road = or_skip!(way.build());
            let order = Order { sdk, mode: Mode::Legacy, acts: &["call", "close"], target: ANY };
            let mut client = road.start(&deps, order);
            assert_eq!(client.outcome("connect")["version"], "2025-11-25");
            assert_eq!(client.outcome("call")["text"], "hello, wörld ✓");
            client.outcome("close");
            assert!(client.wait().success());
            let fixture = road.fixture.as_ref().expect("it is an HTTP server");
            fixture.wait("the one DELETE", |report| (report.count("DELETE", None) == 1).then_some(()));
            assert_eq!(road.check_end(1), [reason]);
        }
    }
}

/// A process that closes its client and lives may still come back, and real clients do not recover from a lost session.
/// leash keeps it, and deletes it with the process.
#[test]
fn closed_client_keeps_its_session_until_its_process_exits() {
    let deps = or_skip!(Deps::find());
    let road = or_skip!(Way::ServeHttp.build());
    let order = Order { sdk: Sdk::TypeScript2, mode: Mode::Legacy, acts: &["call", "close", "hang"], target: ANY };
    let mut client = road.start(&deps, order);
    for act in ["connect", "call", "close", "hang"] {
        client.outcome(act);
    }
    // Another client runs meanwhile, which shows that leash had the time to end this session, too.
    let order = Order { sdk: Sdk::TypeScript2, mode: Mode::Legacy, acts: &["call", "close"], target: ANY };
    assert!(road.start(&deps, order).wait().success());
    let fixture = road.fixture.as_ref().expect("it is an HTTP server");
    fixture.wait("the other session to be deleted", |report| (report.deleted().len() == 1).then_some(()));
    assert_eq!(fixture.report().open().len(), 1);
    client.signal(Signal::KILL);
    client.wait();
    assert_eq!(road.check_end(2), ["owner_gone", "owner_gone"]);
}

/// A client that ends its session does so through leash, and leash does not do it again.
#[test]
fn terminated_session_is_deleted_once() {
    let deps = or_skip!(Deps::find());
    for sdk in [Sdk::TypeScript1, Sdk::TypeScript2] {
        let road = or_skip!(Way::ServeHttp.build());
        let order = Order { sdk, mode: Mode::Legacy, acts: &["call", "terminate"], target: ANY };
        assert!(road.start(&deps, order).wait().success());
        assert_eq!(road.check_end(1), ["client_deleted"]);
    }
}

each_legacy_client!(who_vanishes_leaves_nothing: check_vanish);

/// The same as without leash, where two sessions are left.
fn check_vanish(sdk: Sdk) {
    let deps = or_skip!(Deps::find());
    for (way, reasons) in [
        (Way::ServeHttp, ["owner_gone"; 2]),
        (Way::ServeStdio, ["owner_gone"; 2]),
        (Way::Connect, ["stdin_closed", "owner_gone"]),
    ] {
        let road = or_skip!(way.build());
        let start = |ending: &'static str| {
            let mut client = road.start(&deps, Order { sdk, mode: Mode::Legacy, acts: &["call", ending], target: ANY });
            client.outcome("connect");
            client.outcome("call");
            client.outcome(ending);
            client
        };
        let mut killed = start("hang");
        start("vanish").wait();
        killed.signal(Signal::KILL);
        killed.wait();
        // Any of the owners of `leash connect` may be noticed first.
        for reason in road.check_end(2) {
            assert!(reasons.contains(&&*reason), "{way:?}: {reason}");
        }
    }
}

mod probing_client_falls_back {
    use super::*;

    #[test]
    fn typescript_2() {
        check_fallback(Sdk::TypeScript2);
    }

    #[test]
    fn python_2() {
        check_fallback(Sdk::Python2);
    }

    #[test]
    fn rust() {
        check_fallback(Sdk::Rust);
    }
}

/// Clients that probe the server also notice through leash that it is older.
fn check_fallback(sdk: Sdk) {
    let deps = or_skip!(Deps::find());
    for way in [Way::ServeStdio, Way::ServeHttp, Way::Connect] {
        let road = or_skip!(way.build_with(&["--era", "legacy"]));
        let order = Order { sdk, mode: Mode::Auto, acts: &["call", "close"], target: ANY };
        let mut client = road.start(&deps, order);
        assert_eq!(client.outcome("connect")["version"], "2025-11-25", "{way:?}");
        assert_eq!(client.outcome("call")["text"], "hello, wörld ✓");
        client.outcome("close");
        assert!(client.wait().success());
        road.check_end(1);
    }
}
