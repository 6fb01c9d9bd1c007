//! The gateway is killed: the keepers of its trees end them at once, and its own keeper deletes its upstream sessions.

use rustix::process::Signal;
use testkit::fixture::Fixture;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{both, every_session_was_deleted_once, open, receipts};

const EACH: usize = 50;

#[test]
fn a_killed_gateway_leaves_nothing() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let policy = r#""owner": "traffic", "grace": "500ms""#;
    let mut gateway = both(&scene, &fixture, policy);
    for _ in 0..EACH {
        open(&gateway, "http");
        open(&gateway, "stdio");
    }
    gateway.signal(Signal::KILL);
    assert_eq!(gateway.wait(), None);
    // No other leash has started since.
    scene.wait_gone(&[]).expect("the keepers end the trees and the sessions");
    every_session_was_deleted_once(&fixture);
    let receipts = receipts(&scene);
    assert_eq!(receipts.len(), 2 * EACH);
    let upstream = receipts.iter().filter(|receipt| receipt["holdings"][0]["kind"] == "upstream");
    assert_eq!(upstream.clone().count(), EACH);
    for receipt in upstream {
        assert_eq!(receipt["reason"]["kind"], "supervisor_killed", "{receipt}");
        let holding = &receipt["holdings"][0];
        assert_eq!((&holding["kind"], &holding["how"]), (&"upstream".into(), &"deleted".into()), "{receipt}");
    }
    assert!(receipts.iter().all(|receipt| receipt["holdings"][0]["fate"] == "gone"));
}

#[test]
fn a_living_gateway_is_not_swept_by_another() {
    let scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let first = both(&scene, &fixture, "");
    let session = open(&first, "http");
    let second = both(&scene, &fixture, "");
    open(&second, "http");
    assert_eq!(first.post("http", Some(&session), super::LIST).status, 200);
    assert_eq!(fixture.report().deleted().len(), 0);
}
