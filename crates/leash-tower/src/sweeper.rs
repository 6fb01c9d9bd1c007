//! The sweeper: one task that checks the deadlines of all sessions and deletes those that have ended.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::entry::Shared;
use leash_model::clock::Moment;

/// Starts the sweeper if it does not run. Needs a runtime.
pub(super) fn ensure_running(shared: &Arc<Shared>) {
    if !shared.set_swept(true) {
        let sweeper = Sweeper { shared: Some(Arc::downgrade(shared)) };
        shared.tasks.spawn(sweeper.run(Arc::clone(&shared.wake)));
    }
}

/// The sweeper task. If it is dropped with its runtime, another one can be started.
struct Sweeper {
    shared: Option<Weak<Shared>>,
}

impl Sweeper {
    async fn run(mut self, wake: Arc<Notify>) {
        while let Some(shared) = self.shared.as_ref().and_then(Weak::upgrade) {
            let Some(rest) = round(&shared) else {
                // `round` has already cleared the `sweeps` flag, and another sweeper may have started since: `drop`
                // must not clear it again.
                self.shared = None;
                return;
            };
            drop(shared);
            // A session that was retired during the round has notified `wake`, so the sweeper wakes at once.
            let _ = tokio::time::timeout(rest, wake.notified()).await;
        }
    }
}

/// Performs all due work. Returns the time that the sweeper may sleep after that, or `None` if no session is left.
fn round(shared: &Arc<Shared>) -> Option<Duration> {
    for entry in shared.take_due(Moment::on_runtime()) {
        entry.fire();
    }
    for (entry, reason) in shared.take_retired() {
        shared.tasks.spawn(entry.delete(Arc::clone(shared), reason));
    }
    shared.next_check()
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.as_ref().and_then(Weak::upgrade) {
            shared.set_swept(false);
        }
    }
}
