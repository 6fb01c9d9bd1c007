//! No byte is changed: lines reach the upstream as the host wrote them, and messages reach the host as the upstream
//! wrote them.

use std::sync::{Arc, Mutex};

use crate::host::{Connect, scene};
use crate::upstream::{Sessions, Upstream};

/// Messages that libraries tend to change.
const ODD: [&str; 12] = [
    r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"x"}"#,
    r#"{ "method" : "x" , "id" : "a\u0062\/\"" , "jsonrpc" : "2.0" , "future" : [ 1.0 , 1e400 , -0 , 0.10 ] }"#,
    r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x","method":"y","params":{"a":1,"a":2}}"#,
    "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"x\",\"params\":{\"text\":\"\u{2028}\u{85}\u{feff}é🦀\\ud83e\\udd80\\u0000\"}}",
    "\t{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"x\"}   ",
    r#"{"jsonrpc":"2.0","id":5.50,"method":"x","params":[]}"#,
    r#"{"jsonrpc":"2.0","id":"","method":"","params":{}}"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"x","params":{"deep":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}}"#,
    r#"[{"jsonrpc":"2.0","id":7,"method":"x"},{"jsonrpc":"2.0","method":"y"}, {"jsonrpc":"2.0","id":8,"method":"z"}]"#,
    r#"{"jsonrpc":"2.0","id":"\ud800","method":"x"}"#,
    r#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"__proto__":{},"":null}}"#,
    r#"{"jsonrpc":"2.0","id":10,"method":"x","params":{"_meta":{"progressToken":1e2,"x/y":true}}}"#,
];

/// The answers of the upstream, in an equally odd form, with the same ids so that they are recognised as answers.
const ANSWERS: [&str; 12] = [
    r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"result":{"n":123456789012345678901234567890}}"#,
    r#"{ "result" : { "x" : 1.0 , "x" : 1e400 } , "id" : "ab/\u0022" , "jsonrpc" : "2.0" , "later" : null }"#,
    r#"{"jsonrpc":"2.0","id":1,"id":2,"result":{"a":1,"a":2}}"#,
    "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"text\":\"\u{2028}\u{85}\u{feff}é🦀\\ud83e\\udd80\\u0000\"}}",
    "\t{\"jsonrpc\":\"2.0\",\"id\":4,\t\"result\":{}}   ",
    r#"{"jsonrpc":"2.0","id":5.50,"result":[]}"#,
    r#"{"jsonrpc":"2.0","id":"","result":""}"#,
    r#"{"jsonrpc":"2.0","id":6,"error":{"code":-0,"message":"\u00e9","data":[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]}}"#,
    r#"[{"jsonrpc":"2.0","id":8,"result":{}}, {"jsonrpc":"2.0","id":7,"result":{}}]"#,
    r#"{"jsonrpc":"2.0","id":"\ud800","result":{}}"#,
    r#"{"jsonrpc":"2.0","id":9,"result":{"__proto__":{},"":null}}"#,
    r#"{"jsonrpc":"2.0","id":10,"result":{"_meta":{"x":1E+2}}}"#,
];

/// The form of the upstream's answers.
#[derive(Clone, Copy)]
enum Manner {
    Whole,
    Stream,
}

