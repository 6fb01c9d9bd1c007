//! The routing of messages to streams.

use serde_json::{Value, json};
use testkit::scene::Scene;
use testkit::user::Who;
use testkit::{or_skip, wait};

use super::{Client, LATEST, call, events, gateway, read_events, say};

fn note(data: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}})
}

#[test]
fn a_quick_answer_is_json_and_anything_before_it_makes_a_stream() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let plain = client.post(&call(1, "echo", json!({"text": "hello"})));
    assert_eq!(plain.header("content-type"), Some("application/json"));
    assert_eq!(plain.json()["result"]["content"][0]["text"], "hello");
    let streamed = client.post(&say(2, &note("first")));
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
    assert_eq!(streamed.header("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(streamed.header("x-accel-buffering"), Some("no"));
    let told = events(&streamed.text());
    assert!(streamed.text().contains("retry: "), "{}", streamed.text());
    assert_eq!(told[0].message, None, "the first event is only an id");
    assert_eq!(told[1].message, Some(note("first")));
    assert_eq!(told[2].message.as_ref().expect("the answer")["id"], 2);
    assert_eq!(told.len(), 3);
    let mut ids: Vec<_> = told.iter().map(|event| event.id.clone().expect("every event has an id")).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[test]
fn an_older_client_gets_no_event_without_a_message() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, "2025-06-18");
    let told = events(&client.post(&say(2, &note("first"))).text());
    assert_eq!(told.len(), 2);
    assert_eq!(told[0].message, Some(note("first")));
}

#[test]
fn progress_goes_to_the_call_that_it_is_about() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let (mut listener, head) = client.get(None);
    assert_eq!(head.status, 200);
    // Two more pending calls, so that the target is not obvious.
    let _others = [8, 9].map(|id| client.begin(&call(id, "hang", json!({}))));
    let mut message = call(3, "progress", json!({}));
    message["params"]["_meta"] = json!({"progressToken": "t"});
    let told = events(&client.post(&message).text());
    let progress = told[1].message.as_ref().expect("progress");
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("t"))
    );
    // A message about no particular call goes to the listener.
    client.post(&say(4, &note("to the listener")));
    let heard = read_events(&mut listener, 2);
    assert_eq!(heard[1].message, Some(note("to the listener")));
}

#[test]
fn messages_wait_for_a_listener() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    // leash drops a response with an unknown id; a notification after the answer belongs to no request.
    let two_lines = format!("{}\n{}", json!({"jsonrpc": "2.0", "id": 1, "result": {}}), note("late"));
    assert_eq!(client.post(&call(1, "say", json!({"text": two_lines}))).status, 200);
    let (mut listener, _) = client.get(None);
    assert_eq!(read_events(&mut listener, 2)[1].message, Some(note("late")));
    let (_, second) = client.get(None);
    assert_eq!(second.status, 409);
    drop(listener);
    wait::until("the place of the listener to be free", || (client.get(None).1.status == 200).then_some(()));
}

#[test]
fn a_servers_request_is_answered_by_a_post() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let ask = json!({"jsonrpc": "2.0", "id": "s-1", "method": "sampling/createMessage", "params": {}});
    let told = events(&client.post(&say(2, &ask)).text());
    assert_eq!(told[1].message, Some(ask));
    let answer = client.post(&json!({"jsonrpc": "2.0", "id": "s-1", "result": {"text": "fine"}}));
    assert_eq!((answer.status, answer.body.len()), (202, 0));
}

#[test]
fn server_reads_the_bytes_that_the_client_wrote() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let raw = |body: &str| {
        let reply = gateway.post("x", Some(&client.session), body);
        reply.json()["result"]["line"].as_str().expect("the line").to_owned()
    };
    let odd = r#" {"x":123456789012345678901234567890 , "jsonrpc":"2.0","id":"\u0061","method":"zoo\/raw","x":"\ud83d\ude00é"}"#;
    assert_eq!(raw(odd), odd);
    // Line breaks between values are the only characters that a line cannot contain.
    let pretty = "{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1,\n  \"method\": \"zoo/raw\"\n}\n";
    assert_eq!(raw(pretty), pretty.replace(['\n', '\r'], " "));
}

/// The server parses numbers as values and writes them in its own form, as most do.
#[test]
fn an_answer_finds_its_request_by_the_value_of_the_id() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    for (id, written) in [("1e2", "100.0"), ("-0", "0"), ("1E40", "1.0e+40"), ("7.0", "7"), ("3", "3.0e0")] {
        // The server answers a second time, by itself: the first answer counts.
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{written},"result":{{"form":"{written}"}}}}"#);
        let text = serde_json::Value::from(answer);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"say","arguments":{{"text":{text}}}}}}}"#
        );
        let reply = gateway.post("x", Some(&client.session), &body);
        assert_eq!(reply.status, 200, "{id}");
        assert!(reply.text().contains(&format!(r#""form":"{written}""#)), "{id}: {}", reply.text());
    }
}

#[test]
fn a_batch_is_answered_whole() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, "2025-03-26");
    // This server answers the elements of an array one by one.
    let both = json!([call(1, "echo", json!({"text": "a"})), {"jsonrpc": "2.0", "method": "notifications/x"}, call(2, "echo", json!({"text": "b"}))]);
    let reply = client.post(&both);
    assert_eq!(reply.header("content-type"), Some("application/json"), "{}", reply.text());
    let ids: Vec<_> = reply.json().as_array().expect("an array").iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [1, 2]);
    let told = events(&client.post(&json!([say(3, &note("first")), call(4, "echo", json!({}))])).text());
    let told: Vec<_> = told.iter().map(|event| event.message.as_ref().expect("a message")).collect();
    assert_eq!((told[0], &told[1]["id"], &told[2]["id"]), (&note("first"), &json!(3), &json!(4)));
    let quiet = client.post(&json!([{"jsonrpc": "2.0", "method": "notifications/x"}]));
    assert_eq!(quiet.status, 202);
}

#[test]
fn id_of_a_pending_request_is_refused() {
    let scene = or_skip!(Scene::set(Who::User));
    let gateway = gateway(&scene, &[]);
    let client = Client::open(&gateway, LATEST);
    let mut hanging = client.begin(&call(1, "hang", json!({})));
    assert_eq!(hanging.head().expect("a stream").status, 200);
    let again = client.post(&call(1, "echo", json!({})));
    assert_eq!((again.status, &again.json()["error"]["code"]), (400, &json!(-32600)));
    assert_eq!(client.post(&call(2, "echo", json!({}))).status, 200);
}
