//! What leash promises, no more and no less, and whether the facts agree. Pure: facts in, complaints out.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Pid;
use serde_json::Value;

use super::action::Origin;
use super::plan::Hold;

/// What was done to the two who look after a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harm {
    /// Its leash was killed by SIGKILL.
    pub leash: bool,
    /// Its keeper was.
    pub keeper: bool,
}

impl Harm {
    /// Whether nobody was left who could have ended the tree.
    pub fn is_orphaned(self) -> bool {
        self.leash && self.keeper
    }
}

/// A process that should be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its number.
    pub pid: Pid,
    /// How it is shown.
    pub shown: String,
    /// The session that its environment names.
    pub session: Option<String>,
    /// Whether the ledger knew it when its leash died.
    pub recorded: bool,
}

/// Everything that was seen in and after an episode.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What kept trees together.
    pub hold: Hold,
    /// Every tree that was ever seen, by its session, and what was done to those who look after it.
    pub trees: BTreeMap<String, Harm>,
    /// Who lived when owners were gone and graces had passed.
    pub before_sweep: Vec<Survivor>,
    /// Who lived after the next start of leash.
    pub after_sweep: Vec<Survivor>,
    /// What was in the runtime directory after that.
    pub ledger: Vec<String>,
    /// Every receipt.
    pub receipts: Vec<Value>,
    /// Sessions that are open at upstream servers.
    pub open: Vec<(Origin, String)>,
    /// Sessions that were ended there by DELETE.
    pub ended: Vec<(Origin, String)>,
    /// How many were hit while they waited for a session: each may have opened one of which nobody was told.
    pub doubts: usize,
    /// Whether a leash had too few descriptors for a while to speak to an upstream server.
    pub was_mute: bool,
    /// What is wrong with those who had nothing to do with it.
    pub bystanders: Vec<String>,
}

