use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A row with a key and a number of bytes, of a kind that its key begins with.
fn row(key: &str, memory: u64) -> FeedRow {
    let kind = match &key[..1] {
        "s" => RowKind::Session,
        "t" => RowKind::Tree,
        "u" => RowKind::Upstream,
        _ => RowKind::Other,
    };
    let process = TreeProcess { pid: 1, ppid: 0, start: 1, state: 'S', command: String::new(), memory_bytes: memory };
    FeedRow {
        key: key.to_owned(),
        kind,
        session: (kind != RowKind::Other).then(|| "red".to_owned()),
        run: None,
        name: key.to_owned(),
        client: None,
        owner: None,
        containment: None,
        url: None,
        state: "running".to_owned(),
        evidence: Vec::new(),
        root: None,
        processes: vec![process],
        memory_bytes: Some(memory),
        calls: None,
        in_flight: None,
        started_ms: 1,
        remedy: if key.ends_with('!') { RowRemedy::Reap } else { RowRemedy::None },
    }
}

fn look(rows: &[(&str, u64)]) -> FeedLook {
    FeedLook { rows: rows.iter().map(|(key, memory)| row(key, *memory)).collect(), ..FeedLook::default() }
}

/// The document in short: `2 +t1 ~t2 -t3`.
fn shown(document: Option<FeedDocument>) -> String {
    let Some(document) = document else { return "same".to_owned() };
    let rows =
        |sign: &str, rows: Vec<FeedRow>| rows.into_iter().map(|row| format!("{sign}{}", row.key)).collect::<Vec<_>>();
    let added = if document.kind == DocumentKind::Snapshot { "" } else { "+" };
    let mut words = vec![document.revision.to_string()];
    words.extend(rows(added, document.added));
    words.extend(rows("~", document.changed));
    words.extend(document.removed.into_iter().map(|key| format!("-{key}")));
    words.extend(document.ended.into_iter().map(|receipt| format!("ended {}", receipt.run)));
    words.join(" ")
}

#[test]
fn first_document_is_a_snapshot_and_the_others_are_changes() {
    let mut feed = LiveFeed::default();
    for (rows, expected) in [
        (&[("t1", 1)][..], "1 t1"),
        (&[("t1", 1)], "same"),
        (&[("t1", 2), ("t2", 1)], "2 +t2 ~t1"),
        (&[("t2", 1), ("t1", 2)], "same"),
        (&[("t2", 1), ("t3", 1)], "3 +t3 -t1"),
        (&[], "4 -t2 -t3"),
        (&[], "same"),
    ] {
        assert_eq!(shown(feed.take(look(rows))), expected);
    }
    assert_eq!(feed.snapshot().revision, 4);
}

#[test]
fn empty_machine_has_a_snapshot_too() {
    assert_eq!(shown(LiveFeed::default().take(FeedLook::default())), "1");
}

#[test]
fn receipt_or_warning_alone_is_a_change() {
    let receipt: Receipt = serde_json::from_value(json!({
        "version": 1, "session": "red", "run": "r1", "name": "x", "reason": { "kind": "idle" }, "containment": null,
        "holdings": [], "ended_by": "keeper", "started_ms": 1, "ended_ms": 2, "took_ms": 1,
    }))
    .expect("a receipt");
    let mut feed = LiveFeed::default();
    feed.take(FeedLook::default());
    assert_eq!(shown(feed.take(FeedLook { ended: vec![receipt], ..FeedLook::default() })), "2 ended r1");
    assert_eq!(shown(feed.take(FeedLook::default())), "same");
    let warnings = vec!["cannot read".to_owned()];
    assert_eq!(shown(feed.take(FeedLook { warnings: warnings.clone(), ..FeedLook::default() })), "3");
    assert_eq!(shown(feed.take(FeedLook { warnings, ..FeedLook::default() })), "same");
    assert_eq!(shown(feed.take(FeedLook::default())), "4");
}

#[test]
fn totals_count_trees_once_and_other_servers_apart() {
    let mut feed = LiveFeed::default();
    let look =
        FeedLook { given_back_bytes: 9, ..look(&[("s1", 3), ("t1", 1), ("t2", 2), ("u1", 0), ("o1", 4), ("o2!", 5)]) };
    feed.take(look);
    let expected = FeedTotals {
        sessions: 1,
        trees: 2,
        processes: 2,
        memory_bytes: 3,
        others: 2,
        others_memory_bytes: 9,
        orphans: 1,
        given_back_bytes: 9,
    };
    assert_eq!(feed.totals(), expected);
}

#[test]
fn rows_are_old_after_three_seconds() {
    let mut feed = LiveFeed::default();
    assert!(!feed.is_old(u64::MAX), "there was no look yet");
    feed.take(FeedLook { at_ms: 1_000, ..FeedLook::default() });
    for (now, expected) in [(1_000, false), (4_000, false), (4_001, true), (0, false)] {
        assert_eq!(feed.is_old(now), expected, "{now}");
    }
}

#[test]
fn document_says_its_kind() {
    let mut feed = LiveFeed::default();
    let kind = |document: Option<FeedDocument>| serde_json::to_value(document).expect("JSON")["kind"].clone();
    assert_eq!(kind(feed.take(look(&[]))), Value::from("snapshot"));
    assert_eq!(kind(feed.take(look(&[("t1", 1)]))), Value::from("change"));
}

proptest! {
    /// A reader that applies every change to the snapshot has the rows of the last look.
    #[test]
    fn changes_lead_from_the_snapshot_to_the_last_look(
        looks in prop::collection::vec(prop::collection::btree_map("[tuo][1-6]", 0..3u64, 0..6), 1..8)
    ) {
        let (mut feed, mut reader, mut last) = (LiveFeed::default(), BTreeMap::new(), 0);
        for rows in looks {
            let rows: Vec<(&str, u64)> = rows.iter().map(|(key, memory)| (&**key, *memory)).collect();
            if let Some(document) = feed.take(look(&rows)) {
                prop_assert_eq!(document.revision, last + 1);
                last = document.revision;
                if document.kind == DocumentKind::Snapshot {
                    reader.clear();
                }
                document.removed.iter().for_each(|key| drop(reader.remove(key)));
                let rows = document.added.into_iter().chain(document.changed);
                reader.extend(rows.map(|row| (row.key.clone(), row)));
            }
            let now: BTreeMap<String, FeedRow> = feed.rows().iter().map(|row| (row.key.clone(), row.clone())).collect();
            prop_assert_eq!(&reader, &now);
        }
    }
}

#[test]
fn verdicts_are_old_after_three_seconds() {
    let mut feed = LiveFeed::default();
    feed.take(FeedLook { at_ms: 5_000, judged_ms: None, ..FeedLook::default() });
    assert_eq!(feed.old_verdicts(9_000), None, "nothing was judged");
    feed.take(FeedLook { at_ms: 6_000, judged_ms: Some(1_000), ..FeedLook::default() });
    assert_eq!((feed.old_verdicts(4_000), feed.old_verdicts(4_001)), (None, Some(3_001)));
    assert!(!feed.is_old(6_000), "the rows are of now");
}
