//! The bodies of responses that pass the guard.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::entry::SessionUse;

pin_project! {
    /// The body of a response: the service's, byte for byte, or the guard's own. It counts as a use of the session
    /// until it ends or is dropped.
    #[derive(Debug)]
    pub struct GuardedBody<B> {
        #[pin]
        body: Option<B>,
        text: Option<Bytes>,
        session_use: Option<SessionUse>,
    }
}

/// The answer of a guarded service.
pub(super) type Guarded<R, E> = Result<Response<GuardedBody<R>>, E>;

impl<B> GuardedBody<B> {
    pub(super) fn of(body: B, session_use: Option<SessionUse>) -> GuardedBody<B> {
        GuardedBody { body: Some(body), text: None, session_use }
    }

    pub(super) fn text(text: impl Into<Bytes>) -> GuardedBody<B> {
        GuardedBody { body: None, text: Some(text.into()), session_use: None }
    }
}

impl<B: Body<Data = Bytes>> Body for GuardedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(body) = this.body.as_pin_mut() else {
            return Poll::Ready(this.text.take().map(|text| Ok(Frame::data(text))));
        };
        let polled = body.poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            // The body has ended, so its use ends now: the caller may keep the body for long before it drops it.
            *this.session_use = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().map_or(self.text.is_none(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let own = || SizeHint::with_exact(self.text.as_ref().map_or(0, |text| text.len() as u64));
        self.body.as_ref().map_or_else(own, Body::size_hint)
    }
}
