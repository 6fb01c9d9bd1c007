//! A timer wheel for all sessions, and one for all jobs.
//!
//! A timer only ever moves to an earlier moment. Every request moves a session's deadline to a later one, and leash
//! does not touch the timer then: when it fires, leash asks the session for its deadline again.

use std::rc::{Rc, Weak};
use std::{cell::RefCell, future::poll_fn, task::Poll};

use tokio_util::{time::DelayQueue, time::delay_queue::Key};

use leash_model::{clock::Moment, limits};

/// An item with deadlines.
pub(crate) trait Timed {
    /// The item's timer, if it has one.
    fn timer(&self) -> &RefCell<Option<Timer>>;
}

/// The timer wheel.
pub(crate) struct Timers<T> {
    queue: RefCell<DelayQueue<Weak<T>>>,
}

impl<T> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers { queue: RefCell::default() }
    }
}

/// An item's place in the wheel.
#[derive(Debug)]
pub(crate) struct Timer {
    key: Key,
    at: Moment,
}

impl<T: Timed> Timers<T> {
    /// Sets an item's timer to fire at `at` or earlier.
    pub(crate) fn arm(&self, one: &Rc<T>, at: Moment, now: Moment) {
        let mut timer = one.timer().borrow_mut();
        let mut queue = self.queue.borrow_mut();
        // The wheel has a longest wait. A timer that fires too early is set again.
        let wait = at.since(now).min(limits::LONGEST);
        match timer.as_mut() {
            Some(timer) if timer.at <= at => {}
            Some(timer) => {
                queue.reset(&timer.key, wait);
                timer.at = at;
            }
            None => *timer = Some(Timer { key: queue.insert(Rc::downgrade(one), wait), at }),
        }
    }

    /// Removes an item's timer.
    pub(crate) fn disarm(&self, one: &T) {
        if let Some(timer) = one.timer().borrow_mut().take() {
            self.queue.borrow_mut().try_remove(&timer.key);
        }
    }

    /// Waits for the next timer and returns its item. `None` if the item was dropped. Never completes while there is no
    /// timer.
    pub(crate) async fn next(&self) -> Option<Rc<T>> {
        let expired = poll_fn(|cx| match self.queue.borrow_mut().poll_expired(cx) {
            // An empty wheel is not the end: `arm` wakes this task.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
            Poll::Ready(Some(expired)) => Poll::Ready(expired.into_inner()),
        })
        .await;
        let one = expired.upgrade()?;
        one.timer().borrow_mut().take();
        Some(one)
    }
}
