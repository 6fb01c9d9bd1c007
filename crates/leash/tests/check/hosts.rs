//! Hosts, made with the official SDKs.

use std::ffi::OsString;

use testkit::deps::Deps;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::scene::Scene;

use super::{check_clean, deps, me, row, script, with};

/// Runs the check on a host, and checks that nothing is left of it afterwards.
fn check(scene: &mut Scene, deps: &Deps, host: &[OsString]) -> Answer {
    check_for(scene, deps, "3s", host)
}

/// The same, with another grace.
fn check_for(scene: &mut Scene, deps: &Deps, grace: &str, host: &[OsString]) -> Answer {
    let words = ["check", "--json", "--host", "--grace", grace, "--"].map(OsString::from);
    let mut command = scene.leash(words.iter().chain(host));
    let answer = command.current_dir(deps.npm()).output().expect("leash starts").into();
    check_clean(scene);
    answer
}

/// The endings that a host can react to.
const ENDINGS: [&str; 5] = ["exit", "term", "int", "hup", "terminal"];

fn all(endings: &[&str], what: &str) -> Vec<String> {
    endings.iter().map(|ending| format!("host.{ending}.{what}")).collect()
}

/// It uses everything that the SDK offers: only the helper of a server survives it.
#[test]
fn a_careful_host_of_the_typescript_sdk() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let answer = check(&mut scene, &deps, &["node".into(), script("host.mjs"), "careful".into()]);
    assert_eq!((answer.code, with(&answer, "fail")), (0, vec![]), "{answer:?}");
    let mut warned = with(&answer, "warn");
    warned.retain(|id| id.ends_with(".servers"));
    // The kernel sends SIGHUP to the whole group of a closed terminal, including the helper.
    assert_eq!(warned, all(&["exit", "term", "int", "hup", "kill"], "servers"), "{answer:?}");
    assert!(row(&answer, "host.exit.servers")["detail"].to_string().contains("1 left: a helper"), "{answer:?}");
}

/// `close()` of that SDK sends no DELETE.
#[test]
fn a_host_of_the_typescript_sdk_that_only_closes() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let answer = check(&mut scene, &deps, &["node".into(), script("host.mjs"), "closes".into()]);
    assert_eq!(with(&answer, "fail"), all(&ENDINGS, "sessions"), "{answer:?}");
}

/// It ends groups and deletes sessions: nothing survives, except after SIGKILL of the host.
#[test]
fn a_host_of_the_python_sdk_passes() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let answer = check(&mut scene, &deps, &[deps.python().into(), script("host.py"), "closes".into()]);
    assert_eq!((answer.code, with(&answer, "fail")), (0, vec![]), "{answer:?}");
    assert_eq!(with(&answer, "warn"), ["host.kill.servers", "host.kill.sessions"], "{answer:?}");
}

/// It just exits: servers that exit at the end of their input are gone, the others stay.
#[test]
fn careless_host_fails() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let answer = check(&mut scene, &deps, &["node".into(), script("host.mjs"), "careless".into()]);
    let mut found = with(&answer, "fail");
    // The kernel sends SIGHUP to the whole group of a closed terminal, including the processes that the host forgot.
    found.retain(|id| id != "host.terminal.servers");
    let mut expected: Vec<String> = Vec::new();
    for ending in ENDINGS {
        expected.extend((ending != "terminal").then(|| format!("host.{ending}.servers")));
        expected.push(format!("host.{ending}.sessions"));
    }
    assert_eq!((answer.code, found), (1, expected), "{answer:?}");
    let detail = row(&answer, "host.term.servers")["detail"].to_string();
    assert!(detail.contains("the server that leaves on SIGTERM only, a helper of that server"), "{detail}");
}

/// It catches every signal and does nothing.
#[test]
fn host_that_ignores_signals_fails() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let answer = check_for(&mut scene, &deps, "500ms", &[deps.python().into(), script("host.py"), "deaf".into()]);
    assert_eq!(with(&answer, "fail"), all(&["term", "int", "hup", "terminal"], "leaves"), "{answer:?}");
    // A host need not read its stdin.
    assert_eq!(row(&answer, "host.exit.leaves")["status"], "skip", "{answer:?}");
    assert_eq!(row(&answer, "host.kill.leaves")["status"], "pass", "{answer:?}");
}

/// A host that does its work and exits is judged by its exit, and by kills during its work.
#[test]
fn a_host_that_leaves_by_itself_is_judged() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let answer = check(&mut scene, &deps, &[deps.python().into(), script("host.py"), "brief".into()]);
    let seen = |what: &str| row(&answer, &format!("host.exit.{what}"))["status"].clone();
    assert_eq!(["leaves", "servers", "sessions"].map(seen), ["pass"; 3], "{answer:?}");
    assert_eq!(row(&answer, "host.exit.leaves")["detail"], "it exited by itself", "{answer:?}");
    // It would not stay, so it was killed in the middle of its work.
    assert!(row(&answer, "host.kill.leaves")["detail"].to_string().starts_with("\"in "), "{answer:?}");
}

/// A lock that only a clean exit removes: after SIGTERM the host never connects again, which is its own fault.
#[test]
fn host_that_does_not_connect_again_fails() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let says = "test -e \"$1\" && echo locked >&2 && exit 3; touch \"$1\"; \"$2\" \"$3\" careless && rm \"$1\"";
    let lock = scene.dir().join("run/lock");
    let host =
        ["sh".into(), "-c".into(), says.into(), "host".into(), lock.into(), deps.python().into(), script("host.py")];
    let answer = check(&mut scene, &deps, &host);
    assert_eq!(row(&answer, "host.exit.leaves")["status"], "pass", "{answer:?}");
    for ending in ["int", "hup", "kill"] {
        let row = row(&answer, &format!("host.{ending}.leaves"));
        assert_eq!(row["status"], "fail", "{answer:?}");
        assert_eq!(row["detail"], "it connected to no server this time; it said: locked", "{answer:?}");
    }
    assert_eq!(row(&answer, "host.terminal.leaves")["status"], "skip", "{answer:?}");
}

/// A host without the servers of the check: it gets the placeholders, and prints them.
#[test]
fn host_that_connects_to_no_server_is_reported() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let says = "test -s \"$1\" && test \"$1\" = \"$LEASH_CHECK_CONFIG\" && echo \"$2 $3\" >&2";
    let host = ["sh", "-c", says, "host", "{config}", "--url={url}", "{stdio}"].map(OsString::from);
    let answer = check(&mut scene, &deps, &host);
    assert_eq!((answer.code, with(&answer, "fail")), (1, vec!["host.connects".to_owned()]), "{answer:?}");
    let seen = row(&answer, "host.connects")["detail"].to_string();
    assert!(seen.contains("--url=http://127.0.0.1:") && seen.contains("/leash"), "{seen}");
}
