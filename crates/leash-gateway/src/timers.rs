//! A timer wheel for all sessions, and one for all jobs.
//!
//! A timer is only ever moved to an earlier moment. When the deadline has moved away meanwhile, which it does with every request,
//! the session is asked again when the timer fires: a request costs no timer at all.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;

use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use leash_model::clock::Moment;
use leash_model::limits;

/// What has deadlines.
pub(crate) trait Timed {
    /// Its place in the wheel.
    fn timer(&self) -> &RefCell<Option<Timer>>;
}

/// The wheel.
pub(crate) struct Timers<T> {
    queue: RefCell<DelayQueue<Weak<T>>>,
}

impl<T> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers { queue: RefCell::default() }
    }
}

/// A place in the wheel.
#[derive(Debug)]
pub(crate) struct Timer {
    key: Key,
    at: Moment,
}

impl<T: Timed> Timers<T> {
    /// Sees to it that one is asked at `at`, or earlier.
    pub(crate) fn arm(&self, one: &Rc<T>, at: Moment, now: Moment) {
        let mut timer = one.timer().borrow_mut();
        let mut queue = self.queue.borrow_mut();
        // The wheel has an end; one that is asked too early is asked again.
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

    /// Forgets one.
    pub(crate) fn disarm(&self, one: &T) {
        if let Some(timer) = one.timer().borrow_mut().take() {
            self.queue.borrow_mut().try_remove(&timer.key);
        }
    }

    /// The next one whose time has come; for ever pending while there is none.
    pub(crate) async fn next(&self) -> Option<Rc<T>> {
        let expired = poll_fn(|cx| match self.queue.borrow_mut().poll_expired(cx) {
            // An empty wheel is not the end of it; whoever arms the next timer wakes us.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
            Poll::Ready(Some(expired)) => Poll::Ready(expired.into_inner()),
        })
        .await;
        let one = expired.upgrade()?;
        one.timer().borrow_mut().take();
        Some(one)
    }
}
