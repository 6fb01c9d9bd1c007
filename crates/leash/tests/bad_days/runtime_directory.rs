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

/// Another user could put records there, and make root kill processes by them.
#[test]
fn owned_by_another_user() {
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
fn sessions_owned_by_another_user() {
    let scene = or_skip!(Scene::set(Who::Root));
    let sessions = scene.runtime_dir().join("sessions");
    fs::create_dir(&sessions).expect("cannot make a directory");
    chown(&sessions, Some(3_000_000_001), Some(3_000_000_001)).expect("cannot give it away");
    check_refusal(&scene, &mut trivial(&scene, &[]), FAILED);
}

#[test]
fn open_to_all_users() {
    let scene = or_skip!(Scene::set(Who::Root));
    fs::set_permissions(scene.runtime_dir(), fs::Permissions::from_mode(0o777)).expect("cannot set a mode");
    let answer = answer(&mut trivial(&scene, &[]));
    let mode = fs::metadata(scene.runtime_dir()).expect("it is there").permissions().mode() & 0o777;
    assert!(answer.code == FAILED || (answer.code == 0 && mode == 0o700), "mode {mode:o}: {answer:?}");
}

/// On a full file system leash starts nothing, because a later sweep would find no record.
#[test]
fn full() {
    let scene = or_skip!(Scene::set(Who::Root));
    let words = scene.run_words::<&str>([], &scene.tree::<&str>("stubborn", []));
    let run = scene.runtime_dir();
    let mut command = scene.zoo(["ns", "--tmpfs"]);
    command.arg(&run).arg("--fill").arg(&run).arg("--").args(words);
    check_refusal(&scene, &mut command, FAILED);
}

/// Without any of its variables leash uses a directory in `/tmp`, where another user may have made it first.
mod in_tmp {
    use super::*;

    use rustix::process::Signal;
    use testkit::host::{Host, Manner};
    use testkit::wait;

    /// Another user's directory in the place of leash's own.
    struct Taken(PathBuf);

    impl Taken {
        fn make(dir: PathBuf) -> Taken {
            fs::create_dir(&dir).expect("cannot make a directory");
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("cannot set its mode");
            Taken(dir)
        }

        fn is_empty(&self) -> bool {
            fs::read_dir(&self.0).expect("it is there").next().is_none()
        }
    }

    impl Drop for Taken {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A scene without any directory variable, and the path in `/tmp` that is leash's first choice.
    fn set() -> Result<(Scene, PathBuf), String> {
        User::find(Who::Root)?;
        let mut scene = Scene::set(Who::User)?;
        scene.set_env("LEASH_RUNTIME_DIR", "");
        scene.set_env("XDG_STATE_HOME", "");
        let dir = PathBuf::from(format!("/tmp/leash-{}", scene.user().uid()));
        Ok((scene, dir))
    }

    /// The private directory that a file in the state directory names.
    fn private(scene: &Scene) -> PathBuf {
        let pointer = scene.dir().join(".local/state/leash/runtime-directory");
        PathBuf::from(fs::read_to_string(pointer).expect("it is named").trim_end())
    }

    fn start_tree(scene: &mut Scene) -> Host {
        crate::start(scene, &Manner::default(), &["--contain", "reaper", "--grace", "100ms"], "setsid")
    }

    fn sessions(scene: &Scene) -> usize {
        let listed = scene.answer(["ps", "--json"]).json();
        listed["sessions"].as_array().map_or(0, Vec::len)
    }

    #[test]
    fn is_made() {
        let (scene, dir) = or_skip!(set());
        let answer = answer(&mut trivial(&scene, &[]));
        assert_eq!(answer.code, 0, "{answer:?}");
        assert!(dir.join("sessions").is_dir(), "it was not used");
        fs::remove_dir_all(&dir).expect("cannot remove it");
        check_gone(&scene, &[]);
    }

    #[test]
    fn is_a_link() {
        let (scene, dir) = or_skip!(set());
        let elsewhere = Taken::make(std::env::temp_dir().join(testkit::unique("leash-test")));
        std::os::unix::fs::symlink(&elsewhere.0, &dir).expect("cannot link");
        let answer = answer(&mut trivial(&scene, &[]));
        fs::remove_file(&dir).expect("cannot remove the link");
        let _ = fs::remove_dir_all(private(&scene));
        assert_eq!(answer.code, 0, "{answer:?}");
        assert!(elsewhere.is_empty(), "something was put elsewhere");
        check_gone(&scene, &[]);
    }

    /// All commands use the same private directory, also after the other user has removed theirs.
    #[test]
    fn a_private_directory_is_used_when_another_user_was_first() {
        let (mut scene, dir) = or_skip!(set());
        let taken = Taken::make(dir);
        let host = start_tree(&mut scene);
        let private = private(&scene);
        let mode = fs::metadata(&private).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{}", private.display());
        assert!(taken.is_empty(), "something was put into the directory of another user");
        assert_eq!(sessions(&scene), 1);
        drop(taken);
        assert_eq!(sessions(&scene), 1, "the run is not found any more");
        let ended = scene.answer(["end", "--all"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        check_gone(&scene, &[host.pid()]);
        let history = scene.answer(["history", "--json"]).json();
        assert_eq!(history["receipts"].as_array().map(Vec::len), Some(1), "{history:#}");
        fs::remove_dir_all(private).expect("cannot remove it");
    }

    #[test]
    fn the_next_start_sweeps_a_private_directory() {
        let (mut scene, dir) = or_skip!(set());
        let taken = Taken::make(dir);
        let mut host = start_tree(&mut scene);
        let private = private(&scene);
        let members = || {
            let files = fs::read_dir(private.join("sessions")).ok()?.flatten().map(|entry| entry.path());
            let file = files.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "json"))?;
            let record: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
            record["members"].as_array().map(Vec::len)
        };
        wait::until("both members in the ledger", || (members() == Some(2)).then_some(()));
        let leash = host.server();
        let keeper = testkit::leash::keeper(leash.pid());
        for signal in [Signal::STOP, Signal::KILL] {
            leash.signal(signal).expect("cannot signal leash");
            keeper.signal(signal).expect("cannot signal the keeper");
        }
        let answer = answer(&mut trivial(&scene, &[]));
        assert_eq!(answer.code, 0, "{answer:?}");
        check_gone(&scene, &[host.pid()]);
        drop(taken);
        fs::remove_dir_all(private).expect("cannot remove it");
    }

    #[test]
    fn the_session_directory_of_the_user_comes_before_a_private_one() {
        let (mut scene, dir) = or_skip!(set());
        let _taken = Taken::make(dir);
        let of_users = Path::new("/run/user");
        let made = !of_users.exists() && fs::create_dir(of_users).is_ok();
        let own = of_users.join(scene.user().uid().to_string());
        fs::create_dir(&own).expect("cannot make a directory");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).expect("cannot set its mode");
        scene.user().own(&own).expect("cannot give it to the user");
        let host = start_tree(&mut scene);
        assert!(own.join("leash/sessions").is_dir(), "it was not used");
        assert_eq!(sessions(&scene), 1);
        host.signal(Signal::KILL);
        check_gone(&scene, &[host.pid()]);
        fs::remove_dir_all(&own).expect("cannot remove it");
        if made {
            // Another test of this kind may be using it.
            let _ = fs::remove_dir(of_users);
        }
    }

    /// leash only follows the file in the state directory to a private directory of this user.
    #[test]
    fn a_pointer_to_another_directory_is_not_followed() {
        let (scene, dir) = or_skip!(set());
        let _taken = Taken::make(dir);
        let state = scene.dir().join(".local/state/leash");
        fs::create_dir_all(&state).expect("cannot make a directory");
        for path in [".local", ".local/state", ".local/state/leash"] {
            scene.user().own(&scene.dir().join(path)).expect("cannot give it to the user");
        }
        let elsewhere =
            Taken::make(PathBuf::from(format!("/tmp/leash-{}-{}", scene.user().uid(), testkit::unique("x"))));
        let pointer = state.join("runtime-directory");
        fs::write(&pointer, elsewhere.0.display().to_string()).expect("cannot write");
        scene.user().own(&pointer).expect("cannot give it to the user");
        let answer = answer(&mut trivial(&scene, &[]));
        assert_eq!(answer.code, 0, "{answer:?}");
        assert!(elsewhere.is_empty(), "another user's directory was used");
        let private = private(&scene);
        assert_ne!(private, elsewhere.0);
        fs::remove_dir_all(private).expect("cannot remove it");
        check_gone(&scene, &[]);
    }
}
