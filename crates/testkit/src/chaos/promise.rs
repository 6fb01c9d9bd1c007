//! What leash promises, no more and no less, and whether the facts agree. Pure: facts in, complaints out.

mod upstream;

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::Value;

use super::action::Origin;
use super::plan::Hold;
pub use upstream::{Session, State, Wounds};

/// What was done to the two who look after a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harm {
    /// Its leash was killed by SIGKILL.
    pub leash: bool,
    /// Its keeper was.
    pub keeper: bool,
    /// One of them had too little of something for a while.
    pub short: bool,
    /// It had a process in a PID namespace that was there before: its orphans belong to the first process of that namespace.
    pub foreign: bool,
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
    /// Whether it is in a PID namespace that was there before.
    pub foreign: bool,
}

/// What was forged in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forged {
    /// No file of leash: it is neither used nor removed.
    Foreign,
    /// No record, and no more than half of one: it may be removed.
    Torn,
    /// A record of a run that nobody looks after: it is told of like any other.
    Record,
}

/// A process in a foreign namespace may be left, as long as a receipt says so.
pub(super) fn may_stay(one: &Survivor, receipts: &[Value]) -> bool {
    let is_left = |session: &String| trees(receipts, session).iter().any(|tree| tree["fate"] == "left");
    one.foreign && one.session.as_ref().is_some_and(is_left)
}

/// Everything that was seen in and after an episode.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What kept trees together.
    pub hold: Hold,
    /// Every tree that was ever seen, by its session, and what was done to those who look after it.
    pub trees: BTreeMap<String, Harm>,
    /// The tree of somebody who lives on until the end.
    pub resident: Option<String>,
    /// Who lived when owners were gone and graces had passed.
    pub before_sweep: Vec<Survivor>,
    /// Who lived after the next start of leash.
    pub after_sweep: Vec<Survivor>,
    /// What was there before that start: it repairs much.
    pub early: Early,
    /// What was in the runtime directory after it.
    pub ledger: Vec<String>,
    /// Every receipt.
    pub receipts: Vec<Value>,
    /// Every session that was opened at an upstream server.
    pub sessions: Vec<Session>,
    /// What was done to those who opened them.
    pub openers: BTreeMap<String, Wounds>,
    /// For how long upstream servers could not be reached, in all.
    pub outages: BTreeMap<Origin, Duration>,
    /// What was forged in the runtime directory, by the names of runs.
    pub forged: BTreeMap<String, Forged>,
    /// Whether anybody of leash was killed by SIGKILL or had too little of something, or the disk of the ledger failed.
    pub was_hurt: bool,
    /// What else was seen to be wrong: with those who had nothing to do with it, with gateways, with starts.
    pub wrong: Vec<String>,
}

/// What was seen when all owners were gone, and before the next start of leash.
#[derive(Clone, Debug, Default)]
pub struct Early {
    /// Sessions at upstream servers.
    pub sessions: Vec<Session>,
    /// Every receipt.
    pub receipts: Vec<Value>,
    /// What was in the runtime directory, but for what belongs to somebody who lives.
    pub ledger: Vec<String>,
}

impl Facts {
    /// What is not as promised.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = self.wrong.clone();
        complaints.extend(
            self.before_sweep
                .iter()
                .filter(|one| !self.may_wait_for_a_sweep(one) && !may_stay(one, &self.early.receipts))
                .map(|one| format!("survived its owner: {} ({})", one.shown, self.said_of(one))),
        );
        complaints.extend(
            self.after_sweep
                .iter()
                .filter(|one| !self.may_survive_a_sweep(one) && !may_stay(one, &self.receipts))
                .map(|one| format!("survived the next start of leash: {} ({})", one.shown, self.said_of(one))),
        );
        complaints.extend(self.about_ledger());
        complaints.extend(self.about_forged());
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
    fn may_be_left(&self, harm: Harm, tree: &Value) -> bool {
        match self.hold {
            // It never can prove that nobody left the group.
            Hold::Group => true,
            // A process can leave a cgroup, and descent is lost with the keeper.
            Hold::Reaper | Hold::Unit | Hold::Leaf => harm.is_orphaned() || harm.foreign,
            // Both were killed before the keeper could write down that there is a namespace.
            Hold::Sealed => harm.foreign || harm.is_orphaned() && tree["leader"].is_null(),
        }
    }

