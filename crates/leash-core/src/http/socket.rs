//! A client's socket.
//!
//! The end of a client's input means as a rule that the client is gone, and what it had asked for is dropped. But a client may
//! close its half of the connection alone and wait for the answer, and on the wire the two look the same. Of a client on this
//! machine the kernel knows more: either a process still holds the client's socket, or none does.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::{Body, BodyError};
use super::connection::{Connection, Stage};
use super::gateway::Gateway;
use crate::limits;

/// A client's socket, whose input ends when the client is gone, or when nothing is being answered.
pub(crate) struct Socket {
    stream: TcpStream,
    gateway: Rc<Gateway>,
    connection: Rc<Connection>,
    /// The input has ended before the request was known to be whole.
    ended: bool,
    /// The client has closed its half and waits: when to look whether it still does.
    look: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, gateway: &Rc<Gateway>, connection: &Rc<Connection>) -> Socket {
        Socket { stream, gateway: Rc::clone(gateway), connection: Rc::clone(connection), ended: false, look: None }
    }

    /// The input has ended; whether the client waits for an answer all the same.
    fn is_waited_for(&mut self, cx: &mut Context<'_>) -> bool {
        match self.connection.stage(cx.waker()) {
            Stage::Idle => return false,
            // The last of the body may be read by now, and not be taken: once more, when whoever takes it had a turn.
            Stage::Asking if !std::mem::replace(&mut self.ended, true) => {
                cx.waker().wake_by_ref();
                return true;
            }
            Stage::Asking => return false,
            Stage::Answering => {}
        }
        loop {
            if let Some(look) = &mut self.look
                && look.as_mut().poll(cx).is_pending()
            {
                return true;
            }
            if !self.connection.is_held(&self.gateway.lookup) {
                return false;
            }
            self.look = Some(Box::pin(sleep_until(Instant::now() + limits::HALF_CLOSED)));
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (socket, room) = (self.get_mut(), buffer.remaining());
        ready!(Pin::new(&mut socket.stream).poll_read(cx, buffer))?;
        let ended = room > 0 && buffer.remaining() == room;
        if ended && socket.is_waited_for(cx) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// The body of an answer; when it is over, nothing is waited for any more.
pub(crate) struct Answered {
    body: Body,
    connection: Rc<Connection>,
}

impl Answered {
    pub(crate) fn new(body: Body, connection: &Rc<Connection>) -> Answered {
        Answered { body, connection: Rc::clone(connection) }
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.connection.answered();
    }
}

impl HttpBody for Answered {
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
