//! Waiting for a state that a [`Notify`] announces.

use tokio::sync::Notify;

/// Looks now and after each notification; returns the first value that `look` finds. A notification that comes after a
/// look is not missed.
pub(crate) async fn wait_for<T>(notify: &Notify, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        let notified = notify.notified();
        if let Some(found) = look() {
            return found;
        }
        notified.await;
    }
}

/// Waits until `is_so` holds; looks now and after each notification.
pub(crate) async fn wait_until(notify: &Notify, is_so: impl Fn() -> bool) {
    wait_for(notify, || is_so().then_some(())).await;
}
