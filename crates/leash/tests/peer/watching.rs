//! Notifications that a process has exited.

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use leash_tree::owner::peer::watch::{WatchId, Watchers};
use leash_tree::owner::peer::{Holders, UnknownReason};
use leash_tree::platform::identity::HeldProcess;
use leash_tree::platform::proc::Proc;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::namespace::inside;
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::tcp_client::Client;
use testkit::user::{User, Who};
use tokio_util::task::TaskTracker;

use super::{Gateway, known, me, settle, soon, with_gateway};

fn held(client: &Client) -> HeldProcess {
    HeldProcess::open(&Proc::own().unwrap(), client.pids()[0]).expect("it lives")
}

/// The number of descriptors of this process that are pidfds of `pid`, according to the kernel.
fn pidfds_of(pid: i32) -> usize {
    let line = format!("Pid:\t{pid}");
    let infos = fs::read_dir("/proc/self/fdinfo").unwrap();
    let texts = infos.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    texts.filter(|text| text.lines().any(|found| found == line)).count()
}

/// Runs `case` with a connected client that is not watched yet.
fn with_client(case: impl AsyncFnOnce(&Gateway, Client)) {
    let scene = or_skip!(Scene::set(me()));
    with_gateway("127.0.0.1", async |gateway: &Gateway| {
        let client = gateway.client(&scene, "127.0.0.1", &[]);
        case(gateway, client).await;
    });
}

#[test]
fn killed_client_is_reported() {
    with_client(async |gateway, mut client| {
        let owners = gateway.next_owners().await;
        let news = gateway.news_of(known(&owners)[0]);
        settle().await;
        assert_eq!(gateway.watchers.processes(), 1, "it lives");
        client.kill();
        soon("the news", news.notified()).await;
        assert_eq!((gateway.watchers.processes(), gateway.watchers.watches()), (0, 0));
    });
}

#[test]
fn client_that_was_gone_before_is_reported() {
    with_client(async |gateway, mut client| {
        let held = held(&client);
        client.kill();
        soon("the news", gateway.news_of(&held).notified()).await;
    });
}

/// A closed connection does not mean that the process has exited.
#[test]
fn closed_connection_is_not_reported() {
    with_client(async |gateway, mut client| {
        let news = gateway.news_of(&held(&client));
        client.close();
        settle().await;
        assert_eq!(gateway.watchers.watches(), 1);
        client.kill();
        soon("the news", news.notified()).await;
    });
}

#[test]
fn ten_thousand_watches_are_one_descriptor() {
    with_client(async |gateway, mut client| {
        let told = Rc::new(RefCell::new(Vec::new()));
        let pid = client.pids()[0];
        for number in 0..10_000 {
            let told = Rc::clone(&told);
            gateway.watchers.watch(&held(&client), move || told.borrow_mut().push(number)).unwrap();
        }
        // The kit has one, from `Client`.
        assert_eq!(pidfds_of(pid), 2);
        assert_eq!((gateway.watchers.processes(), gateway.watchers.watches()), (1, 10_000));
        let last = gateway.news_of(&held(&client));
        client.kill();
        soon("the news", last.notified()).await;
        assert_eq!(*told.borrow(), (0..10_000).collect::<Vec<_>>(), "once each, in order");
        settle().await;
        assert_eq!(pidfds_of(pid), 0);
    });
}

#[test]
fn removed_watch_is_not_called() {
    with_client(async |gateway, mut client| {
        let id = gateway.watchers.watch(&held(&client), || panic!("it was taken back")).unwrap();
        let news = gateway.news_of(&held(&client));
        assert!(gateway.watchers.unwatch(id));
        assert!(!gateway.watchers.unwatch(id), "it was taken back before");
        client.kill();
        soon("the news", news.notified()).await;
        assert!(!gateway.watchers.unwatch(id));
    });
}

#[test]
fn removing_the_last_watch_closes_the_descriptor() {
    with_client(async |gateway, client| {
        let pid = client.pids()[0];
        let kit = pidfds_of(pid);
        let id = gateway.watchers.watch(&held(&client), || panic!("it was taken back")).unwrap();
        assert_eq!(pidfds_of(pid), kit + 1);
        assert!(gateway.watchers.unwatch(id));
        settle().await;
        assert_eq!((pidfds_of(pid), gateway.watchers.processes()), (kit, 0));
    });
}

