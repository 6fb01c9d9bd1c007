//! The promises of leash, no more and no less, and the check of the facts against them. Pure: facts in, complaints out.

mod upstream;

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::Value;

use super::action::Origin;
use super::plan::Hold;
pub use upstream::{Session, State, Wounds};

/// The faults that hit the supervisor and the keeper of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harm {
    /// Its leash was killed by SIGKILL.
    pub leash: bool,
    /// Its keeper was killed by SIGKILL.
    pub keeper: bool,
    /// One of them was short of a resource for a while.
    pub short: bool,
    /// It had a process in a PID namespace that existed before: orphans of that process go to the first process of the
    /// namespace.
    pub foreign: bool,
}

impl Harm {
    /// True if both processes that could have ended the tree were killed.
    pub fn is_orphaned(self) -> bool {
        self.leash && self.keeper
    }
}

/// A process that should be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its pid.
    pub pid: Pid,
    /// Its description for a message.
    pub shown: String,
    /// The session that its environment names.
    pub session: Option<String>,
    /// True if the ledger knew it when its leash died.
    pub recorded: bool,
    /// True if it is in a PID namespace that existed before.
    pub foreign: bool,
}

/// The kind of a forged file in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forged {
    /// Not a file of leash: leash neither uses nor removes it.
    Foreign,
    /// Not a record, or half of one: leash may remove it.
    Torn,
    /// A record of a run without a living supervisor or keeper: leash reports it like any other.
    Record,
}

/// True if a receipt says that this tree is left and the process is in a foreign namespace: then it may live.
pub(super) fn may_stay(one: &Survivor, receipts: &[Value]) -> bool {
    let is_left = |session: &String| trees(receipts, session).iter().any(|tree| tree["fate"] == "left");
    one.foreign && one.session.as_ref().is_some_and(is_left)
}

/// The facts that were gathered in and after an episode.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The containment of the trees.
    pub hold: Hold,
    /// Every tree that was ever seen, by its session, and the faults that hit its supervisor and keeper.
    pub trees: BTreeMap<String, Harm>,
    /// The tree of the resident, which lives until the end.
    pub resident: Option<String>,
    /// The processes that lived when the owners were gone and the graces had passed.
    pub before_sweep: Vec<Survivor>,
    /// The processes that lived after the next start of leash.
    pub after_sweep: Vec<Survivor>,
    /// The state before that start, which repairs much.
    pub early: Early,
    /// The files in the runtime directory after it.
    pub ledger: Vec<String>,
    /// Every receipt.
    pub receipts: Vec<Value>,
    /// Every session that was opened at an upstream server.
    pub sessions: Vec<Session>,
    /// The faults that hit the leashes that opened them.
    pub openers: BTreeMap<String, Wounds>,
    /// The total time for which each upstream server was unreachable.
    pub outages: BTreeMap<Origin, Duration>,
    /// The forged files in the runtime directory, by the names of runs.
    pub forged: BTreeMap<String, Forged>,
    /// True if a process of leash was killed by SIGKILL or was short of a resource, or the disk of the ledger failed.
    pub was_hurt: bool,
    /// Other complaints: about bystanders, gateways and starts.
    pub wrong: Vec<String>,
}

/// The state when all owners were gone, before the next start of leash.
#[derive(Clone, Debug, Default)]
pub struct Early {
    /// Sessions at upstream servers.
    pub sessions: Vec<Session>,
    /// Every receipt.
    pub receipts: Vec<Value>,
    /// The files in the runtime directory, except those of living processes.
    pub ledger: Vec<String>,
}

impl Facts {
    /// The promises that were not kept.
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

    /// True if the survivor may live until the next start: supervisor and keeper were killed, and the containment is
    /// not `sealed` or `unit`, which end a tree even then.
    pub fn may_wait_for_a_sweep(&self, one: &Survivor) -> bool {
        self.harm(one).is_orphaned() && !matches!(self.hold, Hold::Sealed | Hold::Unit)
    }

    /// True if the survivor may live after the next start. Without the keeper descent is lost: a process that the
    /// ledger did not know yet cannot be found any more.
    fn may_survive_a_sweep(&self, one: &Survivor) -> bool {
        self.harm(one).is_orphaned() && matches!(self.hold, Hold::Reaper | Hold::Group) && !one.recorded
    }

    /// True if a receipt may say that the end of a tree is not proved.
    fn may_be_left(&self, harm: Harm, tree: &Value) -> bool {
        match self.hold {
            // `group` can never prove that no process left the group.
            Hold::Group => true,
            // A process can leave a cgroup, and descent is lost with the keeper.
            Hold::Reaper | Hold::Unit | Hold::Leaf => harm.is_orphaned() || harm.foreign,
            // Both were killed before the keeper could record that there is a namespace.
            Hold::Sealed => harm.foreign || harm.is_orphaned() && tree["leader"].is_null(),
        }
    }

    /// The runtime directory must be empty after the next start. It must be empty before it too, if no process of leash
    /// was hurt.
    fn about_ledger(&self) -> Vec<String> {
        // An unreachable session stays in the book of the gateway that had to stop.
        let may_stay =
            |name: &str| self.forged_as(name).is_some() || !self.outages.is_empty() && name.starts_with("gateways/");
        let early = self.early.ledger.iter().filter(|name| !self.was_hurt && !may_stay(name));
        let early = early.map(|name| format!("left in the runtime directory for the next start: {name}"));
        let late = self.ledger.iter().filter(|name| matches!(self.forged_as(name), None | Some(Forged::Record)));
        early.chain(late.map(|name| format!("left in the runtime directory: {name}"))).collect()
    }

