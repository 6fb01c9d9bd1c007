//! Makes the one receipt of a session from the ends of its trees.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ledger::receipts;
use crate::ledger::store::Store;
use crate::places::Places;
use crate::platform::poll;
use crate::platform::proc::Proc;
use crate::session::together;
use crate::tree::handle;
use crate::tree::{SupervisorLost, Tree, sweep};
use leash_model::clock::{self, Moment};
use leash_model::receipt::{EndedBy, Holding, How, LeftOver, Reason, Receipt, TreeEnd, VERSION};
use leash_model::{duration, limits};

/// A session whose end has begun.
#[derive(Debug)]
pub(super) struct EndingSession {
    pub(super) id: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) places: Places,
    pub(super) started_ms: u64,
    /// The time at which its end began.
    pub(super) began: Moment,
    pub(super) trees: Vec<Tree>,
}

impl EndingSession {
    /// Waits for the end of all trees.
    pub(super) fn wait(mut self) -> Receipt {
        let trees = std::mem::take(&mut self.trees);
        let runs: Vec<String> = trees.iter().map(|tree| tree.run().to_owned()).collect();
        let ends = handle::wait_all(trees);
        let ends = runs.iter().zip(ends).map(|(run, end)| end.or_else(|error| self.lost(run, error))).collect();
        self.receipt(ends)
    }

    /// Finds the receipt of a tree whose supervisor can't report its end: its keeper wrote it, or a sweep makes it.
    fn lost(&self, run: &str, error: SupervisorLost) -> Result<Receipt, SupervisorLost> {
        let found = || {
            let (store, proc) = (Store::look(&self.places.runtime_dir).ok()??, Proc::own().ok()?);
            await_keeper(&store, run);
            // If the keeper has ended the tree, the sweep finds nothing to do.
            let swept = sweep::sweep(&[store], Some(&proc)).receipts.into_iter().find(|receipt| receipt.run == run);
            swept.or_else(|| {
                let (known, _) = receipts::read(&self.places.receipts).ok()?;
                known.into_iter().rev().find(|receipt| receipt.run == run)
            })
        };
        found().ok_or(error)
    }

    fn receipt(self, ends: Vec<Result<Receipt, SupervisorLost>>) -> Receipt {
        let (known, lost): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_ok);
        let known: Vec<Receipt> = known.into_iter().flatten().collect();
        let mut holdings: Vec<Holding> = lost.into_iter().filter_map(Result::err).map(without_receipt).collect();
        let whole = together(&self.id, &known);
        holdings.splice(0..0, whole.iter().flat_map(|whole| whole.holdings.iter().cloned()));
        Receipt {
            version: VERSION,
            run: self.id.clone(),
            name: self.id.clone(),
            session: self.id,
            labels: self.labels,
            reason: reason(&known),
            client: None,
            containment: whole.as_ref().and_then(|whole| whole.containment),
            ended_by: whole.as_ref().map_or(EndedBy::Keeper, |whole| whole.ended_by),
            dropped_holdings: whole.as_ref().map_or(0, |whole| whole.dropped_holdings),
            refused: whole.map(|whole| whole.refused).unwrap_or_default(),
            holdings,
            started_ms: self.started_ms,
            ended_ms: clock::unix_ms(),
            took_ms: duration::as_ms(Moment::now().since(self.began)),
        }
    }
}

/// Waits until no process of leash looks after a run any more. Its receipt is written before that.
fn await_keeper(store: &Store, run: &str) {
    let grace = store.read(run).ok().flatten().map_or(limits::GRACE, |record| Duration::from_millis(record.grace_ms));
    let give_up = Moment::now() + grace * 2 + limits::GIVE_UP + limits::KEEPER_SLACK;
    while store.locked(run) && Moment::now() < give_up {
        poll::pause(limits::SWEEP_ROUND);
    }
}

/// The reason for the end of the session: a request, unless all trees had ended before.
fn reason(known: &[Receipt]) -> Reason {
    let asked = known.iter().find(|receipt| matches!(receipt.reason, Reason::Requested { .. }));
    let last = || known.iter().max_by_key(|receipt| receipt.ended_ms);
    asked.or_else(last).map_or(Reason::PROGRAM, |receipt| receipt.reason.clone())
}

/// The holding of a tree without a receipt. leash does not know its end, so it may not report it as gone.
fn without_receipt(error: SupervisorLost) -> Holding {
    let left = LeftOver { pid: 0, name: String::new(), why: format!("{error}, and there is no receipt") };
    Holding::Tree(TreeEnd::unknown(How::Kill, vec![left]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leash_model::containment::Containment;
    use leash_model::receipt::Fate;

    fn end(reason: Reason, ended_ms: u64, fate: Fate) -> Receipt {
        let Holding::Tree(tree) = without_receipt(SupervisorLost) else { unreachable!("it is a tree") };
        Receipt {
            version: VERSION,
            session: "job".to_owned(),
            run: ended_ms.to_string(),
            name: "server".to_owned(),
            labels: BTreeMap::new(),
            reason,
            client: None,
            containment: Some(Containment::Leaf),
            refused: Vec::new(),
            holdings: vec![Holding::Tree(TreeEnd { fate, ..tree })],
            dropped_holdings: 0,
            ended_by: EndedBy::Keeper,
            started_ms: 0,
            ended_ms,
            took_ms: 0,
        }
    }

    fn check(ends: Vec<Result<Receipt, SupervisorLost>>, reason: Reason, all_gone: bool) {
        let holdings = ends.len();
        let session = EndingSession {
            id: "job".to_owned(),
            labels: BTreeMap::new(),
            places: Places::below("/nowhere"),
            started_ms: 1,
            began: Moment::now(),
            trees: Vec::new(),
        };
        let receipt = session.receipt(ends);
        assert_eq!((receipt.session.as_str(), receipt.holdings.len()), ("job", holdings));
        assert_eq!((&receipt.reason, receipt.all_gone()), (&reason, all_gone), "{receipt:?}");
    }

    #[test]
    fn session_receipt_combines_the_ends_of_all_trees() {
        let gone = |reason, at| Ok(end(reason, at, Fate::Gone));
        check(Vec::new(), Reason::PROGRAM, true);
        check(vec![gone(Reason::PROGRAM, 5), gone(Reason::ServerExited, 9)], Reason::PROGRAM, true);
        check(vec![gone(Reason::MaxAge, 5), gone(Reason::ServerExited, 4)], Reason::MaxAge, true);
        check(vec![gone(Reason::PROGRAM, 5), Ok(end(Reason::PROGRAM, 6, Fate::Left))], Reason::PROGRAM, false);
        check(vec![gone(Reason::PROGRAM, 5), Err(SupervisorLost)], Reason::PROGRAM, false);
    }
}
