//! The life of a gateway that was started on demand: it leaves when nobody is left who could want it.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use super::super::gateway::Gateway;
use leash_model::clock::Moment;
use leash_model::limits;
use leash_tree::platform::identity;
use leash_tree::platform::linux::AsyncPidfd;
use leash_tree::tree::supervisor::FirstLook;

/// Who started a gateway on demand.
#[derive(Debug)]
pub struct Starter {
    /// `None` when it was dead before it could be watched.
    pidfd: Option<OwnedFd>,
}

impl Starter {
    /// The parent, as it was at the first instruction.
    pub fn parent(first: FirstLook) -> Starter {
        let (parent, _) = first.into_parts();
        Starter { pidfd: parent.living() }
    }

    /// Any process. One that does not exist is dead.
    pub fn process(pid: i32) -> Starter {
        Starter { pidfd: identity::pidfd(pid).ok() }
    }

    /// Waits until it is dead.
    async fn gone(self) {
        let Some(pidfd) = self.pidfd else { return };
        // One that can't be watched (out of descriptors) counts as dead: sessions keep the gateway, and whoever needs one later
        // starts another.
        let Ok(pidfd) = AsyncPidfd::new(pidfd) else { return };
        // The runtime ends while we wait: then so do we.
        let _ = pidfd.ended().await;
    }
}

/// Since when nobody could want the gateway. Pure: told what is, and the time.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    alone_since: Option<Moment>,
}

/// What follows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is wanted.
    Stay,
    /// It leaves at this moment, if nothing happens.
    Until(Moment),
    /// It leaves.
    Leave,
}

impl Vigil {
    /// What `used` (a session exists) means now, with the starter dead. Called whenever a session began or ended: one that was
    /// there for a moment begins the wait anew.
    pub(super) fn look(&mut self, used: bool, changed: bool, now: Moment) -> Verdict {
        if used {
            self.alone_since = None;
            return Verdict::Stay;
        }
        if changed {
            self.alone_since = None;
        }
        let since = *self.alone_since.get_or_insert(now);
        if now.since(since) >= limits::ON_DEMAND_LINGER {
            return Verdict::Leave;
        }
        Verdict::Until(since + limits::ON_DEMAND_LINGER)
    }
}

/// Waits until the starter is dead and no session is left, and both have been so for a while. For ever without a starter.
pub(crate) async fn alone(gateway: &Rc<Gateway>, starter: Option<Starter>) {
    let Some(starter) = starter else { return std::future::pending().await };
    starter.gone().await;
    let (mut vigil, mut changed) = (Vigil::default(), false);
    loop {
        let used = !gateway.jobs.is_empty() || gateway.count() > 0;
        let now = Moment::now();
        let wait = match vigil.look(used, changed, now) {
            Verdict::Leave => return,
            Verdict::Until(moment) => moment.since(now),
            // Sessions of configured servers end without a word to us: they are looked at now and then.
            Verdict::Stay => limits::ON_DEMAND_LINGER,
        };
        // Rounded up by the timer's own step, so that the next look is not a little early for ever.
        changed = tokio::time::timeout(wait.max(Duration::from_millis(1)), gateway.jobs.changed()).await.is_ok();
    }
}
