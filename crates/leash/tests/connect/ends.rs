//! However a connection ends: the upstream session is DELETEd exactly once, no process of leash is left, and a receipt
//! says so.

use std::fs;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::Value;
use testkit::host::{Channel, Ended, Manner};
use testkit::leash::keeper;
use testkit::process::Handle;
use testkit::pty::Pty;
use testkit::scene::Scene;
use testkit::wait::{self, LIMIT};

use crate::host::{Connect, INITIALIZE, call, open_below, scene};
use crate::order::Gate;
use crate::upstream::{Sessions, Upstream, result};

/// A way in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    HostClosesStdin,
    HostExits,
    HostSigkill,
    HostTerm,
    PtyClosed,
    LeashTerm,
    LeashInt,
    LeashHup,
    LeashKill,
    LeashAndHostKill,
    LeashStoppedHostKill,
    MaxAge,
    OwnerPidGone,
}

/// An open session of a host, to be ended.
struct Open {
    scene: Scene,
    sessions: Arc<Sessions>,
    upstream: Upstream,
}

impl Open {
    fn new() -> Open {
        let sessions = Arc::new(Sessions::default());
        let serving = Arc::clone(&sessions);
        Open { scene: scene(), sessions, upstream: Upstream::start(move |seen, talk| serving.serve(seen, talk)) }
    }

    /// Waits for the DELETE, and checks its headers and that it is the only one.
    fn check_deleted(&self) {
        self.upstream.wait_count("DELETE", 1);
        self.scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}\n{}", self.scene.stderr()));
        let deleted = self.upstream.of("DELETE");
        assert_eq!(deleted.len(), 1, "{deleted:#?}");
        assert_eq!(deleted[0].header("mcp-session-id"), "session-1");
        assert_eq!(deleted[0].header("mcp-protocol-version"), "2025-11-25");
        assert_eq!(deleted[0].header("authorization"), "Bearer hush");
        assert_eq!(self.sessions.open(), Vec::<String>::new());
    }

    /// The only receipt.
    fn receipt(&self) -> Value {
        let listed = self.scene.answer(["history", "--json"]).json();
        let [receipt] = &listed["receipts"].as_array().expect("a list")[..] else {
            panic!("not one receipt: {listed:#}")
        };
        receipt.clone()
    }

    fn check_receipt(&self, reason: &[&str], by: &str) {
        let receipt = self.receipt();
        let kind = receipt["reason"]["kind"].as_str().unwrap_or_default();
        assert!(reason.contains(&kind), "{receipt:#}");
        assert_eq!(receipt["ended_by"], by, "{receipt:#}");
        assert_eq!(receipt["name"], "test");
        assert_eq!(receipt["labels"]["a"], "b");
        let [upstream] = &receipt["holdings"].as_array().expect("a list")[..] else { panic!("{receipt:#}") };
        assert_eq!(
            (&upstream["kind"], &upstream["fate"], &upstream["how"]),
            (&"upstream".into(), &"gone".into(), &"deleted".into())
        );
        assert_eq!(upstream["id"], "session-");
        assert_eq!(upstream["tries"], 1);
    }

    /// Checks that no book is left.
    fn check_ledger(&self) {
        let left: Vec<_> = fs::read_dir(self.scene.runtime_dir().join("gateways")).expect("a directory").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The arguments of all cases.
fn words(url: &str) -> Vec<&str> {
    vec!["--header", "Authorization: Bearer hush", "--name", "test", "--label", "a=b", url]
}

fn check(end: End, channel: Channel) {
    let open = Open::new();
    let url = open.upstream.url();
    let mut words = words(&url);
    let owner = (end == End::OwnerPidGone).then(|| Owner::start(&open.scene));
    let wish = owner.as_ref().map(|owner| format!("pid:{}", owner.0.id()));
    if let Some(wish) = &wish {
        words.extend(["--owner", wish]);
    }
    if end == End::MaxAge {
        words.extend(["--max-age", "1s"]);
    }
    let pty = (end == End::PtyClosed).then(|| Pty::open().expect("a pty"));
    let manner = Manner { channel, ..Manner::default() };
    let mut host = open_below(&open.scene, &manner, pty.as_ref(), &words);
    let leash = host.server();
    let keeper = keeper(leash.pid());
    assert_eq!(open.upstream.of("DELETE").len(), 0);
    match end {
        End::HostClosesStdin => host.close_stdin(),
        End::HostExits => host.exit(),
        End::HostSigkill => host.signal(Signal::KILL),
        End::HostTerm => host.signal(Signal::TERM),
        End::PtyClosed => pty.expect("it was opened").close(),
        End::LeashTerm => leash.signal(Signal::TERM).expect("it lives"),
        End::LeashInt => leash.signal(Signal::INT).expect("it lives"),
        End::LeashHup => leash.signal(Signal::HUP).expect("it lives"),
        End::LeashKill => leash.signal(Signal::KILL).expect("it lives"),
        End::LeashAndHostKill => {
            leash.signal(Signal::KILL).expect("it lives");
            host.signal(Signal::KILL);
        }
        End::LeashStoppedHostKill => {
            leash.signal(Signal::STOP).expect("it lives");
            host.signal(Signal::KILL);
            // The keeper has done the work. leash notices that when it continues.
            assert!(keeper.wait_gone(LIMIT), "the keeper stays");
            leash.signal(Signal::CONT).expect("it lives");
        }
        End::MaxAge => {}
        End::OwnerPidGone => drop(owner),
    }
    open.upstream.wait_count("DELETE", 1);
    assert!(leash.wait_gone(LIMIT), "leash stays: {}", open.scene.stderr());
    assert!(keeper.wait_gone(LIMIT), "the keeper stays");
    check_exit(end, &mut host);
    drop(host);
    if end == End::LeashStoppedHostKill {
        return check_stopped(&open);
    }
    open.check_deleted();
    let by = if matches!(end, End::LeashKill | End::LeashAndHostKill) { "keeper" } else { "gateway" };
    open.check_receipt(reasons(end), by);
    open.check_ledger();
}

/// Checks the exit code that the host sees, if the host is still there.
fn check_exit(end: End, host: &mut testkit::host::Host) {
    let expected = match end {
        End::HostClosesStdin | End::MaxAge | End::OwnerPidGone => Ended::Exited(0),
        End::LeashTerm => Ended::Exited(143),
        End::LeashInt => Ended::Exited(130),
        End::LeashHup => Ended::Exited(129),
        End::LeashKill => Ended::Killed(9),
        _ => return,
    };
    assert_eq!(host.wait_ended(LIMIT), Some(expected));
}

/// The keeper did the work while leash was stopped; leash tried it again later.
fn check_stopped(open: &Open) {
    open.scene.wait_gone(&[]).unwrap_or_else(|left| panic!("{left}"));
    assert_eq!(open.sessions.open(), Vec::<String>::new());
    open.check_receipt(&["owner_gone"], "keeper");
    open.check_ledger();
}

fn reasons(end: End) -> &'static [&'static str] {
    match end {
        End::HostClosesStdin => &["stdin_closed"],
        // Any of these may be noticed first.
        End::HostExits | End::HostSigkill | End::HostTerm => &["stdin_closed", "owner_gone"],
        End::PtyClosed => &["terminal_closed", "signal", "owner_gone", "stdin_closed"],
        End::LeashTerm | End::LeashInt | End::LeashHup => &["signal"],
        End::LeashKill | End::LeashAndHostKill => &["supervisor_killed"],
        End::LeashStoppedHostKill | End::OwnerPidGone => &["owner_gone"],
        End::MaxAge => &["max_age"],
    }
}

