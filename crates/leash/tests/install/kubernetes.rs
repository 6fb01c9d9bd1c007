//! The examples for Kubernetes: they are YAML, and leash accepts the configurations and command lines in them.

use std::fs;
use std::path::Path;

use granit_parser::{Event, Parser};
use serde_json::{Map, Value};
use testkit::or_skip;
use testkit::scene::Scene;
use testkit::user::Who;

use super::dist::succeed;

/// The documents of a YAML file. Every scalar is a text.
fn documents(text: &str) -> Vec<Value> {
    let mut parser = Parser::new_from_str(text);
    let mut next = || parser.next_event().expect("the file ends with its last document").expect("it is YAML").0;
    let mut documents = Vec::new();
    loop {
        match next() {
            Event::StreamEnd => return documents,
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            first => documents.push(node(first, &mut next)),
        }
    }
}

fn node<'a>(first: Event<'a>, next: &mut impl FnMut() -> Event<'a>) -> Value {
    match first {
        Event::Scalar(text, ..) => Value::String(text.into_owned()),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                match next() {
                    Event::SequenceEnd => return Value::Array(items),
                    first => items.push(node(first, next)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut members = Map::new();
            loop {
                match next() {
                    Event::MappingEnd => return Value::Object(members),
                    Event::Scalar(key, ..) => {
                        let first = next();
                        let earlier = members.insert(key.to_string(), node(first, next));
                        assert_eq!(earlier, None, "the key {key} is there twice");
                    }
                    other => panic!("unexpected key: {other:?}"),
                }
            }
        }
        other => panic!("the examples have no {other:?}"),
    }
}

fn example(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes").join(name);
    documents(&fs::read_to_string(path).expect("the example exists"))
}

/// The one document of a kind.
fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// The words of a command line.
fn words(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|word| word.as_str().expect("a text").to_owned()).collect()
}

/// `leash serve` accepts the arguments of a container and the configuration of the example.
fn check_serve(scene: &Scene, documents: &[Value], container: &Value) {
    let config = of_kind(documents, "ConfigMap")["data"]["leash.json"].as_str().expect("a text").to_owned();
    let file = scene.dir().join("leash.json");
    fs::write(&file, config).expect("it can be written");
    let mounted = "/etc/leash/leash.json";
    let given = words(&container["args"]);
    assert!(given.iter().any(|word| word == mounted), "{given:?}");
    let here = given.iter().map(|word| if word == mounted { file.display().to_string() } else { word.clone() });
    succeed(scene.leash(here).arg("--check").env("LEASH_TOKEN", "secret"));
    let mounts = container["volumeMounts"].as_array().expect("a list");
    assert!(mounts.iter().any(|mount| mount["mountPath"] == "/etc/leash"), "{container:#}");
}

#[test]
fn gateway_is_configured_as_documented() {
    let scene = or_skip!(Scene::set(Who::User));
    let documents = example("gateway.yaml");
    let pod = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    check_serve(&scene, &documents, container);
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    let port = &container["ports"][0];
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], port["name"]);
    assert_eq!(of_kind(&documents, "Service")["spec"]["ports"][0]["targetPort"], port["name"]);
    let config = of_kind(&documents, "ConfigMap")["data"]["leash.json"].as_str().expect("a text");
    let config: Value = serde_json::from_str(config).expect("it is JSON");
    let listen = format!("0.0.0.0:{}", port["containerPort"].as_str().expect("a text"));
    assert_eq!(config["leash"]["listen"], listen);
    // drain and two graces.
    let seconds: u32 =
        pod["terminationGracePeriodSeconds"].as_str().and_then(|text| text.parse().ok()).expect("a number");
    assert!(seconds > 10 + 2 * 2, "{seconds}");
}

#[test]
fn worker_is_configured_as_documented() {
    let scene = or_skip!(Scene::set(Who::User));
    let documents = example("worker.yaml");
    let pod = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"];
    check_serve(&scene, &documents, &pod["initContainers"][0]);
    let probe = words(&pod["initContainers"][0]["startupProbe"]["exec"]["command"]);
    assert_eq!(probe[0], "/leash");
    succeed(&mut scene.leash(&probe[1..]));
    // The same command line, with a worker that exits at once.
    let command = words(&pod["containers"][0]["command"]);
    assert_eq!(command[0], "leash");
    succeed(scene.leash(&command[1..]).arg("true"));
    scene.wait_gone(&[]).expect("nothing is left");
}
