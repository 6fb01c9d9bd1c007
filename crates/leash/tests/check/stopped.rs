//! A check that is stopped by Ctrl-C, once or twice, by SIGTERM or by SIGKILL. Nothing is left in any case.

use std::ffi::OsString;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use testkit::fixture::Fixture;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::process::{self, Handle};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};

use super::server::Server;
use super::{check_clean, deps, me, row, script};

/// A running check.
struct AtWork {
    child: Child,
    process: Handle,
}

impl AtWork {
    fn start(scene: &mut Scene, words: impl IntoIterator<Item = OsString>) -> AtWork {
        scene.set_env("TMPDIR", scene.dir().join("state"));
        let mut command = scene.leash(["check"]);
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("leash starts");
        let process = Handle::open(Pid::from_child(&child), |_| true).expect("it is our child");
        AtWork { child, process }
    }

    fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("it is ours");
    }

    fn end(self) -> Answer {
        self.child.wait_with_output().expect("it is our child").into()
    }
}

/// The directories of checks that exist.
fn rooms(scene: &Scene) -> Vec<String> {
    let entries = fs::read_dir(scene.dir().join("state")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("leash-check-")).collect()
}

/// A check of a server that only SIGKILL ends, with timeouts beyond those of the test.
fn check_of_a_stubborn_one(scene: &mut Scene) -> AtWork {
    let options = ["--grace", "10m", "--ready", "10m", "--"].map(OsString::from);
    let server = scene.tree("stubborn", ["--mcp"]);
    let check = AtWork::start(scene, options.into_iter().chain(server));
    scene.census().wait_ready(LIMIT).expect("the server runs");
    assert_eq!(rooms(scene).len(), 1);
    check
}

#[test]
fn a_signal_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut scene = or_skip!(Scene::set(Who::User));
        let check = check_of_a_stubborn_one(&mut scene);
        check.signal(signal);
        let answer = check.end();
        assert_eq!(answer.code, 128 + signal.as_raw(), "{answer:?}");
        assert!(answer.stdout.is_empty() && answer.stderr.starts_with("stopped by SIG"), "{answer:?}");
        assert_eq!(rooms(&scene), [""; 0]);
        check_clean(&mut scene);
    }
}

#[test]
fn a_second_signal_leaves_nothing_either() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let check = check_of_a_stubborn_one(&mut scene);
    check.signal(Signal::INT);
    check.signal(Signal::INT);
    check.signal(Signal::TERM);
    let answer = check.end();
    assert!(matches!(answer.code, 130 | 143), "{answer:?}");
    assert_eq!(rooms(&scene), [""; 0]);
    check_clean(&mut scene);
}

/// `nohup leash check`: an ignored signal stays ignored, and another signal still stops it.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let mut scene = or_skip!(Scene::set(Who::User));
    scene.set_env("TMPDIR", scene.dir().join("state"));
    let server = scene.tree("stubborn", ["--mcp"]);
    let mut command = scene.command("nohup");
    command.arg(scene.leash_path()).args(["check", "--grace", "10m", "--ready", "10m", "--"]).args(server);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nohup starts");
    let process = Handle::open(Pid::from_child(&child), |_| true).expect("it is our child");
    let check = AtWork { child, process };
    scene.census().wait_ready(LIMIT).expect("the server runs");
    check.signal(Signal::HUP);
    check.signal(Signal::TERM);
    let answer = check.end();
    assert_eq!(answer.code, 143, "{answer:?}");
    check_clean(&mut scene);
}

/// The check inherits an ignored signal, but the tested program must not: it would be blamed for it.
#[test]
fn tested_program_does_not_inherit_an_ignored_signal() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let mut command = scene.command("sh");
    command.args(["-c", r#"trap "" INT HUP QUIT; exec "$@""#, "sh"]).arg(scene.leash_path());
    command.args(["check", "--json", "--", "sh", "-c", "grep SigIgn /proc/self/status >&2; exit 3"]);
    let answer: Answer = command.output().expect("sh starts").into();
    let told = row(&answer, "stdio.handshake")["detail"].as_str().unwrap_or_default().to_owned();
    let ignored = told.split_whitespace().last().and_then(|mask| u64::from_str_radix(mask, 16).ok());
    // Real-time signals are not checked.
    assert_eq!(ignored.map(|mask| mask & 0x7fff_ffff), Some(0), "{answer:?}");
    check_clean(&mut scene);
}

/// After SIGKILL only the keeper and the next check can clean up: the keeper ends the processes, and the next check
/// removes the rest.
#[test]
fn a_killed_check_leaves_no_process_and_the_next_one_sweeps() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let check = check_of_a_stubborn_one(&mut scene);
    check.signal(Signal::KILL);
    check.end();
    check_clean(&mut scene);
    let [left] = &rooms(&scene)[..] else { panic!("{:?}", rooms(&scene)) };
    let (left, young) = (left.clone(), rooms(&scene).len());
    assert_eq!(scene.answer(["check", "--", "true"]).code, 1);
    assert_eq!(rooms(&scene).len(), young, "it may belong to a check that has just begun");
    let path = scene.dir().join("state").join(&left);
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    fs::File::open(&path).and_then(|dir| dir.set_modified(long_ago)).expect("it is there");
    // People may give their own directories such a name, and put results there.
    let results = scene.dir().join("state/leash-check-results");
    fs::create_dir(&results).and_then(|()| fs::write(results.join("a.xml"), "")).expect("it is ours");
    fs::File::open(&results).and_then(|dir| dir.set_modified(long_ago)).expect("it is there");
    scene.user().own(&results).expect("it is ours");
    assert_eq!(scene.answer(["check", "--", "true"]).code, 1);
    assert_eq!(rooms(&scene), ["leash-check-results"]);
    assert!(results.join("a.xml").exists());
}

