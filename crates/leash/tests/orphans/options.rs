//! The options of `reap`, and its reports about ended processes.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::host::Manner;
use testkit::leash::{Answer, keeper};
use testkit::pty::Pty;
use testkit::user::Who;
use testkit::wait::{self, LIMIT};
use testkit::{or_skip, sys};

use super::hosts::{Host, join, lingering, server, server_with};
use super::zoo::{Zoo, living};

/// True if this is a server of the test. If all tests run as the same user, they see each other's packages.
fn is_ours(name: &Value) -> bool {
    name != "server-everything"
}

/// Every finding of a plan: its first process, its verdict, and true if it would be ended.
fn plan(answer: &Answer) -> Vec<(i64, String, bool)> {
    let plan = answer.json();
    let one = |one: &Value| {
        let (pid, verdict) = (&one["finding"]["root"]["pid"], &one["finding"]["verdict"]);
        Some((pid.as_i64()?, verdict.as_str()?.to_owned(), one["would_end"].as_bool()?))
    };
    let ours = plan["plan"].as_array().into_iter().flatten().filter(|one| is_ours(&one["finding"]["server"]));
    ours.filter_map(one).collect()
}

fn receipts(answer: &Answer) -> usize {
    answer.json()["receipts"].as_array().into_iter().flatten().filter(|receipt| is_ours(&receipt["name"])).count()
}

/// For the null device, nothing shows which process reads it.
#[test]
fn likely_orphan_needs_an_option() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let words = zoo.declared(true, "setsid", 2);
    zoo.hosts.push(Host::start(zoo.python(&[server_with(&words, json!({ "mute": true }))])));
    zoo.expect(true, 1);
    zoo.begin();
    let go = living(&zoo.doomed);
    wait::until("the server to be without parents", || {
        let found = plan(&zoo.reap(&[]));
        matches!(&found[..], [(_, verdict, false)] if verdict == "orphan_likely").then_some(())
    });
    assert!(matches!(&plan(&zoo.reap_named(&zoo.doomed, &[]))[..], [(_, _, true)]));
    assert_eq!(receipts(&zoo.reap(&["--yes"])), 0);
    assert_eq!(living(&zoo.doomed), go, "it was only likely");
    let answer = zoo.reap_named(&zoo.doomed, &["--yes"]);
    assert_eq!((answer.code, receipts(&answer)), (0, 1), "{answer:?}");
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
}

/// Two orphans, proved and likely: only those whose process is named are planned or ended.
#[test]
fn named_process_is_the_only_one_that_is_ended() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let (likely, proved) = (zoo.declared(true, "setsid", 2), zoo.declared(false, "stubborn", 1));
    let servers = [server_with(&likely, json!({ "mute": true })), server(&proved)];
    zoo.hosts.push(Host::start(zoo.python(&servers)));
    zoo.expect(true, 1);
    zoo.expect(false, 1);
    let stay = zoo.begin();
    wait::until("both orphans", || (plan(&zoo.reap(&[])).len() == 2).then_some(()));
    let first = |census: &testkit::census::Census| living(census).first().map(|(pid, _)| pid.to_string());
    let pid = first(&zoo.doomed).expect("it lives");
    let found = plan(&zoo.reap(&[&pid]));
    assert!(matches!(&found[..], [(_, verdict, true)] if verdict == "orphan_likely"), "{found:?}");
    let answer = zoo.reap(&[&pid, "--yes"]);
    assert_eq!((answer.code, receipts(&answer)), (0, 1), "{answer:?}");
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
    assert_eq!(living(&zoo.safe), stay, "it was not named");
    let unknown = zoo.reap(&["1", "--yes"]);
    assert!(unknown.code == 1 && unknown.stderr.contains("process 1 belongs to no server"), "{unknown:?}");
    assert_eq!(living(&zoo.safe), stay, "it was not named");
    let pid = first(&zoo.safe).expect("it lives");
    assert_eq!(receipts(&zoo.reap(&[&pid, "--yes"])), 1);
    zoo.safe.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}"));
}

