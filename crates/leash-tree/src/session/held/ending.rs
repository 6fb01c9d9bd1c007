//! The end of a session, as a future or to be waited for.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::gather;
use super::thread_task::{ThreadTask, run_on_thread};
use leash_model::receipt::Receipt;

/// A session that is ending. It ends in the same way if this is awaited, waited for, or dropped.
///
/// The receipt is ready when every process is gone, or when it is clear which ones are left and why. It is one receipt
/// for the session, with a holding per server. Each server's own receipt is in the receipts file as well.
#[must_use = "the end has begun; only waiting tells when everything is gone"]
#[derive(Debug)]
pub struct SessionEnding(State);

#[derive(Debug)]
enum State {
    /// No caller has waited yet.
    Begun(Option<gather::EndingSession>),
    /// A thread waits for the end, on behalf of a future.
    Awaited(ThreadTask<Receipt>),
}

impl SessionEnding {
    pub(super) fn new(session: gather::EndingSession) -> SessionEnding {
        SessionEnding(State::Begun(Some(session)))
    }

    /// Waits for it, blocking. For async code there is `.await`.
    pub fn wait(self) -> Receipt {
        match self.0 {
            State::Begun(session) => session.expect("only a poll takes it, and changes the state").wait(),
            State::Awaited(thread) => thread.wait(),
        }
    }
}

impl Future for SessionEnding {
    type Output = Receipt;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Receipt> {
        if let State::Begun(session) = &mut self.0 {
            let session = session.take().expect("taking it changes the state");
            self.0 = State::Awaited(run_on_thread("leash-ending", move || session.wait()));
        }
        match &mut self.0 {
            State::Awaited(thread) => Pin::new(thread).poll(cx),
            State::Begun(_) => Poll::Pending,
        }
    }
}
