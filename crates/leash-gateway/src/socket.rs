//! A client's socket as hyper reads it. A client that closes its input has not always left.
//!
//! hyper takes the end of input for the end of the connection and drops the pending response. With `half_close` it does
//! not look for the end of input at all before the response is written. This socket holds the end of input back while a
//! response is pending and the client still reads.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::{future::Future, os::fd::AsFd as _, pin::Pin, rc::Rc};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::connection::{ClientConnection, OwedResponse};
use leash_model::limits;
use leash_tree::owner::peer::Lookup;
use leash_upstream::body::{Body, BodyError};

/// True if a client that closed its input has left. `held`: true if a process has the client's socket, `None` for
/// another machine.
///
/// A TCP FIN can mean that the client will send nothing more, or that it has left. For a client on this machine the
/// kernel knows which. A remote client that sends FIN before the first byte of the response may only have closed its
/// input after its last request, as `nc` does. A remote client that sends FIN in the middle of the response has left.
fn is_over(owed: OwedResponse, held: Option<bool>) -> bool {
    match (owed, held) {
        (OwedResponse::Nothing | OwedResponse::Request, _) => true,
        (OwedResponse::Answer | OwedResponse::Rest, Some(held)) => !held,
        (OwedResponse::Answer, None) => false,
        (OwedResponse::Rest, None) => true,
    }
}

/// The socket of a client.
pub(super) struct Socket {
    stream: TcpStream,
    connection: Rc<ClientConnection>,
    lookup: Rc<Lookup>,
    input: InputState,
    /// Input that was read before and not used.
    unused: Bytes,
}

enum InputState {
    Open,
    /// The input ended while leash was reading a request. After one more poll of the reader, leash knows if the request
    /// is complete.
    Ending,
    /// The client has closed its input and still reads. The future completes when the client no longer reads.
    HalfClosed(Pin<Box<dyn Future<Output = ()>>>),
    Over,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, connection: &Rc<ClientConnection>, lookup: &Rc<Lookup>) -> Socket {
        let (connection, lookup) = (Rc::clone(connection), Rc::clone(lookup));
        Socket { stream, connection, lookup, input: InputState::Open, unused: Bytes::new() }
    }

    /// Takes back input that was read and not used. It is read again before any other.
    pub(super) fn give_back(&mut self, unused: Bytes) {
        debug_assert!(self.unused.is_empty(), "a reader has read everything that was given back before");
        self.unused = unused;
    }

    /// Returns when there is more input, or the end of it.
    pub(super) async fn has_input(&self) {
        // An error is found by the next read.
        let _ = self.stream.readable().await;
    }

    fn state_after_end(&self) -> InputState {
        if is_over(self.connection.owed(), self.connection.is_held(&self.lookup)) {
            return InputState::Over;
        }
        // A copy of the descriptor, so that the future borrows nothing from `self`.
        let copy = self.stream.as_fd().try_clone_to_owned();
        let Ok(copy) = copy.and_then(|copy| TcpStream::from_std(copy.into())) else { return InputState::Over };
        let (connection, lookup) = (Rc::clone(&self.connection), Rc::clone(&self.lookup));
        InputState::HalfClosed(Box::pin(async move {
            // The kernel reports a reset. It does not report that a process left its half-closed socket, so leash
            // checks that.
            while tokio::time::timeout(limits::TCP_PROBE, copy.ready(Interest::ERROR)).await.is_err()
                && connection.is_held(&lookup) != Some(false)
            {}
        }))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.unused.is_empty() {
            let now = this.unused.split_to(this.unused.len().min(buf.remaining()));
            buf.put_slice(&now);
            return Poll::Ready(Ok(()));
        }
        if matches!(this.input, InputState::Open) {
            let (before, room) = (buf.filled().len(), buf.remaining());
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            if room == 0 || buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            if this.connection.owed() == OwedResponse::Request {
                this.input = InputState::Ending;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.input = this.state_after_end();
        }
        if matches!(this.input, InputState::Ending) {
            this.input = this.state_after_end();
        }
        if let InputState::HalfClosed(left) = &mut this.input {
            if this.connection.owed() != OwedResponse::Nothing {
                ready!(left.as_mut().poll(cx));
            }
            this.input = InputState::Over;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.connection.unsent(true);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    /// hyper calls this when it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.unsent(false);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connection.unsent(true);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The body of a response. The response is owed until hyper has taken the last byte and drops this.
pub(super) struct OwedBody {
    body: Body,
    connection: Rc<ClientConnection>,
}

impl OwedBody {
    pub(super) fn new(body: Body, connection: &Rc<ClientConnection>) -> OwedBody {
        connection.owe(OwedResponse::Rest);
        OwedBody { body, connection: Rc::clone(connection) }
    }
}

impl Drop for OwedBody {
    fn drop(&mut self) {
        self.connection.owe(OwedResponse::Nothing);
    }
}

impl HttpBody for OwedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_input_ends_a_client_that_no_longer_reads() {
        for held in [Some(true), Some(false), None] {
            assert!(is_over(OwedResponse::Nothing, held), "nothing is owed");
            assert!(is_over(OwedResponse::Request, held), "the request is not complete");
        }
        for owed in [OwedResponse::Answer, OwedResponse::Rest] {
            assert!(!is_over(owed, Some(true)), "{owed:?}");
            assert!(is_over(owed, Some(false)), "{owed:?}");
        }
        assert!(!is_over(OwedResponse::Answer, None));
        assert!(is_over(OwedResponse::Rest, None));
    }
}
