//! The OpenAPI document says what requests are accepted and what responses are sent.

use std::{collections::BTreeMap, sync::LazyLock};

use super::super::events::EventKind;
use super::*;
use crate::config::{LEASE, NEW_SESSION, RequestError, read_request};
use crate::{control::openapi, respond::Answer};
use leash_model::limits;
use leash_upstream::scripted::run;
use testkit::openapi::OpenApi;

/// The document. Made before a test begins, because some tests have short timeouts.
pub(super) static API: LazyLock<OpenApi> = LazyLock::new(|| OpenApi::new(openapi::document()));

/// Checks that a response is in the document.
pub(super) fn check(operation: (&str, &str), answer: &Answer) {
    let kind = answer.headers()[CONTENT_TYPE].to_str().expect("text");
    let body = if let Body::Whole(body) = answer.body() { body.clone() } else { Bytes::new() };
    API.check(operation, answer.status().as_u16(), kind, &body);
}

/// Checks the data of an event.
pub(super) fn check_event(data: &Value) {
    assert_eq!(API.validate(&API.document()["components"]["schemas"]["EventData"], data), Ok(()));
}

fn schema(name: &str) -> &'static Value {
    &API.document()["components"]["schemas"][name]
}

/// An object of a body: the name of its schema, its place, and a body that has it.
struct Place {
    name: &'static str,
    pointer: &'static str,
    body: Value,
}

fn places() -> Vec<Place> {
    let with = |server: Value, more: Value| serde_json::from_str(&wanted(json!({"s": server}), more)).expect("JSON");
    let command = json!({"command": "x"});
    vec![
        Place { name: "NewSession", pointer: "", body: with(command.clone(), json!({})) },
        Place { name: "NewServer", pointer: "/mcpServers/s", body: with(command.clone(), json!({})) },
        Place { name: "NewServer", pointer: "/mcpServers/s", body: with(json!({"url": "http://h"}), json!({})) },
        Place { name: "NewOwner", pointer: "/owner", body: with(command, json!({"owner": {}})) },
        Place {
            name: "ServerTerms",
            pointer: "/mcpServers/s/leash",
            body: with(json!({"command": "x", "leash": {}}), json!({})),
        },
        Place { name: "Lease", pointer: "", body: json!({}) },
    ]
}

impl Place {
    /// False for a key of the other kind of server, of which an empty value of any type is ignored.
    fn reads(&self, key: &str) -> bool {
        let object = self.body.pointer(self.pointer).expect("it is there");
        let other = if object.get("command").is_some() { ["headers"].as_slice() } else { &["args", "env", "cwd"] };
        self.name != "NewServer" || !other.contains(&key)
    }

    /// The mistakes at this key if it has this value.
    fn mistakes(&self, key: &str, value: &Value) -> Vec<String> {
        let mut body = self.body.clone();
        body.pointer_mut(self.pointer).expect("it is there")[key] = value.clone();
        let text = body.to_string();
        let read = if self.name == "Lease" {
            read_request(&LEASE, &text).map(drop)
        } else {
            read_request(&NEW_SESSION, &text).map(drop)
        };
        let faults = match read {
            Ok(()) => return Vec::new(),
            Err(RequestError::Faults(faults)) => faults,
            Err(RequestError::NotJson(fault)) => panic!("{fault:?}"),
        };
        let here = format!("{}/{key}", self.pointer);
        let missing = format!("the request has no `{key}`");
        let is_here =
            |pointer: &str, what: &str| pointer == here || pointer.starts_with(&format!("{here}/")) || what == missing;
        faults.into_iter().filter(|fault| is_here(&fault.pointer, &fault.what)).map(|fault| fault.what).collect()
    }
}

/// Values of every type, and texts of every format.
fn samples() -> Vec<Value> {
    let texts = ["", "x", "0", "30s", "never", "auto", "traffic", "leaf", "64K", "http", "https://h/"];
    let long = "x".repeat(300);
    let mut samples: Vec<Value> = texts.into_iter().chain([long.as_str()]).map(Value::from).collect();
    samples.extend([
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(1_i64 << 31),
        json!([]),
        json!(["a"]),
        json!([1]),
        json!([""]),
        json!({}),
        json!({"A": "b"}),
        json!({"A": 1}),
    ]);
    samples
}

/// Whatever the reader accepts is in the schema. Whatever is in the schema the reader accepts, apart from texts whose
/// format a schema cannot say.
#[test]
fn schemas_and_readers_of_bodies_accept_the_same() {
    let mut by_name: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
    places().into_iter().for_each(|place| by_name.entry(place.name).or_default().push(place));
    for (name, places) in by_name {
        for (key, property) in schema(name)["properties"].as_object().expect("properties") {
            let accepts =
                |value: &Value| places.iter().any(|place| place.reads(key) && place.mistakes(key, value).is_empty());
            for sample in samples() {
                let (read, fits) = (accepts(&sample), API.validate(property, &sample).is_ok());
                assert!(!read || fits, "`{key}` of {name}: {sample} is read, and not in {property}");
                let is_free_text = sample.is_string() && property.get("enum").is_none();
                assert!(!fits || read || is_free_text, "`{key}` of {name}: {sample} is in {property}, and not read");
            }
            for example in property["examples"].as_array().into_iter().flatten() {
                assert!(accepts(example), "`{key}` of {name}: the example {example} is not read");
            }
        }
    }
}

