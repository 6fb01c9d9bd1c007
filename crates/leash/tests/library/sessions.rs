//! Sessions: settings that apply to all of their servers, and the one receipt of their end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use leash_core::receipt::{How, Reason};
use leash_core::session::{SessionEnding, SessionError};
use leash_core::tree::Role;
use leash_core::{Places, Receipt, Session, Spec, Tree};
use rustix::process::{Pid, Signal};
use testkit::process::{Handle, Process};
use testkit::scene::Scene;
use testkit::{or_skip, wait};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

use super::{me, places, tree_of};

/// Runs a future on this thread, without any runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A session with three servers that would stay.
fn three(scene: &mut Scene) -> Session {
    let mut session = Session::named("job-7", places(scene)).label("job", "7").grace(Duration::from_millis(100));
    for kind in ["setsid", "chain", "polite"] {
        session.start(Spec::new(scene.tree(kind, ["--size", "4"])).named(kind)).unwrap();
    }
    scene.census().wait_all_ready(3, wait::LIMIT).unwrap();
    session
}

fn check(scene: &mut Scene, receipt: &Receipt) {
    assert!(!scene.census().is_populated(), "something was alive when the end was told");
    assert!(receipt.all_gone(), "{receipt:?}");
    assert_eq!((receipt.session.as_str(), &receipt.reason), ("job-7", &Reason::PROGRAM));
    assert_eq!(receipt.trees().count(), 3);
    assert_eq!(receipt.labels.get("job").map(String::as_str), Some("7"));
    assert!(receipt.trees().all(|tree| tree.leader.is_some()), "{receipt:?}");
    assert!(scene.ledger().is_empty(), "{:?}", scene.ledger());
}

#[test]
fn one_receipt_for_all_servers() {
    let mut scene = or_skip!(Scene::set(me()));
    let session = three(&mut scene);
    let listed = scene.answer(["ps", "--json"]).json();
    let runs = listed["sessions"].as_array().expect("runs").iter().filter(|run| run["session"] == "job-7");
    assert_eq!(runs.count(), 3, "{listed:#}");
    let receipt = session.end().wait();
    check(&mut scene, &receipt);
}

#[test]
fn the_end_can_be_awaited_without_a_runtime() {
    let mut scene = or_skip!(Scene::set(me()));
    let session = three(&mut scene);
    let receipt = block_on(session.end());
    check(&mut scene, &receipt);
}

#[test]
fn the_end_can_be_awaited_on_tokio() {
    let mut scene = or_skip!(Scene::set(me()));
    let session = three(&mut scene);
    let receipt = current_thread().block_on(session.end());
    check(&mut scene, &receipt);
}

#[test]
fn end_continues_without_a_waiter() {
    let mut scene = or_skip!(Scene::set(me()));
    let mut ending = three(&mut scene).end();
    let mut cx = Context::from_waker(Waker::noop());
    let _ = std::pin::Pin::new(&mut ending).poll(&mut cx);
    drop(ending);
    scene.census().wait_gone(wait::LIMIT).unwrap();
}

#[test]
fn a_server_is_started_and_spoken_to_without_blocking() {
    let mut scene = or_skip!(Scene::set(me()));
    let receipt = current_thread().block_on(async {
        let mut session = Session::new(places(&scene));
        let tree = session.start_async(Spec::new([scene.zoo_path().as_os_str(), "echo".as_ref()])).await.unwrap();
        let (mut stdin, stdout) = tree.take_async_streams().unwrap();
        assert!(tree.take_async_streams().is_err(), "they were taken");
        stdin.write_all(b"hello\n").await.unwrap();
        let mut line = String::new();
        tokio::io::BufReader::new(stdout).read_line(&mut line).await.unwrap();
        assert_eq!(line, "hello\n");
        drop(stdin);
        session.end().await
    });
    assert!(receipt.all_gone(), "{receipt:?}");
    assert_eq!(receipt.trees().next().map(|tree| tree.how), Some(How::Eof));
    scene.census().wait_gone(wait::LIMIT).unwrap();
}

#[test]
fn unread_output_is_drained_during_the_end() {
    let scene = or_skip!(Scene::set(me()));
    let mut session = Session::new(places(&scene)).grace(wait::LIMIT);
    for _ in 0..3 {
        // More than a pipe holds, and the server reads nothing before it is written.
        session.start(Spec::new(["sh", "-c", "trap '' TERM; head -c 1000000 /dev/zero; exec cat"])).unwrap();
    }
    let receipt = session.end().wait();
    assert!(receipt.all_gone(), "{receipt:?}");
    assert!(receipt.trees().all(|tree| tree.how != How::Kill), "{receipt:?}");
}