    /// Empty after the next start; before it, if everybody had what it takes to clear up.
    fn about_ledger(&self) -> Vec<String> {
        // What could not be reached stays in the book of the gateway that had to stop.
        let may_stay =
            |name: &str| self.forged_as(name).is_some() || !self.outages.is_empty() && name.starts_with("gateways/");
        let early = self.early.ledger.iter().filter(|name| !self.was_hurt && !may_stay(name));
        let early = early.map(|name| format!("left in the runtime directory for the next start: {name}"));
        let late = self.ledger.iter().filter(|name| matches!(self.forged_as(name), None | Some(Forged::Record)));
        early.chain(late.map(|name| format!("left in the runtime directory: {name}"))).collect()
    }

    /// What a file in the runtime directory was forged as. leash may have made a lock for it.
    fn forged_as(&self, name: &str) -> Option<Forged> {
        let is_it = |run: &&String| name.strip_prefix("sessions/").is_some_and(|name| name.starts_with(run.as_str()));
        self.forged.keys().find(is_it).map(|run| self.forged[run])
    }

    /// What leash did not make is still there; a record is told of.
    fn about_forged(&self) -> Vec<String> {
        let is_there = |run: &str| self.ledger.iter().any(|name| name.starts_with(&format!("sessions/{run}.")));
        let is_told = |run: &str| self.receipts.iter().any(|receipt| receipt["run"] == run);
        let complaint = |(run, forged): (&String, &Forged)| match forged {
            Forged::Foreign if !is_there(run) => Some(format!("what leash did not make was removed: {run}")),
            Forged::Record if !is_there(run) && !is_told(run) => {
                Some(format!("the record of {run} is gone, and there is no receipt"))
            }
            Forged::Foreign | Forged::Record | Forged::Torn => None,
        };
        self.forged.iter().filter_map(complaint).collect()
    }

    fn about_receipts(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut runs = BTreeMap::new();
        for receipt in &self.receipts {
            let run = receipt["run"].as_str().unwrap_or_default();
            let before = runs.insert(run, receipt);
            if run.is_empty() || before.is_some_and(|before| !self.is_news(before, receipt)) {
                complaints.push(format!("two receipts for one run: {receipt}"));
            }
        }
        for (session, harm) in &self.trees {
            let fates = trees(&self.receipts, session);
            match fates[..] {
                [] => complaints.push(format!("no receipt for the tree of {session} ({harm:?})")),
                [tree] => complaints.extend(self.about_tree(session, *harm, tree)),
                _ => complaints.push(format!("{} receipts for the tree of {session}", fates.len())),
            }
        }
        complaints
    }

    /// What could not be reached is left, and told of once more when the next start has ended it.
    fn is_news(&self, before: &Value, now: &Value) -> bool {
        let all = |receipt: &Value, fate: &str| {
            let all = receipt["holdings"].as_array().map(Vec::as_slice).unwrap_or_default();
            all.iter().all(|holding| holding["kind"] == "upstream" && holding["fate"] == fate)
        };
        !self.outages.is_empty() && all(before, "left") && all(now, "gone")
    }

    fn about_tree(&self, session: &str, harm: Harm, tree: &Value) -> Vec<String> {
        let mut complaints = Vec::new();
        let hides = |receipts: &[Value], survivors: &[Survivor]| {
            trees(receipts, session).iter().any(|tree| tree["fate"] != "left")
                && survivors.iter().any(|one| one.session.as_deref() == Some(session))
        };
        let is_left = tree["fate"] == "left";
        if is_left && !self.may_be_left(harm, tree) {
            complaints.push(format!("left, says the receipt of {session} ({harm:?}): {tree}"));
        }
        if hides(&self.early.receipts, &self.before_sweep) || hides(&self.receipts, &self.after_sweep) {
            complaints.push(format!("the receipt of {session} hides a survivor: {tree}"));
        }
        // Without a descriptor nobody can write one, and the next start does.
        let may_be_late = harm.is_orphaned() || harm.short || self.resident.as_deref() == Some(session);
        if trees(&self.early.receipts, session).is_empty() && !may_be_late {
            complaints.push(format!("the receipt of {session} ({harm:?}) came with the next start: {tree}"));
        }
        complaints
    }
}

