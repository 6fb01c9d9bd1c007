//! A bridge between real pipes; the test acts as the server.

use std::{future::Future, rc::Weak};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::time::{Duration, timeout};
use tokio::{net::unix::pipe, task::LocalSet};

use super::*;
use crate::stdio::{log::NextMessage, switch::PostAnswer};
use crate::{response_memory::ResponseMemory, state::stop::StopOrder};
use leash_upstream::origin::Origin;

/// Longer than any test here takes.
const LIMIT: Duration = Duration::from_secs(20);

fn run<F: Future<Output = ()>>(test: impl FnOnce(Stage) -> F) {
    let _guard = leash_tree::leak::guard_alone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let play = async { test(Stage::set(None).await).await };
        timeout(LIMIT, play).await.expect("it hangs");
    });
}

struct Stage {
    bridge: Rc<Bridge>,
    stdin: Lines<BufReader<Receiver>>,
    stdout: Sender,
}

impl Stage {
    async fn set(opening: Option<IdKey>) -> Stage {
        let (input, stdin) = pipe::pipe().unwrap();
        // The runtime takes a new pipe for full until it has polled it.
        input.writable().await.unwrap();
        let (stdout, output) = pipe::pipe().unwrap();
        let tasks = TaskTracker::new();
        let bridge = Bridge::new(BridgeParts {
            session: Weak::new(),
            gateway: Weak::new(),
            server: "x".into(),
            counters: Rc::default(),
            account: ResponseMemory::default().account(Origin::User(0)),
            pipes: (input, super::ServerStderr::default()),
            tasks: tasks.clone(),
            stop: StopOrder::default().signal(),
            replay: usize::MAX,
            opening,
        });
        bridge.read(output, &tasks);
        Stage { bridge, stdin: BufReader::new(stdin).lines(), stdout }
    }

    fn ask(&self, id: u64) -> StreamReader {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        let request = NewRequest { key: IdKey::from_number(id), token: None };
        self.bridge.ask(&[request], line.into()).expect("the server is there")
    }

    async fn hears(&mut self) -> String {
        self.stdin.next_line().await.unwrap().expect("the input has ended")
    }

