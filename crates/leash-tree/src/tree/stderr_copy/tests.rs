//! The copy of stderr, with hosts that read, do not read, or are gone.

use std::fs;
use std::io::{PipeReader, Read as _};
use std::os::unix::net::UnixStream;

use serde_json::json;
use testkit::Scratch;

use super::*;
use crate::ledger::logs;

/// A copy, the server's end of its pipe, and the directory of its log.
struct Stage {
    copy: StderrCopy,
    server: OwnedFd,
    dir: Scratch,
}

fn record(dir: &Scratch) -> Record {
    let record = json!({
        "version": 1, "boot": "", "pid_namespace": 1, "run": "r1", "session": "s1", "name": "files", "command": [],
        "owners": [], "phase": "running", "supervisor": null, "keeper": null, "leader": null, "members": [],
        "memory_bytes": 0, "containment": null, "leaf": null, "grace_ms": 0, "started_ms": 1,
        "receipts": dir.join("receipts.jsonl"),
    });
    serde_json::from_value(record).unwrap()
}

fn stage(host: OwnedFd) -> Stage {
    let dir = Scratch::new();
    let (reader, server) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
    Stage { copy: StderrCopy::new(StderrPipe { reader, host }, &record(&dir)), server, dir }
}

/// A host's pipe, whose writing end does not wait.
fn host_pipe() -> (PipeReader, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    let host = without_waiting(writer.as_fd()).unwrap();
    (reader, host)
}

impl Stage {
    fn says(&self, text: &str) {
        assert_eq!(rustix::io::write(&self.server, text.as_bytes()).unwrap(), text.len());
    }

    fn log(&self) -> Vec<String> {
        let entries = logs::tail(&self.dir.join("receipts.jsonl"), "s1", usize::MAX).unwrap();
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.line).into_owned()).collect()
    }
}

/// The bytes in a pipe.
fn read(mut reader: &PipeReader, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    reader.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn every_byte_reaches_the_host_and_whole_lines_the_log() {
    let (reader, host) = host_pipe();
    let mut stage = stage(host);
    stage.says("one\ntw");
    stage.copy.step().unwrap();
    assert_eq!(read(&reader, 6), b"one\ntw", "the host gets a part of a line at once");
    assert_eq!(stage.log(), ["one"]);
    stage.says("o\n\u{1b}[31m");
    stage.copy.step().unwrap();
    stage.copy.read_rest().unwrap();
    stage.copy.send_rest();
    assert_eq!(read(&reader, 7), b"o\n\x1b[31m");
    assert_eq!(stage.log(), ["one", "two", "\u{1b}[31m"]);
    assert_eq!(stage.copy.last_lines(), ["one", "two", "\\u{1b}[31m"]);
}

#[test]
fn a_socket_is_a_host_too() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut stage = stage(without_waiting(theirs.as_fd()).unwrap());
    drop(theirs);
    stage.says("one\n");
    stage.copy.step().unwrap();
    let mut bytes = [0; 4];
    ours.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"one\n");
    drop(ours);
    stage.says("two\n");
    stage.copy.step().unwrap();
    assert_eq!(stage.log(), ["one", "two"], "the log goes on without the host");
}

/// A full host holds up the server, as it would without a copy. The driver does not wait, and nothing is lost.
#[test]
fn a_host_that_does_not_read_loses_nothing() {
    let (reader, host) = host_pipe();
    let mut stage = stage(host);
    rustix::io::ioctl_fionbio(&stage.server, true).unwrap();
    let (mut written, mut number) = (Vec::new(), 0);
    loop {
        let line = format!("{number:0>99}\n");
        if rustix::io::write(&stage.server, line.as_bytes()).is_err() {
            stage.copy.step().unwrap();
            if rustix::io::write(&stage.server, line.as_bytes()).is_err() {
                break;
            }
        }
        written.extend_from_slice(line.as_bytes());
        number += 1;
    }
    let (_, events) = stage.copy.waits_for().unwrap();
    assert_eq!(events, PollFlags::OUT, "it waits for the host and reads no more");
    assert!(stage.copy.unsent.len() <= PIECE);
    let mut seen = Vec::new();
    while seen.len() < written.len() {
        stage.copy.step().unwrap();
        let waiting = rustix::io::ioctl_fionread(&reader).unwrap();
        seen.extend(read(&reader, usize::try_from(waiting).unwrap()));
    }
    assert!(seen == written, "{} bytes of {}", seen.len(), written.len());
    assert_eq!(stage.log().len(), number);
}

#[test]
fn a_host_that_is_gone_does_not_hold_up_the_server() {
    let (reader, host) = host_pipe();
    let mut stage = stage(host);
    drop(reader);
    for number in 0..3000 {
        stage.says(&format!("{number:0>99}\n"));
        stage.copy.step().unwrap();
    }
    assert_eq!(stage.log().len(), 3000);
}

#[test]
fn a_log_that_cannot_be_written_does_not_hold_up_the_host() {
    let (reader, host) = host_pipe();
    let mut stage = stage(host);
    fs::write(stage.dir.join("logs"), "a file is in the way").unwrap();
    stage.says("one\n");
    assert!(stage.copy.step().is_err());
    assert_eq!(read(&reader, 4), b"one\n");
    fs::remove_file(stage.dir.join("logs")).unwrap();
    stage.says("two\n");
    stage.copy.step().unwrap();
    assert_eq!(read(&reader, 4), b"two\n");
    assert_eq!(stage.log(), ["two"]);
}

#[test]
fn the_end_of_the_last_writer_ends_the_copy() {
    let (reader, host) = host_pipe();
    let Stage { mut copy, server, dir } = stage(host);
    rustix::io::write(&server, b"last").unwrap();
    drop(server);
    copy.step().unwrap();
    assert!(copy.waits_for().is_none());
    assert_eq!(read(&reader, 4), b"last");
    copy.read_rest().unwrap();
    assert_eq!(logs::tail(&dir.join("receipts.jsonl"), "r1", 9).unwrap().len(), 1);
}
