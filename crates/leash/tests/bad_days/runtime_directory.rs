//! The runtime directory cannot be used.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::{User, Who};

use super::{FAILED, answer, check_gone, check_refusal, trivial};

#[test]
fn unwritable() {
    let scene = or_skip!(Scene::set(Who::User));
    fs::set_permissions(scene.runtime_dir(), fs::Permissions::from_mode(0o500)).expect("cannot set a mode");
    check_refusal(&scene, &mut trivial(&scene, &[]), FAILED);
}

#[test]
fn below_an_unwritable_one() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("LEASH_RUNTIME_DIR", "/usr/share/leash-test");
    check_refusal(&scene, &mut trivial(&scene, &[]), FAILED);
}

#[test]
fn is_a_file() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let file = scene.dir().join("file");
    fs::write(&file, "").expect("cannot write a file");
    scene.set_env("LEASH_RUNTIME_DIR", file);
    check_refusal(&scene, &mut trivial(&scene, &[]), FAILED);
}

/// Somebody else could put records there, and have root kill by them.
#[test]
fn owned_by_somebody_else() {
    let scene = or_skip!(Scene::set(Who::Root));
    chown(scene.runtime_dir(), Some(3_000_000_001), Some(3_000_000_001)).expect("cannot give it away");
    let answer = check_refusal(&scene, &mut trivial(&scene, &[]), FAILED);
    assert!(answer.stderr.contains(&*scene.runtime_dir().to_string_lossy()), "{answer:?}");
}

#[test]
fn owned_by_root() {
    or_skip!(User::find(Who::Root));
    let scene = or_skip!(Scene::set(Who::User));
    chown(scene.runtime_dir(), Some(0), Some(0)).expect("cannot take it");
    check_refusal(&scene, &mut trivial(&scene, &[]), FAILED);
}

#[test]
fn sessions_owned_by_somebody_else() {
    let scene = or_skip!(Scene::set(Who::Root));
    let sessions = scene.runtime_dir().join("sessions");
    fs::create_dir(&sessions).expect("cannot make a directory");
    chown(&sessions, Some(3_000_000_001), Some(3_000_000_001)).expect("cannot give it away");
    check_refusal(&scene, &mut trivial(&scene, &[]), FAILED);
}

#[test]
fn open_to_everybody() {
    let scene = or_skip!(Scene::set(Who::Root));
    fs::set_permissions(scene.runtime_dir(), fs::Permissions::from_mode(0o777)).expect("cannot set a mode");
    let answer = answer(&mut trivial(&scene, &[]));
    let mode = fs::metadata(scene.runtime_dir()).expect("it is there").permissions().mode() & 0o777;
    assert!(answer.code == FAILED || (answer.code == 0 && mode == 0o700), "mode {mode:o}: {answer:?}");
}

/// On a full file system nothing is started, because nothing could be swept later.
#[test]
fn full() {
    let scene = or_skip!(Scene::set(Who::Root));
    let words = scene.run_words::<&str>([], &scene.tree::<&str>("stubborn", []));
    let run = scene.runtime_dir();
    let mut command = scene.zoo(["ns", "--tmpfs"]);
    command.arg(&run).arg("--fill").arg(&run).arg("--").args(words);
    check_refusal(&scene, &mut command, FAILED);
}

/// Without any of its variables leash uses a directory in `/tmp`, where anybody may have been first.
mod in_tmp {
    use super::*;

    /// The scene without a word about directories, and the one that leash will use, prepared by `prepare`.
    fn check(prepare: impl FnOnce(&Path), code: i32) {
        or_skip!(User::find(Who::Root));
        let mut scene = or_skip!(Scene::set(Who::User));
        scene.set_env("LEASH_RUNTIME_DIR", "");
        scene.set_env("XDG_STATE_HOME", "");
        let dir = PathBuf::from(format!("/tmp/leash-{}", scene.user().uid()));
        prepare(&dir);
        let answer = answer(&mut trivial(&scene, &[]));
        let _ = fs::remove_file(&dir);
        let _ = fs::remove_dir_all(&dir);
        assert_eq!(answer.code, code, "{answer:?}");
        check_gone(&scene, &[]);
    }

    #[test]
    fn is_made() {
        check(|_| {}, 0);
    }

    #[test]
    fn was_made_by_somebody_else() {
        let made = |dir: &Path| {
            fs::create_dir(dir).expect("cannot make a directory");
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("cannot set its mode");
        };
        check(made, FAILED);
    }

    #[test]
    fn is_a_link() {
        let elsewhere = std::env::temp_dir().join(testkit::unique("leash-test"));
        fs::create_dir(&elsewhere).expect("cannot make a directory");
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o777)).expect("cannot set its mode");
        check(|dir| std::os::unix::fs::symlink(&elsewhere, dir).expect("cannot link"), FAILED);
        fs::remove_dir(&elsewhere).expect("something was put elsewhere");
    }
}
