//! The bodies of requests that pass the guard.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a request as the service below sees it: the client's, or the empty one of the guard's own DELETE.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        body: Option<B>,
    }
}

impl<B> RequestBody<B> {
    pub(super) fn client(body: B) -> RequestBody<B> {
        RequestBody { body: Some(body) }
    }

    pub(super) fn empty() -> RequestBody<B> {
        RequestBody { body: None }
    }
}

impl<B: Body> Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.as_pin_mut().map_or(Poll::Ready(None), |body| body.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
