//! Invalid records in the ledger.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;
use testkit::host::{Host, Manner};
use testkit::leash::keeper;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::{answer, check_gone, record_file, start, trivial};

/// Puts `bytes` into the ledger as a record of a dead leash.
fn plant(scene: &Scene, bytes: &[u8]) {
    let sessions = scene.runtime_dir().join("sessions");
    fs::create_dir_all(&sessions).expect("cannot make a directory");
    fs::set_permissions(&sessions, fs::Permissions::from_mode(0o700)).expect("cannot set its mode");
    fs::write(sessions.join("0123456789abcdef.json"), bytes).expect("cannot write a record");
    fs::write(sessions.join("0123456789abcdef.lock"), "").expect("cannot write a lock");
    for path in [&sessions].into_iter().chain(&scene.ledger()) {
        scene.user().own(path).expect("cannot give it to the user");
    }
}

/// Checks that leash starts all the same, and that the record is gone after that.
fn check(bytes: &[u8]) {
    let scene = or_skip!(Scene::set(Who::User));
    plant(&scene, bytes);
    let answer = answer(&mut trivial(&scene, &[]));
    assert_eq!(answer.code, 0, "{answer:?}");
    let left = scene.ledger();
    assert!(left.is_empty(), "still there: {left:?}, {answer:?}");
    assert_eq!(scene.answer(["ps", "--json"]).json()["sessions"], Value::Array(Vec::new()));
}

#[test]
fn empty_record() {
    check(b"");
}

#[test]
fn truncated_record() {
    check(br#"{"version":1,"boot":"2f1b"#);
}

#[test]
fn garbage_record() {
    check(&[0xff; 5000]);
}

#[test]
fn wrong_shape() {
    check(br#"[1, 2, 3]"#);
}

#[test]
fn newer_version() {
    let scene = or_skip!(Scene::set(Who::User));
    plant(&scene, br#"{"version":99,"boot":"x","members":"in another shape"}"#);
    let answer = answer(&mut trivial(&scene, &[]));
    assert_eq!(answer.code, 0, "a record of a newer leash does not stop this one: {answer:?}");
}

/// A tree whose leash and keeper are dead, its host, and its record.
fn orphaned(scene: &mut Scene) -> (Host, Value) {
    let mut host = start(scene, &Manner::default(), &["--contain", "reaper"], "setsid");
    let size = 2;
    let record = wait::until("all members in the ledger", || {
        let record: Value = serde_json::from_slice(&fs::read(record_file(scene)?).ok()?).ok()?;
        (record["members"].as_array()?.len() >= size).then_some(record)
    });
    let leash = host.server();
    let keeper = keeper(leash.pid());
    for signal in [Signal::STOP, Signal::KILL] {
        leash.signal(signal).expect("cannot signal leash");
        keeper.signal(signal).expect("cannot signal the keeper");
    }
    assert!(leash.wait_gone(LIMIT) && keeper.wait_gone(LIMIT));
    assert!(scene.census().is_populated(), "without leash and keeper a stubborn helper survives");
    (host, record)
}

/// Replaces the only record with a changed one.
fn replace(scene: &Scene, record: &Value) {
    let path = record_file(scene).expect("a killed leash leaves its record");
    fs::write(path, record.to_string()).expect("cannot replace the record");
}

/// Checks that leash does not touch the processes in a record that it must not believe.
fn check_not_believed(change: impl FnOnce(&mut Value)) {
    let mut scene = or_skip!(Scene::set(Who::User));
    let (_host, mut record) = orphaned(&mut scene);
    change(&mut record);
    replace(&scene, &record);
    let answer = answer(&mut trivial(&scene, &[]));
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(scene.census().is_populated(), "killed by a record that was not to be believed");
    assert!(scene.ledger().is_empty(), "{:?}", scene.ledger());
}

/// The same steps without the change do end the tree: otherwise the tests below would prove nothing.
#[test]
fn record_of_this_boot_is_believed() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let (host, record) = orphaned(&mut scene);
    replace(&scene, &record);
    let answer = answer(&mut trivial(&scene, &[]));
    assert_eq!(answer.code, 0, "{answer:?}");
    check_gone(&scene, &[host.pid()]);
}

#[test]
fn record_of_another_boot_is_not_believed() {
    check_not_believed(|record| record["boot"] = "00000000-0000-0000-0000-000000000000".into());
}

#[test]
fn members_that_started_at_another_time_are_not_believed() {
    check_not_believed(shift_starts);
}

/// Changes every start time in the record.
fn shift_starts(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value.as_u64() {
            Some(ticks) if name.starts_with("start") => *value = (ticks + 1000).into(),
            _ => shift_starts(value),
        }),
        Value::Array(values) => values.iter_mut().for_each(shift_starts),
        _ => {}
    }
}