/// What receipts say of the tree of a session.
fn trees<'a>(receipts: &'a [Value], session: &str) -> Vec<&'a Value> {
    holdings(receipts, "tree").filter(|(receipt, _)| receipt["session"] == session).map(|(_, tree)| tree).collect()
}

/// All holdings of one kind, with their receipts.
fn holdings<'a>(receipts: &'a [Value], kind: &'static str) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    receipts.iter().flat_map(move |receipt| {
        let all = receipt["holdings"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(move |holding| holding["kind"] == kind).map(move |holding| (receipt, holding))
    })
}

impl Facts {
    /// Nothing happened, and nothing is there.
    pub(super) fn none(hold: Hold) -> Self {
        Self {
            hold,
            trees: BTreeMap::new(),
            resident: None,
            before_sweep: Vec::new(),
            after_sweep: Vec::new(),
            early: Early::default(),
            ledger: Vec::new(),
            receipts: Vec::new(),
            sessions: Vec::new(),
            openers: BTreeMap::new(),
            outages: BTreeMap::new(),
            forged: BTreeMap::new(),
            was_hurt: false,
            wrong: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(hold: Hold, harm: Harm) -> Facts {
        told(hold, harm, vec![tree_receipt("r", "gone")])
    }

    fn told(hold: Hold, harm: Harm, receipts: Vec<Value>) -> Facts {
        let early = Early { receipts: receipts.clone(), ..Early::default() };
        Facts { trees: BTreeMap::from([("s".to_owned(), harm)]), early, receipts, ..Facts::none(hold) }
    }

    fn tree_receipt(run: &str, fate: &str) -> Value {
        json!({"session": "s", "run": run, "holdings": [{"kind": "tree", "fate": fate, "leader": {"pid": 8}}]})
    }

    fn survivor(session: Option<&str>, recorded: bool) -> Survivor {
        Survivor {
            pid: Pid::INIT,
            shown: "7".to_owned(),
            session: session.map(str::to_owned),
            recorded,
            foreign: false,
        }
    }

    const BOTH: Harm = Harm { leash: true, keeper: true, short: false, foreign: false };
    const ONE: Harm = Harm { leash: true, keeper: false, short: false, foreign: false };

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
            (Hold::Group, Harm { leash: false, ..BOTH }, false),
        ] {
            let mut facts = Facts { before_sweep: vec![survivor(Some("s"), true)], ..facts(hold, harm) };
            let told = std::mem::take(&mut facts.early.receipts);
            let late = if harm.is_orphaned() { &[][..] } else { &["came with the next start"] };
            check(&facts, &if is_fine { Vec::new() } else { [&["survived its owner"], late].concat() });
            // Before the next start, too, a receipt must not say that such a tree is gone.
            facts.early.receipts = told;
            let all = ["survived its owner", "hides a survivor"];
            check(&facts, if is_fine { &all[1..] } else { &all });
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
            (Hold::Leaf, false, "left", &["survived the next start"]),
            (Hold::Sealed, false, "left", &["survived the next start", "left, says the receipt"]),
        ] {
            let after_sweep = vec![survivor(Some("s"), recorded)];
            check(&Facts { after_sweep, ..told(hold, BOTH, vec![tree_receipt("r", fate)]) }, complaints);
        }
    }

    #[test]
    fn one_receipt_for_each_tree() {
        let told = |receipts: Vec<Value>| told(Hold::Leaf, ONE, receipts);
        check(&told(Vec::new()), &["no receipt for the tree of s"]);
        let two = vec![tree_receipt("r", "gone"), tree_receipt("q", "gone")];
        check(&told(two), &["2 receipts for the tree"]);
        let same = vec![tree_receipt("r", "gone"), tree_receipt("r", "gone")];
        check(&told(same), &["two receipts for one run", "2 receipts for the tree"]);
    }