#[test]
fn session_ends_at_its_max_age() {
    let mut scene = or_skip!(Scene::set(me()));
    let mut session = Session::new(places(&scene)).grace(Duration::ZERO).max_age(Duration::from_millis(500));
    session.start(tree_of(&scene, "daemon")).unwrap();
    scene.census().wait_first(wait::LIMIT).unwrap();
    scene.census().wait_gone(wait::LIMIT).unwrap();
    wait::until("the session to be too old", || {
        matches!(session.start(tree_of(&scene, "daemon")), Err(SessionError::TooOld(_))).then_some(())
    });
    let receipt = session.end().wait();
    assert!(receipt.all_gone(), "{receipt:?}");
    assert_eq!(receipt.reason, Reason::MaxAge);
}

#[test]
fn a_session_ends_with_a_further_owner() {
    let mut scene = or_skip!(Scene::set(me()));
    let mut owner = scene.zoo(["idle"]).spawn().unwrap();
    let mut session = Session::new(places(&scene)).owner(owner.id() as i32).grace(Duration::ZERO);
    session.start(tree_of(&scene, "setsid")).unwrap();
    scene.census().wait_ready(wait::LIMIT).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    scene.census().wait_gone(wait::LIMIT).unwrap();
    let receipt = session.end().wait();
    assert_eq!(receipt.reason, Reason::OwnerGone { pid: owner.id() as i32, role: Role::Pid });
}

#[test]
fn receipt_includes_the_tree_of_a_killed_supervisor() {
    let mut scene = or_skip!(Scene::set(me()));
    let mut session = Session::new(places(&scene)).grace(Duration::ZERO);
    session.start(tree_of(&scene, "setsid")).unwrap();
    scene.census().wait_ready(wait::LIMIT).unwrap();
    let above = |pid: Pid| Pid::from_raw(Process::read(pid).unwrap().parent).unwrap();
    let keeper = above(scene.census().leader().unwrap().pid());
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let supervisor = Handle::open(above(keeper), |now| now.parent == me).unwrap();
    supervisor.signal(Signal::KILL).unwrap();
    scene.census().wait_gone(wait::LIMIT).unwrap();
    let receipt = session.end().wait();
    assert!(receipt.all_gone(), "{receipt:?}");
    assert_eq!((&receipt.reason, receipt.trees().count()), (&Reason::SupervisorKilled, 1));
}

#[test]
fn settings_of_a_server_override_those_of_the_session() {
    let scene = or_skip!(Scene::set(me()));
    let mut session = Session::new(places(&scene)).label("job", "7").label("tier", "gold").grace(Duration::ZERO);
    let echo = Spec::new([scene.zoo_path().as_os_str(), "echo".as_ref()]);
    let tree = session.start(echo.label("job", "own").grace(wait::LIMIT)).unwrap();
    let (run, receipts) = (tree.run().to_owned(), places(&scene).receipts);
    let (mut stdin, stdout) = tree.take_streams().unwrap();
    stdin.write_all(b"x\n").unwrap();
    BufReader::new(stdout).read_line(&mut String::new()).unwrap();
    drop(stdin);
    let receipt = session.end().wait();
    // With the session's grace of zero it would have been killed.
    assert_eq!(receipt.trees().next().map(|tree| tree.how), Some(How::Eof));
    let (written, _) = leash_core::receipt::read(&receipts).unwrap();
    let written = written.into_iter().find(|receipt| receipt.run == run).unwrap();
    assert_eq!((written.labels["job"].as_str(), written.labels["tier"].as_str()), ("own", "gold"));
}

#[test]
fn a_failed_start_names_the_server_and_leaves_the_others() {
    let mut scene = or_skip!(Scene::set(me()));
    let mut session = Session::new(places(&scene)).grace(Duration::ZERO);
    session.start(tree_of(&scene, "setsid")).unwrap();
    scene.census().wait_ready(wait::LIMIT).unwrap();
    let error = session.start(Spec::new(["/no/such/program"]).named("files")).unwrap_err();
    assert_eq!(error.to_string(), "cannot start the server `files`");
    assert!(scene.census().is_populated());
    assert_eq!(session.end().wait().holdings.len(), 1);
}

#[test]
fn invalid_id_is_reported() {
    let scene = or_skip!(Scene::set(me()));
    let error = Session::named("../x", places(&scene)).start(Spec::new(["true"])).unwrap_err();
    assert!(matches!(&error, SessionError::Id { id, .. } if id == "../x"), "{error}");
    assert!(scene.ledger().is_empty());
}

/// Checks that hosts can move these types to another thread.
#[test]
fn public_types_are_send() {
    fn send<T: Send + 'static>(_: Option<&T>) {}
    fn sync<T: Sync>() {}
    send::<Session>(None);
    send::<Tree>(None);
    send::<SessionEnding>(None);
    send::<SessionError>(None);
    send::<Receipt>(None);
    sync::<Session>();
    sync::<Tree>();
    sync::<Receipt>();
    let start = async {
        let mut session = Session::new(Places::below("/nowhere"));
        let _ = session.start_async(Spec::new(["true"])).await;
        session.end().await
    };
    send(Some(&start));
}
