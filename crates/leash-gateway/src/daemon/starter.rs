//! The lifetime of a gateway that was started on demand: it exits when its starter is dead and it has no sessions.

use std::{os::fd::OwnedFd, rc::Rc, time::Duration};

use crate::control::Jobs;
use leash_model::{clock::Moment, limits};
use leash_tree::{platform::identity, platform::linux::AsyncPidfd, tree::first_look::FirstLook};

/// The process that started a gateway on demand.
#[derive(Debug)]
pub struct Starter {
    /// `None` if the process was dead before leash could watch it.
    pidfd: Option<OwnedFd>,
}

impl Starter {
    /// The parent at the start of this process.
    pub fn parent(first: FirstLook) -> Starter {
        let (parent, _) = first.into_parts();
        Starter { pidfd: parent.living() }
    }

    /// Any process. A process that does not exist counts as dead.
    pub fn process(pid: i32) -> Starter {
        Starter { pidfd: identity::pidfd(pid).ok() }
    }

    /// Waits until the process is dead.
    async fn gone(self) {
        let Some(pidfd) = self.pidfd else { return };
        // Without a free descriptor leash cannot watch the process, and treats it as dead: sessions keep the gateway
        // alive, and a client that needs a gateway later starts another.
        let Ok(pidfd) = AsyncPidfd::new(pidfd) else { return };
        // An error means that the runtime is shutting down, which ends this wait too.
        let _ = pidfd.ended().await;
    }
}

/// Remembers since when the gateway has been unused. Pure: the caller passes the facts and the time.
#[derive(Debug, Default)]
pub(super) struct UnusedTimer {
    unused_since: Option<Moment>,
}

/// The decision whether the gateway exits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnusedDecision {
    /// The gateway stays.
    Stay,
    /// The gateway exits at this moment, if no session begins.
    Until(Moment),
    /// The gateway exits.
    Exit,
}

impl UnusedTimer {
    /// Decides, after the starter has died. `used`: a session exists. `changed`: a session began or ended since the
    /// last call; even a session that lasted only a moment restarts the wait.
    pub(super) fn decide(&mut self, used: bool, changed: bool, now: Moment) -> UnusedDecision {
        if used {
            self.unused_since = None;
            return UnusedDecision::Stay;
        }
        if changed {
            self.unused_since = None;
        }
        let since = *self.unused_since.get_or_insert(now);
        if now.since(since) >= limits::ON_DEMAND_LINGER {
            return UnusedDecision::Exit;
        }
        UnusedDecision::Until(since + limits::ON_DEMAND_LINGER)
    }
}

/// Waits until the starter is dead and no session has existed for a while. Never returns without a starter.
pub(crate) async fn unused(jobs: &Rc<Jobs>, starter: Option<Starter>) {
    let Some(starter) = starter else { return std::future::pending().await };
    starter.gone().await;
    let (mut timer, mut changed) = (UnusedTimer::default(), false);
    loop {
        let used = !jobs.is_empty() || jobs.gateway.count() > 0;
        let now = Moment::on_runtime();
        let wait = match timer.decide(used, changed, now) {
            UnusedDecision::Exit => return,
            UnusedDecision::Until(moment) => moment.since(now),
            // Sessions of configured servers send no signal when they end, so leash checks them now and then.
            UnusedDecision::Stay => limits::ON_DEMAND_LINGER,
        };
        // At least the timer's own step, so that the next look does not come too early again and again.
        changed = tokio::time::timeout(wait.max(Duration::from_millis(1)), jobs.changed()).await.is_ok();
    }
}