#[test]
fn unknown_keys_of_bodies_are_refused_as_documented() {
    for place in places() {
        let fits = |key: &str| {
            let mut object = place.body.pointer(place.pointer).expect("it is there").clone();
            object[key] = json!(1);
            API.validate(schema(place.name), &object).is_ok()
        };
        let mistakes = place.mistakes("nope", &json!(1));
        assert!(mistakes.len() == 1 && mistakes[0].starts_with("unknown key `nope`"), "{}: {mistakes:?}", place.name);
        assert!(!fits("nope"), "{}", place.name);
        // Keys of MCP clients are in no list of properties, but accepted.
        let names = schema(place.name)["propertyNames"]["enum"].as_array();
        for name in names.into_iter().flatten().filter_map(Value::as_str) {
            if schema(place.name)["properties"].get(name).is_none() {
                assert!(place.mistakes(name, &json!(1)).is_empty() && fits(name), "{name}");
            }
        }
    }
}

/// All operations: method, path and description.
fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = API.document()["paths"].as_object().expect("paths");
    let all = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.map(move |(method, operation)| (method.to_ascii_uppercase(), path.replace("{id}", "x"), operation))
    });
    all.collect()
}

#[test]
fn queries_are_read_as_documented() {
    run(async {
        let rig = Rig::start().await;
        // Event streams do not end, so only the head of a response is read, except of a problem.
        let refused = async |method: &str, path: &str, query: &str| {
            let answer = rig.client.send(rig.request(method, &format!("{path}?{query}"), "")).await.expect("an answer");
            if answer.status() == 400 { told(answer).await.json()["errors"].clone() } else { Value::Null }
        };
        for (method, path, operation) in operations() {
            let errors = refused(&method, &path, "nope=1").await;
            assert_eq!(errors[0]["parameter"], "nope", "{method} {path}: {errors}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
                let name = parameter["name"].as_str().expect("a name");
                let (good, bad) = match parameter["schema"]["type"].as_str() {
                    Some("boolean") => ("false", Some("yes")),
                    Some("array") => ("a=b", Some("a")),
                    _ => ("x", None),
                };
                assert_eq!(refused(&method, &path, &format!("{name}={good}")).await, Value::Null, "{name}");
                if let Some(bad) = bad {
                    assert_eq!(refused(&method, &path, &format!("{name}={bad}")).await[0]["parameter"], name);
                }
            }
        }
    });
}

#[test]
fn bodies_are_required_as_documented() {
    run(async {
        let rig = Rig::start().await;
        for (method, path, operation) in operations().into_iter().filter(|(_, path, _)| path != "/v1/events") {
            let empty = rig.ask(&method, &path, "").await;
            assert_eq!(empty.status == 400, operation["requestBody"]["required"] == true, "{method} {path}");
            let broken = rig.ask(&method, &path, "{").await;
            assert_eq!(broken.status == 400, operation.get("requestBody").is_some(), "{method} {path}");
        }
    });
}

/// The texts of the document name limits and events, which code decides.
#[test]
fn texts_have_the_limits_and_events_of_the_code() {
    let has = |pointer: &str, word: &str| {
        let text = API.document().pointer(pointer).and_then(Value::as_str).expect("a text");
        assert!(text.contains(word), "{word} is not in: {text}");
    };
    has("/paths/~1v1~1sessions/get/parameters/0/description", &limits::ENDED_JOBS.to_string());
    has("/paths/~1v1~1events/get/description", &format!("{} events", limits::EVENT_QUEUE));
    has("/paths/~1v1~1events/get/description", &format!("{} s", limits::SSE_KEEP_ALIVE.as_secs()));
    for event in [EventKind::Started, EventKind::OwnerLost, EventKind::Ending, EventKind::Ended] {
        has("/paths/~1v1~1events/get/description", &format!("`{}`", event.name()));
        has("/components/schemas/Event/description", &format!("`{}`", event.name()));
    }
}

/// The rows of the tables in docs/reference/control-api.md that begin with this text.
fn rows(begin: &str) -> Vec<&'static str> {
    const PAGE: &str = include_str!("../../../../../docs/reference/control-api.md");
    PAGE.lines().filter(|line| line.starts_with(begin)).collect()
}

#[test]
fn the_reference_page_has_every_operation() {
    let mut told: Vec<String> = Vec::new();
    for row in rows("| `") {
        let cell = row.split(" | ").next().unwrap_or_default();
        let calls = cell.split('`').filter(|part| part.contains(" /v1/"));
        told.extend(calls.map(|call| call.split(['[', '?']).next().unwrap_or_default().trim().replace("ID", "x")));
    }
    let mut known: Vec<String> = operations().iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    told.sort_unstable();
    known.sort_unstable();
    assert_eq!(told, known);
}

#[test]
fn the_reference_page_has_every_problem() {
    let mut told: Vec<String> = Vec::new();
    for row in rows("| 4").into_iter().chain(rows("| 5")) {
        let names = row.split(" | ").nth(1).unwrap_or_default();
        told.extend(names.split('`').skip(1).step_by(2).map(|name| format!("urn:leash:problem:{name}")));
    }
    let known = schema("ProblemType")["enum"].as_array().expect("names").iter();
    let mut known: Vec<&str> = known.filter_map(Value::as_str).collect();
    told.sort_unstable();
    known.sort_unstable();
    assert_eq!(told, known);
}
