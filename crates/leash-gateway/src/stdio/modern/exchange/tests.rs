use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn begin(exchanges: &mut Exchanges, source: &str) -> (Number, String) {
    let Ok(Message::One(envelope)) = Message::read(source.as_bytes()) else { panic!("not a message: {source}") };
    let (number, line) = exchanges.begin(source.as_bytes(), &envelope).expect("a request");
    (number, String::from_utf8(line.to_vec()).unwrap())
}

fn deliver(exchanges: &mut Exchanges, line: &str) -> bool {
    let Ok(Message::One(envelope)) = Message::read(line.as_bytes()) else { panic!("not a message: {line}") };
    exchanges.deliver(line.as_bytes(), &envelope)
}

fn next(exchanges: &mut Exchanges, number: Number) -> Option<String> {
    match exchanges.next(number, Waker::noop()) {
        NextMessage::Message(_, message) => Some(String::from_utf8(message.to_vec()).unwrap()),
        _ => None,
    }
}

fn first(exchanges: &mut Exchanges, number: Number) -> ModernAnswer {
    exchanges.first(number, Waker::noop())
}

#[test]
fn two_clients_with_the_same_id_get_their_own_answers() {
    let mut exchanges = Exchanges::default();
    let (one, line) = begin(&mut exchanges, r#"{"jsonrpc":"2.0", "id" : "x","method":"a"}"#);
    assert_eq!(line, r#"{"jsonrpc":"2.0", "id" : 1,"method":"a"}"#);
    let (two, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"x","method":"b"}"#);
    assert!(deliver(&mut exchanges, r#"{"jsonrpc":"2.0","id":2,"result":{"n":123456789012345678901234567890}}"#));
    assert_eq!(first(&mut exchanges, one), ModernAnswer::Wait);
    let expected = r#"{"jsonrpc":"2.0","id":"x","result":{"n":123456789012345678901234567890}}"#;
    assert_eq!(first(&mut exchanges, two), ModernAnswer::Whole(StatusCode::OK, expected.into()));
    assert!(!deliver(&mut exchanges, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#), "it was answered");
    assert!(!deliver(&mut exchanges, r#"{"jsonrpc":"2.0","id":"x","result":{}}"#), "that is not its id here");
}

#[test]
fn an_abort_answers_everything_and_tells_the_server_once() {
    let mut exchanges = Exchanges::default();
    let (one, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"x","method":"a"}"#);
    let (two, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"y","method":"b"}"#);
    deliver(&mut exchanges, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(exchanges.in_flight(), 1, "the other one is answered");
    let lines = exchanges.abort();
    let line = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"aborted"}}"#;
    assert_eq!(lines, [line]);
    assert_eq!((exchanges.in_flight(), exchanges.abort().len()), (0, 0));
    let ModernAnswer::Whole(_, error) = first(&mut exchanges, two) else { panic!("no answer") };
    let error: Value = serde_json::from_slice(&error).unwrap();
    assert_eq!(error, json!({"jsonrpc": "2.0", "id": "y", "error": {"code": -32000, "message": "aborted"}}));
    assert_eq!((exchanges.leave(one), exchanges.leave(two)), (None, None), "the server was told already");
}

#[test]
fn progress_and_subscriptions_carry_the_clients_ids() {
    let mut exchanges = Exchanges::default();
    let source =
        r#"{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"_meta":{"progressToken":"p"}}}"#;
    let (number, line) = begin(&mut exchanges, source);
    assert_eq!(line, source.replace("\"s\"", "1").replace("\"p\"", "1"));
    let key = "io.modelcontextprotocol/subscriptionId";
    for (theirs, ours) in [
        (
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#
                .to_owned(),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#
                .to_owned(),
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"_meta":{{"{key}":1}}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"_meta":{{"{key}":"s"}}}}}}"#),
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#.to_owned(),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}"#.to_owned(),
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"_meta":{{"{key}":1}}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":"s","result":{{"_meta":{{"{key}":"s"}}}}}}"#),
        ),
    ] {
        assert!(deliver(&mut exchanges, &theirs));
        assert_eq!(next(&mut exchanges, number), Some(ours));
    }
    assert_eq!(exchanges.next(number, Waker::noop()), NextMessage::End);
}

#[test]
fn errors_have_the_status_of_their_code() {
    for (code, status) in [(-32601, 404), (-32020, 400), (-32021, 400), (-32022, 400), (-32602, 200), (-32000, 200)] {
        let mut exchanges = Exchanges::default();
        let (number, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":7,"method":"a"}"#);
        let line = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": ""}}).to_string();
        deliver(&mut exchanges, &line);
        let ModernAnswer::Whole(got, _) = first(&mut exchanges, number) else { panic!("no answer") };
        assert_eq!(got.as_u16(), status, "{code}");
        assert_eq!(super::status(line.as_bytes()).as_u16(), status);
    }
}

#[test]
fn an_abandoned_request_is_cancelled_once() {
    let mut exchanges = Exchanges::default();
    let (one, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
    let line = exchanges.leave(one).expect("it was not answered");
    let value: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(value["params"]["requestId"], 1);
    assert!(!deliver(&mut exchanges, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), "the connection is gone");
    assert_eq!(exchanges.leave(one), None);
    // An answered request is not taken back.
    let (two, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
    deliver(&mut exchanges, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    assert_eq!(exchanges.leave(two), None);
    assert!(exchanges.open.is_empty());
    assert_eq!(exchanges.unread(), 0);
}

#[test]
fn a_clients_own_cancellation_is_passed_on_if_it_is_clear() {
    let mut exchanges = Exchanges::default();
    let cancel = |exchanges: &mut Exchanges| {
        let source = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        let Ok(Message::One(envelope)) = Message::read(source.as_bytes()) else { panic!("a message") };
        exchanges.cancel(source.as_bytes(), &envelope).map(|line| String::from_utf8(line.to_vec()).unwrap())
    };
    assert_eq!(cancel(&mut exchanges), None);
    let (one, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
    let expected = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(cancel(&mut exchanges).as_deref(), Some(expected));
    assert_eq!(cancel(&mut exchanges), None, "once");
    assert_eq!(exchanges.leave(one), None, "the server knows already");
    begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
    begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
    assert_eq!(cancel(&mut exchanges), None, "two requests have this id");
}

#[test]
fn a_servers_request_goes_nowhere() {
    let mut exchanges = Exchanges::default();
    begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
    assert!(!deliver(&mut exchanges, r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}"#));
}

#[test]
fn close_answers_all_requests() {
    let mut exchanges = Exchanges::default();
    let (number, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
    exchanges.close(&"gone".into());
    let expected = r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32000,"message":"gone"}}"#;
    assert_eq!(first(&mut exchanges, number), ModernAnswer::Whole(StatusCode::OK, expected.into()));
}

#[test]
fn a_connection_that_takes_nothing_is_cut() {
    let mut exchanges = Exchanges::default();
    let (one, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#);
    let (two, _) = begin(&mut exchanges, r#"{"jsonrpc":"2.0","id":"b","method":"m"}"#);
    exchanges.start_observing();
    deliver(&mut exchanges, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    exchanges.cut_stalled();
    assert_eq!(exchanges.next(one, Waker::noop()), NextMessage::Cut);
    assert_eq!(exchanges.next(two, Waker::noop()), NextMessage::Wait);
    assert_eq!(exchanges.unread(), 0);
}

#[test]
fn a_server_is_modern_by_what_it_answers() {
    let check = |answer: &str, modern: bool| assert_eq!(is_modern(answer.as_bytes()), modern, "{answer}");
    check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, true);
    for code in [-32020, -32021, -32022] {
        check(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":""}}}}"#), true);
    }
    for code in ["-32601", "-32602", "-32600", "-32000", "0", "\"x\""] {
        check(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":""}}}}"#), false);
    }
    check("nonsense", false);
}

proptest! {
    /// Whatever ids and tokens clients choose, and in whatever order the server answers, every client gets its own
    /// back.
    #[test]
    fn ids_and_tokens_are_restored(
        asked in proptest::collection::vec(("\\PC{0,8}", any::<Option<i32>>(), any::<u8>()), 1..20),
    ) {
        let mut exchanges = Exchanges::default();
        let mut flying = Vec::new();
        for (id, token, order) in asked {
            let (id, token) = (json!(id), token.map(|token| json!(token)));
            let meta = token.as_ref().map_or(json!({}), |token| json!({"progressToken": token}));
            let source = json!({"jsonrpc": "2.0", "id": id, "method": "m", "params": {"_meta": meta}}).to_string();
            let (number, line) = begin(&mut exchanges, &source);
            let line: Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(&line["id"], &json!(number));
            flying.push((order, number, id, token));
        }
        flying.sort_by_key(|(order, number, ..)| (*order, *number));
        for (_, number, id, token) in flying {
            if let Some(token) = token {
                let params = json!({"progressToken": number, "progress": 1});
                let line = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                prop_assert!(deliver(&mut exchanges, &line.to_string()));
                let told: Value = serde_json::from_str(&next(&mut exchanges, number).unwrap()).unwrap();
                prop_assert_eq!(&told["params"]["progressToken"], &token);
            }
            deliver(&mut exchanges, &json!({"jsonrpc": "2.0", "id": number, "result": number}).to_string());
            let answer: Value = serde_json::from_str(&next(&mut exchanges, number).unwrap()).unwrap();
            prop_assert_eq!(&answer["id"], &id);
            prop_assert_eq!(&answer["result"], &json!(number));
            exchanges.leave(number);
        }
        prop_assert_eq!(exchanges.unread(), 0);
    }
}