/// A terminal was closed, and its host did not notice.
#[test]
fn stale_host_needs_an_option_and_ends_with_its_servers() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let (words, kept) = (zoo.declared(true, "mixed", 8), zoo.declared(false, "stubborn", 1));
    zoo.others.push(Host::start(zoo.python(&[server(&kept)])));
    zoo.expect(false, 1);
    zoo.expect(true, 1);
    let pty = Pty::open().expect("there are terminals");
    let screen = || Stdio::from(pty.terminal().expect("it has not been closed"));
    let mut command = lingering(zoo.scene.command("/usr/bin/python3"), &[server(&words)]);
    command.arg0("claude").stdin(screen()).stdout(screen()).stderr(join(zoo.doomed.path()));
    sys::prepare(&mut command, vec![pty.control().expect("it has not been closed")]);
    let mut host = command.spawn().expect("cannot start the host");
    // The command has a copy of all descriptors of the host.
    drop(command);
    pty.wait_shown("up", 1).expect("the host starts its servers");
    let stay = zoo.begin();
    let go = living(&zoo.doomed);
    assert_eq!(go.len(), 9, "the host and its server: {go:?}");
    assert!(plan(&zoo.reap(&["--stale"])).is_empty(), "the terminal is open");

    pty.close();
    let stale = wait::until("the terminal to be gone", || plan(&zoo.reap(&[])).into_iter().next());
    assert_eq!(stale, (i64::from(host.id()), "stale_host".to_owned(), false));
    assert_eq!(receipts(&zoo.reap(&["--yes"])), 0);
    assert_eq!(receipts(&zoo.reap_named(&zoo.doomed, &["--yes"])), 0);
    assert_eq!(living(&zoo.doomed), go, "it was only stale");
    let answer = zoo.reap(&["--stale", "--yes"]);
    host.wait().expect("cannot wait for the host");
    assert_eq!((answer.code, receipts(&answer)), (0, 1), "{answer:?}");
    assert_eq!(answer.json()["receipts"][0]["reason"]["kind"], "stale_host", "{answer:?}");
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
    assert_eq!(living(&zoo.safe), stay, "{answer:?}");
}

/// Has a port and a lock, and ignores the end of its input.
const GREEDY: &str = r#"
import fcntl, os, socket, sys
census = os.open(sys.argv[1], os.O_WRONLY)
lock = open(sys.argv[2], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[2] + ".port", "w") as file: file.write(str(listener.getsockname()[1]))
os.write(census, b"ready 1\n")
clients = []
while True: clients.append(listener.accept())
"#;

