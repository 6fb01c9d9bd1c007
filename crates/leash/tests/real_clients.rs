//! Real clients: the official SDKs in their eras do everything a client does, and leave in every way a client leaves.
//!
//! How they do without leash is what they are measured by: the same clients through leash shall not see a difference.

use std::ffi::OsString;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::client::{Client, Mode, Order, Sdk, Target};
use testkit::deps::Deps;
use testkit::fixture::Fixture;
use testkit::leash;
use testkit::or_skip;
use testkit::relay::Relay;

/// The ways from a client to the fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Http,
    Stdio,
}

/// The fixture behind a way, and where the client finds it.
struct Road {
    target: Target,
    /// None where the client starts the fixture itself.
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

macro_rules! clients {
    ($($name:ident: $sdk:ident, $mode:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn works_over_http() {
                check_work(Sdk::$sdk, Mode::$mode, Way::Http);
            }

            #[test]
            fn works_over_stdio() {
                check_work(Sdk::$sdk, Mode::$mode, Way::Stdio);
            }
        }
    )*};
}

clients! {
    typescript_1: TypeScript1, Legacy;
    typescript_2_legacy: TypeScript2, Legacy;
    typescript_2_auto: TypeScript2, Auto;
    typescript_2_modern: TypeScript2, Modern;
    python_1: Python1, Legacy;
    python_2_legacy: Python2, Legacy;
    python_2_auto: Python2, Auto;
    python_2_modern: Python2, Modern;
    rust_legacy: Rust, Legacy;
    rust_auto: Rust, Auto;
    rust_modern: Rust, Modern;
}

macro_rules! for_every_legacy_client {
    ($($test:ident: $check:ident;)*) => {$(
        mod $test {
            use super::*;

            #[test]
            fn typescript_1() {
                $check(Sdk::TypeScript1);
            }

            #[test]
            fn typescript_2() {
                $check(Sdk::TypeScript2);
            }

            #[test]
            fn python_1() {
                $check(Sdk::Python1);
            }

            #[test]
            fn python_2() {
                $check(Sdk::Python2);
            }

            #[test]
            fn rust() {
                $check(Sdk::Rust);
            }
        }
    )*};
}

for_every_legacy_client! {
    a_cut_connection_is_resumed: check_resume;
    who_vanishes_leaves_a_session: check_vanish;
}

/// Everything that a client does, in one conversation.
fn check_work(sdk: Sdk, mode: Mode, way: Way) {
    let deps = or_skip!(Deps::find());
    let road = way.build();
    let acts = ["list", "call", "count", "progress", "cancel", "sampling", "elicitation", "close"];
    let mut client = Client::start(&deps, &Order { sdk, mode, acts: &acts, target: road.target.clone() });
    let is_modern = mode != Mode::Legacy;
    let connected = client.outcome("connect");
    assert_eq!(connected["version"], if is_modern { "2026-07-28" } else { "2025-11-25" });
    check_list(&client.outcome("list"));
    assert_eq!(client.outcome("call")["text"], "hello, wörld ✓");
    // Without sessions, nobody remembers over HTTP; a process does.
    let second = if is_modern && way == Way::Http { "1" } else { "2" };
    assert_eq!(client.outcome("count")["counts"], json!(["1", second]));
    let progress = client.outcome("progress");
    assert_eq!(progress["reports"], json!([[0, 4], [1, 4], [2, 4], [3, 4], [4, 4]]));
    assert_eq!(progress["text"], "slept 200 ms");
    assert_eq!(client.outcome("cancel"), json!({"act": "cancel", "call": "cancelled", "cancelled": 1}));
    assert_eq!(client.outcome("sampling")["text"], "LLM response: four");
    let user = r#"User response: action=accept, content={"name":"Ada"}"#;
    assert_eq!(client.outcome("elicitation")["text"], user);
    assert_eq!(client.outcome("close"), json!({"act": "close"}));
    assert!(client.wait().success());
    if let Some(fixture) = &road.fixture {
        check_sessions(fixture, sdk, is_modern);
    }
}

fn check_list(list: &Value) {
    let names = |kind: &str| list[kind].as_array().cloned().unwrap_or_default();
    let tools = names("tools");
    assert_eq!(tools.first().and_then(Value::as_str), Some("test_simple_text"));
    assert_eq!(tools.last().and_then(Value::as_str), Some("census"));
    assert_eq!([tools.len(), names("resources").len(), names("prompts").len()], [38, 3, 5], "{list}");
}

/// One session in the legacy era, and nobody but the SDKs that are known for it ends it; none at all in the modern one.
fn check_sessions(fixture: &Fixture, sdk: Sdk, is_modern: bool) {
    let report = fixture.report();
    assert_eq!(report.opened(), u64::from(!is_modern));
    let is_deleted = !is_modern && sdk.deletes_on_close();
    assert_eq!(report.deleted().into_values().collect::<Vec<_>>(), vec![1; usize::from(is_deleted)]);
    assert_eq!(report.open().len(), usize::from(!is_modern && !is_deleted));
}

/// The connection is cut in the middle of a call; the answer comes by another one.
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

/// However a client leaves without a word, its session stays. This is what leash is for, and the proof that the witness of
/// the tests with leash can see a session that was left.
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

/// The modern era has no resumption: who goes away in the middle of a call has cancelled it.
#[test]
fn a_cut_connection_cancels_a_modern_call() {
    let deps = or_skip!(Deps::find());
    for sdk in [Sdk::TypeScript2, Sdk::Python2, Sdk::Rust] {
        let fixture = Fixture::http(&[]);
        let relay = Relay::to(fixture.address());
        let target = Target::Http(relay.url(fixture.url()));
        let mut client = Client::start(&deps, &Order { sdk, mode: Mode::Modern, acts: &["resume", "close"], target });
        client.outcome("connect");
        assert_eq!(client.outcome("resume")["started"], true);
        assert!(relay.cut() > 0);
        // What becomes of the client is the business of its SDK: one of them waits until its own time is over.
        fixture.wait("the cancellation", |report| (report.cancelled() == 1).then_some(()));
    }
}

/// Clients that ask find out that a server is from before their time, and go back to what it understands.
#[test]
fn who_asks_falls_back() {
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

/// A TypeScript client that knows how to end a session does it once.
#[test]
fn who_terminates_a_session_deletes_it_once() {
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
