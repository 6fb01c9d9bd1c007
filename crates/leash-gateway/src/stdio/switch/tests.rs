use std::{collections::BTreeMap, task::Waker};

use proptest::prelude::*;

use super::*;
use crate::stdio::log::NextMessage;

fn request(id: u64, token: Option<&str>) -> NewRequest {
    let token = token.map(|token| IdKey::of(&RawValue::from_string(token.to_owned()).unwrap()).unwrap());
    NewRequest { key: IdKey::from_number(id), token }
}

fn deliver(switch: &mut Switch, line: &str) -> Option<StreamId> {
    let line = Bytes::copy_from_slice(line.as_bytes());
    let message = Message::read(&line).expect("a message");
    switch.deliver(line.clone(), &message)
}

fn answer(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}"#;

fn progress(token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
    )
}

fn first(switch: &mut Switch, stream: StreamId, batch: bool) -> PostAnswer {
    switch.first(stream, (batch, false), Waker::noop())
}

#[test]
fn an_answer_goes_to_the_post_that_asked() {
    let mut switch = Switch::new(1000);
    let one = switch.begin(&[request(1, None)]).unwrap();
    let two = switch.begin(&[request(2, None)]).unwrap();
    assert_eq!(first(&mut switch, two, false), PostAnswer::Wait);
    assert_eq!(deliver(&mut switch, &answer(2)), Some(two));
    assert_eq!(first(&mut switch, two, false), PostAnswer::Whole(answer(2).into()));
    assert_eq!(first(&mut switch, one, false), PostAnswer::Wait);
    assert_eq!(deliver(&mut switch, &answer(2)), None, "it was answered");
    assert_eq!(deliver(&mut switch, &answer(3)), None, "no such request");
}