#[test]
fn ports_and_locks_are_reported_and_released() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let (script, lock) = (zoo.home().join("greedy.py"), zoo.home().join("profile.lock"));
    fs::write(&script, GREEDY).expect("the scene has room");
    let words = ["/usr/bin/python3".into(), script, zoo.doomed.path().to_owned(), lock.clone()];
    let words = words.map(|word| word.display().to_string());
    zoo.declare(&words);
    zoo.hosts.push(Host::start(zoo.python(&[server(&words)])));
    zoo.expect(true, 1);
    zoo.begin();
    let port: u16 = fs::read_to_string(zoo.home().join("profile.lock.port")).expect("it says").parse().expect("a port");
    // As long as a client is connected to it, it is in use.
    let client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let planned = zoo.reap(&["--yes"]);
    assert_eq!(receipts(&planned), 0, "{planned:?}");
    let planned = zoo.reap(&[]);
    assert!(matches!(&plan(&planned)[..], [(_, verdict, false)] if verdict == "orphan_likely"), "{planned:?}");
    drop(client);
    let has_both = |of: &Value| {
        let locks = of["locks"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let ports = of["ports"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        locks.eq([lock.to_str().expect("a path of ours")]) && ports.eq([u64::from(port)])
    };
    let planned = zoo.reap(&[]);
    let [(pid, _, true)] = plan(&planned)[..] else { panic!("{planned:?}") };
    let all = planned.json();
    let found = all["plan"].as_array().into_iter().flatten().find(|one| one["finding"]["root"]["pid"] == pid);
    assert!(found.is_some_and(|found| has_both(&found["belongings"])), "{planned:?}");
    let told = zoo.scene.answer(["reap"]).stdout;
    assert!(told.contains(&format!("port {port}")) && told.contains("profile.lock"), "{told}");
    let why = zoo.scene.answer(["why", &pid.to_string()]).stdout;
    assert!(why.contains(&format!("port {port}")) && why.contains("profile.lock"), "{why}");

    let done = zoo.reap(&["--yes"]);
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{done:?}"));
    let all = done.json();
    let receipt = all["receipts"].as_array().into_iter().flatten().find(|receipt| is_ours(&receipt["name"]));
    assert!(receipt.is_some_and(|receipt| has_both(&receipt["holdings"][0])), "{done:?}");
    TcpListener::bind(("127.0.0.1", port)).expect("the port is free again");
    File::open(&lock).expect("it is there").try_lock().expect("the lock is free again");
}

/// A process leaves a leashed server after leash and its keeper were killed: no record names it, but it has the mark.
const LEAVER: &str = r#"
import os, signal, sys
census = os.open(sys.argv[1], os.O_WRONLY)
if os.fork():
    os.write(census, b"ready 2\n")
    while True: signal.pause()
while os.read(0, 4096): pass
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execv(sys.argv[2], [sys.argv[2], "tree", "ignores-eof", "--census", sys.argv[1]])
"#;

#[test]
fn process_left_by_a_leashed_server_is_found_by_its_mark() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let program = zoo.scene.zoo_path();
    let server = ["/usr/bin/python3".into(), "-c".into(), LEAVER.into(), zoo.doomed.path().into(), program.into()];
    let words = zoo.scene.run_words(["--contain", "reaper", "--grace", "100ms", "--session", "the-one"], &server);
    let mut host = zoo.scene.host(&Manner::default(), None, &words);
    zoo.doomed.wait_all_ready(1, LIMIT).expect("the server did not come up");
    let leash = host.server();
    let keeper = keeper(leash.pid());
    wait::until("both members in the ledger", || (zoo.scene.recorded_members() == 2).then_some(()));
    for signal in [Signal::STOP, Signal::KILL] {
        leash.signal(signal).expect("cannot signal leash");
        keeper.signal(signal).expect("cannot signal the keeper");
    }
    host.wait_ended(LIMIT).expect("the host did not see leash end");
    // The server has the host's own channels.
    drop(host);
    zoo.doomed.wait_all_ready(2, LIMIT).expect("no process has left");

    let answer = zoo.reap(&["--yes"]);
    assert_eq!(receipts(&answer), 2, "the server by its record, and what it left by its mark: {answer:?}");
    let reasons: Vec<Value> = (0..2).map(|at| answer.json()["receipts"][at]["reason"]["kind"].clone()).collect();
    assert_eq!(reasons, ["swept", "orphan"], "{answer:?}");
    zoo.doomed.wait_gone(LIMIT).unwrap_or_else(|left| panic!("{left}\n{answer:?}"));
}

/// No command ends a program that the user told leash to spare.
#[test]
fn spared_process_stays_spared() {
    let mut zoo = or_skip!(Zoo::open(Who::User));
    let tree = zoo.tree(false, "daemon", 2).into_iter().map(Into::into).collect::<Vec<_>>();
    let words = zoo.scene.run_words(["--contain", "reaper", "--grace", "100ms", "--spare", "zoo-daemon"], &tree);
    let mut host = zoo.scene.host(&Manner::default(), None, &words);
    zoo.safe.wait_all_ready(1, LIMIT).expect("the server did not come up");
    host.close_stdin();
    host.wait_ended(LIMIT).expect("leash ends with its server");
    drop(host);
    let stay = living(&zoo.safe);
    assert_eq!(stay.len(), 1, "the spared one: {stay:?}");
    let answer = zoo.reap_named(&zoo.safe, &["--yes"]);
    assert_eq!((receipts(&answer), living(&zoo.safe)), (0, stay), "{answer:?}");
}
