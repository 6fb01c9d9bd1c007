//! Servers whose processes leave them while they are ended. The census shows which ones are alive, never leash.

use std::fs;

use serde_json::Value;
use testkit::leash::Answer;
use testkit::or_skip;
use testkit::user::Who;
use testkit::wait::LIMIT;

use super::hosts::{Host, server};
use super::zoo::{Zoo, living};

/// On SIGTERM it forks into its own session and continues there; with `null` it also closes stdin and stdout.
const DAEMON: &str = r#"
import os, signal, sys, time
census = os.open(sys.argv[1], os.O_WRONLY)
def leave(*_):
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
    if sys.argv[2] == "null":
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
signal.signal(signal.SIGTERM, leave)
os.write(census, b"ready 1\n")
while True: time.sleep(1000)
"#;

/// A child of the server whose main thread exits while another goes on, and which ignores SIGTERM. The server itself
/// ends on SIGTERM.
const LEADERLESS: &str = r#"
import ctypes, os, signal, sys, threading, time
census = os.open(sys.argv[1], os.O_WRONLY)
if os.fork():
    while True: signal.pause()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def work():
    me = f"/proc/{os.getpid()}/stat"
    while ") Z " not in open(me).read(): time.sleep(0.01)
    os.write(census, b"ready 2\n")
    while True: time.sleep(1000)
threading.Thread(target=work).start()
exit_thread = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
ctypes.CDLL(None).syscall(exit_thread, 0)
"#;

/// Starts a script as a server, and kills its host.
fn abandon(zoo: &mut Zoo, text: &str, word: &str) {
    let script = zoo.home().join("server.py");
    fs::write(&script, text).expect("the scene has room");
    let census = zoo.doomed.path().to_owned();
    let words = ["/usr/bin/python3".into(), script, census, word.into()].map(|word| word.display().to_string());
    zoo.declare(&words);
    zoo.hosts.push(Host::start(zoo.python(&[server(&words)])));
    zoo.expect(true, 1);
    zoo.begin();
}

/// The holding of the only tree.
fn tree(answer: &Answer) -> Value {
    answer.json()["receipts"][0]["holdings"][0].clone()
}

#[test]
fn server_that_becomes_a_daemon_on_sigterm_is_ended() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    abandon(&mut zoo, DAEMON, "keep");
    let answer = zoo.reap(&["--yes"]);
    let gone = zoo.doomed.wait_gone(LIMIT);
    gone.unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
    assert_eq!((answer.code, &tree(&answer)["fate"]), (0, &"ended".into()), "nothing proves it: {answer:?}");
}

#[test]
fn a_child_without_its_first_thread_is_ended() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    abandon(&mut zoo, LEADERLESS, "-");
    let answer = zoo.reap(&["--yes"]);
    let gone = zoo.doomed.wait_gone(LIMIT);
    gone.unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
    assert_eq!((answer.code, &tree(&answer)["fate"]), (0, &"ended".into()), "{answer:?}");
}

/// Nothing proves that such a process came from the server, so it is not ended; but it is reported.
#[test]
fn daemon_without_any_link_to_the_server_is_reported() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    abandon(&mut zoo, DAEMON, "null");
    let answer = zoo.reap(&["--yes"]);
    let tree = tree(&answer);
    let left = tree["left"].as_array().cloned().unwrap_or_default();
    let alive = living(&zoo.doomed);
    // It may have been found before it had closed everything.
    let expected = if alive.is_empty() { (0, "ended") } else { (1, "left") };
    assert_eq!((answer.code, tree["fate"].as_str().unwrap_or_default()), expected, "{answer:?}");
    let is_named = |pid: i32| left.iter().any(|one| one["pid"] == pid);
    assert!(alive.iter().all(|(pid, _)| is_named(*pid)), "{alive:?} in {answer:?}");
}
