//! Tests of the control socket's path and of the lifetime on demand.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, time::Duration};

use super::socket::SocketClaim;
use super::starter::{UnusedDecision, UnusedTimer};
use crate::error::ControlError;
use leash_model::{clock::Moment, limits};
use testkit::Scratch;

fn private() -> Scratch {
    let dir = Scratch::new();
    fs::set_permissions(&*dir, fs::Permissions::from_mode(0o700)).expect("the directory is ours");
    dir
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("control.sock")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn socket_is_private_and_is_removed_with_its_claim() {
    let dir = private();
    let (claim, listener) = SocketClaim::take(&socket(&dir)).expect("the path is free");
    let meta = fs::symlink_metadata(socket(&dir)).expect("the socket exists");
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.mode() & 0o7777, 0o600);
    UnixStream::connect(socket(&dir)).expect("the gateway listens");
    assert_eq!(names(&dir), ["control.lock", "control.sock"]);
    drop((claim, listener));
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn second_claim_is_refused_with_the_pid_of_the_first() {
    let dir = private();
    let first = SocketClaim::take(&socket(&dir)).expect("the path is free");
    let refused = SocketClaim::take(&socket(&dir)).expect_err("the path is taken");
    let ControlError::Held { pid, .. } = refused else { panic!("{refused}") };
    assert_eq!(pid, Some(std::process::id() as i32));
    UnixStream::connect(socket(&dir)).expect("the first gateway still listens");
    drop(first);
    SocketClaim::take(&socket(&dir)).expect("the path is free again");
}

#[test]
fn socket_of_a_killed_gateway_is_replaced() {
    let dir = private();
    // Without a claim nothing removes the socket, as after SIGKILL.
    drop(UnixListener::bind(socket(&dir)).expect("a socket"));
    fs::write(dir.join("control.lock"), "1\n").expect("a lock that no process holds");
    let taken = SocketClaim::take(&socket(&dir)).expect("no process has it");
    UnixStream::connect(socket(&dir)).expect("the gateway listens");
    drop(taken);
}

#[test]
fn other_file_or_live_socket_is_left_alone() {
    let dir = private();
    let path = socket(&dir);
    fs::write(&path, "a letter").expect("a file");
    assert!(matches!(SocketClaim::take(&path), Err(ControlError::Occupied { what: "not a socket", .. })));
    assert_eq!(fs::read_to_string(&path).expect("the file is still there"), "a letter");
    fs::remove_file(&path).expect("the file is ours");
    let other = UnixListener::bind(&path).expect("a socket of another program");
    assert!(matches!(SocketClaim::take(&path), Err(ControlError::Occupied { what: "another program's socket", .. })));
    UnixStream::connect(&path).expect("the file is still there");
    drop(other);
}

#[test]
fn socket_of_another_program_is_not_removed() {
    let dir = private();
    let (claim, _listener) = SocketClaim::take(&socket(&dir)).expect("the path is free");
    fs::remove_file(socket(&dir)).expect("the socket is ours");
    let other = UnixListener::bind(socket(&dir)).expect("a socket of another program");
    drop(claim);
    UnixStream::connect(socket(&dir)).expect("the file is still there");
    drop(other);
}

#[test]
fn directory_that_other_users_can_write_to_is_refused() {
    let dir = private();
    fs::set_permissions(&*dir, fs::Permissions::from_mode(0o777)).expect("the directory is ours");
    assert!(matches!(SocketClaim::take(&socket(&dir)), Err(ControlError::Directory { .. })));
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn path_longer_than_a_socket_address_is_refused() {
    let dir = private();
    let of = |length: usize| dir.join("x".repeat(length - dir.as_os_str().len() - 1));
    SocketClaim::take(&of(limits::SOCKET_PATH)).expect("the path just fits");
    let refused = SocketClaim::take(&of(limits::SOCKET_PATH + 1)).expect_err("the path is too long");
    assert!(
        refused.to_string().ends_with("is too long for a socket: 108 bytes, and the kernel takes 107"),
        "{refused}"
    );
}

const LINGER: Duration = limits::ON_DEMAND_LINGER;

fn at(time: Duration) -> Moment {
    Moment::from_boot(Duration::from_secs(1000) + time)
}

/// Checks the last decision of a timer. Each call has: a session exists, a session began or ended since the last call,
/// the time.
fn check(calls: &[(bool, bool, Duration)], expected: UnusedDecision) {
    let mut timer = UnusedTimer::default();
    let decisions: Vec<_> =
        calls.iter().map(|(used, changed, time)| timer.decide(*used, *changed, at(*time))).collect();
    assert_eq!(decisions.last(), Some(&expected), "{calls:?}");
    assert!(!decisions[..decisions.len() - 1].contains(&UnusedDecision::Exit), "{calls:?}");
}

#[test]
fn unused_gateway_exits_after_the_linger() {
    let moment = Duration::from_nanos(1);
    check(&[(false, false, Duration::ZERO)], UnusedDecision::Until(at(LINGER)));
    check(&[(false, false, Duration::ZERO), (false, false, LINGER - moment)], UnusedDecision::Until(at(LINGER)));
    check(&[(false, false, Duration::ZERO), (false, false, LINGER)], UnusedDecision::Exit);
}

#[test]
fn gateway_with_a_session_stays() {
    check(&[(true, false, Duration::ZERO), (true, false, LINGER * 1000)], UnusedDecision::Stay);
    check(&[(false, false, Duration::ZERO), (true, true, LINGER * 2)], UnusedDecision::Stay);
}

#[test]
fn linger_begins_with_the_end_of_the_last_session() {
    let end = LINGER * 10;
    check(&[(true, false, Duration::ZERO), (false, true, end)], UnusedDecision::Until(at(end + LINGER)));
    check(&[(true, false, Duration::ZERO), (false, true, end), (false, false, end + LINGER)], UnusedDecision::Exit);
}

#[test]
fn session_between_two_looks_restarts_the_linger() {
    let later = LINGER - Duration::from_secs(1);
    check(&[(false, false, Duration::ZERO), (false, true, later)], UnusedDecision::Until(at(later + LINGER)));
}
