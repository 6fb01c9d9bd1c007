//! The end of a session, for whoever waits for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::elsewhere::{Elsewhere, elsewhere};
use super::gather;
use leash_model::receipt::Receipt;

/// A session that is ending. It ends whether this is awaited, waited for, or dropped.
///
/// The receipt is there when every process is gone, or when it is clear what is left and why: one receipt for the session, with a
/// holding per server. Each server's own receipt is in the receipts file as well.
#[must_use = "the end has begun; only waiting tells when everything is gone"]
#[derive(Debug)]
pub struct SessionEnding(State);

#[derive(Debug)]
enum State {
    /// Nobody has waited yet.
    Begun(Option<gather::Session>),
    /// A thread waits for somebody.
    Awaited(Elsewhere<Receipt>),
}

impl SessionEnding {
    pub(super) fn new(session: gather::Session) -> SessionEnding {
        SessionEnding(State::Begun(Some(session)))
    }

    /// Waits for it, blocking. For async code there is `.await`.
    pub fn wait(self) -> Receipt {
        match self.0 {
            State::Begun(session) => session.expect("only a poll takes it, and goes on to the other state").wait(),
            State::Awaited(thread) => thread.wait(),
        }
    }
}

impl Future for SessionEnding {
    type Output = Receipt;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Receipt> {
        if let State::Begun(session) = &mut self.0 {
            let session = session.take().expect("the state is another one as soon as it was taken");
            self.0 = State::Awaited(elsewhere("leash-ending", move || session.wait()));
        }
        match &mut self.0 {
            State::Awaited(thread) => Pin::new(thread).poll(cx),
            State::Begun(_) => Poll::Pending,
        }
    }
}
