//! One timer wheel for all sessions.
//!
//! A timer is only ever moved to an earlier moment. When the deadline has moved away meanwhile, which it does with every request,
//! the session is asked again when the timer fires: a request costs no timer at all.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;

use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::session::Session;
use crate::clock::Moment;
use crate::limits;

/// The wheel.
#[derive(Default)]
pub(crate) struct Timers {
    queue: RefCell<DelayQueue<Weak<Session>>>,
}

/// A session's place in the wheel.
#[derive(Debug)]
pub(crate) struct Timer {
    key: Key,
    at: Moment,
}

impl Timers {
    /// Sees to it that the session is asked at `at`, or earlier.
    pub(crate) fn arm(&self, session: &Rc<Session>, at: Moment, now: Moment) {
        let mut timer = session.timer.borrow_mut();
        let mut queue = self.queue.borrow_mut();
        // The wheel has an end; a session that is asked too early is asked again.
        let wait = at.since(now).min(limits::LONGEST);
        match timer.as_mut() {
            Some(timer) if timer.at <= at => {}
            Some(timer) => {
                queue.reset(&timer.key, wait);
                timer.at = at;
            }
            None => *timer = Some(Timer { key: queue.insert(Rc::downgrade(session), wait), at }),
        }
    }

    /// Forgets a session.
    pub(crate) fn disarm(&self, session: &Session) {
        if let Some(timer) = session.timer.borrow_mut().take() {
            self.queue.borrow_mut().try_remove(&timer.key);
        }
    }

    /// The next session whose time has come; for ever pending while there is none.
    pub(crate) async fn next(&self) -> Option<Rc<Session>> {
        let expired = poll_fn(|cx| match self.queue.borrow_mut().poll_expired(cx) {
            // An empty wheel is not the end of it; whoever arms the next timer wakes us.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
            Poll::Ready(Some(expired)) => Poll::Ready(expired.into_inner()),
        })
        .await;
        let session = expired.upgrade()?;
        session.timer.borrow_mut().take();
        Some(session)
    }
}
