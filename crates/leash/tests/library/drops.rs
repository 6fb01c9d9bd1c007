//! Dropping a session without ending it ends it too, wherever that happens.

use std::time::Duration;

use leash_core::Session;
use leash_core::receipt::{self, Reason};
use testkit::scene::Scene;
use testkit::{or_skip, wait};

use super::{me, places, tree_of};

/// Starts a session with two trees, drops it through `drops`, and waits until nothing is left and both receipts are
/// written.
fn check(drops: impl FnOnce(Session)) {
    let mut scene = or_skip!(Scene::set(me()));
    let mut session = Session::new(places(&scene)).grace(Duration::from_millis(100));
    for kind in ["daemon", "setsid"] {
        session.start(tree_of(&scene, kind)).unwrap();
    }
    scene.census().wait_all_ready(2, wait::LIMIT).unwrap();
    let id = session.id().to_owned();
    drops(session);
    scene.census().wait_gone(wait::LIMIT).unwrap();
    let ends = wait::until("the receipts", || {
        let (mut known, _) = receipt::read(&places(&scene).receipts).ok()?;
        known.retain(|receipt| receipt.session == id);
        (known.len() == 2).then_some(known)
    });
    // If the streams are dropped before the handle, the reason is `StdinClosed`.
    let known = |reason: &Reason| matches!(reason, Reason::Dropped | Reason::StdinClosed);
    assert!(ends.iter().all(|end| end.all_gone() && known(&end.reason)), "{ends:?}");
    wait::until("an empty ledger", || scene.ledger().is_empty().then_some(()));
}

#[test]
fn outside_of_any_runtime() {
    check(drop);
}

#[test]
fn in_a_runtime_of_one_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    check(|session| runtime.block_on(async { drop(session) }));
}

#[test]
fn in_a_runtime_of_many_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    check(|session| {
        tasks.spawn_on(async { drop(session) }, runtime.handle());
        runtime.block_on(tasks.join_next()).unwrap().unwrap();
    });
}

#[test]
fn together_with_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    check(|mut session| {
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn_on(
            async move {
                let _streams = session.trees()[0].take_async_streams().unwrap();
                std::future::pending::<()>().await;
            },
            runtime.handle(),
        );
        runtime.block_on(tokio::task::yield_now());
        drop(runtime);
    });
}

#[test]
fn during_a_panic() {
    check(|session| {
        let worker = std::thread::spawn(move || {
            let _session = session;
            // Unwinds as a panic does, without its message in the test's output.
            std::panic::resume_unwind(Box::new("a host's own mistake"));
        });
        assert!(worker.join().is_err());
    });
}
