//! The control socket itself.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;

use rustix::process::Signal;
use testkit::gateway::Gateway;
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{answering, ask, socket};

fn gateway(scene: &Scene, options: &[&str]) -> Gateway {
    Gateway::single(scene, options, &["cat".into()])
}

fn pid(gateway: &Gateway) -> i32 {
    gateway.pid().as_raw_nonzero().get()
}

#[test]
fn gateway_makes_a_private_socket_and_removes_it() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let meta = fs::symlink_metadata(socket(&scene)).expect("it is there");
    assert!(meta.file_type().is_socket());
    assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o600, scene.user().uid()));
    assert_eq!(answering(&socket(&scene)), Some(pid(&gateway)));
    gateway.stop();
    assert!(!socket(&scene).exists());
    assert!(!scene.runtime_dir().join("control.lock").exists());
}

#[test]
fn second_gateway_warns_and_runs_without_a_socket() {
    let scene = or_skip!(Scene::set(Who::User));
    let first = gateway(&scene, &[]);
    let second = gateway(&scene, &[]);
    let warning = format!("another `leash serve` (pid {}) has the control socket", pid(&first));
    wait::until("a warning", || second.said().contains(&warning).then_some(()));
    assert!(second.said().contains("--control PATH"), "{}", second.said());
    assert_eq!(second.ask("GET", "/healthz", &[], b"").status, 200);
    second.stop();
    assert_eq!(answering(&socket(&scene)), Some(pid(&first)), "the second one took the first one's socket along");
}

#[test]
fn second_gateway_can_have_a_socket_elsewhere() {
    let scene = or_skip!(Scene::set(Who::User));
    let first = gateway(&scene, &[]);
    let elsewhere = scene.runtime_dir().join("other.sock");
    let second = gateway(&scene, &["--control", elsewhere.to_str().expect("a plain path")]);
    assert_eq!(answering(&elsewhere), Some(pid(&second)));
    assert_eq!(answering(&socket(&scene)), Some(pid(&first)));
    // A path that was given explicitly is not silently ignored.
    let path = elsewhere.to_str().expect("a plain path");
    let third = scene.answer(["serve", "--listen", "127.0.0.1:0", "--control", path, "--name", "x", "--", "cat"]);
    assert_eq!(third.code, 125, "{third:?}");
    second.stop();
    assert!(!elsewhere.exists());
    drop(first);
}

#[test]
fn socket_of_a_killed_gateway_is_taken_over() {
    let scene = or_skip!(Scene::set(Who::User));
    let mut first = gateway(&scene, &[]);
    assert_eq!(answering(&socket(&scene)), Some(pid(&first)));
    first.signal(Signal::KILL);
    first.wait();
    assert!(socket(&scene).exists(), "no process could have removed it");
    assert_eq!(answering(&socket(&scene)), None);
    let second = gateway(&scene, &[]);
    assert_eq!(answering(&socket(&scene)), Some(pid(&second)));
    assert!(!second.said().contains("warning"), "{}", second.said());
}

#[test]
fn a_socket_that_took_its_place_is_not_removed() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    fs::remove_file(socket(&scene)).expect("it is there");
    let _other = UnixListener::bind(socket(&scene)).expect("the place is free");
    gateway.stop();
    assert!(socket(&scene).exists());
}

#[test]
fn no_socket_is_made_if_disabled() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &["--no-control"]);
    assert!(!socket(&scene).exists());
    gateway.stop();
}

#[test]
fn too_long_socket_path_is_reported() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let deep = scene.runtime_dir().join("d".repeat(120));
    scene.set_env("LEASH_RUNTIME_DIR", &deep);
    let gateway = gateway(&scene, &[]);
    wait::until("a warning", || gateway.said().contains("is too long for a socket").then_some(()));
    gateway.stop();
}

#[test]
fn pages_in_browsers_are_not_served() {
    let scene = or_skip!(Scene::set(Who::User));
    let _gateway = gateway(&scene, &[]);
    let mut connection = testkit::http::Connection::open_local(&socket(&scene)).expect("it listens");
    let reply = connection.ask("GET", "/v1/version", &[("origin", "http://localhost:3000")], b"");
    assert_eq!(reply.status, 403);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(ask(&socket(&scene), "GET", "/v1/version", "").status, 200);
}
