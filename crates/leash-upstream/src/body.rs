//! What leash answers with: nothing, a whole text, or a stream that somebody goes on writing.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// A stream of bytes; it ends early by ending, because a broken event stream has no other way to say so.
pub type Stream = Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError>>>;

/// Why a body broke off. The connection is closed then, so that nobody takes the half for the whole.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Pieces of a large message: small enough that a slow client is seen to make progress.
pub const PIECE: usize = 64 * 1024;

/// The body of an answer.
pub enum Body {
    /// All of it, or nothing.
    Whole(Bytes),
    /// Piece by piece.
    Stream(Stream),
}

impl Body {
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
            // In pieces: the connection takes the next one when it has written the last.
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
