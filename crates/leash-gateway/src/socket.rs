//! A client's socket as hyper reads it: the end of the client's input is not always the end of the client.
//!
//! hyper takes the end of input for the end of the connection and drops the answer that it owes, or (`half_close`) never looks for
//! it before the answer is written. Here the end of input is held back while an answer is owed to a client that still reads.

use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::connection::Connection;
use super::gateway::Gateway;
use leash_model::limits;
use leash_upstream::body::{Body, BodyError};

/// What a connection owes its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing yet: a request is being read.
    Request,
    /// An answer, of which nothing was written.
    Answer,
    /// The rest of an answer.
    Rest,
}

/// Whether the end of a client's input is its end. `held`: whether a process has the client's socket; `None` of another machine.
///
/// TCP has one word (FIN) for "I have said everything" and for "I have left". On this machine the kernel knows which. A client
/// elsewhere that says it before it has one byte of the answer may well have ended its input after its last request, as `nc`
/// does; one that says it in the middle of the answer has left.
fn is_over(owed: Owed, held: Option<bool>) -> bool {
    match (owed, held) {
        (Owed::Nothing | Owed::Request, _) => true,
        (Owed::Answer | Owed::Rest, Some(held)) => !held,
        (Owed::Answer, None) => false,
        (Owed::Rest, None) => true,
    }
}

/// The socket of a client.
pub(super) struct Socket {
    stream: TcpStream,
    connection: Rc<Connection>,
    gateway: Rc<Gateway>,
    input: Input,
}

enum Input {
    Open,
    /// It ended while a request was being read. Whether the request is whole is known when its reader was polled once more.
    Ending,
    /// The client said everything and still reads. Resolves when it does not any more.
    Said(Pin<Box<dyn Future<Output = ()>>>),
    Over,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, connection: &Rc<Connection>, gateway: &Rc<Gateway>) -> Socket {
        let (connection, gateway) = (Rc::clone(connection), Rc::clone(gateway));
        Socket { stream, connection, gateway, input: Input::Open }
    }

    fn after_the_end(&self) -> Input {
        if is_over(self.connection.owed(), self.connection.is_held(&self.gateway.lookup)) {
            return Input::Over;
        }
        // A copy, so that what waits for an error borrows nothing of this.
        let copy = self.stream.as_fd().try_clone_to_owned();
        let Ok(copy) = copy.and_then(|copy| TcpStream::from_std(copy.into())) else { return Input::Over };
        let (connection, gateway) = (Rc::clone(&self.connection), Rc::clone(&self.gateway));
        Input::Said(Box::pin(async move {
            // A reset is told; a process that left its half-closed socket to the kernel must be asked for.
            while tokio::time::timeout(limits::TCP_PROBE, copy.ready(Interest::ERROR)).await.is_err()
                && connection.is_held(&gateway.lookup) != Some(false)
            {}
        }))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.input, Input::Open) {
            let (before, room) = (buf.filled().len(), buf.remaining());
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            if room == 0 || buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            if this.connection.owed() == Owed::Request {
                this.input = Input::Ending;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.input = this.after_the_end();
        }
        if matches!(this.input, Input::Ending) {
            this.input = this.after_the_end();
        }
        if let Input::Said(left) = &mut this.input {
            if this.connection.owed() != Owed::Nothing {
                ready!(left.as_mut().poll(cx));
            }
            this.input = Input::Over;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The body of an answer. Something is owed until it is dropped, which hyper does when it has taken the last byte.
pub(super) struct OwedBody {
    body: Body,
    connection: Rc<Connection>,
}

impl OwedBody {
    pub(super) fn new(body: Body, connection: &Rc<Connection>) -> OwedBody {
        connection.owe(Owed::Rest);
        OwedBody { body, connection: Rc::clone(connection) }
    }
}

impl Drop for OwedBody {
    fn drop(&mut self) {
        self.connection.owe(Owed::Nothing);
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
    fn the_end_of_input_is_the_end_of_a_client_that_does_not_read_any_more() {
        for held in [Some(true), Some(false), None] {
            assert!(is_over(Owed::Nothing, held), "nothing is owed");
            assert!(is_over(Owed::Request, held), "the request is not whole");
        }
        for owed in [Owed::Answer, Owed::Rest] {
            assert!(!is_over(owed, Some(true)), "{owed:?}");
            assert!(is_over(owed, Some(false)), "{owed:?}");
        }
        assert!(!is_over(Owed::Answer, None));
        assert!(is_over(Owed::Rest, None));
    }
}
