//! Ends of members that are records only, without living processes.

use std::cell::RefCell;

use serde_json::json;

use super::*;
use crate::ledger::store::LockedRun as Lock;
use crate::platform::identity::{boot_id, pid_namespace};
use leash_model::id;
use leash_model::receipt::EndedBy;
use leash_model::record::Record;
use testkit::Scratch;

struct Ground {
    _dir: Scratch,
    places: Places,
    store: Store,
    proc: Proc,
}

impl Ground {
    fn new() -> Ground {
        let dir = Scratch::new();
        let places = Places::below(&*dir);
        let store = Store::open(&places.runtime_dir).expect("a ledger");
        Ground { places, store, proc: Proc::own().expect("a /proc of our own"), _dir: dir }
    }

    /// A run that counts as attended while its lock is held.
    fn join(&self, session: &str) -> Lock {
        let record = json!({
            "version": 1, "boot": boot_id(), "pid_namespace": pid_namespace(), "run": id::random(), "session": session, "name": "x",
            "command": [], "owners": [], "phase": "running", "supervisor": null, "keeper": null, "leader": null, "members": [],
            "memory_bytes": 0, "containment": "leaf", "leaf": null, "grace_ms": 0, "started_ms": 1, "receipts": self.places.receipts,
        });
        let record: Record = serde_json::from_value(record).expect("a record");
        self.store.create(&record).expect("it is written")
    }

    fn ending(&self, session: &str) -> Ending<'_> {
        Ending::new(&self.places, &self.proc, vec![Target::Session(session.to_owned())], false, |_| Default::default())
    }
}

#[test]
fn a_session_without_members_is_ended_at_once() {
    let ground = Ground::new();
    let ended = ground.ending("red").rest().expect("the ledger is read");
    assert!(ended.receipts.is_empty() && ended.unfinished.is_empty());
}

/// A request to end a session ends members without a process of leash, and no other session.
#[test]
fn abandoned_members_are_swept() {
    let ground = Ground::new();
    let other = ground.join("blue");
    for _ in 0..3 {
        drop(ground.join("red"));
    }
    let ended = ground.ending("red").rest().expect("the ledger is read");
    assert_eq!((ended.receipts.len(), ended.unfinished.len()), (3, 0), "{ended:?}");
    assert!(ended.receipts.iter().all(|receipt| receipt.session == "red" && receipt.ended_by == EndedBy::Sweep));
    let left = alive::members(&ground.places).expect("the ledger is read");
    assert_eq!(left.iter().map(|member| &*member.session).collect::<Vec<_>>(), ["blue"]);
    drop(other);
}

/// A member in a runtime directory of another environment is found, waited for and swept; one in a directory that other
/// users can write to is not even read.
#[test]
fn members_in_other_runtime_directories_are_ended() {
    use std::os::unix::fs::PermissionsExt as _;
    let (mut ground, safe, open) = (Ground::new(), Ground::new(), Ground::new());
    drop(safe.join("red"));
    drop(open.join("red"));
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&open.places.runtime_dir, mode).expect("cannot set a mode");
    let missing = safe.places.runtime_dir.join("missing");
    let others = [&safe.places.runtime_dir, &open.places.runtime_dir, &missing];
    ground.places.other_runtime_dirs = others.map(Clone::clone).to_vec();
    let ended = ground.ending("red").rest().expect("the ledger is read");
    assert_eq!((ended.receipts.len(), ended.unfinished.len()), (1, 0), "{ended:?}");
    assert!(alive::members(&ground.places).expect("the ledger is read").is_empty());
    assert_eq!(open.store.list().expect("it is there").len(), 1, "a directory of others was swept");
}

/// A new member joins whenever one has ended: leash reports that and does not wait for ever.
#[test]
fn session_with_endless_new_members_is_given_up() {
    let ground = Ground::new();
    let newest = RefCell::new(ground.join("red"));
    let restart = |_: &SessionMember| {
        let next = ground.join("red");
        drop(newest.replace(next));
        false
    };
    let ended = ground.ending("red").members(&restart).expect("the ledger is read");
    assert_eq!(ended.receipts.len(), limits::END_ROUNDS);
    let [left] = &ended.unfinished[..] else { panic!("{ended:?}") };
    assert_eq!((left.session.as_str(), left.why.as_str()), ("red", "new members join as fast as leash ends them"));
}
