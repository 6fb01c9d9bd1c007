//! The directory for receipts cannot be used.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::host::Manner;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::{check_gone, start};

/// Checks that the tree ends although its receipt cannot be written.
fn check(scene: &mut Scene) {
    let mut host = start(scene, &Manner::default(), &["--grace", "100ms"], "stubborn");
    host.close_stdin();
    assert!(host.wait_ended(LIMIT).is_some(), "leash did not end");
    check_gone(scene, &[host.pid()]);
    assert!(scene.ledger().is_empty(), "{:?}", scene.ledger());
}

#[test]
fn unwritable() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let state = scene.dir().join("state");
    fs::set_permissions(state, fs::Permissions::from_mode(0o500)).expect("cannot set a mode");
    check(&mut scene);
    assert!(scene.stderr().contains("warning: "), "{}", scene.stderr());
}

#[test]
fn missing() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("XDG_STATE_HOME", "/dev/null/state");
    check(&mut scene);
    assert!(scene.stderr().contains("warning: "), "{}", scene.stderr());
}
