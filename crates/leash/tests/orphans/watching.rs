//! `leash watch`: the same as `reap`, continuously.

use std::fs;
use std::process::{Command, Stdio};

use testkit::or_skip;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::zoo::{Zoo, living};

const QUICK: [&str; 8] = ["--min-age", "0", "--settle", "200ms", "--grace", "200ms", "--interval", "1s"];

#[test]
fn once_ends_orphans_that_two_scans_prove() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let stay = zoo.play();
    let answer = zoo.scene.answer(["watch", "--once"].iter().chain(&QUICK));
    assert_eq!(answer.code, 0, "{answer:?}");
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
    assert_eq!(living(&zoo.safe), stay, "{answer:?}");
}

#[test]
fn too_young_orphan_is_left_alone() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let stay = zoo.play();
    let go = living(&zoo.doomed);
    let answer = zoo.scene.answer(["watch", "--once", "--min-age", "1h", "--settle", "100ms"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!((living(&zoo.doomed), living(&zoo.safe)), (go, stay), "{answer:?}");
}

#[test]
fn a_running_watch_notices_orphans() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let mut command = zoo.scene.leash(["watch"].iter().chain(&QUICK));
    let mut watch = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("cannot start watch");
    let stay = zoo.play();
    let gone = zoo.doomed.wait_gone(LIMIT);
    let ended = watch.try_wait().expect("cannot ask for watch");
    watch.kill().expect("cannot kill watch");
    watch.wait().expect("cannot wait for watch");
    gone.unwrap_or_else(|left| panic!("{left}"));
    assert!(ended.is_none(), "watch has ended: {ended:?}");
    assert_eq!(living(&zoo.safe), stay);
}

#[test]
fn the_unit_is_one_that_systemd_accepts() {
    let zoo = or_skip!(Zoo::open(Who::me()));
    let answer = zoo.scene.answer(["watch", "--install", "--max-memory", "8G"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let units = zoo.home().join(".config/systemd/user");
    let unit = units.join("leash-watch.service");
    assert!(fs::symlink_metadata(units.join("default.target.wants/leash-watch.service")).is_ok(), "{answer:?}");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--user", "--man=no"]).arg(&unit).env("XDG_RUNTIME_DIR", zoo.scene.runtime_dir());
    match verify.output() {
        Ok(checked) => assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}"),
        Err(error) => testkit::note(&format!("systemd-analyze is not here, so the unit is not verified: {error}")),
    }
    let answer = zoo.scene.answer(["watch", "--uninstall"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    wait::until("the unit is gone", || (!unit.exists()).then_some(()));
    assert!(fs::symlink_metadata(units.join("default.target.wants/leash-watch.service")).is_err());
}
