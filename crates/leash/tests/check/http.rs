//! HTTP servers.

use testkit::everything::{Everything, Transport};
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::server::Server;
use super::{deps, me, row, with};

fn check(options: &[&str]) -> Option<Answer> {
    let scene = Scene::set(Who::User).inspect_err(|why| testkit::note(why)).ok()?;
    Some(scene.answer(["check", "--json"].iter().chain(options)))
}

/// The Rust SDK checks no origin by default; everything else passes.
#[test]
fn a_server_of_the_rust_sdk() {
    let fixture = Fixture::http(&[]);
    let pid = fixture.pid().as_raw_nonzero().to_string();
    let Some(answer) = check(&["--url", fixture.url(), "--pid", &pid]) else { return };
    let known = ["http.unknown", "http.terminated", "http.origin"];
    let found = with(&answer, "fail");
    assert!(found.iter().all(|id| known.contains(&id.as_str())), "{answer:?}");
    assert_eq!(with(&answer, "skip"), ["http.expiry"], "{answer:?}");
    assert_eq!(row(&answer, "http.memory")["status"], "pass", "{answer:?}");
    // The check opened hundreds of sessions, and none of them is left.
    assert!(fixture.wait_deleted() >= 300);
}

/// Its known faults: 400 instead of 404, no origin check, no idle timeout.
#[test]
fn server_everything_has_its_known_faults() {
    let Some(deps) = deps() else { return };
    let server = Everything::start(&deps, Transport::StreamableHttp);
    let Some(answer) = check(&["--url", server.url(), "--expect-idle", "500ms"]) else { return };
    let found = ["http.terminated", "http.unknown", "http.expiry", "http.origin"];
    assert_eq!(with(&answer, "fail"), found, "{answer:?}");
    assert_eq!(answer.code, 1);
}

#[test]
fn missing_server_is_a_finding_and_invalid_address_a_usage_error() {
    let mut fixture = Fixture::http(&[]);
    fixture.kill();
    let Some(answer) = check(&["--url", fixture.url()]) else { return };
    assert_eq!((answer.code, &with(&answer, "fail")[0][..]), (1, "http.session"), "{answer:?}");
    let Some(answer) = check(&["--url", "ftp://here"]) else { return };
    assert_eq!(answer.code, 2, "{answer:?}");
}

/// Checks the findings for a server with these faults.
fn check_faults(faults: &[&str], options: &[&str], expected: &[(&str, &str)]) {
    let Some(deps) = deps() else { return };
    let scene = or_skip!(Scene::set(me()));
    let server = Server::start(&scene, &deps, faults);
    let pid = server.pid();
    let options = options.iter().map(|word| if *word == "PID" { &pid } else { *word });
    let all = ["--url", server.url()].into_iter().chain(options).collect::<Vec<_>>();
    let answer = scene.answer(["check", "--json"].into_iter().chain(all));
    let mut found = Vec::new();
    for status in ["fail", "warn", "skip"] {
        found.extend(with(&answer, status).into_iter().map(|id| (status.to_owned(), id)));
    }
    let expected: Vec<(String, String)> =
        expected.iter().map(|(status, id)| ((*status).to_owned(), format!("http.{id}"))).collect();
    assert_eq!(found, expected, "{faults:?}: {answer:?}");
    assert_eq!(answer.code, i32::from(found.iter().any(|(status, _)| status == "fail")), "{answer:?}");
}

const IDLE: &[&str] = &["--expect-idle", "500ms"];

#[test]
fn a_good_server_passes_everything() {
    check_faults(&[], &["--expect-idle", "500ms", "--pid", "PID"], &[]);
}

#[test]
fn each_fault_is_found_and_nothing_else() {
    let memory = ("skip", "memory");
    check_faults(&["zombie"], IDLE, &[("fail", "terminated"), memory]);
    check_faults(&["unknown-400"], IDLE, &[("fail", "unknown"), memory]);
    check_faults(&["immortal"], IDLE, &[("fail", "expiry"), memory]);
    check_faults(&["any-origin"], IDLE, &[("fail", "origin"), memory]);
    check_faults(&["leaks"], &["--pid", "PID"], &[("fail", "memory"), ("skip", "expiry")]);
    check_faults(&["delete-500"], IDLE, &[("fail", "delete"), ("skip", "terminated"), memory]);
}

