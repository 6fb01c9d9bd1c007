//! The order to end something, and how to wait for it.

use leash_model::receipt::Reason;
use tokio::sync::watch;

/// An order to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// The reason, for the receipts.
    pub(crate) reason: Reason,
    /// True for no grace.
    pub(crate) force: bool,
}

/// The place where an order to end is given. The first reason stays; force can be added later.
#[derive(Debug, Default)]
pub(crate) struct StopOrder(watch::Sender<Option<Stop>>);

/// The other side, for a task that must end. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StopSignal(watch::Receiver<Option<Stop>>);

impl StopOrder {
    /// Gives the order, or adds force to it.
    pub(crate) fn give(&self, stop: Stop) {
        self.0.send_if_modified(|now| match now {
            None => {
                *now = Some(stop);
                true
            }
            Some(given) if stop.force && !given.force => {
                given.force = true;
                true
            }
            Some(_) => false,
        });
    }

    /// The reason, once the order was given.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.0.borrow().as_ref().map(|stop| stop.reason.clone())
    }

    /// True if the order was given.
    pub(crate) fn is_given(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// The signal that tells of the order.
    pub(crate) fn signal(&self) -> StopSignal {
        StopSignal(self.0.subscribe())
    }
}

impl StopSignal {
    /// Returns when the order is given.
    pub(crate) async fn given(mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            // No order can come any more.
            std::future::pending::<()>().await;
        }
    }

    /// Returns when no grace is left.
    pub(crate) async fn forced(mut self) {
        if self.0.wait_for(|stop| stop.as_ref().is_some_and(|stop| stop.force)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stop(reason: Reason, force: bool) -> Stop {
        Stop { reason, force }
    }

    #[test]
    fn first_reason_stays_and_force_is_added() {
        let order = StopOrder::default();
        assert!(!order.is_given() && order.reason().is_none());
        order.give(stop(Reason::Idle, false));
        order.give(stop(Reason::CONTROL_API, true));
        order.give(stop(Reason::Shutdown, false));
        assert_eq!(*order.0.borrow(), Some(stop(Reason::Idle, true)));
    }

    #[tokio::test(start_paused = true)]
    async fn signal_tells_of_the_order_and_of_force() {
        let order = StopOrder::default();
        let second = Duration::from_secs(1);
        for (force, is_forced) in [(false, false), (true, true)] {
            order.give(stop(Reason::Idle, force));
            order.signal().given().await;
            assert_eq!(tokio::time::timeout(second, order.signal().forced()).await.is_ok(), is_forced);
        }
        let signal = order.signal();
        drop(order);
        signal.forced().await;
        let never = StopOrder::default().signal();
        assert!(tokio::time::timeout(second, never.given()).await.is_err(), "no order was given");
    }
}
