//! The path of the socket, and the life on demand.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ControlError;
use super::socket::Claim;
use super::starter::{Verdict, Vigil};
use leash_model::clock::Moment;
use leash_model::limits;
use testkit::Scratch;

fn private() -> Scratch {
    let dir = Scratch::new();
    fs::set_permissions(&*dir, fs::Permissions::from_mode(0o700)).expect("it is ours");
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
fn a_socket_is_for_its_owner_and_goes_with_its_claim() {
    let dir = private();
    let (claim, listener) = Claim::take(&socket(&dir)).expect("it is free");
    let meta = fs::symlink_metadata(socket(&dir)).expect("it is there");
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.mode() & 0o7777, 0o600);
    UnixStream::connect(socket(&dir)).expect("it is listened on");
    assert_eq!(names(&dir), ["control.lock", "control.sock"]);
    drop((claim, listener));
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn a_path_has_one_owner_who_is_named() {
    let dir = private();
    let first = Claim::take(&socket(&dir)).expect("it is free");
    let refused = Claim::take(&socket(&dir)).expect_err("it is taken");
    let ControlError::Held { pid, .. } = refused else { panic!("{refused}") };
    assert_eq!(pid, Some(std::process::id() as i32));
    UnixStream::connect(socket(&dir)).expect("the first one still listens");
    drop(first);
    Claim::take(&socket(&dir)).expect("it is free again");
}

#[test]
fn what_a_killed_gateway_left_is_replaced() {
    let dir = private();
    // Without a claim nothing is removed: as after SIGKILL.
    drop(UnixListener::bind(socket(&dir)).expect("a socket"));
    fs::write(dir.join("control.lock"), "1\n").expect("a lock that nobody has");
    let taken = Claim::take(&socket(&dir)).expect("nobody has it");
    UnixStream::connect(socket(&dir)).expect("it is listened on");
    drop(taken);
}

#[test]
fn what_is_no_dead_socket_is_left_alone() {
    let dir = private();
    let path = socket(&dir);
    fs::write(&path, "a letter").expect("a file");
    assert!(matches!(Claim::take(&path), Err(ControlError::Occupied { what: "no socket", .. })));
    assert_eq!(fs::read_to_string(&path).expect("it is still there"), "a letter");
    fs::remove_file(&path).expect("it is ours");
    let other = UnixListener::bind(&path).expect("a socket of another program");
    assert!(matches!(Claim::take(&path), Err(ControlError::Occupied { what: "another program's socket", .. })));
    UnixStream::connect(&path).expect("it is still there");
    drop(other);
}

#[test]
fn a_socket_that_took_the_place_of_ours_is_not_removed() {
    let dir = private();
    let (claim, _listener) = Claim::take(&socket(&dir)).expect("it is free");
    fs::remove_file(socket(&dir)).expect("somebody tidied up");
    let other = UnixListener::bind(socket(&dir)).expect("a socket of another program");
    drop(claim);
    UnixStream::connect(socket(&dir)).expect("it is still there");
    drop(other);
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let dir = private();
    fs::set_permissions(&*dir, fs::Permissions::from_mode(0o777)).expect("it is ours");
    assert!(matches!(Claim::take(&socket(&dir)), Err(ControlError::Directory { .. })));
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn a_path_must_fit_into_an_address() {
    let dir = private();
    let of = |length: usize| dir.join("x".repeat(length - dir.as_os_str().len() - 1));
    Claim::take(&of(limits::SOCKET_PATH)).expect("it just fits");
    let refused = Claim::take(&of(limits::SOCKET_PATH + 1)).expect_err("it does not fit");
    assert!(
        refused.to_string().ends_with("is too long for a socket: 108 bytes, and the kernel takes 107"),
        "{refused}"
    );
}

const LINGER: Duration = limits::ON_DEMAND_LINGER;

fn at(time: Duration) -> Moment {
    Moment::from_boot(Duration::from_secs(1000) + time)
}

/// Looks of a vigil: whether a session is there, whether something has changed since the last look, and when.
fn check(looks: &[(bool, bool, Duration)], expected: Verdict) {
    let mut vigil = Vigil::default();
    let verdicts: Vec<_> = looks.iter().map(|(used, changed, time)| vigil.look(*used, *changed, at(*time))).collect();
    assert_eq!(verdicts.last(), Some(&expected), "{looks:?}");
    assert!(!verdicts[..verdicts.len() - 1].contains(&Verdict::Leave), "{looks:?}");
}

#[test]
fn one_that_nobody_wants_leaves_after_the_linger() {
    let moment = Duration::from_nanos(1);
    check(&[(false, false, Duration::ZERO)], Verdict::Until(at(LINGER)));
    check(&[(false, false, Duration::ZERO), (false, false, LINGER - moment)], Verdict::Until(at(LINGER)));
    check(&[(false, false, Duration::ZERO), (false, false, LINGER)], Verdict::Leave);
}

#[test]
fn one_with_a_session_stays_however_long() {
    check(&[(true, false, Duration::ZERO), (true, false, LINGER * 1000)], Verdict::Stay);
    check(&[(false, false, Duration::ZERO), (true, true, LINGER * 2)], Verdict::Stay);
}

#[test]
fn the_linger_begins_with_the_end_of_the_last_session() {
    let end = LINGER * 10;
    check(&[(true, false, Duration::ZERO), (false, true, end)], Verdict::Until(at(end + LINGER)));
    check(&[(true, false, Duration::ZERO), (false, true, end), (false, false, end + LINGER)], Verdict::Leave);
}

#[test]
fn a_session_that_was_there_between_two_looks_begins_it_anew() {
    let later = LINGER - Duration::from_secs(1);
    check(&[(false, false, Duration::ZERO), (false, true, later)], Verdict::Until(at(later + LINGER)));
}