/// The specification allows it, so it is only a finding with a stricter option.
#[test]
fn server_that_refuses_delete_gets_a_warning() {
    check_faults(&["delete-405"], IDLE, &[("warn", "delete"), ("skip", "terminated"), ("skip", "memory")]);
    let strict = [IDLE, &["--strict"]].concat();
    check_faults(&["delete-405"], &strict, &[("fail", "delete"), ("skip", "terminated"), ("skip", "memory")]);
}

/// Sessions that the client may not end are not ended sessions, and their memory is no leak. It grows in each of the
/// first rounds.
#[test]
fn garbage_that_is_collected_late_is_no_leak() {
    check_faults(&["garbage"], &["--pid", "PID"], &[("skip", "expiry")]);
}

#[test]
fn the_memory_of_sessions_that_can_not_be_ended_is_not_judged() {
    let all = [IDLE, &["--pid", "PID"]].concat();
    check_faults(&["delete-405"], &all, &[("warn", "delete"), ("skip", "terminated"), ("skip", "memory")]);
    check_faults(&["delete-500"], &all, &[("fail", "delete"), ("skip", "terminated"), ("skip", "memory")]);
}

/// It refuses requests of another revision, as it has to.
#[test]
fn a_server_of_an_older_revision_passes_everything() {
    check_faults(&["older"], &["--expect-idle", "500ms", "--pid", "PID"], &[]);
}

/// The id arrived, but the answer did not: the check waits for the given time, and ends the session.
#[test]
fn a_session_whose_answer_never_comes_is_ended() {
    let Some(deps) = deps() else { return };
    let scene = or_skip!(Scene::set(me()));
    let server = Server::start(&scene, &deps, &["late-body", "any-origin"]);
    let answer = scene.answer(["check", "--json", "--ready", "300ms", "--url", server.url()]);
    let told = row(&answer, "http.session")["detail"].to_string();
    assert!(told.contains("no answer within 300ms"), "{answer:?}");
    let seen = server.seen();
    assert_eq!((&seen["opened"], &seen["open"]), (&2.into(), &0.into()), "{seen}: {answer:?}");
}

#[test]
fn a_server_without_sessions_has_nothing_to_leave_behind() {
    let skipped = ["delete", "terminated", "unknown", "expiry", "memory"].map(|id| ("skip", id));
    check_faults(&["modern"], IDLE, &skipped);
    let open: Vec<_> = [("fail", "origin")].into_iter().chain(skipped).collect();
    check_faults(&["modern", "any-origin"], IDLE, &open);
}

#[test]
fn server_that_refuses_everything_fails() {
    let skipped = ["delete", "terminated", "unknown", "expiry", "memory"].map(|id| ("skip", id));
    let found: Vec<_> = [("fail", "session"), ("fail", "origin")].into_iter().chain(skipped).collect();
    check_faults(&["refuses"], IDLE, &found);
}

/// leash's own gateway in front of the same server repairs its faults.
#[test]
fn own_gateway_passes() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = Gateway::in_front_of(&scene, &[], fixture.url());
    let url = format!("http://{}/x/mcp", gateway.address());
    let answer = scene.answer(["check", "--json", "--url", &url]);
    assert_eq!((with(&answer, "fail"), with(&answer, "warn")), (vec![], vec![]), "{answer:?}");
    assert_eq!(with(&answer, "pass").len(), 5, "{answer:?}");
    fixture.wait_deleted();
}

/// It also ends unused sessions, which the server would keep.
#[test]
fn own_gateway_ends_unused_sessions() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = Gateway::in_front_of(&scene, &["--idle", "500ms", "--linger", "500ms"], fixture.url());
    let pid = gateway.pid().as_raw_nonzero().to_string();
    let answer = scene.answer(["check", "--json", "--url", &gateway.url("x"), "--expect-idle", "500ms", "--pid", &pid]);
    assert_eq!((with(&answer, "fail"), with(&answer, "pass").len()), (vec![], 7), "{answer:?}");
    fixture.wait_deleted();
}
