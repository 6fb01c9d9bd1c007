//! The time at which leash stops: work towards upstream servers is cut short then.

use std::{rc::Rc, time::Duration};

use tokio::sync::watch;

use leash_model::clock::Moment;

/// A deadline for all DELETEs, which is set when leash stops. Cheap to clone; clones share it.
#[derive(Clone, Debug)]
pub struct Deadline(Rc<watch::Sender<Option<Moment>>>);

impl Default for Deadline {
    fn default() -> Deadline {
        Deadline(Rc::new(watch::Sender::new(None)))
    }
}

impl Deadline {
    /// Sets the deadline. A DELETE without a final result by then is cut short.
    pub fn set(&self, deadline: Moment) {
        self.0.send_replace(Some(deadline));
    }

    /// Waits for `work`. `None` if the deadline passes before.
    pub async fn before<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.up() => None,
            done = work => Some(done),
        }
    }

    /// Waits for `wait` or until the deadline. Returns true if the deadline has passed.
    pub async fn within(&self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.up()).await.is_ok()
    }

    /// Waits until a deadline is set, which means that leash is going to stop.
    pub async fn announced(&self) {
        // The wait cannot fail: `self` holds the sender.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    async fn up(&self) {
        let mut changed = self.0.subscribe();
        loop {
            let deadline = *changed.borrow_and_update();
            let left = deadline.map(|deadline| deadline.since(Moment::on_runtime()));
            match left {
                Some(Duration::ZERO) => return,
                // The wait cannot fail: `self` holds the sender. The loop then checks the time again.
                Some(left) => drop(tokio::time::timeout(left, changed.changed()).await),
                None => drop(changed.changed().await),
            }
        }
    }
}
