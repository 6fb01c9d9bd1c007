use tokio::net::unix::pipe::{self, Receiver};
use tokio::{io::AsyncReadExt as _, task::LocalSet};

use super::*;

fn run(test: impl Future<Output = ()>) {
    let _guard = leash_tree::leak::guard_alone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

async fn pair() -> (Rc<ServerInput>, Receiver) {
    let (sender, receiver) = pipe::pipe().unwrap();
    // The runtime takes a new pipe for full until it has polled it.
    sender.writable().await.unwrap();
    (ServerInput::new(sender, TaskTracker::new()), receiver)
}

async fn read(receiver: &mut Receiver, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    receiver.read_exact(&mut bytes).await.unwrap();
    bytes
}

fn line(byte: u8, length: usize) -> Bytes {
    vec![byte; length].into()
}

#[test]
fn a_small_line_is_in_the_pipe_at_once() {
    run(async {
        let (input, mut receiver) = pair().await;
        let ticket = input.give(Bytes::from_static(b"{}")).unwrap();
        assert_eq!(input.written.get(), ticket);
        assert_eq!(read(&mut receiver, 3).await, b"{}\n");
    });
}

#[test]
fn lines_stay_whole_and_in_order_when_the_pipe_is_full() {
    run(async {
        let (input, mut receiver) = pair().await;
        // The first line is larger than the pipe; the second would fit but must wait for its turn.
        let first = input.give(line(b'a', 300_000)).unwrap();
        let second = input.give(line(b'b', 3)).unwrap();
        let third = input.give(line(b'c', 100_000)).unwrap();
        assert!(input.written.get() < first);
        let got = read(&mut receiver, 300_001 + 4 + 100_001).await;
        let expected = [vec![b'a'; 300_000], b"\nbbb\n".to_vec(), vec![b'c'; 100_000], b"\n".to_vec()].concat();
        assert!(got == expected);
        input.written(second).await.unwrap();
        input.written(third).await.unwrap();
        assert_eq!(input.bytes.get(), 0);
        // With an empty queue, `give` writes directly again.
        let last = input.give(Bytes::from_static(b"d")).unwrap();
        assert_eq!(input.written.get(), last);
    });
}

#[test]
fn room_waits_while_too_much_is_unwritten() {
    run(async {
        let (input, mut receiver) = pair().await;
        input.room().await.unwrap();
        input.give(line(b'a', limits::UNWRITTEN + 200_000)).unwrap();
        let mut waiting = std::pin::pin!(input.room());
        assert!(futures_now(waiting.as_mut()).await.is_none());
        read(&mut receiver, 300_000).await;
        waiting.await.unwrap();
    });
}

#[test]
fn input_is_closed_when_the_reader_leaves() {
    run(async {
        let (input, receiver) = pair().await;
        let ticket = input.give(line(b'a', 300_000)).unwrap();
        drop(receiver);
        assert_eq!(input.written(ticket).await, Err(InputClosed));
        assert_eq!(input.give(Bytes::from_static(b"b")), Err(InputClosed));
        assert_eq!(input.room().await, Ok(()), "nothing waits");
    });
    run(async {
        let (input, receiver) = pair().await;
        drop(receiver);
        assert_eq!(input.give(Bytes::from_static(b"b")), Err(InputClosed));
    });
}

#[test]
fn close_ends_the_input_even_while_lines_wait() {
    run(async {
        let (input, mut receiver) = pair().await;
        input.give(line(b'a', 300_000)).unwrap();
        // Waits until the writing task has begun, so that `close` interrupts it.
        read(&mut receiver, 1).await;
        input.close();
        let mut rest = Vec::new();
        receiver.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() < 300_000);
        assert_eq!(input.give(Bytes::from_static(b"b")), Err(InputClosed));
    });
}

#[test]
fn one_line_replaces_only_line_breaks() {
    let check = |message: &'static str, expected: &str| {
        assert_eq!(one_line(Bytes::from_static(message.as_bytes())), expected);
    };
    check(r#"{"a":"\n"}"#, r#"{"a":"\n"}"#);
    check("{\r\n  \"a\":\n1}\n", "{    \"a\": 1} ");
}

/// The result of a future if it is ready after the other tasks have run; `None` if it is pending.
async fn futures_now<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
