//! HTTP servers.

use testkit::everything::{Everything, Transport};
use testkit::fixture::Fixture;
use testkit::gateway::Gateway;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{deps, row, with};

fn check(options: &[&str]) -> Option<Answer> {
    let scene = Scene::set(Who::User).inspect_err(|why| testkit::note(why)).ok()?;
    Some(scene.answer(["check", "--json"].iter().chain(options)))
}

/// The Rust SDK checks no origin by default; all else is as it should be.
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
    // It opened hundreds of sessions, and none of them is left.
    assert!(fixture.wait_deleted() >= 300);
}

/// What is known of it: 400 in the place of 404, no origin check, no idle time.
#[test]
fn server_everything_is_found_out() {
    let Some(deps) = deps() else { return };
    let server = Everything::start(&deps, Transport::StreamableHttp);
    let Some(answer) = check(&["--url", server.url(), "--expect-idle", "500ms"]) else { return };
    let found = ["http.terminated", "http.unknown", "http.expiry", "http.origin"];
    assert_eq!(with(&answer, "fail"), found, "{answer:?}");
    assert_eq!(answer.code, 1);
}

#[test]
fn nobody_there_is_a_finding_and_no_address_a_mistake() {
    let mut fixture = Fixture::http(&[]);
    fixture.kill();
    let Some(answer) = check(&["--url", fixture.url()]) else { return };
    assert_eq!((answer.code, &with(&answer, "fail")[0][..]), (1, "http.session"), "{answer:?}");
    let Some(answer) = check(&["--url", "ftp://here"]) else { return };
    assert_eq!(answer.code, 2, "{answer:?}");
}

/// leash's own gateway in front of the same server repairs what the server does wrong.
#[test]
fn a_gateway_of_ours_passes() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let gateway = Gateway::in_front_of(&scene, &[], fixture.url());
    let url = format!("http://{}/x/mcp", gateway.address());
    let answer = scene.answer(["check", "--json", "--url", &url]);
    assert_eq!((with(&answer, "fail"), with(&answer, "warn")), (vec![], vec![]), "{answer:?}");
    assert_eq!(with(&answer, "pass").len(), 5, "{answer:?}");
    fixture.wait_deleted();
}
