//! A server's stderr: prints it line by line with the server's name, and keeps its end for error messages.

use std::{cell::RefCell, collections::VecDeque, future::poll_fn, rc::Rc};

use tokio::{io::AsyncReadExt as _, net::unix::pipe::Receiver, task::JoinHandle, time::timeout};

use crate::state::gateway::Gateway;
use leash_model::{escape, limits};

/// The stderr of a running server. Dropping it stops reading.
#[derive(Default)]
pub(super) struct ServerStderr {
    tail: Rc<LastLines>,
    reader: RefCell<Option<JoinHandle<()>>>,
}

impl ServerStderr {
    /// Begins to read the pipe.
    pub(super) fn read(gateway: &Rc<Gateway>, server: &Rc<str>, pipe: Receiver) -> ServerStderr {
        let tail = Rc::<LastLines>::default();
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
        let lines = self.tail.0.borrow();
        lines.iter().map(|line| escape::name(&String::from_utf8_lossy(line), limits::STDERR_LINE)).collect()
    }
}

impl Drop for ServerStderr {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }
}

/// The last lines of a server's stderr.
#[derive(Default)]
struct LastLines(RefCell<VecDeque<Box<[u8]>>>);

impl LastLines {
    fn keep(&self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let mut lines = self.0.borrow_mut();
        if lines.len() == limits::STDERR_LINES {
            lines.pop_front();
        }
        lines.push_back(line[..line.len().min(limits::STDERR_LINE + 1)].into());
    }
}

async fn print(gateway: Rc<Gateway>, server: Rc<str>, mut pipe: Receiver, tail: Rc<LastLines>) {
    let mut begun = Vec::new();
    let mut is_over = false;
    while !is_over {
        // No buffer is allocated while there is nothing to read.
        is_over = poll_fn(|cx| pipe.poll_read_ready(cx)).await.is_err()
            || !matches!(pipe.read_buf(&mut begun).await, Ok(1..));
        while let Some(line) = next_line(&mut begun, is_over) {
            tail.keep(&line);
            while !(gateway.server_log)(&server, &line) {
                tokio::time::sleep_until(tokio::time::Instant::now() + limits::STDERR_RETRY).await;
            }
        }
        if begun.is_empty() {
            begun = Vec::new();
        }
    }
}

/// Takes the next line out of the bytes that were read. A line that is too long comes in several pieces, which are cut
/// between characters.
fn next_line(begun: &mut Vec<u8>, is_over: bool) -> Option<Vec<u8>> {
    let piece = &begun[..begun.len().min(limits::STDERR_PIECE)];
    if let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
        let mut line: Vec<u8> = begun.drain(..=end).collect();
        line.pop();
        line.pop_if(|byte| *byte == b'\r');
        return Some(line);
    }
    let length = match begun.len() {
        0 => return None,
        length if length >= limits::STDERR_PIECE => {
            // A character has up to three more bytes after its first.
            let starts = |at: &usize| begun[*at] & 0b1100_0000 != 0b1000_0000;
            let most = limits::STDERR_PIECE.min(length - 1);
            (most - 3..=most).rev().find(starts).unwrap_or(most)
        }
        length if is_over => length,
        _ => return None,
    };
    Some(begun.drain(..length).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text, read in pieces of `step` bytes.
    fn lines(text: &[u8], step: usize) -> Vec<String> {
        let (mut begun, mut lines) = (Vec::new(), Vec::new());
        for bytes in text.chunks(step) {
            begun.extend_from_slice(bytes);
            lines.extend(std::iter::from_fn(|| next_line(&mut begun, false)));
        }
        lines.extend(std::iter::from_fn(|| next_line(&mut begun, true)));
        assert!(begun.is_empty());
        lines.into_iter().map(|line| String::from_utf8(line).expect("cut between characters")).collect()
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        for step in [1, 2, 3, 1000] {
            assert_eq!(lines(b"a\nbc\r\n\nlast", step), ["a", "bc", "", "last"]);
            assert!(lines(b"", step).is_empty());
        }
    }

    #[test]
    fn long_lines_come_in_pieces() {
        let text = "ö€𝄞x".repeat(2000);
        for step in [1, 7, 4096, 100_000] {
            let pieces = lines(text.as_bytes(), step);
            assert_eq!(pieces.concat(), text);
            assert!(pieces.len() <= 7 && pieces.iter().all(|piece| piece.len() <= limits::STDERR_PIECE), "{step}");
        }
    }

    #[test]
    fn last_lines_are_kept_and_safe() {
        let stderr = ServerStderr::default();
        (0..100).for_each(|number| stderr.tail.keep(format!("line {number}").as_bytes()));
        stderr.tail.keep(b"  ");
        stderr.tail.keep(b"\x1b[2J\xff");
        stderr.tail.keep("x".repeat(10_000).as_bytes());
        let last = stderr.last_lines();
        assert_eq!(last.len(), limits::STDERR_LINES);
        assert_eq!(last[limits::STDERR_LINES - 3], "line 99");
        assert_eq!(last[limits::STDERR_LINES - 2], "\\u{1b}[2J\u{fffd}");
        let cut = &last[limits::STDERR_LINES - 1];
        assert!(cut.len() <= limits::STDERR_LINE && cut.ends_with("..."), "{cut}");
    }
}
