//! Members of a session that the daemon did not start (`leash run --session ID`, `leash connect --session ID`): they end with it.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::aside;
use crate::http::gateway::Gateway;
use crate::ledger::receipt::{Fate, Holding, How, TreeEnd};
use crate::ledger::store::Store;
use crate::session::{Ended, Ending, Joined, Target, joined};
use crate::tree::Places;
use crate::tree::proc::Proc;

/// The sessions that have such members.
type Found = Rc<HashSet<String>>;

/// Looks into the ledger, one for all who ask at the same time: it reads a file for every member of every session.
#[derive(Default)]
pub(super) struct Looks {
    waiting: RefCell<Vec<oneshot::Sender<Found>>>,
    running: Cell<bool>,
}

impl Looks {
    /// What a look finds that begins after this was called.
    async fn look(&self, gateway: &Rc<Gateway>) -> Found {
        let (tell, told) = oneshot::channel();
        self.waiting.borrow_mut().push(tell);
        if !self.running.replace(true) {
            let gateway = Rc::clone(gateway);
            gateway.clone().tasks.spawn_local(async move {
                let looks = &gateway.jobs.looks;
                while !looks.waiting.borrow().is_empty() {
                    let asked = looks.waiting.take();
                    let places = gateway.places.clone();
                    let found = aside::spawn(move || find(&places)).await.unwrap_or_default();
                    let found = Rc::new(found);
                    asked.into_iter().for_each(|asked| drop(asked.send(Rc::clone(&found))));
                }
                looks.running.set(false);
            });
        }
        told.await.unwrap_or_default()
    }
}

/// The sessions in the ledger that have members which this process does not hold.
fn find(places: &Places) -> HashSet<String> {
    let Ok(store) = Store::look(&places.runtime_dir) else { return HashSet::new() };
    let members = joined(&places.runtime_dir, store.as_ref()).unwrap_or_default();
    members.iter().filter(|member| !is_ours(member)).map(|member| member.session().to_owned()).collect()
}

/// Whether this process started it, and ends it by itself.
fn is_ours(member: &Joined) -> bool {
    i32::try_from(std::process::id()).is_ok_and(|pid| member.is_held_by(pid))
}

/// Ends those who joined a session; what became of what they held. With `hurry` there is no grace any more.
pub(super) async fn end(gateway: &Rc<Gateway>, session: &str, force: bool, hurry: &CancellationToken) -> Vec<Holding> {
    if !gateway.jobs.looks.look(gateway).await.contains(session) {
        return Vec::new();
    }
    let begin = |force| {
        let (places, session) = (gateway.places.clone(), session.to_owned());
        aside::spawn(move || end_members(&places, session, force))
    };
    let mut ending = begin(force);
    let ended = tokio::select! {
        ended = &mut ending => ended,
        () = hurry.cancelled(), if !force => {
            // Those who were asked are told once more; the first one who asked still waits for them.
            let _ = begin(true).await;
            ending.await
        }
    };
    let Ended { receipts, unfinished, warnings } = ended.unwrap_or_default();
    warnings.into_iter().for_each(|warning| gateway.warn(warning));
    let mut holdings: Vec<Holding> = receipts.into_iter().flat_map(|receipt| receipt.holdings).collect();
    for member in unfinished {
        gateway.warn(format!("{}, which joined {session}, was not ended: {}", member.run, member.why));
        holdings.push(Holding::Tree(unproved()));
    }
    holdings
}

fn end_members(places: &Places, session: String, force: bool) -> Ended {
    let failed = |why: String| Ended { warnings: vec![why], ..Ended::default() };
    let Ok(proc) = Proc::own() else { return failed("cannot tell processes apart".to_owned()) };
    let ending = Ending::new(places, &proc, vec![Target::Session(session)], force);
    ending.members(&is_ours).unwrap_or_else(|error| failed(format!("cannot read the ledger: {error}")))
}

/// A member of which no receipt tells.
fn unproved() -> TreeEnd {
    TreeEnd {
        leader: None,
        fate: Fate::Left,
        how: How::Term,
        exit: None,
        members: 0,
        left: Vec::new(),
        spared: Vec::new(),
        memory_bytes: 0,
        ports: Vec::new(),
        locks: Vec::new(),
    }
}
