//! The gateway is killed: its trees are ended by their keepers at once, and the next start deletes what is open upstream.

use rustix::process::Signal;
use testkit::fixture::Fixture;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::{both, every_session_was_deleted_once, open, receipts};

const EACH: usize = 50;

#[test]
fn a_killed_gateway_leaves_nothing_behind_the_next_one() {
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
    // Nobody has started anything since.
    scene.wait_gone(&[]).expect("the keepers end the trees");
    assert_eq!(fixture.report().open().len(), EACH, "only a living leash can delete them");

    let gateway = both(&scene, &fixture, policy);
    every_session_was_deleted_once(&fixture);
    let receipts = testkit::wait::until("all receipts", || {
        let receipts = receipts(&scene);
        (receipts.len() == 2 * EACH).then_some(receipts)
    });
    let swept = receipts.iter().filter(|receipt| receipt["reason"]["kind"] == "swept");
    assert_eq!(swept.clone().count(), EACH);
    for receipt in swept {
        let holding = &receipt["holdings"][0];
        assert_eq!((&holding["kind"], &holding["how"]), (&"upstream".into(), &"deleted".into()), "{receipt}");
    }
    assert!(receipts.iter().all(|receipt| receipt["holdings"][0]["fate"] == "gone"));
    drop(gateway);
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
