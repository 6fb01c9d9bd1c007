//! The library as another program uses it: `Tree` and `Session` with the built `leash` as the program of the keeper.

mod drops;
mod failures;
mod hosts;
mod sessions;

use std::io::{BufRead as _, BufReader, Write as _};
use std::time::Duration;

use leash_core::receipt::{self, How, Reason};
use leash_core::{Places, Spec, Tree};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

/// The trees belong to this process, so the scene is set for the user that runs it.
fn me() -> Who {
    if rustix::process::geteuid().is_root() { Who::Root } else { Who::User }
}

fn places(scene: &Scene) -> Places {
    Places {
        runtime_dir: scene.runtime_dir(),
        receipts: scene.dir().join("state/leash/receipts.jsonl"),
        program: scene.leash_path(),
        ..Places::below(scene.dir())
    }
}

fn tree_of(scene: &Scene, kind: &str) -> Spec {
    Spec::new(scene.tree(kind, ["--size", "4"])).grace(Duration::from_millis(100))
}

#[test]
fn a_tree_works_and_ends() {
    let mut scene = or_skip!(Scene::set(me()));
    let mut tree = Tree::start(Spec::new([scene.zoo_path().as_os_str(), "echo".as_ref()]), &places(&scene)).unwrap();
    let (mut stdin, stdout) = (tree.take_stdin().unwrap(), tree.take_stdout().unwrap());
    stdin.write_all(b"hello\n").unwrap();
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
    drop(stdin);
    let receipt = tree.end().unwrap();
    assert!(receipt.all_gone(), "{receipt:?}");
    assert_eq!(receipt.trees().next().map(|tree| tree.how), Some(How::Eof));
    scene.census().wait_gone(wait::LIMIT).unwrap();
}

#[test]
fn a_stubborn_tree_is_killed_and_proved_gone() {
    let mut scene = or_skip!(Scene::set(me()));
    let tree = Tree::start(tree_of(&scene, "mixed"), &places(&scene)).unwrap();
    scene.census().wait_ready(wait::LIMIT).unwrap();
    let receipt = tree.end().unwrap();
    assert!(receipt.all_gone(), "{receipt:?}");
    assert_eq!(receipt.trees().next().map(|tree| tree.how), Some(How::Kill));
    assert_eq!(receipt.reason, Reason::PROGRAM);
    assert!(!scene.census().is_populated(), "something was alive when end() had returned");
}

/// The server can write to the socket on which the supervisor reports: such a report must not count as the end.
#[test]
fn a_forged_report_is_not_the_end() {
    let mut scene = or_skip!(Scene::set(me()));
    let spec = Spec::new(scene.tree("attacker", ["--attack", "forge-report"])).grace(Duration::from_millis(100));
    let spec = spec.env("LEASH_RUNTIME_DIR", Some(scene.runtime_dir().into()));
    let mut tree = Tree::start(spec, &places(&scene)).unwrap();
    scene.census().wait_ready(wait::LIMIT).unwrap();
    // The server is ready when it has sent its reports. `start` has read them if they came before the supervisor's own.
    assert!(tree.poll_over().is_none(), "the server's own word is believed");
    assert!(scene.census().is_populated());
    let receipt = tree.end().unwrap();
    assert!(receipt.all_gone() && receipt.reason == Reason::PROGRAM, "{receipt:?}");
    assert!(!scene.census().is_populated(), "something was alive when end() had returned");
}

#[test]
fn a_dropped_tree_ends_too() {
    let mut scene = or_skip!(Scene::set(me()));
    let tree = Tree::start(tree_of(&scene, "daemon"), &places(&scene)).unwrap();
    scene.census().wait_ready(wait::LIMIT).unwrap();
    let run = tree.run().to_owned();
    drop(tree);
    scene.census().wait_gone(wait::LIMIT).unwrap();
    let receipts = places(&scene).receipts;
    let ended =
        wait::until("the receipt", || receipt::read(&receipts).ok()?.0.into_iter().find(|receipt| receipt.run == run));
    assert!(ended.all_gone(), "{ended:?}");
}
