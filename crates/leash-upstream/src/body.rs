//! The bodies of leash's responses: empty, a whole text, or a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// A stream of bytes. A stream that is cut short simply ends, because an event stream has no other way to signal that.
pub type Stream = Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError>>>;

/// The reason that a body broke off. The connection is closed then, so that the client does not take the half for the
/// whole.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The size of the pieces of a large message: small enough that the progress of a slow client is visible.
pub const PIECE: usize = 64 * 1024;

/// The body of a response.
pub enum Body {
    /// The whole body, or an empty one.
    Whole(Bytes),
    /// Piece by piece.
    Stream(Stream),
}

impl Body {
    /// A body without bytes.
    pub fn empty() -> Body {
        Body::Whole(Bytes::new())
    }

    /// Any body as a stream.
    pub fn stream<B>(body: B) -> Body
    where
        B: HttpBody<Data = Bytes, Error = BodyError> + 'static,
    {
        Body::Stream(Box::pin(body))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Body::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            // In pieces: the connection takes the next piece when it has written the last one.
            Body::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes.split_to(bytes.len().min(PIECE)))))),
            Body::Stream(stream) => stream.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_empty(),
            Body::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Stream(stream) => stream.size_hint(),
        }
    }
}
