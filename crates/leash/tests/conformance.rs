//! The official conformance suite, directly and through leash: every check that passes directly must pass through leash
//! as well.

use std::path::Path;
use std::thread;

use testkit::conformance::{self, Results, Revision, Status};
use testkit::deps::Deps;
use testkit::everything::{Everything, Transport};
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::or_skip;
use testkit::relay::Relay;
use testkit::scene::Scene;
use testkit::user::Who;

/// True for all scenarios but those of an optional extension that the fixture lacks: no revision requires them.
fn is_for_all(scenario: &str) -> bool {
    !scenario.starts_with("tasks-")
}

/// The scenarios that do not need tools, prompts and resources with special names.
const FOR_STRANGERS: [&str; 11] = [
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
];

fn is_for_strangers(scenario: &str) -> bool {
    FOR_STRANGERS.contains(&scenario)
}

/// The faults of `server-everything`: it does not distinguish a terminated session from a bad request, and it does not
/// check the Host header.
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
fn server_everything_has_two_faults() {
    let deps = or_skip!(Deps::find());
    let everything = Everything::start(&deps, Transport::StreamableHttp);
    let direct = conformance::server(&deps, everything.url(), Revision::Legacy).only(is_for_strangers);
    assert_eq!(direct.complaints(), WRONG_IN_EVERYTHING, "{}", direct.explain());
    check_scenarios(&direct, &FOR_STRANGERS, FOR_STRANGERS.len());
}

/// Both faults are gone behind leash, which tracks its sessions and checks the Host header.
#[test]
fn server_everything_has_no_faults_through_leash() {
    let deps = or_skip!(Deps::find());
    let everything = Everything::start(&deps, Transport::StreamableHttp);
    let scene = or_skip!(Scene::set(Who::me()));
    let gateway = Gateway::in_front_of(&scene, &AT_ONCE, everything.url());
    let results = conformance::server(&deps, &gateway.url("x"), Revision::Legacy).only(is_for_strangers);
    check_strangers(&results);
    check_end(&scene, gateway);
}

#[test]
fn server_everything_has_no_faults_through_leash_over_stdio() {
    let deps = or_skip!(Deps::find());
    let scene = or_skip!(Scene::set(Who::me()));
    let server = ["node".into(), deps.everything().into(), "stdio".into()];
    let gateway = Gateway::single(&scene, &AT_ONCE, &server);
    // Every session starts a Node process that loads the whole server.
    let results = conformance::server_in(&deps, &gateway.url("x"), &FOR_STRANGERS, Revision::Legacy);
    check_strangers(&results);
    check_end(&scene, gateway);
}

