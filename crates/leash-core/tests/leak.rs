//! The guard finds everything that is left, and nothing else.

#![expect(clippy::disallowed_methods, reason = "children are started to be left behind")]

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leash_core::leak::{Guard, Leak, guard};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

/// A guard checks the whole process, so the tests take turns under `cargo test`.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Long enough to find a leak.
const SHORT: Duration = Duration::from_millis(50);

/// The leaks after a short wait.
fn left(guard: Guard) -> Vec<Leak> {
    guard.patience(SHORT).check().err().map(|leaks| leaks.0).unwrap_or_default()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn no_leak_is_no_error() {
    let _turn = turn();
    let guard = guard();
    drop(File::open("/proc/self/stat").expect("it is there"));
    let mut child = Command::new("true").spawn().expect("it starts");
    child.wait().expect("it ends");
    drop(guard);
}

#[test]
fn a_child_is_found_alive_and_as_a_zombie() {
    let _turn = turn();
    let guard = guard();
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("it starts");
    let pid = child.id() as i32;
    let alive = |zombie| move |leak: &Leak| matches!(leak, Leak::Process { pid: p, zombie: z, .. } if *p == pid && *z == zombie);
    assert!(guard.leaks().iter().any(alive(false)), "{:?}", guard.leaks());
    child.kill().expect("it is ours");
    let give_up = std::iter::repeat_with(|| guard.leaks()).take(100_000).find(|leaks| leaks.iter().any(alive(true)));
    assert!(give_up.is_some(), "{:?}", guard.leaks());
    child.wait().expect("it has ended");
    guard.check().expect("it was waited for");
}

#[test]
fn descriptor_is_found_with_its_target() {
    let _turn = turn();
    let guard = guard();
    let file = File::open("/proc/self/stat").expect("it is there");
    let found = guard.leaks();
    assert!(matches!(&found[..], [Leak::Descriptor { what, .. }] if what.ends_with("/stat")), "{found:?}");
    let guard = guard.ignoring("/proc/");
    assert_eq!(guard.leaks(), []);
    drop(file);
    drop(guard);
}

#[test]
fn a_task_of_a_runtime_is_found_and_waited_for() {
    let _turn = turn();
    let runtime = runtime();
    let mut tasks = JoinSet::new();
    let stuck = guard().runtime(runtime.handle()).ignoring("anon_inode:").ignoring("socket:");
    tasks.spawn_on(std::future::pending::<()>(), runtime.handle());
    assert_eq!(left(stuck), [Leak::Tasks { count: 1 }]);
    let guard = guard().runtime(runtime.handle()).ignoring("anon_inode:").ignoring("socket:");
    let brief = runtime.block_on(async {
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn(async move { drop(gone.await) });
        tokio::task::yield_now().await;
        go
    });
    assert_eq!(guard.leaks(), [Leak::Tasks { count: 1 }], "the stuck one was there before");
    drop(brief);
    runtime.block_on(guard.settled()).expect("it ends by itself");
}

#[test]
fn a_task_of_a_tracker_is_found() {
    let _turn = turn();
    let runtime = runtime();
    let tracker = TaskTracker::new();
    let guard = guard().tracker(&tracker).ignoring("anon_inode:").ignoring("socket:");
    let task = tracker.spawn_on(std::future::pending::<()>(), runtime.handle());
    assert_eq!(guard.leaks(), [Leak::Tracked { count: 1 }]);
    task.abort();
    runtime.block_on(guard.settled()).expect("it was aborted");
}

#[test]
fn async_check_lets_other_tasks_end() {
    let _turn = turn();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let guard = guard().runtime(runtime.handle());
        let mut tasks = JoinSet::new();
        tasks.spawn(async { tokio::task::yield_now().await });
        guard.settled().await.expect("the task ends by itself");
        let stuck = self::guard().runtime(runtime.handle()).patience(SHORT);
        tasks.spawn(std::future::pending());
        assert_eq!(stuck.settled().await.map_err(|leaks| leaks.0), Err(vec![Leak::Tasks { count: 1 }]));
    });
}

#[test]
fn a_dropped_guard_fails_the_test_and_says_why() {
    let _turn = turn();
    let guard = guard().patience(SHORT);
    let file = File::open("/proc/self/stat").expect("it is there");
    let failed = catch_unwind(AssertUnwindSafe(|| drop(guard))).expect_err("something is left");
    let text = failed.downcast_ref::<String>().expect("a message");
    assert!(text.starts_with("the test left behind:\n  descriptor ") && text.ends_with("/stat"), "{text}");
    drop(file);
}

#[test]
fn failing_test_is_not_checked() {
    let _turn = turn();
    let failed = catch_unwind(|| {
        let _guard = guard().patience(SHORT);
        let _file = std::mem::ManuallyDrop::new(File::open("/proc/self/stat").expect("it is there"));
        panic!("the news");
    });
    assert_eq!(failed.expect_err("it failed").downcast_ref::<&str>(), Some(&"the news"));
}
