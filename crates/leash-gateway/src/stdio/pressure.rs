//! Stops idle trees when the machine's memory is short. The gateway knows every call in flight, so it decides itself.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::bridge::Bridge;
use super::modern::ModernTree;
use super::shared_trees;
use crate::state::gateway::Gateway;
use crate::state::server::Server;
use crate::state::session::ClientSession;
use leash_model::alive::SessionMember;
use leash_model::clock::Moment;
use leash_model::pressure::{MemoryState, PressureGauge, StallPercent, StopCandidate, next_to_stop};
use leash_model::{limits, receipt::Reason};
use leash_tree::{blocking, ledger::store::Store, platform::pressure, platform::proc::Proc, session::alive};

/// Looks at the pressure as long as there are trees that may be stopped.
pub(crate) async fn watch_pressure(gateway: Rc<Gateway>) {
    let (mut gauge, mut short_looks) = (PressureGauge::new(StallPercent::DEFAULT), 0);
    loop {
        gateway.stoppable.some().await;
        sleep_until(Instant::now() + limits::PRESSURE_LOOK).await;
        if gateway.stoppable.with_trees().is_empty() {
            continue;
        }
        // A kernel that measures no pressure never reports any.
        let is_short =
            pressure::read().is_ok_and(|reading| gauge.state(reading, Moment::on_runtime()) == MemoryState::Short);
        short_looks = if is_short { short_looks + 1 } else { 0 };
        if short_looks >= limits::PRESSURE_LOOKS && !stop_one(&gateway).await {
            sleep_until(Instant::now() + limits::PRESSURE_PAUSE).await;
        }
    }
}

/// A tree that may be stopped.
#[derive(Clone)]
enum StoppableTree {
    /// The tree of a client session.
    Session(Rc<ClientSession>, Rc<Bridge>),
    /// A tree that one principal's requests share.
    Shared(Rc<ModernTree>),
}

impl StoppableTree {
    fn run(&self) -> Option<Rc<str>> {
        match self {
            StoppableTree::Session(_, bridge) => bridge.child.run(),
            StoppableTree::Shared(tree) => tree.run(),
        }
    }

    /// The time for which no call is in flight and no message passed; `None` while it is in use.
    fn idle(&self, now: Moment) -> Option<Duration> {
        match self {
            StoppableTree::Session(session, bridge) => {
                let (session, bridge) = (session.idle(now)?, bridge.idle(now)?);
                Some(session.min(bridge))
            }
            StoppableTree::Shared(tree) => tree.quiet(now),
        }
    }

    /// Ends it, and returns when it is gone.
    async fn stop(&self) {
        match self {
            StoppableTree::Session(session, _) => {
                session.end(Reason::MemoryPressure);
                session.over().await;
            }
            StoppableTree::Shared(tree) => {
                tree.end(&Reason::MemoryPressure);
                tree.over().await;
            }
        }
    }
}

/// Stops the tree that is needed least, and waits until it is gone. Returns false if there is none.
async fn stop_one(gateway: &Rc<Gateway>) -> bool {
    let trees: Vec<(StoppableTree, Duration)> = gateway.stoppable.with_trees().iter().flat_map(trees_of).collect();
    let memory = memory_of(gateway, trees.iter().filter_map(|(tree, _)| tree.run()).collect()).await;
    // From here to the end nothing waits, so no call can begin in between.
    let now = Moment::on_runtime();
    let candidate = |(tree, after): (StoppableTree, Duration)| {
        let memory = tree.run().and_then(|run| memory.get(&*run).copied()).unwrap_or_default();
        StopCandidate { after, idle: tree.idle(now), memory, key: tree }
    };
    match next_to_stop(trees.into_iter().map(candidate).collect()) {
        Some(tree) => {
            tree.stop().await;
            true
        }
        None => false,
    }
}

fn trees_of(server: &Rc<Server>) -> Vec<(StoppableTree, Duration)> {
    let Some(after) = server.settings().policy.pressure_stop else { return Vec::new() };
    let of_session = |session: Rc<ClientSession>| {
        let bridge = Rc::clone(session.holding_as::<Rc<Bridge>>()?);
        Some(StoppableTree::Session(session, bridge))
    };
    let shared = shared_trees(server).modern.running().into_iter().map(StoppableTree::Shared);
    server.all().into_iter().filter_map(of_session).chain(shared).map(|tree| (tree, after)).collect()
}

/// Memory and swap of trees, by their runs. This reads files of every process, so it runs on the blocking pool.
async fn memory_of(gateway: &Gateway, runs: Vec<Rc<str>>) -> HashMap<String, u64> {
    let dir = gateway.places.runtime_dir.clone();
    let runs: Vec<String> = runs.iter().map(|run| run.to_string()).collect();
    let read = move || {
        let (Ok(Some(store)), Ok(proc)) = (Store::look(&dir), Proc::own()) else { return HashMap::new() };
        let memory = |run: String| {
            let mut member = [SessionMember::of_record(store.read(&run).ok()??, &dir)];
            alive::find_processes(&mut member, &proc);
            Some((run, alive::footprint(&member[0], &proc)))
        };
        runs.into_iter().filter_map(memory).collect()
    };
    blocking::spawn(read).await.unwrap_or_default()
}
