//! A server's stdin: writes whole lines, in the order in which `give` received them.
//!
//! While the pipe has room, `give` writes a line directly. The rest of a line that does not fit waits here, and a task
//! writes it, because a connection that is dropped in the middle of a line must not leave half a line in the pipe.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::{collections::VecDeque, rc::Rc};

use bytes::{Buf as _, Bytes};
use memchr::memchr2;
use tokio::{net::unix::pipe::Sender, sync::Notify};
use tokio_util::task::TaskTracker;

use crate::notified::wait_for;
use leash_model::limits;

/// Pieces written by one call: bodies and their newlines.
const PIECES: usize = 16;

/// The server closed its stdin, or leash did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InputClosed;

/// The writing end of a server's stdin.
pub(super) struct ServerInput {
    pipe: RefCell<Option<Rc<Sender>>>,
    /// The pipe after the server closed its end. leash keeps its own end until the tree's end was requested: if it closed
    /// it before, the keeper would take that for the reason of the end.
    broken: RefCell<Option<Rc<Sender>>>,
    waiting: RefCell<VecDeque<Bytes>>,
    bytes: Cell<usize>,
    /// The number of lines that were given, and of lines that are in the pipe.
    given: Cell<u64>,
    written: Cell<u64>,
    changed: Notify,
    tasks: TaskTracker,
}

impl ServerInput {
    pub(super) fn new(pipe: Sender, tasks: TaskTracker) -> Rc<ServerInput> {
        Rc::new(ServerInput {
            pipe: RefCell::new(Some(Rc::new(pipe))),
            broken: RefCell::default(),
            waiting: RefCell::default(),
            bytes: Cell::default(),
            given: Cell::default(),
            written: Cell::default(),
            changed: Notify::new(),
            tasks,
        })
    }

    /// Waits while too many bytes wait to be written.
    pub(super) async fn room(&self) -> Result<(), InputClosed> {
        self.wait_until(|| self.bytes.get() < limits::UNWRITTEN).await
    }

    /// Writes a line to the pipe, or queues it. Returns its number, for [`ServerInput::written`].
    pub(super) fn give(self: &Rc<Self>, line: Bytes) -> Result<u64, InputClosed> {
        let pipe = self.pipe.borrow().clone().ok_or(InputClosed)?;
        let (line, number) = (one_line(line), self.given.get() + 1);
        self.given.set(number);
        let begins = self.waiting.borrow().is_empty();
        let written = if begins { try_write(&pipe, &[IoSlice::new(&line), IoSlice::new(b"\n")]) } else { Ok(0) };
        let written = written.inspect_err(|InputClosed| self.server_closed())?;
        if written == line.len() + 1 {
            self.written.set(number);
            return Ok(number);
        }
        let mut waiting = self.waiting.borrow_mut();
        self.bytes.set(self.bytes.get() + line.len() + 1 - written);
        waiting.push_back(line.slice(written.min(line.len())..));
        waiting.push_back(Bytes::from_static(b"\n"));
        if begins {
            let input = Rc::clone(self);
            self.tasks.spawn_local(async move { input.write_waiting(&pipe).await });
        }
        Ok(number)
    }

    /// Returns when the line with this number is in the pipe.
    pub(super) async fn written(&self, number: u64) -> Result<(), InputClosed> {
        self.wait_until(|| self.written.get() >= number).await
    }

    /// Ends the server's input. Drops the lines that wait.
    pub(super) fn close(&self) {
        self.server_closed();
        self.broken.take();
    }

    /// Notes that the server closed its end, and drops the lines that wait.
    fn server_closed(&self) {
        let pipe = self.pipe.take();
        if pipe.is_some() {
            *self.broken.borrow_mut() = pipe;
        }
        self.waiting.take();
        self.bytes.set(0);
        self.changed.notify_waiters();
    }

    /// Writes the waiting lines until none is left. Apart from `give` the only writer, and never at the same time as
    /// `give`.
    async fn write_waiting(&self, pipe: &Sender) {
        loop {
            let ready = tokio::select! {
                ready = pipe.writable() => ready.is_ok(),
                () = self.closed() => return,
            };
            let written = if ready { self.write_some(pipe) } else { Err(InputClosed) };
            match written {
                Ok(()) if self.waiting.borrow().is_empty() => return,
                Ok(()) => {}
                Err(InputClosed) => return self.server_closed(),
            }
        }
    }

    fn write_some(&self, pipe: &Sender) -> Result<(), InputClosed> {
        let mut waiting = self.waiting.borrow_mut();
        let pieces: Vec<_> = waiting.iter().take(PIECES).map(|piece| IoSlice::new(piece)).collect();
        let mut written = try_write(pipe, &pieces)?;
        self.bytes.set(self.bytes.get() - written);
        while let Some(piece) = waiting.front_mut() {
            if written < piece.len() {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            // Pieces come in pairs, a line (or the rest of one) and its end.
            let ends = waiting.len() % 2 == 1;
            waiting.pop_front();
            if ends {
                self.written.set(self.written.get() + 1);
            }
        }
        if waiting.is_empty() {
            *waiting = VecDeque::new();
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Returns when the input is closed, by leash or by the server.
    pub(super) async fn closed(&self) {
        let _ = self.wait_until(|| false).await;
    }

    async fn wait_until(&self, fine: impl Fn() -> bool) -> Result<(), InputClosed> {
        let closed = || self.pipe.borrow().is_none().then_some(Err(InputClosed));
        wait_for(&self.changed, || if fine() { Some(Ok(())) } else { closed() }).await
    }
}

/// Returns the number of bytes written, 0 if the pipe is full.
fn try_write(pipe: &Sender, pieces: &[IoSlice<'_>]) -> Result<usize, InputClosed> {
    loop {
        match pipe.try_write_vectored(pieces) {
            Ok(written) => return Ok(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(InputClosed),
        }
    }
}

/// A message as one line. A raw newline cannot be inside a JSON string, so every replaced byte is whitespace between
/// values: the message keeps its meaning and its length.
pub(super) fn one_line(message: Bytes) -> Bytes {
    if memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    let space = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
    message.iter().map(space).collect()
}

#[cfg(test)]
mod tests;
