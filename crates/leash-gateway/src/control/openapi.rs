//! The OpenAPI 3.1 document, made from the table of routes and the types that are written.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::routes::{Parameter, ParameterType, ROUTES, Route, RouteResponse};

/// The document.
pub(super) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        path[route.method.to_ascii_lowercase()] = operation(route, &mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "leash control API",
            "version": "1",
            "description": "Sessions as an API: end one, and everything it started is gone when the call returns.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        // The unix socket asks for no token; on TCP a token is always required.
        "security": [{}, {"token": []}],
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = route.query.iter().map(parameter).collect();
    if route.path.contains("{id}") {
        let id = json!({"name": "id", "in": "path", "required": true, "description": "The session.",
            "schema": {"type": "string"}});
        parameters.insert(0, id);
    }
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "description": route.contract,
        "responses": responses(route.answers, generator),
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(shape) = route.body {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": shape(generator)}}});
    }
    operation
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.is {
        ParameterType::Boolean => json!({"type": "boolean"}),
        ParameterType::Text => json!({"type": "string"}),
        ParameterType::Texts => json!({"type": "array", "items": {"type": "string"}}),
    };
    json!({"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema})
}

fn responses(answers: &[RouteResponse], generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for answer in answers {
        let mut content = json!({});
        if let Some(shape) = answer.shape {
            content["schema"] = shape(generator).to_value();
        }
        let response = json!({"description": answer.about, "content": {answer.kind: content}});
        responses.insert(answer.status.to_string(), response);
    }
    responses.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden copy: `UPDATE_EXPECT=1 cargo test -p mcp-leash-core openapi` writes it again.
    #[test]
    fn the_reference_page_equals_the_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
        let text = format!("{:#}\n", document());
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, &text).expect("the reference can be written");
        }
        let golden = std::fs::read_to_string(path).unwrap_or_default();
        assert!(golden == text, "docs/reference/openapi.json differs from the code; write it with UPDATE_EXPECT=1");
    }

    /// Every reference has a target, and every schema is referred to.
    #[test]
    fn every_reference_has_a_target() {
        fn collect(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|value| collect(value, found));
                }
                Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        collect(&document, &mut found);
        assert!(!found.is_empty());
        for reference in &found {
            let pointer = reference.strip_prefix('#').expect("in this document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        for name in schemas.keys() {
            assert!(found.contains(&format!("#/components/schemas/{name}")), "{name} is never referred to");
        }
    }
}
