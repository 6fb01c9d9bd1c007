use std::task::Waker;

use proptest::prelude::*;

use super::*;

fn text(bytes: &str) -> Bytes {
    Bytes::copy_from_slice(bytes.as_bytes())
}

fn read(log: &mut StreamLog, id: StreamId, reader: u32) -> NextMessage {
    log.next(id, reader, Waker::noop())
}

fn message(number: u64, bytes: &str) -> NextMessage {
    NextMessage::Message(number, text(bytes))
}

/// Checks that the sums kept beside the streams equal those of the streams.
fn check(log: &StreamLog) {
    let streams = || log.streams.values();
    assert_eq!(log.bytes, streams().flat_map(|stream| &stream.messages).map(Bytes::len).sum::<usize>());
    assert_eq!(log.messages, streams().map(|stream| stream.messages.len()).sum::<usize>());
    let unread = streams().filter(|stream| stream.reading).map(LogStream::unread_bytes);
    assert_eq!(log.unread, unread.sum::<usize>());
    for (id, stream) in &log.streams {
        let delivered = log.delivered.iter().filter(|delivered| *delivered == id).count();
        assert_eq!(delivered, stream.unread_from(), "stream {id}: {stream:?}");
    }
    // The excess over the room could not be dropped: a connection reads it, or it is a single message.
    if log.bytes > log.room {
        assert!(log.delivered.is_empty());
        let idle = streams().filter(|stream| !stream.reading).map(|stream| stream.messages.len());
        assert!(idle.sum::<usize>() == 0 || log.messages == 1, "{log:?}");
    }
}

#[test]
fn a_stream_is_read_in_order_and_ends() {
    let mut log = StreamLog::new(100);
    log.open(1);
    assert_eq!(read(&mut log, 1, 0), NextMessage::Wait);
    log.push(1, text("a"));
    log.push(1, text("b"));
    log.finish(1);
    assert_eq!(read(&mut log, 1, 0), message(1, "a"));
    assert_eq!(read(&mut log, 1, 0), message(2, "b"));
    assert_eq!(read(&mut log, 1, 0), NextMessage::End);
    check(&log);
}

#[test]
fn taking_a_whole_answer_removes_its_stream() {
    let mut log = StreamLog::new(100);
    log.open(1);
    assert_eq!(log.take(1), None, "it is not over");
    log.push(1, text("a"));
    log.finish(1);
    assert_eq!(log.take(1), Some(VecDeque::from([text("a")])));
    assert_eq!(log.leave(1, 0), [""; 0]);
    assert!(log.streams.is_empty());
    check(&log);
}

#[test]
fn a_message_that_was_read_can_be_read_again() {
    let mut log = StreamLog::new(100);
    log.open(1);
    for part in ["a", "b", "c"] {
        log.push(1, text(part));
    }
    read(&mut log, 1, 0);
    read(&mut log, 1, 0);
    assert_eq!(log.leave(1, 0), [""; 0]);
    log.push(1, text("d"));
    let reader = log.resume(1, 1).expect("the stream is known");
    assert_eq!(read(&mut log, 1, 0), NextMessage::Cut, "the first connection is no longer the reader");
    check(&log);
    for (number, part) in [(2, "b"), (3, "c"), (4, "d")] {
        assert_eq!(read(&mut log, 1, reader), message(number, part));
    }
    assert_eq!(read(&mut log, 1, reader), NextMessage::Wait);
    check(&log);
}

#[test]
fn a_finished_stream_can_be_resumed_while_it_is_kept() {
    let mut log = StreamLog::new(3);
    log.open(1);
    log.push(1, text("a"));
    log.finish(1);
    read(&mut log, 1, 0);
    assert_eq!(log.leave(1, 0), [""; 0]);
    let reader = log.resume(1, 0).expect("it is kept");
    assert_eq!(read(&mut log, 1, reader), message(1, "a"));
    assert_eq!(read(&mut log, 1, reader), NextMessage::End);
    assert_eq!(log.leave(1, reader), [""; 0]);
    log.listen();
    log.push(GET, text("bcd"));
    assert_eq!(log.resume(1, 0), None, "it made room");
    check(&log);
}

#[test]
fn an_event_that_was_never_sent_cannot_be_resumed() {
    let mut log = StreamLog::new(100);
    log.open(1);
    log.push(1, text("a"));
    assert_eq!(log.resume(1, 1), None, "it was not sent yet");
    assert_eq!(log.resume(2, 0), None, "no such stream");
    read(&mut log, 1, 0);
    assert!(log.resume(1, 1).is_some());
    assert_eq!(log.resume(1, 2), None);
}

#[test]
fn messages_of_a_stream_without_a_known_event_are_handed_back() {
    let mut log = StreamLog::new(100);
    log.open(1);
    log.push(1, text("a"));
    assert_eq!(log.leave(1, 0), [text("a")]);
    assert!(!log.push(1, text("b")));
    assert!(log.streams.is_empty());
    check(&log);
    log.open(2);
    assert_eq!(log.name(2), 0);
    assert_eq!(log.leave(2, 0), [""; 0]);
    assert!(log.push(2, text("b")), "the client was given an id");
}

