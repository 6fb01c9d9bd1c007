//! The official conformance suite, directly and through leash: whatever passes directly passes through leash as well.

use std::path::Path;
use std::thread;

use testkit::conformance::{self, Results, Revision, Status};
use testkit::deps::Deps;
use testkit::everything::{Everything, Transport};
use testkit::fixture::Fixture;
use testkit::or_skip;
use testkit::relay::Relay;

/// All but an optional extension that the fixture does not have: nobody requires its scenarios.
fn is_for_all(scenario: &str) -> bool {
    !scenario.starts_with("tasks-")
}

/// The scenarios that do not ask for tools, prompts and resources with names of their own.
fn is_for_strangers(scenario: &str) -> bool {
    [
        "dns-rebinding-protection",
        "logging-set-level",
        "ping",
        "prompts-list",
        "resources-list",
        "resources-subscribe",
        "resources-unsubscribe",
        "server-initialize",
        "server-session-lifecycle",
        "server-sse-multiple-streams",
        "tools-list",
    ]
    .contains(&scenario)
}

/// What `server-everything` does wrong: it does not know a terminated session from a bad request, and it does not look at
/// the Host header.
const WRONG_IN_EVERYTHING: [&str; 2] = [
    "dns-rebinding-protection: localhost-host-rebinding-rejected",
    "server-session-lifecycle: server-session-terminated-returns-404",
];

#[test]
fn the_fixture_conforms_to_2025_11_25() {
    let deps = or_skip!(Deps::find());
    let fixture = Fixture::http(&[]);
    let direct = run(&deps, fixture.url(), Revision::Legacy);
    assert_eq!(direct.complaints(), [""; 0], "{}", direct.explain());
    check_scenarios(&direct, &["server-session-lifecycle", "server-sse-polling", "dns-rebinding-protection"], 33);
}

#[test]
fn the_fixture_conforms_to_2026_07_28() {
    let deps = or_skip!(Deps::find());
    let fixture = Fixture::http(&[]);
    let direct = run(&deps, fixture.url(), Revision::Modern);
    assert_eq!(direct.complaints(), [""; 0], "{}", direct.explain());
    check_scenarios(&direct, &["server-stateless", "http-header-validation", "dns-rebinding-protection"], 40);
}

#[test]
fn everything_has_two_faults() {
    let deps = or_skip!(Deps::find());
    let everything = Everything::start(&deps, Transport::StreamableHttp);
    let direct = conformance::server(&deps, everything.url(), Revision::Legacy).only(is_for_strangers);
    assert_eq!(direct.complaints(), WRONG_IN_EVERYTHING, "{}", direct.explain());
    check_scenarios(&direct, &["server-session-lifecycle", "dns-rebinding-protection"], 11);
}

/// The scenarios for clients that are not about OAuth.
const LEGACY_CLIENT: [&str; 5] = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "json-schema-2020-12-preservation",
];
const MODERN_CLIENT: [&str; 8] = [
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
];

#[test]
fn our_client_conforms_to_2025_11_25() {
    check_client("http", &LEGACY_CLIENT, Revision::Legacy);
}

#[test]
fn our_client_conforms_to_2026_07_28() {
    check_client("http", &MODERN_CLIENT, Revision::Modern);
}

/// `way` is what the client needs to know before the URL: `http`, or `stdio` and a command that takes one.
fn check_client(way: &str, scenarios: &[&str], revision: Revision) {
    let deps = or_skip!(Deps::find());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/conformance.mjs");
    let results = conformance::client(&deps, &format!("node {} {way}", script.display()), scenarios, revision);
    assert_eq!(results.complaints(), [""; 0], "{}", results.explain());
    check_scenarios(&results, scenarios, scenarios.len());
}

/// Bytes that are only carried from one socket to another cannot fail a check: what is lost here was lost by chance, and
/// would be blamed on leash.
#[test]
fn nothing_is_lost_through_a_relay() {
    let deps = or_skip!(Deps::find());
    let fixture = Fixture::http(&[]);
    let relay = Relay::to(fixture.address());
    check_through(&deps, &relay.url(fixture.url()), Revision::Legacy);
}

/// Runs the suite against a fixture and, at the same time, against whatever stands in front of another one at `url`: nothing
/// may be lost.
fn check_through(deps: &Deps, url: &str, revision: Revision) {
    let fixture = Fixture::http(&[]);
    let (direct, through) = thread::scope(|scope| {
        let direct = scope.spawn(|| run(deps, fixture.url(), revision));
        let through = run(deps, url, revision);
        (direct.join().expect("the suite ran"), through)
    });
    let lost: Vec<String> = conformance::lost(&direct, &through).iter().map(|loss| loss.to_string()).collect();
    assert!(lost.is_empty(), "{}: {lost:#?}", revision.name());
}

fn run(deps: &Deps, url: &str, revision: Revision) -> Results {
    conformance::server(deps, url, revision).only(is_for_all)
}

/// A run that was cut short would have nothing to complain about.
fn check_scenarios(results: &Results, expected: &[&str], number: usize) {
    let scenarios = results.scenarios();
    assert!(expected.iter().all(|name| scenarios.contains(name)), "{scenarios:?}");
    assert_eq!(scenarios.len(), number, "{scenarios:?}");
    assert!(results.count(Status::Success) >= number, "{results:#?}");
}
