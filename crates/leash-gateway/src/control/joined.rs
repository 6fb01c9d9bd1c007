//! Members of a session that the daemon did not start (`leash run --session ID`, `leash connect --session ID`). They
//! end with it.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io;
use std::rc::Rc;

use tokio::sync::oneshot;

use super::jobs::Jobs;
use leash_model::alive::SessionMember;
use leash_model::receipt::{Holding, How, TreeEnd};
use leash_tree::blocking;
use leash_tree::places::Places;
use leash_tree::platform::proc::Proc;
use leash_tree::session::{EndReport, Ending, Target, Unfinished, alive};

/// The sessions that have such members; `None` if the ledger could not be read, which does not mean that there are
/// none.
type Found = Option<Rc<HashSet<String>>>;

/// Reads the ledger for members. Callers that ask at the same time share one look, because it reads a file for every
/// member of every session.
#[derive(Default)]
pub(super) struct Looks {
    waiting: RefCell<Vec<oneshot::Sender<Found>>>,
    running: Cell<bool>,
}

impl Looks {
    /// Returns the result of a look that begins after this call.
    async fn look(&self, jobs: &Rc<Jobs>) -> Found {
        let (tell, told) = oneshot::channel();
        self.waiting.borrow_mut().push(tell);
        if !self.running.replace(true) {
            let asking = Rc::clone(jobs);
            jobs.gateway.tasks.spawn_local(async move {
                let looks = &asking.looks;
                while !looks.waiting.borrow().is_empty() {
                    let asked = looks.waiting.take();
                    let places = asking.gateway.places.clone();
                    let found = blocking::spawn(move || find(&places)).await.ok().and_then(Result::ok).map(Rc::new);
                    asked.into_iter().for_each(|asked| drop(asked.send(found.clone())));
                }
                looks.running.set(false);
            });
        }
        told.await.ok().flatten()
    }
}

/// The sessions in the ledger that have members which this process does not hold.
fn find(places: &Places) -> io::Result<HashSet<String>> {
    let joined = alive::members(places)?.into_iter().filter(|member| !member.is_upstream() && !is_ours(member));
    Ok(joined.map(|member| member.session).collect())
}

/// True if this process started the member, and so ends it by itself.
fn is_ours(member: &SessionMember) -> bool {
    i32::try_from(std::process::id()).is_ok_and(|pid| member.is_held_by(pid))
}

/// Ends the members that joined a session; returns their holdings. When `forced` returns, no grace is left.
pub(super) async fn end(jobs: &Rc<Jobs>, session: &str, force: bool, forced: impl Future<Output = ()>) -> Vec<Holding> {
    if jobs.looks.look(jobs).await.is_some_and(|found| !found.contains(session)) {
        return Vec::new();
    }
    let begin = |force| {
        let (places, session) = (jobs.gateway.places.clone(), session.to_owned());
        blocking::spawn(move || end_members(&places, session, force))
    };
    let mut ending = begin(force);
    let ended = tokio::select! {
        ended = &mut ending => ended,
        () = forced, if !force => {
            // The members are asked once more, now without grace. The first call still waits for them.
            let _ = begin(true).await;
            ending.await
        }
    };
    let EndReport { receipts, unfinished, warnings } =
        ended.unwrap_or_else(|_| not_known(session, "the task that ends its members failed"));
    warnings.into_iter().for_each(|warning| jobs.gateway.warn(warning));
    let mut holdings: Vec<Holding> = receipts.into_iter().flat_map(|receipt| receipt.holdings).collect();
    for member in unfinished {
        jobs.gateway.warn(format!("a member of {session} ({}) is not known to have ended: {}", member.run, member.why));
        holdings.push(Holding::Tree(TreeEnd::unknown(How::Term, Vec::new())));
    }
    holdings
}

fn end_members(places: &Places, session: String, force: bool) -> EndReport {
    let Ok(proc) = Proc::own() else { return not_known(&session, "leash cannot tell processes apart") };
    let ending =
        Ending::new(places, &proc, vec![Target::Session(session.clone())], force, leash_upstream::sweep::at_once);
    ending.members(&is_ours).unwrap_or_else(|error| not_known(&session, &format!("cannot read the ledger: {error}")))
}

/// The result if leash could not find out whether the session has members: then nothing is proved to be gone.
fn not_known(session: &str, why: &str) -> EndReport {
    EndReport { unfinished: vec![Unfinished::whole(session, why)], ..EndReport::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Scratch;

    #[test]
    fn a_ledger_that_cannot_be_read_proves_nothing() {
        let scratch = Scratch::new();
        let places = Places::below(&*scratch);
        assert_eq!(find(&places).expect("no ledger is an empty one"), HashSet::new());
        // A file where the directory of the records must be.
        std::fs::create_dir_all(&places.runtime_dir).expect("a directory");
        std::fs::write(places.runtime_dir.join("sessions"), "").expect("a file");
        find(&places).expect_err("it cannot be read");
        let ended = end_members(&places, "s".to_owned(), false);
        assert_eq!(ended.unfinished.len(), 1, "{ended:?}");
    }
}