/// An owner process; dropping it kills it.
struct Owner(std::process::Child);

impl Owner {
    fn start(scene: &Scene) -> Owner {
        Owner(scene.zoo(["idle"]).spawn().expect("cannot start zoo"))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

macro_rules! ends {
    ($($name:ident: $end:ident;)*) => {$(
        #[test]
        fn $name() {
            check(End::$end, Channel::Pipe);
            check(End::$end, Channel::Socketpair);
        }
    )*};
}

ends! {
    host_closes_stdin: HostClosesStdin;
    host_exits: HostExits;
    host_is_killed: HostSigkill;
    host_is_terminated: HostTerm;
    terminal_is_closed: PtyClosed;
    leash_is_terminated: LeashTerm;
    leash_is_interrupted: LeashInt;
    leash_is_hung_up: LeashHup;
    leash_is_killed: LeashKill;
    leash_and_host_are_killed: LeashAndHostKill;
    leash_is_stopped_and_host_killed: LeashStoppedHostKill;
    max_age_is_reached: MaxAge;
    another_owner_is_gone: OwnerPidGone;
}

/// A killed keeper is replaced, and the new one gets the knowledge of the old one.
#[test]
fn keeper_is_killed_and_then_leash() {
    let open = Open::new();
    let url = open.upstream.url();
    let mut host = open_below(&open.scene, &Manner::default(), None, &words(&url));
    let leash = host.server();
    let first = keeper(leash.pid());
    first.signal(Signal::KILL).expect("it lives");
    assert!(first.wait_gone(LIMIT));
    let second = wait::until("another keeper", || {
        let children = testkit::process::children(leash.pid());
        let other = children.iter().find(|child| child.pid != first.pid())?;
        Handle::open(other.pid, |now| now.parent == leash.pid().as_raw_nonzero().get())
    });
    // The new keeper was started before it got its data. The answer to a call shows that leash has sent it.
    host.send(&call(2));
    assert!(host.wait_answer(&result(&2.into(), "session-1")));
    leash.signal(Signal::KILL).expect("it lives");
    assert!(second.wait_gone(LIMIT));
    drop(host);
    open.check_deleted();
    open.check_receipt(&["supervisor_killed"], "keeper");
    open.check_ledger();
}

/// Both are killed at once: the next start finds the session in the book.
#[test]
fn leash_and_keeper_are_killed() {
    let open = Open::new();
    let url = open.upstream.url();
    let mut host = open_below(&open.scene, &Manner::default(), None, &words(&url));
    let leash = host.server();
    let keeper = keeper(leash.pid());
    // The keeper is stopped first, so that neither can act before both are dead.
    keeper.signal(Signal::STOP).expect("it lives");
    leash.signal(Signal::KILL).expect("it lives");
    keeper.signal(Signal::KILL).expect("it lives");
    assert!(leash.wait_gone(LIMIT) && keeper.wait_gone(LIMIT));
    drop(host);
    assert_eq!(open.sessions.open(), ["session-1"]);
    // The same server again, with the credentials that were not written to disk.
    let mut next = Connect::start(&open.scene, &words(&url));
    open.upstream.wait_count("DELETE", 1);
    let listed = wait::until("the receipt", || {
        let listed = open.scene.answer(["history", "--json"]).json();
        (listed["receipts"].as_array()?.len() == 1).then_some(listed)
    });
    assert_eq!(listed["receipts"][0]["reason"]["kind"], "swept");
    next.close();
    assert_eq!(next.code(), Some(0));
    assert_eq!(open.upstream.of("DELETE")[0].header("authorization"), "Bearer hush");
    open.check_ledger();
}

/// A session that the upstream refuses to end is left, and every report says so.
#[test]
fn refused_delete_is_reported_as_left() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.method.as_str() {
        "DELETE" => talk.answer(403, &[], ""),
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.close();
    assert_eq!(connect.code(), Some(1));
    assert!(scene.stderr().contains("warning: left: session session- at"), "{}", scene.stderr());
    assert_eq!(upstream.of("DELETE").len(), 1);
    let history = scene.answer(["history"]).stdout;
    assert!(history.contains("LEFT") && history.contains("denied"), "{history}");
}

/// After a second signal leash does not wait for a slow upstream; the keeper does.
#[test]
fn a_second_signal_leaves_the_end_to_the_keeper() {
    let sessions = Sessions::default();
    let (free, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(Some(wait));
    let upstream = Upstream::start(move |seen, talk| {
        if seen.method == "DELETE"
            && let Some(wait) = wait.lock().expect("no thread panics").take()
        {
            let _ = wait.recv();
            return talk.cut();
        }
        sessions.serve(seen, talk);
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    let keeper = keeper(connect.pid());
    connect.signal(Signal::TERM);
    upstream.wait_count("DELETE", 1);
    connect.signal(Signal::TERM);
    assert_eq!(connect.code(), Some(143));
    upstream.wait_count("DELETE", 2);
    assert!(keeper.wait_gone(LIMIT));
    drop(free);
    let listed = scene.answer(["history", "--json"]).json();
    assert_eq!(listed["receipts"][0]["ended_by"], "keeper", "{listed:#}");
    assert_eq!(listed["receipts"].as_array().map(Vec::len), Some(1));
}

/// Requests from before the end of stdin are still answered for a moment: `echo REQUEST | leash connect URL` works.
#[test]
fn requests_in_flight_are_answered_after_stdin_is_closed() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| sessions.serve(seen, talk));
    let scene = scene();
    let mut connect = Connect::open(&scene, &["--grace", "30s", &upstream.url()]);
    let lines: String = (1..200).map(|id| call(id) + "\n").collect();
    connect.write(lines.as_bytes());
    connect.close();
    for id in 1..200 {
        connect.wait(&result(&id.into(), "session-1"));
    }
    assert_eq!(connect.code(), Some(0));
    assert_eq!(upstream.of("DELETE").len(), 1);
}

/// An unanswered request does not delay the exit beyond the grace.
#[test]
fn unanswered_request_does_not_delay_the_exit() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.rpc().as_str() {
        "tools/call" => talk.wait_gone(),
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &["--grace", "100ms", &upstream.url()]);
    connect.send(&call(1));
    upstream.wait("the call", |seen| seen.iter().any(|seen| seen.rpc() == "tools/call").then_some(()));
    connect.close();
    assert_eq!(connect.code(), Some(0));
    assert_eq!(upstream.of("DELETE").len(), 1);
}

/// The host exits in the middle of its handshake. A session that opens after that is ended, too.
#[test]
fn a_session_that_opens_too_late_is_ended() {
    let (gate, sessions) = (Arc::new(Gate::default()), Arc::new(Sessions::default()));
    let (holding, serving) = (Arc::clone(&gate), Arc::clone(&sessions));
    let upstream = Upstream::start(move |seen, talk| {
        if seen.rpc() == "initialize" {
            holding.wait();
        }
        serving.serve(seen, talk);
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &["--grace", "0", "-v", &upstream.url()]);
    connect.send(INITIALIZE);
    upstream.wait_count("POST", 1);
    connect.close();
    wait::until("the end to begin", || scene.stderr().contains("Ending").then_some(()));
    gate.open();
    assert_eq!(connect.code(), Some(0));
    assert_eq!(upstream.of("DELETE").len(), 1);
    assert_eq!(sessions.open(), Vec::<String>::new());
    assert!(connect.is_silent());
    let receipts = scene.answer(["history", "--json"]).json()["receipts"].clone();
    assert_eq!(receipts[0]["holdings"][0]["how"], "deleted", "{receipts:#}");
}

/// A session opens too late, and a second signal cuts its DELETE short: the keeper ends it.
#[test]
fn a_late_session_is_left_to_the_keeper_after_a_second_signal() {
    let (gate, sessions) = (Arc::new(Gate::default()), Arc::new(Sessions::default()));
    let (holding, serving) = (Arc::clone(&gate), Arc::clone(&sessions));
    let silent = std::sync::atomic::AtomicBool::new(true);
    let upstream = Upstream::start(move |seen, talk| {
        if seen.rpc() == "initialize" {
            holding.wait();
        }
        if seen.method == "DELETE" && silent.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return talk.wait_gone();
        }
        serving.serve(seen, talk);
    });
    let scene = scene();
    let mut connect = Connect::start(&scene, &["-v", &upstream.url()]);
    connect.send(INITIALIZE);
    upstream.wait_count("POST", 1);
    let keeper = keeper(connect.pid());
    connect.signal(Signal::TERM);
    wait::until("the end to begin", || scene.stderr().contains("Ending").then_some(()));
    gate.open();
    upstream.wait_count("DELETE", 1);
    connect.signal(Signal::TERM);
    assert_eq!(connect.code(), Some(143));
    assert!(keeper.wait_gone(LIMIT));
    assert_eq!(sessions.open(), Vec::<String>::new());
    let receipts = scene.answer(["history", "--json"]).json()["receipts"].clone();
    assert_eq!(receipts[0]["ended_by"], "keeper", "{receipts:#}");
}

/// A host that no longer reads counts as gone, even if it still holds stdin.
#[test]
fn host_that_closes_stdout_ends_the_connection() {
    let open = Open::new();
    let url = open.upstream.url();
    let mut connect = Connect::open(&open.scene, &words(&url));
    connect.deafen();
    connect.send(&call(1));
    assert_eq!(connect.code(), Some(0));
    open.check_deleted();
    open.check_receipt(&["client_left"], "gateway");
}

/// `leash ps` shows it, `leash end` ends it.
#[test]
fn connection_is_listed_and_ended_by_name() {
    let open = Open::new();
    let url = open.upstream.url();
    let mut connect = Connect::open(&open.scene, &[&words(&url)[..], &["--session", "job-7"]].concat());
    connect.send(&call(1));
    connect.next();
    let listed = open.scene.answer(["ps"]).stdout;
    assert!(listed.contains("job-7") && listed.contains("upstream"), "{listed}");
    let answer = open.scene.answer(["end", "job-7"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.stdout.contains("test [job-7]: leash end; upstream session session-"), "{answer:?}");
    assert_eq!(connect.code(), Some(0));
    open.check_deleted();
    open.check_receipt(&["requested"], "gateway");
    assert_eq!(open.scene.answer(["end", "job-7"]).code, 1);
}