/// A stopped check ends a session that it waits for before it exits.
#[test]
fn sessions_are_ended_by_a_check_that_is_stopped() {
    let mut scene = or_skip!(Scene::set(Who::User));
    let fixture = Fixture::http(&[]);
    let check = AtWork::start(&mut scene, ["--url", fixture.url(), "--expect-idle", "10m"].map(OsString::from));
    fixture.wait("the session that is abandoned", |seen| (seen.opened() == 2).then_some(()));
    check.signal(Signal::INT);
    let answer = check.end();
    assert_eq!(answer.code, 130, "{answer:?}");
    assert_eq!(fixture.wait_deleted(), 2);
}

/// A real Ctrl-C reaches every process on the terminal, including the one that is opening a session. That session is
/// ended all the same.
#[test]
fn a_session_that_is_just_being_opened_is_ended() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let mut server = Server::start(&scene, &deps, &["held-open", "immortal"]);
    let check = AtWork::start(&mut scene, ["--url", server.url(), "--expect-idle", "10m"].map(OsString::from));
    server.wait_held();
    let (pid, parent) = (check.process.pid(), check.process.pid().as_raw_nonzero().get());
    let children = process::children(pid);
    let [supervisor] = &children[..] else { panic!("{children:?}") };
    let supervisor = Handle::open(supervisor.pid, |now| now.parent == parent).expect("it waits for the visitor");
    check.signal(Signal::INT);
    supervisor.signal(Signal::INT).expect("it is ours");
    // Gives the check time to end the visitor, which it must not do.
    wait::step(Duration::from_millis(300));
    server.release();
    let answer = check.end();
    assert_eq!(answer.code, 130, "{answer:?}");
    let seen = server.seen();
    assert_eq!((&seen["opened"], &seen["open"]), (&2.into(), &0.into()), "{seen}: {answer:?}");
}

/// The second signal arrives while the session of the foreign web page is being deleted: the DELETE is sent again.
#[test]
fn a_delete_that_is_interrupted_is_sent_again() {
    let Some(deps) = deps() else { return };
    let mut scene = or_skip!(Scene::set(me()));
    let server = Server::start(&scene, &deps, &["any-origin", "held-delete"]);
    let check = AtWork::start(&mut scene, ["--url", server.url()].map(OsString::from));
    server.wait_held();
    // Two signals of the same kind could be merged into one.
    check.signal(Signal::INT);
    check.signal(Signal::TERM);
    let answer = check.end();
    assert!(matches!(answer.code, 130 | 143), "{answer:?}");
    let seen = server.seen();
    assert_eq!((&seen["deletes"], &seen["open"]), (&3.into(), &0.into()), "{seen}: {answer:?}");
}

#[test]
fn a_check_of_a_host_that_is_stopped_leaves_nothing() {
    let Some(deps) = deps() else { return };
    for signal in [Signal::TERM, Signal::KILL] {
        let mut scene = or_skip!(Scene::set(me()));
        let options = ["--host", "--grace", "10m", "--"].map(OsString::from);
        let host = [deps.python().into(), script("host.py"), "deaf".into()];
        let check = AtWork::start(&mut scene, options.into_iter().chain(host));
        // The first run is over only when the host exits, which it does not.
        wait::until("the servers", || {
            let journal =
                rooms(&scene).first().map(|room| scene.dir().join("state").join(room).join("journal-0.jsonl"));
            let text = journal.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
            ["polite", "deaf", "http"]
                .iter()
                .all(|part| text.lines().any(|line| line.contains(part) && line.contains("connected")))
                .then_some(())
        });
        check.signal(signal);
        let answer = check.end();
        assert_eq!(answer.code, 128 + signal.as_raw(), "{answer:?}");
        assert_eq!(rooms(&scene).len(), usize::from(signal == Signal::KILL));
        check_clean(&mut scene);
    }
}
