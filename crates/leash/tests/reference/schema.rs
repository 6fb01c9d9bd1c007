//! Compares a value with a JSON Schema, as far as the reference uses it. Unlike JSON Schema, a property that the schema
//! does not name is a mistake.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The differences between a value and its schema; references are resolved in `root`.
pub(crate) fn mistakes(value: &Value, schema: &Value, root: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", value, &whole(schema, root), (root, &mut found));
    found
}

/// A schema with its reference resolved: the properties of both.
fn whole(schema: &Value, root: &Value) -> Value {
    let Some(reference) = schema["$ref"].as_str() else { return schema.clone() };
    let target = root.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("no {reference}"));
    let mut both = whole(target, root);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        both["properties"][name] = property.clone();
    }
    both
}

fn compare(place: &str, value: &Value, schema: &Value, (root, found): (&Value, &mut Vec<String>)) {
    let variants = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(variants) = variants {
        let fits = |variant: &Value| mistakes(value, variant, root).is_empty();
        if !variants.iter().any(fits) {
            found.push(format!("{place}: {value} is none of the documented variants"));
        }
        return;
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return found.push(format!("{place}: {value} is not {}", schema["const"]));
    }
    if !is_of_type(value, &schema["type"]) {
        return found.push(format!("{place}: {value} is not of type {}", schema["type"]));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        compare(&format!("{place}[{index}]"), item, &whole(&schema["items"], root), (root, found));
    }
    let Some(object) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(name) {
            found.push(format!("{place}.{name} is missing"));
        }
    }
    let known: BTreeMap<_, _> = schema["properties"].as_object().into_iter().flatten().collect();
    for (name, field) in object {
        match known.get(name).copied().or(schema.get("additionalProperties")) {
            Some(schema) => compare(&format!("{place}.{name}"), field, &whole(schema, root), (root, found)),
            None => found.push(format!("{place}.{name} is not documented")),
        }
    }
}

fn is_of_type(value: &Value, kind: &Value) -> bool {
    let is = |kind: &str| match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        kind => panic!("the reference has the type `{kind}`, which this test does not know"),
    };
    match kind {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is),
        Value::String(kind) => is(kind),
        _ => true,
    }
}

#[test]
fn differences_are_found() {
    let root = json!({ "$defs": {
        "Word": { "oneOf": [{ "type": "string", "const": "a" }, { "type": "string", "const": "b" }] },
        "Base": { "type": "object", "properties": { "x": { "type": "integer" } }, "required": ["x"] },
        "Tagged": { "oneOf": [{ "$ref": "#/$defs/Base", "type": "object",
            "properties": { "kind": { "type": "string", "const": "t" } }, "required": ["kind"] }] },
    } });
    let object = |field: Value| json!({ "type": "object", "properties": { "f": field }, "required": ["f"] });
    let word = object(json!({ "$ref": "#/$defs/Word" }));
    for (value, schema, mistake) in [
        (json!({ "f": "a" }), &word, None),
        (json!({ "f": "c" }), &word, Some(".f: \"c\" is none of the documented variants")),
        (json!({}), &word, Some(".f is missing")),
        (json!({ "f": "a", "g": 1 }), &word, Some(".g is not documented")),
        (json!({ "f": null }), &object(json!({ "type": ["string", "null"] })), None),
        (json!({ "f": 1.5 }), &object(json!({ "type": "integer" })), Some(".f: 1.5 is not of type \"integer\"")),
        (
            json!({ "f": [{ "x": 1, "kind": "t" }, { "kind": "u", "x": 1 }] }),
            &object(json!({ "type": "array", "items": { "$ref": "#/$defs/Tagged" } })),
            Some(".f[1]: {\"kind\":\"u\",\"x\":1} is none of the documented variants"),
        ),
        (
            json!({ "f": { "any": 1 } }),
            &object(json!({ "type": "object", "additionalProperties": { "type": "string" } })),
            Some(".f.any: 1 is not of type \"string\""),
        ),
    ] {
        assert_eq!(mistakes(&value, schema, &root), Vec::from_iter(mistake), "{value}");
    }
}