    /// Whoever is left to end a tree tells of it, and does not leave that to the next start.
    #[test]
    fn a_receipt_is_there_before_the_next_start() {
        let short = Harm { short: true, ..ONE };
        for (harm, is_fine) in [(Harm::default(), false), (ONE, false), (BOTH, true), (short, true)] {
            let facts = Facts { early: Early::default(), ..facts(Hold::Leaf, harm) };
            check(&facts, if is_fine { &[] } else { &["came with the next start"] });
        }
        let lives = Facts { early: Early::default(), resident: Some("s".to_owned()), ..facts(Hold::Leaf, ONE) };
        check(&lives, &[]);
    }

    #[test]
    fn left_needs_a_reason_that_was_there() {
        for (hold, harm, is_fine) in [
            (Hold::Sealed, BOTH, false),
            (Hold::Leaf, BOTH, true),
            (Hold::Leaf, ONE, false),
            (Hold::Leaf, Harm { foreign: true, ..ONE }, true),
            (Hold::Reaper, BOTH, true),
            (Hold::Reaper, ONE, false),
            (Hold::Group, Harm::default(), true),
        ] {
            let facts = told(hold, harm, vec![tree_receipt("r", "left")]);
            check(&facts, if is_fine { &[] } else { &["left, says the receipt"] });
        }
        // Of a tree that was only about to start nothing is known, also not that it is sealed.
        let mut unknown = tree_receipt("r", "left");
        unknown["holdings"][0]["leader"] = Value::Null;
        check(&told(Hold::Sealed, BOTH, vec![unknown.clone()]), &[]);
        check(&told(Hold::Sealed, ONE, vec![unknown]), &["left, says the receipt"]);
    }

    /// It may live if the receipt says that it does, and in no other case.
    #[test]
    fn a_process_in_a_foreign_namespace_is_gone_or_told_of_as_left() {
        let foreign = Harm { foreign: true, ..Harm::default() };
        for (is_foreign, fate, complaints) in [
            (true, "left", &[][..]),
            (true, "gone", &["survived its owner", "survived the next start", "hides a survivor"]),
            (false, "left", &["survived its owner", "survived the next start"]),
        ] {
            let one = Survivor { foreign: is_foreign, ..survivor(Some("s"), true) };
            let facts = told(Hold::Reaper, foreign, vec![tree_receipt("r", fate)]);
            check(&Facts { before_sweep: vec![one.clone()], after_sweep: vec![one], ..facts }, complaints);
        }
    }

    #[test]
    fn forged_files_are_neither_removed_nor_a_reason_to_forget_a_record() {
        let receipt = json!({"session": "x", "run": "forged-1", "holdings": []});
        for (forged, is_there, is_told, complaints) in [
            (Forged::Foreign, true, false, &[][..]),
            (Forged::Foreign, false, false, &["what leash did not make was removed"]),
            (Forged::Torn, true, false, &[]),
            (Forged::Torn, false, false, &[]),
            (Forged::Record, false, true, &[]),
            (Forged::Record, false, false, &["is gone, and there is no receipt"]),
            (Forged::Record, true, false, &["left in the runtime directory"]),
        ] {
            let mut facts = facts(Hold::Leaf, Harm::default());
            facts.forged.insert("forged-1".to_owned(), forged);
            facts.ledger.extend(is_there.then(|| "sessions/forged-1.json".to_owned()));
            facts.early.ledger = vec!["sessions/forged-1.json".to_owned()];
            facts.receipts.extend(is_told.then(|| receipt.clone()));
            check(&facts, complaints);
        }
    }

    #[test]
    fn leavings_and_what_else_is_wrong() {
        let facts = Facts {
            ledger: vec!["sessions/x.json".to_owned()],
            wrong: vec!["the echo is dead".to_owned()],
            ..facts(Hold::Leaf, Harm::default())
        };
        check(&facts, &["the echo is dead", "sessions/x.json"]);
    }

    #[test]
    fn who_can_clear_up_does_not_leave_it_to_the_next_start() {
        for (was_hurt, complaints) in [(false, &["for the next start: gateways/x.jsonl"][..]), (true, &[])] {
            let facts = facts(Hold::Leaf, ONE);
            let early = Early { ledger: vec!["gateways/x.jsonl".to_owned()], ..facts.early.clone() };
            check(&Facts { early, was_hurt, ..facts }, complaints);
        }
    }
}