    /// The kind of forgery that a file in the runtime directory belongs to. leash may have made a lock for it.
    fn forged_as(&self, name: &str) -> Option<Forged> {
        let is_it = |run: &&String| name.strip_prefix("sessions/").is_some_and(|name| name.starts_with(run.as_str()));
        self.forged.keys().find(is_it).map(|run| self.forged[run])
    }

    /// A file that leash did not make must still be there; a forged record must have a receipt.
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
            let told: Vec<(&Value, &Value)> =
                holdings(&self.receipts, "tree").filter(|(receipt, _)| receipt["session"] == *session).collect();
            match told[..] {
                [] => complaints.push(format!("no receipt for the tree of {session} ({harm:?})")),
                [(_, tree)] => complaints.extend(self.about_tree(session, *harm, tree)),
                [(before, _), (now, tree)] if self.is_met_again(before, now) => {
                    complaints.extend(self.about_tree(session, *harm, tree));
                }
                _ => complaints.push(format!("{} receipts for the tree of {session}", told.len())),
            }
        }
        complaints
    }

    /// True if the second receipt says more than the first.
    fn is_news(&self, before: &Value, now: &Value) -> bool {
        let is_ended =
            !self.outages.is_empty() && all_are(before, "upstream", "left") && all_are(now, "upstream", "gone");
        is_ended || self.is_met_again(before, now)
    }

    /// True if the first receipt of a tree says `left`, its record could not be removed, and so the next start found the
    /// record and ended the processes that were left.
    fn is_met_again(&self, before: &Value, now: &Value) -> bool {
        let record = format!("sessions/{}.json", before["run"].as_str().unwrap_or_default());
        let is_same = before["run"] == now["run"] && self.early.ledger.contains(&record);
        is_same && now["ended_by"] == "sweep" && all_are(before, "tree", "left")
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
        // Without a descriptor no process can write a receipt; the next start writes it.
        let may_be_late = harm.is_orphaned() || harm.short || self.resident.as_deref() == Some(session);
        if trees(&self.early.receipts, session).is_empty() && !may_be_late {
            complaints.push(format!("the receipt of {session} ({harm:?}) came with the next start: {tree}"));
        }
        complaints
    }
}

/// True if all holdings of a receipt are of this kind and have this fate.
fn all_are(receipt: &Value, kind: &str, fate: &str) -> bool {
    let all = receipt["holdings"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().all(|holding| holding["kind"] == kind && holding["fate"] == fate)
}

/// The holdings of a session's tree in the receipts.
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
    /// The facts of an episode without actions.
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
    fn clean_end_has_no_complaint() {
        for hold in Hold::ALL {
            check(&facts(*hold, Harm::default()), &[]);
        }
    }

    #[test]
    fn only_orphaned_trees_may_survive_until_the_next_start() {
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
    fn only_unrecorded_processes_may_survive_the_next_start_and_the_receipt_says_so() {
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

    /// Found by chaos: on a read-only disk the keeper could not remove the record of a tree with a process in a foreign
    /// namespace, and the next start met that process and ended it.
    #[test]
    fn second_receipt_needs_a_record_that_stayed() {
        let foreign = Harm { foreign: true, ..Harm::default() };
        let mut swept = tree_receipt("r", "left");
        swept["ended_by"] = "sweep".into();
        for (first, stays, second, is_fine) in [
            ("left", true, swept.clone(), true),
            ("left", false, swept.clone(), false),
            ("gone", true, swept, false),
            ("left", true, tree_receipt("r", "left"), false),
        ] {
            let mut facts = told(Hold::Reaper, foreign, vec![tree_receipt("r", first), second]);
            facts.early.receipts.truncate(1);
            facts.early.ledger = if stays { vec!["sessions/r.json".to_owned()] } else { Vec::new() };
            facts.was_hurt = true;
            let complaints = ["two receipts for one run", "2 receipts for the tree"];
            check(&facts, if is_fine { &[] } else { &complaints });
        }
    }

    /// The process that ends a tree also writes its receipt, and does not leave that to the next start.
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
    fn left_receipt_needs_a_real_reason() {
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
        // leash knows nothing about a tree that was about to start, not even that it is sealed.
        let mut unknown = tree_receipt("r", "left");
        unknown["holdings"][0]["leader"] = Value::Null;
        check(&told(Hold::Sealed, BOTH, vec![unknown.clone()]), &[]);
        check(&told(Hold::Sealed, ONE, vec![unknown]), &["left, says the receipt"]);
    }

    /// Such a process may live if the receipt says so, and in no other case.
    #[test]
    fn process_in_a_foreign_namespace_is_gone_or_reported_as_left() {
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
    fn left_files_and_other_faults_are_complaints() {
        let facts = Facts {
            ledger: vec!["sessions/x.json".to_owned()],
            wrong: vec!["the echo is dead".to_owned()],
            ..facts(Hold::Leaf, Harm::default())
        };
        check(&facts, &["the echo is dead", "sessions/x.json"]);
    }

    #[test]
    fn unhurt_leash_leaves_no_files_for_the_next_start() {
        for (was_hurt, complaints) in [(false, &["for the next start: gateways/x.jsonl"][..]), (true, &[])] {
            let facts = facts(Hold::Leaf, ONE);
            let early = Early { ledger: vec!["gateways/x.jsonl".to_owned()], ..facts.early.clone() };
            check(&Facts { early, was_hurt, ..facts }, complaints);
        }
    }
}