#[test]
fn a_listener_goes_on_where_the_last_one_stopped() {
    let mut log = StreamLog::new(100);
    log.push(GET, text("a"));
    log.push(GET, text("b"));
    let first = log.listen();
    assert_eq!(read(&mut log, GET, first), message(1, "a"));
    assert_eq!(log.leave(GET, first), [""; 0]);
    let second = log.listen();
    assert_eq!(log.name(GET), 1, "earlier messages need not be kept");
    assert_eq!(read(&mut log, GET, second), message(2, "b"));
    check(&log);
}

#[test]
fn delivered_messages_are_dropped_before_unread_ones_and_the_oldest_first() {
    let mut log = StreamLog::new(4);
    log.push(GET, text("aa"));
    log.open(1);
    log.push(1, text("b"));
    read(&mut log, 1, 0);
    log.push(1, text("c"));
    read(&mut log, 1, 0);
    check(&log);
    // `b` and `c` were delivered; `aa` waits, and stays.
    log.push(GET, text("d"));
    log.push(GET, text("e"));
    assert!(log.streams[&1].messages.is_empty());
    assert_eq!(log.take_lost(), 0);
    // Only unread messages are left: the oldest is dropped, and counted as lost.
    log.push(GET, text("f"));
    assert_eq!(log.take_lost(), 1);
    let reader = log.listen();
    assert_eq!(read(&mut log, GET, reader), message(2, "d"));
    check(&log);
}

#[test]
fn one_message_may_be_larger_than_the_room() {
    let mut log = StreamLog::new(1);
    log.push(GET, text("large"));
    assert_eq!(log.take_lost(), 0);
    log.push(GET, text("larger"));
    assert_eq!(log.take_lost(), 1, "but two may not");
    let reader = log.listen();
    assert_eq!(read(&mut log, GET, reader), message(2, "larger"));
    assert_eq!(log.bytes, 0, "it is not kept once it was delivered");
    check(&log);
}

#[test]
fn only_a_reader_that_does_not_read_is_cut() {
    let mut log = StreamLog::new(100);
    for id in 1..=3 {
        log.open(id);
    }
    log.start_observing();
    log.push(1, text("a"));
    log.push(2, text("b"));
    log.push(2, text("b"));
    read(&mut log, 2, 0);
    log.name(1);
    assert_eq!(log.cut_stalled(), [""; 0]);
    assert_eq!(read(&mut log, 1, 0), NextMessage::Cut);
    assert_eq!(read(&mut log, 2, 0), message(2, "b"));
    assert_eq!(read(&mut log, 3, 0), NextMessage::Wait);
    let reader = log.resume(1, 0).expect("it may come back");
    assert_eq!(read(&mut log, 1, reader), message(1, "a"));
    check(&log);
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Push(u64, usize),
    Finish(u64),
    Read(u64),
    Take(u64),
    Name(u64),
    Leave(u64),
    Resume(u64, u64),
    Listen,
    Look,
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0..5_u64;
    prop_oneof![
        2 => Just(Step::Open),
        6 => (id(), 1..9_usize).prop_map(|(id, length)| Step::Push(id, length)),
        1 => id().prop_map(Step::Finish),
        6 => id().prop_map(Step::Read),
        1 => id().prop_map(Step::Take),
        1 => id().prop_map(Step::Name),
        2 => id().prop_map(Step::Leave),
        2 => (id(), 0..6_u64).prop_map(|(id, seen)| Step::Resume(id, seen)),
        1 => Just(Step::Listen),
        1 => Just(Step::Look),
        1 => Just(Step::Cut),
    ]
}

proptest! {
    #[test]
    fn the_sums_are_right_after_any_steps(steps in proptest::collection::vec(step(), 0..120), room in 0..40_usize) {
        let mut log = StreamLog::new(room);
        let mut readers = [0; 5];
        let mut opened = 0;
        for step in steps {
            match step {
                Step::Open if opened < 4 => {
                    opened += 1;
                    log.open(opened);
                }
                Step::Open => {}
                Step::Push(id, length) => drop(log.push(id, Bytes::from(vec![b'x'; length]))),
                Step::Finish(id) if id != GET => log.finish(id),
                Step::Finish(_) => {}
                Step::Read(id) => drop(read(&mut log, id, readers[id as usize])),
                Step::Take(id) => drop(log.take(id)),
                Step::Name(id) => drop(log.name(id)),
                Step::Leave(id) => drop(log.leave(id, readers[id as usize])),
                Step::Resume(id, seen) => {
                    if let Some(reader) = log.resume(id, seen) {
                        readers[id as usize] = reader;
                    }
                }
                Step::Listen => readers[0] = log.listen(),
                Step::Look => log.start_observing(),
                Step::Cut => drop(log.cut_stalled()),
            }
            check(&log);
        }
    }
}
