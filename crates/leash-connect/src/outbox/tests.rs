use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn message(number: u64, text: &str) -> HostMessage {
    HostMessage::read(number, Bytes::copy_from_slice(text.as_bytes())).expect("JSON")
}

fn request(number: u64) -> HostMessage {
    message(number, &format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call"}}"#))
}

fn notification(number: u64) -> HostMessage {
    message(number, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#)
}

fn response(number: u64) -> HostMessage {
    message(number, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
}

fn taken(outbox: &mut Outbox) -> Option<u64> {
    outbox.take().map(|message| message.number)
}

#[test]
fn messages_are_sent_one_after_the_other() {
    let mut outbox = Outbox::default();
    outbox.push(request(0));
    outbox.push(notification(1));
    outbox.push(request(2));
    assert_eq!(taken(&mut outbox), Some(0));
    assert_eq!(taken(&mut outbox), None);
    outbox.on_its_way(0);
    assert_eq!(taken(&mut outbox), Some(1));
    outbox.done(0, &MessageKind::Request);
    // The end of message 0 does not release message 2, which waits for message 1.
    assert_eq!(taken(&mut outbox), None);
    outbox.done(1, &MessageKind::Notification);
    assert_eq!(taken(&mut outbox), Some(2));
    assert_eq!(outbox.in_flight(), 1);
}

/// An outbox with the maximum number of requests in flight.
fn full() -> Outbox {
    let mut outbox = Outbox::default();
    for number in 0..limits::IN_FLIGHT as u64 {
        outbox.push(request(number));
        assert_eq!(taken(&mut outbox), Some(number));
        outbox.on_its_way(number);
    }
    outbox
}

#[test]
fn responses_and_cancellations_overtake_waiting_requests() {
    let mut outbox = full();
    outbox.push(request(100));
    outbox.push(notification(101));
    outbox.push(response(102));
    outbox.push(message(103, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#));
    assert_eq!(taken(&mut outbox), Some(102));
    outbox.on_its_way(102);
    assert_eq!(taken(&mut outbox), Some(103));
    outbox.on_its_way(103);
    // A notification keeps its place.
    assert_eq!(taken(&mut outbox), None);
    outbox.done(5, &MessageKind::Request);
    assert_eq!(taken(&mut outbox), Some(100));
    outbox.on_its_way(100);
    assert_eq!(taken(&mut outbox), Some(101));
}

#[test]
fn subscriptions_do_not_count_as_in_flight() {
    let mut outbox = Outbox::default();
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    for number in 0..limits::SUBSCRIPTIONS as u64 {
        assert!(!outbox.has_all_subscriptions());
        outbox.push(message(number, listen));
        assert_eq!(taken(&mut outbox), Some(number));
        outbox.on_its_way(number);
    }
    assert!(outbox.has_all_subscriptions());
    assert_eq!(outbox.in_flight(), 0);
    outbox.done(0, &MessageKind::Subscription);
    assert!(!outbox.has_all_subscriptions());
}

#[test]
fn messages_that_were_put_back_are_sent_first() {
    let mut outbox = Outbox::default();
    (0..4).for_each(|number| outbox.push(request(number)));
    let first = outbox.take().expect("the message may be sent");
    outbox.on_its_way(0);
    let second = outbox.take().expect("the message may be sent");
    outbox.suspend();
    outbox.done(1, &second.kind);
    outbox.put_back(second);
    outbox.done(0, &first.kind);
    outbox.put_back(first);
    assert_eq!(taken(&mut outbox), None);
    outbox.resume();
    for number in 0..4 {
        let message = outbox.take().expect("the message may be sent");
        assert_eq!((message.number, message.repeated), (number, number < 2));
        outbox.on_its_way(number);
    }
}

#[test]
fn unsent_request_can_be_withdrawn() {
    let mut outbox = full();
    outbox.push(request(100));
    assert!(outbox.withdraw(&IdKey::from_number(100)));
    assert!(!outbox.withdraw(&IdKey::from_number(100)));
    assert!(!outbox.withdraw(&IdKey::from_number(3)), "the request was sent");
    assert!(outbox.is_empty());
}

#[test]
fn room_is_bounded_by_bytes_and_by_lines() {
    let mut outbox = full();
    for number in 0..limits::OUTBOX_LINES as u64 {
        assert!(outbox.has_room());
        outbox.push(request(100 + number));
    }
    assert!(!outbox.has_room());
    outbox.clear();
    assert!(outbox.has_room());
    let large = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":"{}"}}"#, "x".repeat(limits::OUTBOX_BYTES));
    outbox.push(message(1, &large));
    assert!(!outbox.has_room());
}

/// One step of a generated history.
#[derive(Clone, Debug)]
enum Step {
    Request,
    Notification,
    Response,
    Send,
    OnItsWay(usize),
    Done(usize),
    PutBack(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Request),
        1 => Just(Step::Notification),
        1 => Just(Step::Response),
        6 => Just(Step::Send),
        4 => any::<usize>().prop_map(Step::OnItsWay),
        2 => any::<usize>().prop_map(Step::Done),
        1 => any::<usize>().prop_map(Step::PutBack),
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    /// Whatever happens: no message is lost, none is sent twice without being put back, the limit of requests in flight
    /// holds, and of two messages that were not put back the older one is sent first, unless the newer one may
    /// overtake.
    #[test]
    fn no_message_is_lost_and_requests_keep_their_order(steps in steps()) {
        let mut outbox = Outbox::default();
        let (mut next, mut sent, mut out): (u64, Vec<u64>, Vec<HostMessage>) = (0, Vec::new(), Vec::new());
        let mut pushed = Vec::new();
        for step in steps {
            match step {
                Step::Request | Step::Notification | Step::Response => {
                    let message = match step {
                        Step::Request => request(next),
                        Step::Notification => notification(next),
                        _ => response(next),
                    };
                    pushed.push((next, message.kind.clone()));
                    outbox.push(message);
                    next += 1;
                }
                Step::Send => if let Some(message) = outbox.take() {
                    if !message.repeated {
                        prop_assert!(!sent.contains(&message.number));
                        sent.push(message.number);
                    }
                    out.push(message);
                },
                Step::OnItsWay(which) if !out.is_empty() => outbox.on_its_way(out[which % out.len()].number),
                Step::Done(which) if !out.is_empty() => {
                    let message = out.swap_remove(which % out.len());
                    outbox.done(message.number, &message.kind);
                }
                Step::PutBack(which) if !out.is_empty() => {
                    let message = out.swap_remove(which % out.len());
                    outbox.done(message.number, &message.kind);
                    outbox.put_back(message);
                }
                Step::OnItsWay(_) | Step::Done(_) | Step::PutBack(_) => {}
            }
            prop_assert!(outbox.in_flight() <= limits::IN_FLIGHT);
            prop_assert_eq!(outbox.in_flight(), out.iter().filter(|message| message.kind.is_request()).count());
        }
        let in_order: Vec<u64> = sent.iter().copied().filter(|number| !pushed[*number as usize].1.is_urgent()).collect();
        prop_assert!(in_order.is_sorted());
        let waiting = outbox.clear();
        for (number, _) in &pushed {
            let known = sent.contains(number) || waiting.iter().any(|message| message.number == *number);
            prop_assert!(known, "{} is lost", number);
        }
    }
}
