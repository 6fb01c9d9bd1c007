//! Rows for the tests of `leash top`.

use leash_model::alive::TreeProcess;
use leash_model::containment::Containment;
use leash_model::feed::{FeedRow, RowKind, RowRemedy};
use leash_model::identity::Identity;

/// A process.
pub(super) fn process(pid: i32, ppid: i32, command: &str, memory: u64) -> TreeProcess {
    TreeProcess { pid, ppid, start: 1, state: 'S', command: command.to_owned(), memory_bytes: memory }
}

/// A tree under leash with one process.
pub(super) fn row(run: &str, memory: u64) -> FeedRow {
    FeedRow {
        key: format!("run:{run}"),
        kind: RowKind::Tree,
        session: Some(format!("session-{run}")),
        run: Some(run.to_owned()),
        name: format!("server-{run}"),
        client: Some("claude (100)".to_owned()),
        owner: Some("claude(100),stdin".to_owned()),
        containment: Some(Containment::Leaf),
        url: None,
        state: "running".to_owned(),
        evidence: vec!["leash supervises it".to_owned()],
        root: serde_json::from_value(serde_json::json!({ "pid": 4000, "start": 1 })).ok(),
        processes: vec![process(4000, 1, "node server.js", memory)],
        memory_bytes: Some(memory),
        calls: None,
        in_flight: None,
        started_ms: 1_000,
        remedy: RowRemedy::End,
    }
}

/// A session with its own row.
pub(super) fn session(id: &str) -> FeedRow {
    FeedRow {
        key: format!("session:{id}"),
        kind: RowKind::Session,
        session: Some(id.to_owned()),
        run: None,
        name: id.to_owned(),
        root: None,
        processes: Vec::new(),
        containment: None,
        evidence: Vec::new(),
        ..row(id, 0)
    }
}

/// A server of another program.
pub(super) fn other(pid: i32, name: &str, state: &str) -> FeedRow {
    let root: Option<Identity> = serde_json::from_value(serde_json::json!({ "pid": pid, "start": 1 })).ok();
    FeedRow {
        key: format!("process:{pid}.1"),
        kind: RowKind::Other,
        session: None,
        run: None,
        name: name.to_owned(),
        client: Some("cursor (200)".to_owned()),
        owner: None,
        containment: None,
        state: state.to_owned(),
        evidence: vec!["the other end of its stdin does not exist any more".to_owned()],
        root,
        processes: vec![process(pid, 1, name, 2048)],
        memory_bytes: Some(2048),
        remedy: if state == "orphan" { RowRemedy::Reap } else { RowRemedy::None },
        ..row("", 0)
    }
}