fn check_strangers(results: &Results) {
    assert_eq!(results.complaints(), [""; 0], "{}", results.explain());
    check_scenarios(results, &FOR_STRANGERS, FOR_STRANGERS.len());
    for fault in WRONG_IN_EVERYTHING {
        let (scenario, check) = fault.split_once(": ").expect("scenario: check");
        assert_eq!(results.status(scenario, check), Some(Status::Success), "{fault}");
    }
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

#[test]
fn our_client_conforms_to_2025_11_25_through_leash() {
    check_connect(&LEGACY_CLIENT, Revision::Legacy);
}

#[test]
fn our_client_conforms_to_2026_07_28_through_leash() {
    check_connect(&MODERN_CLIENT, Revision::Modern);
}

/// Over stdio the suite only sees the requests that `leash connect` sends for the client.
fn check_connect(scenarios: &[&str], revision: Revision) {
    let scene = or_skip!(Scene::set(Who::me()));
    let (runtime, state) = (scene.runtime_dir(), scene.dir().join("state"));
    let variables = format!("LEASH_RUNTIME_DIR={} XDG_STATE_HOME={}", runtime.display(), state.display());
    check_client(&format!("stdio env {variables} {} connect", scene.leash_path().display()), scenarios, revision);
    assert!(scene.ledger().is_empty(), "{:?}", scene.ledger());
}

/// `way` is the first part of the client's arguments, before the URL: `http`, or `stdio` and a command that takes one.
fn check_client(way: &str, scenarios: &[&str], revision: Revision) {
    let deps = or_skip!(Deps::find());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/conformance.mjs");
    let results = conformance::client(&deps, &format!("node {} {way}", script.display()), scenarios, revision);
    assert_eq!(results.complaints(), [""; 0], "{}", results.explain());
    check_scenarios(&results, scenarios, scenarios.len());
}

/// A relay that only copies bytes cannot fail a check. A loss here happens by chance, and would be blamed on leash in
/// the other tests.
#[test]
fn nothing_is_lost_through_a_relay() {
    let deps = or_skip!(Deps::find());
    let fixture = Fixture::http(&[]);
    let relay = Relay::to(fixture.address());
    check_through(&deps, &relay.url(fixture.url()), Revision::Legacy, &[]);
}

/// The suite's process is the owner of its sessions: the ones that it leaves end with it, and not some seconds later.
const AT_ONCE: [&str; 4] = ["--linger", "100ms", "--grace", "500ms"];

/// Checks that a server behind a pipe cannot or need not pass. The suite reports both as a note instead of a success.
const OVER_STDIO: [&str; 2] = [
    // leash answers with one JSON body if the server answers at once, because a stream would only be longer. The suite
    // says "SSE streaming is optional".
    "server-sse-multiple-streams: server-sse-streams-functional: Success -> Info",
    // A tool of the fixture closes its own stream in the middle of a call. A pipe has no stream to close, and leash has
    // no reason to close one: connections cost it little, and a client that loses one can resume (see `real_clients`).
    "server-sse-polling: server-sse-disconnect-resume: Success -> Info",
];

#[test]
fn nothing_is_lost_of_2025_11_25_through_leash() {
    check_through_http(Revision::Legacy);
}

#[test]
fn nothing_is_lost_of_2026_07_28_through_leash() {
    check_through_http(Revision::Modern);
}

#[test]
fn nothing_is_lost_of_2025_11_25_through_leash_over_stdio() {
    check_through_stdio(Revision::Legacy, &OVER_STDIO);
}

#[test]
fn nothing_is_lost_of_2026_07_28_through_leash_over_stdio() {
    // This era has no resumption, so the suite does not test it.
    check_through_stdio(Revision::Modern, &OVER_STDIO[..1]);
}

fn check_through_http(revision: Revision) {
    let deps = or_skip!(Deps::find());
    let scene = or_skip!(Scene::set(Who::me()));
    let fixture = Fixture::http(&[]);
    let gateway = Gateway::in_front_of(&scene, &AT_ONCE, fixture.url());
    check_through(&deps, &gateway.url("x"), revision, &[]);
    check_end(&scene, gateway);
    assert_eq!(fixture.wait_deleted() > 0, revision == Revision::Legacy);
}

fn check_through_stdio(revision: Revision, expected: &[&str]) {
    let deps = or_skip!(Deps::find());
    let scene = or_skip!(Scene::set(Who::me()));
    let census = scene.dir().join("census").into_os_string();
    let server = [scene.fixture_path().into(), "stdio".into(), "--census".into(), census];
    let gateway = Gateway::single(&scene, &AT_ONCE, &server);
    check_through(&deps, &gateway.url("x"), revision, expected);
    check_end(&scene, gateway);
}

/// Checks that no session and no process is left, whatever the suite left open.
fn check_end(scene: &Scene, gateway: Gateway) {
    gateway.wait_empty("x");
    gateway.stop();
    scene.wait_gone(&[]).expect("nothing is left");
    assert!(scene.ledger().is_empty(), "{:?}", scene.ledger());
}

/// Some checks wait half a second for an answer, which a busy machine may exceed. A real loss shows in every run.
const TRIES: usize = 3;

/// Runs the suite against a fixture and, at the same time, against the gateway at `url` in front of another one. Only
/// the expected losses may occur.
fn check_through(deps: &Deps, url: &str, revision: Revision, expected: &[&str]) {
    let fixture = Fixture::http(&[]);
    let mut tries = Vec::new();
    while tries.len() < TRIES {
        let (direct, through) = thread::scope(|scope| {
            let direct = scope.spawn(|| run(deps, fixture.url(), revision));
            let through = run(deps, url, revision);
            (direct.join().expect("the suite ran"), through)
        });
        let lost: Vec<String> = conformance::lost(&direct, &through).iter().map(|loss| loss.to_string()).collect();
        if lost == expected {
            return;
        }
        testkit::note(&format!("lost of {}: {lost:#?}", revision.name()));
        tries.push(lost);
    }
    panic!("{} of {TRIES} runs of {} did not lose just {expected:#?}", tries.len(), revision.name());
}

fn run(deps: &Deps, url: &str, revision: Revision) -> Results {
    conformance::server(deps, url, revision).only(is_for_all)
}

/// Checks that all scenarios ran: an aborted run would have no complaints.
fn check_scenarios(results: &Results, expected: &[&str], number: usize) {
    let scenarios = results.scenarios();
    assert!(expected.iter().all(|name| scenarios.contains(name)), "{scenarios:?}");
    assert_eq!(scenarios.len(), number, "{scenarios:?}");
    assert!(results.count(Status::Success) >= number, "{results:#?}");
}