impl Facts {
    /// What is not as promised.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = self.bystanders.clone();
        complaints.extend(
            self.before_sweep
                .iter()
                .filter(|one| !self.may_wait_for_a_sweep(one))
                .map(|one| format!("survived its owner: {} ({})", one.shown, self.said_of(one))),
        );
        complaints.extend(
            self.after_sweep
                .iter()
                .filter(|one| !self.may_survive_a_sweep(one))
                .map(|one| format!("survived the next start of leash: {} ({})", one.shown, self.said_of(one))),
        );
        complaints.extend(self.ledger.iter().map(|name| format!("left in the runtime directory: {name}")));
        complaints.extend(self.about_receipts());
        complaints.extend(self.about_upstreams());
        complaints
    }

    fn harm(&self, one: &Survivor) -> Harm {
        one.session.as_ref().and_then(|session| self.trees.get(session)).copied().unwrap_or_default()
    }

    fn said_of(&self, one: &Survivor) -> String {
        format!("session {:?}, {:?}, recorded: {}", one.session, self.harm(one), one.recorded)
    }

    /// With leash and keeper killed, `sealed` and `unit` end a tree all the same; the others do at the next start.
    pub fn may_wait_for_a_sweep(&self, one: &Survivor) -> bool {
        self.harm(one).is_orphaned() && !matches!(self.hold, Hold::Sealed | Hold::Unit)
    }

    /// Descent is lost with the keeper: what the ledger did not know yet cannot be known any more.
    fn may_survive_a_sweep(&self, one: &Survivor) -> bool {
        self.harm(one).is_orphaned() && matches!(self.hold, Hold::Reaper | Hold::Group) && !one.recorded
    }

    /// Whether a receipt may say of a tree that it is not proved to be gone.
    fn may_be_left(&self, harm: Harm) -> bool {
        match self.hold {
            // It never can prove that nobody left the group.
            Hold::Group => true,
            Hold::Reaper => harm.is_orphaned(),
            Hold::Sealed | Hold::Unit | Hold::Leaf => false,
        }
    }

    fn about_receipts(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut runs = BTreeSet::new();
        for receipt in &self.receipts {
            let run = receipt["run"].as_str().unwrap_or_default();
            if run.is_empty() || !runs.insert(run) {
                complaints.push(format!("two receipts for one run: {receipt}"));
            }
        }
        for (session, harm) in &self.trees {
            let holdings = self.holdings("tree").filter(|(of, _)| *of == session.as_str());
            let fates: Vec<&Value> = holdings.map(|(_, tree)| tree).collect();
            match fates[..] {
                [] => complaints.push(format!("no receipt for the tree of {session} ({harm:?})")),
                [tree] => {
                    let survived = self.after_sweep.iter().any(|one| one.session.as_ref() == Some(session));
                    let is_left = tree["fate"] == "left";
                    if is_left && !self.may_be_left(*harm) {
                        complaints.push(format!("left, says the receipt of {session} ({harm:?}): {tree}"));
                    }
                    if survived && !is_left {
                        complaints.push(format!("the receipt of {session} hides a survivor: {tree}"));
                    }
                }
                _ => complaints.push(format!("{} receipts for the tree of {session}", fates.len())),
            }
        }
        complaints
    }

    /// Every session that is open upstream must be named as left, for a reason that was there.
    fn about_upstreams(&self) -> Vec<String> {
        let mut untold = Vec::new();
        let mut complaints = Vec::new();
        for (origin, id) in &self.open {
            match (origin, self.left(id)) {
                (Origin::Keeper, Some("unsupported")) => {}
                (_, Some("unreachable")) if self.was_mute => {}
                (_, Some(how)) => complaints.push(format!("{origin} session {id} is left for no true reason: {how}")),
                (_, None) => untold.push(format!("{origin} session {id} is open, and no receipt says so")),
            }
        }
        for (origin, id) in &self.ended {
            match self.fates(id).next() {
                Some(end) if end["fate"] == "left" && !self.was_mute => {
                    complaints.push(format!("{origin} session {id} is ended, and not so says its receipt: {end}"));
                }
                Some(_) => {}
                None => untold.push(format!("{origin} session {id} was ended, and no receipt says so")),
            }
        }
        // Which of them nobody was told of cannot be known; how many there can be is.
        if untold.len() > self.doubts {
            complaints.append(&mut untold);
        }
        complaints
    }

    /// What receipts say of an upstream session. They have the beginning of its id.
    fn fates(&self, id: &str) -> impl Iterator<Item = &Value> {
        let is_it = |end: &&Value| end["id"].as_str().is_some_and(|start| id.starts_with(start.trim_end_matches('…')));
        self.holdings("upstream").map(|(_, end)| end).filter(is_it)
    }

    /// Why an upstream session is left, if a receipt says so.
    pub fn left(&self, id: &str) -> Option<&str> {
        let left = self.fates(id).find(|end| end["fate"] == "left");
        left.map(|end| end["how"].as_str().unwrap_or_default())
    }

    /// All holdings of one kind, with the session of their receipt.
    fn holdings(&self, kind: &'static str) -> impl Iterator<Item = (&str, &Value)> {
        self.receipts.iter().flat_map(move |receipt| {
            let session = receipt["session"].as_str().unwrap_or_default();
            let all = receipt["holdings"].as_array().map(Vec::as_slice).unwrap_or_default();
            all.iter().filter(move |holding| holding["kind"] == kind).map(move |holding| (session, holding))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(hold: Hold, harm: Harm) -> Facts {
        Facts {
            hold,
            trees: BTreeMap::from([("s".to_owned(), harm)]),
            before_sweep: Vec::new(),
            after_sweep: Vec::new(),
            ledger: Vec::new(),
            receipts: vec![tree_receipt("r", "gone")],
            open: Vec::new(),
            ended: Vec::new(),
            doubts: 0,
            was_mute: false,
            bystanders: Vec::new(),
        }
    }

    fn tree_receipt(run: &str, fate: &str) -> Value {
        json!({"session": "s", "run": run, "holdings": [{"kind": "tree", "fate": fate}]})
    }

    fn upstream_receipt(id: &str, fate: &str, how: &str) -> Value {
        json!({"session": "u", "run": id, "holdings": [{"kind": "upstream", "id": id, "fate": fate, "how": how}]})
    }

    fn survivor(session: Option<&str>, recorded: bool) -> Survivor {
        Survivor { pid: Pid::INIT, shown: "7".to_owned(), session: session.map(str::to_owned), recorded }
    }

    const BOTH: Harm = Harm { leash: true, keeper: true };
    const ONE: Harm = Harm { leash: true, keeper: false };

    fn check(facts: &Facts, complaints: &[&str]) {
        let found = facts.complaints();
        assert_eq!(found.len(), complaints.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(complaints) {
            assert!(found.contains(expected), "{found}: {expected}");
        }
    }

    #[test]
    fn a_clean_end_is_fine() {
        for hold in Hold::ALL {
            check(&facts(*hold, Harm::default()), &[]);
        }
    }

    #[test]
    fn who_may_survive_until_the_next_start() {
        for (hold, harm, is_fine) in [
            (Hold::Sealed, BOTH, false),
            (Hold::Unit, BOTH, false),
            (Hold::Leaf, BOTH, true),
            (Hold::Reaper, BOTH, true),
            (Hold::Group, BOTH, true),
            (Hold::Leaf, ONE, false),
            (Hold::Reaper, ONE, false),
            (Hold::Group, Harm { leash: false, keeper: true }, false),
        ] {
            let facts = Facts { before_sweep: vec![survivor(Some("s"), true)], ..facts(hold, harm) };
            check(&facts, if is_fine { &[] } else { &["survived its owner"] });
        }
        let nobodys = Facts { before_sweep: vec![survivor(None, true)], ..facts(Hold::Reaper, BOTH) };
        check(&nobodys, &["survived its owner"]);
    }

    #[test]
    fn who_may_survive_the_next_start_and_what_the_receipt_says_then() {
        for (hold, recorded, fate, complaints) in [
            (Hold::Reaper, false, "left", &[][..]),
            (Hold::Reaper, true, "left", &["survived the next start"]),
            (Hold::Reaper, false, "gone", &["hides a survivor"]),
            (Hold::Leaf, false, "gone", &["survived the next start", "hides a survivor"]),
            (Hold::Leaf, false, "left", &["survived the next start", "left, says the receipt"]),
        ] {
            let after_sweep = vec![survivor(Some("s"), recorded)];
            check(&Facts { after_sweep, receipts: vec![tree_receipt("r", fate)], ..facts(hold, BOTH) }, complaints);
        }
    }

    #[test]
    fn one_receipt_for_each_tree() {
        let none = Facts { receipts: Vec::new(), ..facts(Hold::Leaf, ONE) };
        check(&none, &["no receipt for the tree of s"]);
        let two =
            Facts { receipts: vec![tree_receipt("r", "gone"), tree_receipt("q", "gone")], ..facts(Hold::Leaf, ONE) };
        check(&two, &["2 receipts for the tree"]);
        let same =
            Facts { receipts: vec![tree_receipt("r", "gone"), tree_receipt("r", "gone")], ..facts(Hold::Leaf, ONE) };
        check(&same, &["two receipts for one run", "2 receipts for the tree"]);
    }

    #[test]
    fn left_needs_a_reason_that_was_there() {
        for (hold, harm, is_fine) in [
            (Hold::Leaf, BOTH, false),
            (Hold::Reaper, BOTH, true),
            (Hold::Reaper, ONE, false),
            (Hold::Group, Harm::default(), true),
        ] {
            let facts = Facts { receipts: vec![tree_receipt("r", "left")], ..facts(hold, harm) };
            check(&facts, if is_fine { &[] } else { &["left, says the receipt"] });
        }
    }

    #[test]
    fn open_upstream_sessions_are_named() {
        let with = |origin, how: Option<&str>, was_mute, doubts| {
            let mut facts = facts(Hold::Leaf, Harm::default());
            facts.receipts.extend(how.map(|how| upstream_receipt("abc", "left", how)));
            Facts { open: vec![(origin, "abcdef".to_owned())], was_mute, doubts, ..facts }
        };
        check(&with(Origin::Keeper, Some("unsupported"), false, 0), &[]);
        check(&with(Origin::Honest, Some("unsupported"), false, 0), &["for no true reason"]);
        check(&with(Origin::Honest, Some("unreachable"), false, 0), &["for no true reason"]);
        check(&with(Origin::Honest, Some("unreachable"), true, 0), &[]);
        check(&with(Origin::Honest, None, true, 0), &["no receipt says so"]);
        check(&with(Origin::Honest, None, false, 1), &[]);
    }

    #[test]
    fn a_gone_session_that_is_open_is_a_lie() {
        let mut facts = facts(Hold::Leaf, Harm::default());
        facts.receipts.push(upstream_receipt("abc", "gone", "deleted"));
        facts.open.push((Origin::Honest, "abcdef".to_owned()));
        check(&facts, &["no receipt says so"]);
    }

    #[test]
    fn ended_upstream_sessions_have_a_receipt_that_says_so() {
        let with = |receipt: Option<Value>, doubts| {
            let mut facts = facts(Hold::Leaf, Harm::default());
            facts.receipts.extend(receipt);
            Facts { ended: vec![(Origin::Honest, "abcdef".to_owned())], doubts, ..facts }
        };
        check(&with(Some(upstream_receipt("abc…", "gone", "deleted")), 0), &[]);
        check(&with(Some(upstream_receipt("abc…", "left", "unreachable")), 0), &["not so says its receipt"]);
        check(&with(Some(upstream_receipt("xyz…", "gone", "deleted")), 0), &["was ended, and no receipt"]);
        check(&with(None, 0), &["was ended, and no receipt"]);
        check(&with(None, 1), &[]);
    }

    #[test]
    fn leavings_and_bystanders() {
        let facts = Facts {
            ledger: vec!["sessions/x.json".to_owned()],
            bystanders: vec!["the echo is dead".to_owned()],
            ..facts(Hold::Leaf, Harm::default())
        };
        check(&facts, &["the echo is dead", "sessions/x.json"]);
    }
}