/// The task of the first watch has not ended yet when the second begins.
#[test]
fn watched_again_at_once() {
    with_client(async |gateway, mut client| {
        let held = held(&client);
        let id = gateway.watchers.watch(&held, || panic!("it was taken back")).unwrap();
        gateway.watchers.unwatch(id);
        let news = gateway.news_of(&held);
        settle().await;
        client.kill();
        soon("the news", news.notified()).await;
    });
}

/// Callbacks may use the watchers in any way, even end them.
#[test]
fn callbacks_may_use_the_watchers() {
    with_client(async |gateway, mut client| {
        let tracker = TaskTracker::new();
        let watchers = Watchers::new(&tracker);
        let process = Rc::new(held(&client));
        let later: Rc<RefCell<Option<WatchId>>> = Rc::default();
        let said = Rc::new(RefCell::new(Vec::new()));
        let first = {
            let (watchers, later, said, process) =
                (watchers.clone(), Rc::clone(&later), Rc::clone(&said), Rc::clone(&process));
            move || {
                said.borrow_mut().push("first");
                assert!(watchers.unwatch(later.take().unwrap()));
                let said = Rc::clone(&said);
                watchers.watch(&process, move || said.borrow_mut().push("new")).unwrap();
            }
        };
        watchers.watch(&process, first).unwrap();
        *later.borrow_mut() = Some(watchers.watch(&process, || panic!("the first call takes it back")).unwrap());
        let cleared = watchers.clone();
        let news = gateway.news_of(&process);
        client.kill();
        soon("the news", news.notified()).await;
        settle().await;
        assert_eq!(*said.borrow(), ["first", "new"]);
        cleared.clear();
        tracker.close();
        soon("the end of all tasks", tracker.wait()).await;
    });
}

/// A callback may capture the watchers; clearing them frees everything.
#[test]
fn clearing_ends_everything() {
    with_client(async |gateway, client| {
        let tracker = TaskTracker::new();
        let watchers = Watchers::new(&tracker);
        let captured = Rc::new(());
        let (again, kept) = (watchers.clone(), Rc::clone(&captured));
        let call = move || {
            again.clear();
            drop(kept);
        };
        watchers.watch(&held(&client), call).unwrap();
        watchers.clear();
        assert_eq!(Rc::strong_count(&captured), 1);
        tracker.close();
        soon("the end of all tasks", tracker.wait()).await;
        assert_eq!(gateway.watchers.processes(), 0);
    });
}

/// In a separate process, because the limit applies to the whole process.
#[test]
fn out_of_descriptors_is_unknown_and_not_fatal() {
    or_skip!(User::find(Who::Root));
    if !inside("watching::out_of_descriptors_is_unknown_and_not_fatal", &[]) {
        return;
    }
    with_client(async |gateway, client| {
        let accepted = gateway.accept().await;
        let held = held(&client);
        let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
        let mut plugs = Vec::new();
        let limit = |most| {
            setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..getrlimit(Resource::Nofile) }).unwrap();
        };
        limit(open + 8);
        while let Ok(plug) = fs::File::open("/dev/null") {
            plugs.push(plug);
        }
        // The reserved descriptors are enough for a search.
        assert_eq!(super::pids(&gateway.owners(&accepted).await), client.pids());
        // Not even a released descriptor can be used again.
        limit(4);
        let owners = gateway.owners(&accepted).await;
        assert!(matches!(owners, Holders::Unknown(UnknownReason::OutOfDescriptors)), "{owners:?}");
        let refused = gateway.watchers.watch(&held, || panic!("it is not watched")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()), "{refused}");
        assert_eq!((gateway.watchers.processes(), gateway.watchers.watches()), (0, 0));
        // With free descriptors again, everything works.
        limit(open + 8);
        drop(plugs);
        assert_eq!(super::pids(&gateway.owners(&accepted).await), client.pids());
    });
}