#[test]
fn a_number_is_found_by_its_value_and_answered_in_the_clients_form() {
    let key = |id: &str| IdKey::of(&RawValue::from_string(id.to_owned()).unwrap()).unwrap();
    let mut switch = Switch::new(1000);
    for (asked, answered) in [("1e2", "100"), ("-0", "0"), ("1E400", "1e+400"), ("7.0", "7"), ("3", "3.0")] {
        let request = |id: &str| NewRequest { key: key(id), token: Some(key(id)) };
        let stream = switch.begin(&[request(asked)]).unwrap();
        assert_eq!(switch.begin(&[request(answered)]), Err(CannotBegin::Duplicate(key(asked))));
        let line = format!(r#"{{"jsonrpc":"2.0","id":{answered},"result":{{}}}}"#);
        assert_eq!(deliver(&mut switch, &line), Some(stream), "{asked} and {answered}");
        let stream = switch.begin(&[request(asked)]).unwrap();
        assert_eq!(deliver(&mut switch, &progress(answered)), Some(stream));
        switch.cancel(&key(answered)).expect("it is in flight");
        switch.give_up(&key(answered), stream);
        let NextMessage::Message(..) = switch.log.next(stream, 0, Waker::noop()) else { panic!("progress") };
        let NextMessage::Message(_, line) = switch.log.next(stream, 0, Waker::noop()) else { panic!("an answer") };
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(line.contains(&format!(r#""id":{asked},"#)), "{line}");
        assert_eq!(switch.request_bytes, 0);
    }
    let stream = switch.begin(&[NewRequest { key: key("1"), token: None }]).unwrap();
    assert_eq!(deliver(&mut switch, r#"{"jsonrpc":"2.0","id":"1","result":{}}"#), None);
    assert_eq!(deliver(&mut switch, r#"{"jsonrpc":"2.0","id":1.0,"result":{}}"#), Some(stream));
}

#[test]
fn an_id_in_flight_is_not_taken_twice() {
    let mut switch = Switch::new(1000);
    switch.begin(&[request(1, None)]).unwrap();
    assert_eq!(switch.begin(&[request(2, None), request(1, None)]), Err(CannotBegin::Duplicate(IdKey::from_number(1))));
    assert_eq!(switch.begin(&[request(3, None), request(3, None)]), Err(CannotBegin::Duplicate(IdKey::from_number(3))));
    let two = switch.begin(&[request(2, None)]).expect("the refused batch left nothing");
    deliver(&mut switch, &answer(2));
    assert_eq!(first(&mut switch, two, false), PostAnswer::Whole(answer(2).into()));
    switch.begin(&[request(2, None)]).expect("it was answered");
}

#[test]
fn a_message_before_the_answer_makes_a_stream() {
    let mut switch = Switch::new(1000);
    let one = switch.begin(&[request(1, None)]).unwrap();
    assert_eq!(deliver(&mut switch, NOTE), Some(one));
    assert_eq!(first(&mut switch, one, false), PostAnswer::Stream);
    // The same when both came before the connection asked.
    deliver(&mut switch, &answer(1));
    assert_eq!(first(&mut switch, one, false), PostAnswer::Stream);
    assert_eq!(switch.log.next(one, 0, Waker::noop()), NextMessage::Message(1, NOTE.into()));
    assert_eq!(switch.log.next(one, 0, Waker::noop()), NextMessage::Message(2, answer(1).into()));
    assert_eq!(switch.log.next(one, 0, Waker::noop()), NextMessage::End);
}

/// The state of a POST.
#[derive(Clone, Copy)]
enum Fate {
    /// Its connection reads.
    Read,
    /// Its connection is lost; the client knows one of its events and can resume it.
    Left,
    /// Its connection is lost, and the client knows no event of it, so it cannot resume it.
    Lost,
    Answered,
}

fn check_other(listening: bool, posts: &[Fate], expected: StreamId) {
    for line in [NOTE, ASK] {
        let mut switch = Switch::new(1000);
        if listening {
            switch.log.listen();
        }
        for (id, post) in (1..).zip(posts) {
            let stream = switch.begin(&[request(id, None)]).unwrap();
            assert_eq!(stream, id);
            match post {
                Fate::Left => {
                    switch.log.name(stream);
                    switch.leave(stream, 0);
                }
                Fate::Lost => switch.leave(stream, 0),
                Fate::Answered => drop(deliver(&mut switch, &answer(id))),
                Fate::Read => {}
            }
        }
        assert_eq!(deliver(&mut switch, line), Some(expected));
    }
}

/// The table of the module's documentation: whether a connection reads GET, the states of the POSTs, and the stream
/// that gets the message.
#[test]
fn a_message_without_an_address_goes_to_one_stream() {
    use Fate::{Answered, Left, Lost, Read};
    check_other(false, &[], GET);
    check_other(true, &[], GET);
    check_other(false, &[Answered], GET);
    check_other(true, &[Read], 1);
    check_other(true, &[Answered, Read], 2);
    check_other(true, &[Read, Lost], 1);
    check_other(true, &[Left], 1);
    check_other(true, &[Read, Read], GET);
    check_other(false, &[Read, Read], 2);
    check_other(false, &[Read, Left], 1);
    check_other(true, &[Read, Left], GET);
    check_other(false, &[Left, Left], 2);
    check_other(false, &[Lost, Lost], GET);
    check_other(true, &[Lost], GET);
}

#[test]
fn progress_follows_its_token() {
    let mut switch = Switch::new(1000);
    switch.log.listen();
    let one = switch.begin(&[request(1, Some("\"t\""))]).unwrap();
    let two = switch.begin(&[request(2, Some("7"))]).unwrap();
    assert_eq!(deliver(&mut switch, &progress("\"t\"")), Some(one));
    assert_eq!(deliver(&mut switch, &progress("7")), Some(two));
    assert_eq!(deliver(&mut switch, &progress("\"7\"")), Some(GET), "that is another token");
    deliver(&mut switch, &answer(1));
    assert_eq!(deliver(&mut switch, &progress("\"t\"")), Some(two), "the only one in flight");
}

#[test]
fn a_batch_is_answered_as_it_comes() {
    let both = |switch: &mut Switch| switch.begin(&[request(1, None), request(2, None)]).unwrap();
    let array = format!("[{},{}]", answer(2), answer(1));
    // As an array, with a space before it.
    let mut switch = Switch::new(1000);
    let stream = both(&mut switch);
    let line = format!(" {array}");
    assert_eq!(deliver(&mut switch, &line), Some(stream));
    assert_eq!(first(&mut switch, stream, true), PostAnswer::Whole(line.into()));
    // One by one.
    let stream = both(&mut switch);
    deliver(&mut switch, &answer(2));
    assert_eq!(first(&mut switch, stream, true), PostAnswer::Wait);
    deliver(&mut switch, &answer(1));
    assert_eq!(first(&mut switch, stream, true), PostAnswer::Whole(array.clone().into()));
    // With a notification before.
    let stream = both(&mut switch);
    deliver(&mut switch, NOTE);
    deliver(&mut switch, &array);
    assert_eq!(first(&mut switch, stream, true), PostAnswer::Stream);
    // An array for two POSTs, with a note for one of them.
    let one = switch.begin(&[request(1, None)]).unwrap();
    let two = switch.begin(&[request(2, None)]).unwrap();
    deliver(&mut switch, &format!("[{},{},{NOTE}]", answer(2), answer(1)));
    assert_eq!(first(&mut switch, two, false), PostAnswer::Whole(answer(2).into()));
    assert_eq!(first(&mut switch, one, false), PostAnswer::Whole(answer(1).into()));
    assert_eq!(switch.log.listen(), 1);
    assert_eq!(switch.log.next(GET, 1, Waker::noop()), NextMessage::Message(1, NOTE.into()));
}

#[test]
fn close_answers_the_requests_in_flight() {
    let mut switch = Switch::new(1000);
    let one = switch.begin(&[request(1, Some("\"t\""))]).unwrap();
    let two = switch.begin(&[request(2, None)]).unwrap();
    let listener = switch.log.listen();
    deliver(&mut switch, &progress("\"t\""));
    switch.close(&"gone".into());
    let error =
        |id| Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"gone"}}}}"#));
    assert_eq!(first(&mut switch, two, false), PostAnswer::Whole(error(2)));
    assert_eq!(first(&mut switch, one, false), PostAnswer::Stream);
    assert_eq!(switch.log.next(one, 0, Waker::noop()), NextMessage::Message(1, progress("\"t\"").into()));
    assert_eq!(switch.log.next(one, 0, Waker::noop()), NextMessage::Message(2, error(1)));
    assert_eq!(switch.log.next(one, 0, Waker::noop()), NextMessage::End);
    assert_eq!(switch.log.next(GET, listener, Waker::noop()), NextMessage::End);
}

#[test]
fn a_cancelled_request_can_be_answered_in_the_servers_place_once() {
    let mut switch = Switch::new(1000);
    let one = switch.begin(&[request(1, None)]).unwrap();
    let key = IdKey::from_number(1);
    assert_eq!(switch.cancel(&key), Some(one));
    assert_eq!(switch.cancel(&key), None, "it was cancelled already");
    assert_eq!(switch.cancel(&IdKey::from_number(2)), None, "no such request");
    switch.give_up(&key, one + 1);
    assert_eq!(first(&mut switch, one, false), PostAnswer::Wait, "it is not the request that was cancelled");
    switch.give_up(&key, one);
    assert!(matches!(first(&mut switch, one, false), PostAnswer::Whole(_)));
    assert_eq!(deliver(&mut switch, &answer(1)), None);
}

#[test]
fn the_requests_in_flight_are_bounded() {
    let mut switch = Switch::new(1000);
    let mut begun = 0;
    // Requests whose connections are gone, and that the server never answers.
    let refused = loop {
        match switch.begin(&[request(begun, None)]) {
            Ok(stream) => switch.leave(stream, 0),
            Err(refused) => break refused,
        }
        begun += 1;
    };
    assert_eq!(refused, CannotBegin::TooMany);
    assert!((10_000..100_000).contains(&begun), "{begun}");
    for id in 0..begun {
        deliver(&mut switch, &answer(id));
    }
    assert_eq!(switch.request_bytes, 0);
    switch.begin(&[request(1, None)]).expect("there is room again");
}

#[test]
fn a_late_answer_comes_on_a_stream() {
    let mut switch = Switch::new(1000);
    assert!(!switch.turn(), "nothing waits");
    let one = switch.begin(&[request(1, None)]).unwrap();
    assert!(switch.turn());
    assert_eq!(first(&mut switch, one, false), PostAnswer::Wait);
    let two = switch.begin(&[request(2, None)]).unwrap();
    assert!(switch.turn(), "the second is in time");
    assert_eq!(first(&mut switch, one, false), PostAnswer::Stream);
    assert_eq!(switch.first(one, (false, true), Waker::noop()), PostAnswer::Wait, "a patient connection waits");
    assert_eq!(first(&mut switch, two, false), PostAnswer::Wait);
    assert!(!switch.turn(), "nothing is in time");
    deliver(&mut switch, &answer(2));
    assert_eq!(first(&mut switch, two, false), PostAnswer::Whole(answer(2).into()), "its connection had not asked yet");
}

#[test]
fn a_post_that_never_reached_the_server_is_taken_back() {
    let mut switch = Switch::new(1000);
    let one = switch.begin(&[request(1, Some("\"t\"")), request(2, None)]).unwrap();
    switch.take_back(one);
    assert!(switch.requests.is_empty() && switch.tokens.is_empty() && switch.posts.is_empty());
    assert!(switch.log.is_mixed(one), "the stream is forgotten");
}

/// An event from the outside of a switch.
#[derive(Clone, Debug)]
enum Step {
    /// A client asks, with a progress token or without.
    Ask(bool),
    /// The server answers one of the requests in flight.
    Answer(prop::sample::Index),
    /// The server reports the progress of one of them.
    Progress(prop::sample::Index),
    /// The server sends another notification.
    Note,
    /// A connection takes the next message.
    Read(prop::sample::Index),
    /// A connection is lost.
    Lose(prop::sample::Index),
    /// The client comes back to a stream.
    Return(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let one = any::<prop::sample::Index>;
    prop_oneof![
        2 => any::<bool>().prop_map(Step::Ask),
        2 => one().prop_map(Step::Answer),
        2 => one().prop_map(Step::Progress),
        2 => Just(Step::Note),
        6 => one().prop_map(Step::Read),
        1 => one().prop_map(Step::Lose),
        2 => one().prop_map(Step::Return),
    ]
}

/// The client's view of a stream: the reader, if connected; the last event seen, if any; all messages received.
type Known = (Option<u32>, Option<u64>, Vec<u64>);

/// The clients' side: the state of each stream, by what the clients themselves can know.
#[derive(Debug, Default)]
struct World {
    streams: BTreeMap<StreamId, Known>,
    flying: Vec<(u64, StreamId, bool)>,
    /// Every message that the server wrote, with the stream that may lose it because its client left without knowing an
    /// event id.
    said: Vec<(u64, Option<StreamId>)>,
    /// The stream that each message was first routed to.
    sent: BTreeMap<u64, Option<StreamId>>,
}

impl World {
    fn say(&mut self, switch: &mut Switch, whose: Option<StreamId>, line: impl Fn(u64) -> String) {
        let serial = self.said.len() as u64;
        self.said.push((serial, whose));
        self.sent.insert(serial, deliver(switch, &line(serial)));
    }

    fn read(&mut self, switch: &mut Switch, stream: StreamId) -> bool {
        let Some((Some(reader), seen, received)) = self.streams.get_mut(&stream) else { return false };
        match switch.log.next(stream, *reader, Waker::noop()) {
            NextMessage::Message(number, message) => {
                *seen = Some(number);
                let value: serde_json::Value = serde_json::from_slice(&message).unwrap();
                received.push(value["serial"].as_u64().unwrap());
                true
            }
            _ => false,
        }
    }

    fn come_back(&mut self, switch: &mut Switch, stream: StreamId) {
        let (reader, seen, _) = self.streams.entry(stream).or_default();
        *reader = match seen {
            _ if reader.is_some() => return,
            Some(seen) => switch.log.resume(stream, *seen),
            None if stream == GET => Some(switch.log.listen()),
            None => None,
        };
    }
}

proptest! {
    /// With enough room, every message arrives on exactly one stream, once, in the order of the pipe. Only the messages
    /// of a request whose client left before it knew any of its events may be lost.
    #[test]
    fn every_message_arrives_once_and_in_order(steps in proptest::collection::vec(step(), 0..150)) {
        let mut switch = Switch::new(usize::MAX);
        let mut world = World::default();
        world.streams.insert(GET, (None, None, Vec::new()));
        for (at, step) in (1..).zip(steps) {
            match step {
                Step::Ask(tells) => {
                    let token = format!("\"t{at}\"");
                    let stream = switch.begin(&[request(at, tells.then_some(&*token))]).unwrap();
                    world.streams.insert(stream, (Some(0), None, Vec::new()));
                    world.flying.push((at, stream, tells));
                }
                Step::Answer(which) if !world.flying.is_empty() => {
                    let (id, stream, _) = world.flying.remove(which.index(world.flying.len()));
                    let line = |serial| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1,"serial":{serial}}}"#);
                    world.say(&mut switch, Some(stream), line);
                }
                Step::Progress(which) if !world.flying.is_empty() => {
                    let (id, stream, tells) = world.flying[which.index(world.flying.len())];
                    let params = format!(r#"{{"progressToken":"t{id}"}}"#);
                    let line = |serial| {
                        format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params},"serial":{serial}}}"#)
                    };
                    world.say(&mut switch, tells.then_some(stream), line);
                }
                Step::Answer(_) | Step::Progress(_) => {}
                Step::Note => {
                    world.say(&mut switch, None, |serial| format!(r#"{{"jsonrpc":"2.0","method":"n","serial":{serial}}}"#));
                }
                Step::Read(which) => {
                    let stream = *which.get(&world.streams.keys().copied().collect::<Vec<_>>());
                    world.read(&mut switch, stream);
                }
                Step::Lose(which) => {
                    let stream = *which.get(&world.streams.keys().copied().collect::<Vec<_>>());
                    if let Some((reader, _, _)) = world.streams.get_mut(&stream)
                        && let Some(reader) = reader.take()
                    {
                        switch.leave(stream, reader);
                    }
                }
                Step::Return(which) => {
                    let stream = *which.get(&world.streams.keys().copied().collect::<Vec<_>>());
                    world.come_back(&mut switch, stream);
                }
            }
        }
        // In the end every client that can come back does, and reads everything.
        let streams: Vec<_> = world.streams.keys().copied().collect();
        for stream in streams {
            world.come_back(&mut switch, stream);
            while world.read(&mut switch, stream) {}
        }
        let mut arrived: Vec<u64> = Vec::new();
        for (stream, (_, _, received)) in &world.streams {
            // A message that was moved to another stream may come late.
            let here = received.iter().filter(|serial| world.sent[*serial] == Some(*stream));
            prop_assert!(here.is_sorted_by(|a, b| a < b), "out of order: {received:?}");
            arrived.extend(received);
        }
        arrived.sort_unstable();
        prop_assert!(arrived.is_sorted_by(|a, b| a < b), "twice: {arrived:?}");
        for (serial, whose) in &world.said {
            let lost_its_client = |stream: &StreamId| world.streams[stream].0.is_none();
            let excused = whose.as_ref().is_some_and(lost_its_client);
            prop_assert!(excused || arrived.binary_search(serial).is_ok(), "lost: {serial}");
        }
    }
}
