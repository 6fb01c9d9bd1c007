//! Combines the receipts of several members.

use proptest::prelude::*;

use super::*;
use leash_model::containment::Containment;
use leash_model::identity::Identity;
use leash_model::receipt::{DeleteHow, Fate, How, TreeEnd, UpstreamEnd, VERSION};

fn tree(pid: i32, fate: Fate) -> Holding {
    let leader = (pid > 0).then_some(Identity { pid, start: 1, inode: None });
    let (left, spared) = (Vec::new(), Vec::new());
    let (ports, locks) = (Vec::new(), Vec::new());
    let how = How::Term;
    Holding::Tree(TreeEnd {
        leader,
        fate,
        how,
        exit: None,
        members: 2,
        left,
        spared,
        memory_bytes: 10,
        memory_kills: 0,
        stderr: Vec::new(),
        ports,
        locks,
    })
}

fn upstream(id: &str) -> Holding {
    let (url, id) = ("http://127.0.0.1:1/mcp".to_owned(), id.to_owned());
    Holding::Upstream(UpstreamEnd {
        url,
        id,
        fate: Fate::Gone,
        how: DeleteHow::Deleted,
        status: Some(200),
        tries: 1,
        why: None,
    })
}

fn receipt(name: &str, holdings: Vec<Holding>) -> Receipt {
    Receipt {
        version: VERSION,
        session: "job".to_owned(),
        run: format!("run-of-{name}"),
        name: name.to_owned(),
        labels: BTreeMap::from([("name".to_owned(), name.to_owned())]),
        reason: Reason::LEASH_END,
        client: None,
        containment: Some(Containment::Leaf),
        refused: Vec::new(),
        holdings,
        dropped_holdings: 1,
        ended_by: EndedBy::Keeper,
        started_ms: 100,
        ended_ms: 1_000,
        took_ms: 50,
    }
}

#[test]
fn no_receipt_gives_none_and_one_gives_itself() {
    assert_eq!(together("job", &[]), None);
    let only = receipt("a", vec![tree(1, Fate::Gone)]);
    assert_eq!(together("job", std::slice::from_ref(&only)), Some(only));
}

#[test]
fn several_receipts_combine_into_one() {
    let early = Receipt { started_ms: 7, ended_ms: 990, took_ms: 90, ..receipt("a", vec![tree(1, Fate::Gone)]) };
    let late = Receipt {
        containment: None,
        ended_by: EndedBy::Gateway,
        ended_ms: 1_200,
        ..receipt("b", vec![upstream("session-"), upstream("session-")])
    };
    let whole = together("job", &[early, late]).expect("there are two");
    assert_eq!((whole.session.as_str(), whole.run.as_str(), whole.name.as_str()), ("job", "job", "a, b"));
    assert_eq!((whole.started_ms, whole.ended_ms, whole.took_ms), (7, 1_200, 300));
    assert_eq!((whole.trees().count(), whole.upstreams().count()), (1, 2), "ids with the same beginning may differ");
    assert_eq!((whole.containment, whole.ended_by), (Some(Containment::Leaf), EndedBy::Gateway));
    assert_eq!((whole.labels["name"].as_str(), whole.dropped_holdings), ("a", 2));
    assert!(whole.all_gone());
}

#[test]
fn tree_in_two_receipts_is_listed_once() {
    let own = receipt("a", vec![tree(1, Fate::Gone)]);
    let gateway = receipt("job", vec![tree(1, Fate::Gone), tree(2, Fate::Gone), tree(0, Fate::Gone)]);
    let whole = together("job", &[gateway, own, receipt("c", vec![tree(0, Fate::Gone)])]).expect("there are three");
    assert_eq!(whole.trees().count(), 4, "two trees without a leader are two trees: {whole:?}");
}

#[test]
fn request_is_the_preferred_reason() {
    let with = |reason: Reason, ended_ms: u64| Receipt { reason, ended_ms, ..receipt("a", Vec::new()) };
    let check = |members: &[Receipt], reason: Reason| {
        assert_eq!(together("job", members).map(|whole| whole.reason), Some(reason));
    };
    check(&[with(Reason::ServerExited, 1), with(Reason::LEASH_END, 2)], Reason::LEASH_END);
    check(&[with(Reason::MaxAge, 2), with(Reason::Swept, 1)], Reason::Swept);
}

proptest! {
    /// It loses no process that is left, invents none, and its time span covers that of every member.
    #[test]
    fn combined_receipt_covers_all_members(
        members in proptest::collection::vec((proptest::collection::vec((0..6i32, any::<bool>()), 0..4), 0..1000u64, 0..500u64), 1..6)
    ) {
        let receipts: Vec<Receipt> = members
            .iter()
            .map(|(trees, ended, took)| {
                // The same pid is the same tree, and so has the same fate.
                let holdings = trees.iter().map(|(pid, left)| tree(*pid, if *left && *pid == 0 { Fate::Left } else { Fate::Gone }));
                Receipt { ended_ms: 10_000 + ended, took_ms: *took, ..receipt("x", holdings.collect()) }
            })
            .collect();
        let whole = together("job", &receipts).expect("there is one at least");
        prop_assert_eq!(whole.all_gone(), receipts.iter().all(Receipt::all_gone));
        for holding in receipts.iter().flat_map(|receipt| &receipt.holdings) {
            prop_assert!(whole.holdings.contains(holding));
        }
        for holding in &whole.holdings {
            prop_assert!(receipts.iter().any(|receipt| receipt.holdings.contains(holding)));
        }
        for receipt in &receipts {
            prop_assert!(whole.ended_ms - whole.took_ms <= receipt.ended_ms - receipt.took_ms);
            prop_assert!(whole.ended_ms >= receipt.ended_ms && whole.started_ms <= receipt.started_ms);
        }
    }
}