    async fn says(&mut self, line: &str) {
        self.stdout.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
}

fn answer(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

async fn next(reader: &StreamReader) -> NextMessage {
    std::future::poll_fn(|cx| reader.poll_next(cx)).await
}

#[test]
fn a_request_goes_through_and_its_answer_comes_back() {
    run(|mut stage| async move {
        let (one, two) = (stage.ask(1), stage.ask(2));
        assert_eq!(stage.hears().await, r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#);
        assert_eq!(stage.hears().await, r#"{"jsonrpc":"2.0","id":2,"method":"m"}"#);
        stage.says("\nthis is no protocol").await;
        stage.says(&answer(2)).await;
        stage.says(&answer(1)).await;
        assert_eq!(two.first(false, true).await, PostAnswer::Whole(answer(2).into()));
        assert_eq!(one.first(false, true).await, PostAnswer::Whole(answer(1).into()));
    });
}

#[test]
fn requests_to_a_server_that_exited_get_errors() {
    run(|mut stage| async move {
        let reader = stage.ask(1);
        stage.hears().await;
        let listener = StreamReader::listen(&stage.bridge).unwrap();
        // The server's last line counts even without a newline.
        stage.stdout.write_all(answer(1).as_bytes()).await.unwrap();
        let late = stage.ask(2);
        drop(stage.stdout);
        assert_eq!(reader.first(false, true).await, PostAnswer::Whole(answer(1).into()));
        let PostAnswer::Whole(error) = late.first(false, true).await else { panic!("no answer") };
        assert!(String::from_utf8_lossy(&error).contains("exited"), "{error:?}");
        assert_eq!(next(&listener).await, NextMessage::End);
        let request = NewRequest { key: IdKey::from_number(3), token: None };
        assert!(matches!(stage.bridge.ask(&[request], "{}".into()), Err(NotSent::Closed)));
    });
}

#[test]
fn a_server_that_closed_its_input_is_gone() {
    run(|stage| async move {
        let Stage { bridge, stdin, stdout } = stage;
        drop(stdin);
        let request = NewRequest { key: IdKey::from_number(1), token: None };
        assert!(matches!(bridge.ask(&[request], "{}".into()), Err(NotSent::Closed)));
        drop(stdout);
    });
}

#[test]
fn a_stream_is_resumed_after_its_connection_is_lost() {
    run(|mut stage| async move {
        let reader = stage.ask(1);
        let note = r#"{"jsonrpc":"2.0","method":"n"}"#;
        stage.says(note).await;
        assert_eq!(reader.first(false, true).await, PostAnswer::Stream);
        assert_eq!(next(&reader).await, NextMessage::Message(1, note.into()));
        drop(reader);
        stage.says(note).await;
        stage.says(&answer(1)).await;
        let again = StreamReader::resume(&stage.bridge, 1, 1).expect("the stream is kept");
        assert_eq!(next(&again).await, NextMessage::Message(2, note.into()));
        assert_eq!(next(&again).await, NextMessage::Message(3, answer(1).into()));
        assert_eq!(next(&again).await, NextMessage::End);
        // The client can resume once more from the start, now that the stream is complete.
        let again = StreamReader::resume(&stage.bridge, 1, 0).expect("the stream is kept");
        assert_eq!(next(&again).await, NextMessage::Message(1, note.into()));
    });
}

#[test]
fn a_client_that_does_not_read_makes_the_server_wait() {
    run(|mut stage| async move {
        let listener = StreamReader::listen(&stage.bridge).unwrap();
        let message = format!(r#"{{"jsonrpc":"2.0","method":"n","params":"{}"}}"#, "x".repeat(50_000));
        let count = 100;
        let mut said = 0;
        let all = message.len() * count;
        // Writes until the pipe is full and the bridge does not read it: far less than everything.
        let line = format!("{message}\n");
        let mut left = line.as_bytes();
        while let Ok(Ok(())) = timeout(Duration::from_millis(200), stage.stdout.writable()).await {
            match stage.stdout.try_write(left) {
                Ok(written) => left = &left[written..],
                Err(_) => continue,
            }
            if left.is_empty() {
                said += 1;
                left = line.as_bytes();
            }
        }
        let kept = stage.bridge.switch.borrow().log.queued().unread;
        assert!(kept < limits::UNREAD_STREAMS + 200_000 && said * message.len() < all / 4, "{kept} of {said}");
        // Everything arrives once it is read.
        let stdout = &mut stage.stdout;
        let rest = async {
            stdout.write_all(left).await.unwrap();
            for _ in said + 1..count {
                stdout.write_all(line.as_bytes()).await.unwrap();
            }
        };
        let read = async {
            for number in 1..=count as u64 {
                assert_eq!(next(&listener).await, NextMessage::Message(number, message.clone().into()));
            }
        };
        tokio::join!(rest, read);
    });
}

#[test]
fn the_servers_answer_to_a_cancelled_request_is_delivered() {
    run(|mut stage| async move {
        let reader = stage.ask(1);
        let tasks = TaskTracker::new();
        stage.bridge.cancelled(IdKey::from_number(1), &tasks);
        stage.bridge.cancelled(IdKey::from_number(1), &tasks);
        assert_eq!(tasks.len(), 1, "one task per request");
        stage.says(&answer(1)).await;
        assert_eq!(reader.first(false, true).await, PostAnswer::Whole(answer(1).into()));
    });
}

#[test]
fn an_abort_tells_the_server_and_answers_the_clients() {
    run(|mut stage| async move {
        let (one, two) = (stage.ask(1), stage.ask(2));
        stage.hears().await;
        stage.hears().await;
        assert_eq!((stage.bridge.in_flight(), stage.bridge.abort(), stage.bridge.in_flight()), (2, 2, 0));
        let mut heard = [stage.hears().await, stage.hears().await];
        heard.sort();
        for (id, line) in [1, 2].into_iter().zip(heard) {
            let params = format!(r#"{{"requestId":{id},"reason":"aborted"}}"#);
            assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#));
        }
        for reader in [one, two] {
            let PostAnswer::Whole(error) = reader.first(false, true).await else { panic!("no answer") };
            assert!(String::from_utf8_lossy(&error).contains(r#""message":"aborted""#), "{error:?}");
        }
        // If the server answers an aborted request all the same, the answer is dropped, and the session goes on.
        stage.says(&answer(1)).await;
        let next = stage.ask(1);
        stage.hears().await;
        stage.says(&answer(1)).await;
        assert_eq!(next.first(false, true).await, PostAnswer::Whole(answer(1).into()));
    });
}

#[test]
fn a_slow_answer_becomes_a_stream_soon_after_initialize() {
    run(|_| async {
        let mut stage = Stage::set(Some(IdKey::from_number(0))).await;
        let opening = stage.ask(0);
        let result = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}"#;
        stage.says(result).await;
        assert_eq!(opening.first(false, true).await, PostAnswer::Whole(result.into()));
        assert!(stage.bridge.primes());
        // Well below the window of earlier versions.
        let slow = stage.ask(1);
        assert_eq!(timeout(LIMIT / 4, slow.first(false, false)).await, Ok(PostAnswer::Stream));
        assert!(slow.priming().is_some());
    });
}