fn check(manner: Manner) {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| {
        let text = seen.text();
        match ODD.iter().position(|odd| *odd == text) {
            None => sessions.serve(seen, talk),
            Some(index) => match manner {
                Manner::Whole => talk.json(ANSWERS[index]),
                Manner::Stream => {
                    talk.begin_stream();
                    talk.event(": comment\r\n\r\nid: 1\r\ndata:\r\n\r\n");
                    // Sent in pieces, as networks deliver them.
                    let event = format!("event: message\rid: 2\rdata: {}\r\r", ANSWERS[index]);
                    let middle = (0..=event.len() / 2).rev().find(|at| event.is_char_boundary(*at)).unwrap_or(0);
                    talk.event(&event[..middle]);
                    talk.event(&event[middle..]);
                    talk.end_stream();
                }
            },
        }
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    for (odd, answer) in ODD.iter().zip(ANSWERS) {
        connect.send(odd);
        assert_eq!(connect.next(), answer);
    }
    let posted: Vec<String> = upstream.of("POST").iter().skip(2).map(|seen| seen.text()).collect();
    assert_eq!(posted, ODD);
    connect.close();
    assert_eq!(connect.code(), Some(0), "{}", scene.stderr());
    assert!(connect.is_silent());
}

#[test]
fn odd_messages_pass_unchanged() {
    check(Manner::Whole);
}

#[test]
fn odd_messages_pass_unchanged_in_streams() {
    check(Manner::Stream);
}

/// Only line breaks between tokens are replaced.
#[test]
fn a_message_of_several_lines_becomes_one() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| match seen.rpc().as_str() {
        "pretty" => {
            talk.json("\n{\n  \"jsonrpc\": \"2.0\",\r\n\t\"id\": 1,\n  \"result\": {\n    \"a\": \"b\\n\"\n  }\n}\n")
        }
        "stream" => {
            talk.begin_stream();
            talk.event("data: {\ndata:   \"jsonrpc\": \"2.0\",\ndata: \"id\": 2, \"result\": {}\ndata: }\n\n");
            talk.end_stream();
        }
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect.send(r#"{"jsonrpc":"2.0","id":1,"method":"pretty"}"#);
    assert_eq!(connect.next(), "{   \"jsonrpc\": \"2.0\",  \t\"id\": 1,   \"result\": {     \"a\": \"b\\n\"   } }");
    connect.send(r#"{"jsonrpc":"2.0","id":2,"method":"stream"}"#);
    assert_eq!(connect.next(), "{   \"jsonrpc\": \"2.0\", \"id\": 2, \"result\": {} }");
}

/// The line endings of hosts, and other bytes that they write.
#[test]
fn lines_may_end_in_every_way() {
    let sessions = Sessions::default();
    let upstream = Upstream::start(move |seen, talk| sessions.serve(seen, talk));
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    connect
        .write(b"\n\r\n   \n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}\r\n{\"jsonrpc\":\"2.0\",\"id\":2,\"meth");
    connect.wait(r#""id":1"#);
    connect.write(b"od\":\"b\"}");
    connect.close();
    connect.wait(r#""id":2"#);
    assert_eq!(connect.code(), Some(0));
    let bodies: Vec<String> = upstream.of("POST").iter().skip(2).map(|seen| seen.text()).collect();
    assert_eq!(bodies, [r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, r#"{"jsonrpc":"2.0","id":2,"method":"b"}"#]);
}

/// Large messages pass whole. A too large one is refused without affecting the others.
#[test]
fn large_lines_pass_and_too_large_ones_are_refused() {
    const LARGE: usize = 15 * 1024 * 1024;
    let sessions = Sessions::default();
    let answer = Arc::new(Mutex::new(String::new()));
    let answering = Arc::clone(&answer);
    let upstream = Upstream::start(move |seen, talk| match seen.body.len() {
        LARGE.. => talk.json(answering.lock().expect("no thread panics").as_str()),
        _ => sessions.serve(seen, talk),
    });
    let scene = scene();
    let mut connect = Connect::open(&scene, &[&upstream.url()]);
    *answer.lock().expect("no thread panics") =
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "y".repeat(LARGE));
    let large = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":["{}"]}}"#, "x".repeat(LARGE));
    connect.send(&large);
    assert!(connect.next() == *answer.lock().expect("no thread panics"), "the answer is another one");
    assert!(upstream.of("POST").last().is_some_and(|seen| seen.body == large.as_bytes()), "the line is another one");

    connect.send(&format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{}"}}"#, "x".repeat(16 * 1024 * 1024)));
    let refused = connect.next();
    assert!(refused.starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"#), "{refused}");
    connect.send(r#"{"jsonrpc":"2.0","id":3,"method":"x"}"#);
    connect.wait(r#""id":3"#);
    assert_eq!(upstream.of("POST").len(), 4);
    assert!(scene.stderr().contains("was not sent"), "{}", scene.stderr());
}
