//! A failed start arrives at the handle with its kind, whether supervisor or keeper found it. Nothing is left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use leash_core::tree::{Caps, Containment, ContainmentWish, OwnerError, StartFailure};
use leash_core::{Places, Session, Spec, Tree};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::or_skip;
use testkit::scene::Scene;

use super::{me, places};

/// Starts a server that cannot be started, and checks that nothing of it is left.
fn failed(scene: &Scene, spec: Spec, places: &Places) -> StartFailure {
    let failure = Tree::start(spec, places).expect_err("it cannot be started");
    scene.wait_gone(&[]).expect("nothing is left");
    assert_eq!(scene.ledger(), Vec::<PathBuf>::new());
    failure
}

fn check(spec: impl FnOnce(&Path) -> Spec, expected: impl FnOnce(&Path) -> StartFailure) {
    let scene = or_skip!(Scene::set(me()));
    let dir = scene.dir();
    assert_eq!(failed(&scene, spec(dir), &places(&scene)), expected(dir));
}

fn file(path: PathBuf, mode: u32, text: &str) -> PathBuf {
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn no_command() {
    check(|_| Spec::new([] as [&str; 0]), |_| StartFailure::NoCommand);
}

#[test]
fn not_found_in_path() {
    check(
        |_| Spec::new(["no-such-program"]).env("PATH", Some("/nowhere:/else".into())),
        |_| StartFailure::NotFound { command: "no-such-program".to_owned(), path: Some("/nowhere:/else".to_owned()) },
    );
}

#[test]
fn path_not_found() {
    let not_found = StartFailure::NotFound { command: "/no/such/program".to_owned(), path: None };
    check(|_| Spec::new(["/no/such/program"]), |_| not_found);
}

/// The message to the handle would not fit into its socket with the whole PATH.
#[test]
fn not_found_in_a_very_long_path() {
    let scene = or_skip!(Scene::set(me()));
    let path = format!("/{}:", "\u{1}".repeat(1000)).repeat(300);
    let failure = failed(&scene, Spec::new(["x"]).env("PATH", Some(path.into())), &places(&scene));
    let StartFailure::NotFound { command, path: Some(path) } = &failure else { panic!("{failure:?}") };
    assert!(command == "x" && path.starts_with("/\u{1}") && path.ends_with("..."), "{failure:?}");
}

#[test]
fn directory() {
    check(|dir| Spec::new([dir]), |dir| StartFailure::IsDirectory { path: text(dir) });
}

#[test]
fn not_executable() {
    check(
        |dir| Spec::new([file(dir.join("data"), 0o600, "no program")]),
        |dir| StartFailure::NotExecutable { path: text(&dir.join("data")) },
    );
}

/// Only the keeper notices it.
#[test]
fn missing_interpreter() {
    let scene = or_skip!(Scene::set(me()));
    let script = file(scene.dir().join("script"), 0o755, "#!/no/such/interpreter\n");
    let failure = failed(&scene, Spec::new([&script]), &places(&scene));
    let StartFailure::Exec { path, cause } = &failure else { panic!("{failure:?}") };
    assert_eq!(*path, text(&script));
    assert!(cause.to_string().contains("No such file or directory"), "{cause}");
}

#[test]
fn missing_working_directory() {
    let scene = or_skip!(Scene::set(me()));
    let failure = failed(&scene, Spec::new(["true"]).cwd("/no/such/place"), &places(&scene));
    let StartFailure::WorkingDirectory { dir, cause } = &failure else { panic!("{failure:?}") };
    assert_eq!(dir, "/no/such/place");
    assert!(cause.to_string().contains("No such file or directory"), "{cause}");
}

#[test]
fn missing_owner() {
    // The kernel's highest pid is 4194304.
    let pid = 4_194_305;
    let scene = or_skip!(Scene::set(me()));
    let mut session = Session::new(places(&scene)).owner(pid);
    let error = session.start(Spec::new(["true"])).expect_err("its owner does not exist");
    let leash_core::session::SessionError::Start { source, .. } = error else { panic!("{error}") };
    assert_eq!(source, StartFailure::Owner { owner: OwnerError::NoSuchProcess { pid } });
}

#[test]
fn runtime_directory_is_a_file() {
    let scene = or_skip!(Scene::set(me()));
    let places = Places { runtime_dir: "/dev/null".into(), ..places(&scene) };
    let failure = failed(&scene, Spec::new(["true"]), &places);
    assert!(matches!(&failure, StartFailure::Ledger { what, .. } if what.contains("/dev/null")), "{failure:?}");
}

#[test]
fn runtime_directory_is_open_to_other_users() {
    let scene = or_skip!(Scene::set(me()));
    fs::set_permissions(scene.runtime_dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let failure = failed(&scene, Spec::new(["true"]), &places(&scene));
    assert!(matches!(&failure, StartFailure::SharedLedger { what } if what.contains("mode 777")), "{failure:?}");
}

/// Only the keeper notices it.
#[test]
fn refused_containment() {
    let scene = or_skip!(Scene::set(me()));
    let wish = ContainmentWish { exactly: Some(Containment::Reaper), at_least: None };
    let spec = Spec::new(["true"]).contain(wish).caps(Caps { memory: Some(1 << 30), ..Caps::default() });
    let failure = failed(&scene, spec, &places(&scene));
    let StartFailure::Contain { refused } = &failure else { panic!("{failure:?}") };
    let told: Vec<_> = refused.iter().map(|refusal| (refusal.containment, refusal.why.as_str())).collect();
    assert_eq!(told, [(Containment::Reaper, "limits of memory, processes and processor time need a cgroup")]);
}

/// Each test is a process of its own.
#[test]
fn no_descriptor_is_left() {
    let scene = or_skip!(Scene::set(me()));
    let (places, before) = (places(&scene), getrlimit(Resource::Nofile));
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).unwrap();
    let failure = Tree::start(Spec::new(["true"]), &places).expect_err("it cannot be started");
    setrlimit(Resource::Nofile, before).unwrap();
    let StartFailure::Resources { what, cause } = &failure else { panic!("{failure:?}") };
    assert_eq!(what, "cannot start a supervisor");
    assert!(cause.to_string().contains("Too many open files"), "{cause}");
}

#[test]
fn missing_or_wrong_program_of_leash() {
    for (program, why) in [("/no/such/leash", "No such file"), ("/bin/true", "it ended before the server ran")] {
        let scene = or_skip!(Scene::set(me()));
        let failure = failed(&scene, Spec::new(["true"]), &Places { program: program.into(), ..places(&scene) });
        let StartFailure::Internal { what, cause } = &failure else { panic!("{failure:?}") };
        assert_eq!(what, "cannot start a supervisor");
        assert!(cause.to_string().contains(why), "{cause}");
    }
}
