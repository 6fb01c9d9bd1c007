//! A server's stderr: prints it line by line with the server's name, and keeps its end for error messages.

use std::{cell::RefCell, future::poll_fn, rc::Rc};

use tokio::{io::AsyncReadExt as _, net::unix::pipe::Receiver, task::JoinHandle, time::timeout};

use crate::state::gateway::Gateway;
use leash_model::limits;
use leash_model::stderr::{LastLines, next_line};

/// The stderr of a running server. Dropping it stops reading.
#[derive(Default)]
pub(super) struct ServerStderr {
    tail: Rc<RefCell<LastLines>>,
    reader: RefCell<Option<JoinHandle<()>>>,
}

impl ServerStderr {
    /// Begins to read the pipe.
    pub(super) fn read(gateway: &Rc<Gateway>, server: &Rc<str>, pipe: Receiver) -> ServerStderr {
        let tail = Rc::<RefCell<LastLines>>::default();
        let reader = print(Rc::clone(gateway), Rc::clone(server), pipe, Rc::clone(&tail));
        let reader = RefCell::new(Some(gateway.tasks.spawn_local(reader)));
        ServerStderr { tail, reader }
    }

    /// Waits until everything is printed. A process that could not be ended may hold the pipe open; then the wait is
    /// short.
    pub(super) async fn finish(&self) {
        let Some(mut reader) = self.reader.take() else { return };
        if timeout(limits::LAST_OUTPUT, &mut reader).await.is_err() {
            reader.abort();
        }
    }

    /// The last lines so far, safe to print.
    pub(super) fn last_lines(&self) -> Vec<String> {
        self.tail.borrow().shown()
    }
}

impl Drop for ServerStderr {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }
}

async fn print(gateway: Rc<Gateway>, server: Rc<str>, mut pipe: Receiver, tail: Rc<RefCell<LastLines>>) {
    let mut begun = Vec::new();
    let mut is_over = false;
    while !is_over {
        // No buffer is allocated while there is nothing to read.
        is_over = poll_fn(|cx| pipe.poll_read_ready(cx)).await.is_err()
            || !matches!(pipe.read_buf(&mut begun).await, Ok(1..));
        while let Some(line) = next_line(&mut begun, is_over) {
            tail.borrow_mut().keep(&line);
            while !(gateway.server_log)(&server, &line) {
                tokio::time::sleep_until(tokio::time::Instant::now() + limits::STDERR_RETRY).await;
            }
        }
        if begun.is_empty() {
            begun = Vec::new();
        }
    }
}
