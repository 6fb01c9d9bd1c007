//! The OpenAPI 3.1 document, made from the table of routes: from the values that requests are read with, and the types that
//! responses are written from.

use std::collections::BTreeMap;

use hyper::StatusCode;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::problem::{Kind, Problem};
use super::routes::{Operation, ROUTES, Route};
use super::{query::Parameter, reply::Reply};
use crate::config::Table;

/// The document.
pub(super) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
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

/// The problems of every request: of its query, and of its admission.
const OF_REQUESTS: [Kind; 5] =
    [Kind::InvalidRequest, Kind::RepeatedHeader, Kind::Unauthorized, Kind::Origin, Kind::Host];

/// The problems of every body.
const OF_BODIES: [Kind; 3] = [Kind::InvalidJson, Kind::TooLarge, Kind::UnsupportedMediaType];

/// An operation of the document, while it is being described.
struct OperationDocument<'g> {
    generator: &'g mut SchemaGenerator,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: Map<String, Value>,
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut described = OperationDocument { generator, parameters: Vec::new(), body: None, responses: Map::new() };
    let mut problems = OF_REQUESTS.to_vec();
    if route.path.contains("{id}") {
        described.parameters.push(json!({"name": "id", "in": "path", "required": true, "description": "The session.",
            "schema": {"type": "string"}}));
        problems.push(Kind::NoSuchSession);
    }
    described.act(&route.act);
    if described.body.is_some() {
        problems.extend(OF_BODIES);
    }
    problems.extend(route.problems);
    described.problems(problems);
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "description": route.contract,
        "responses": described.responses,
    });
    if !described.parameters.is_empty() {
        operation["parameters"] = described.parameters.into();
    }
    if let Some(body) = described.body {
        operation["requestBody"] = body;
    }
    operation
}

impl OperationDocument<'_> {
    fn act(&mut self, act: &Operation) {
        match act {
            Operation::Create(body, created, stream) => self.body(body).reply(created).reply(stream),
            Operation::List(query, listed) => self.query(query).reply(listed),
            Operation::EndAll(query, ended, ending) => self.query(query).reply(ended).reply(ending),
            Operation::Show(shown) => self.reply(shown),
            Operation::End(query, ended, ending) => self.query(query).reply(ended).reply(ending),
            Operation::Renew(body, renewed) => self.body(body).reply(renewed),
            Operation::Abort(aborted) => self.reply(aborted),
            Operation::Events(query, stream) => self.query(query).reply(stream),
            Operation::Document(document) => self.reply(document),
            Operation::Version(version) => self.reply(version),
            Operation::Status(status) => self.reply(status),
            Operation::PageLink(link) => self.reply(link),
        };
    }

    fn query<T: Default>(&mut self, query: &[Parameter<T>]) -> &mut Self {
        self.parameters.extend(query.iter().map(Parameter::document));
        self
    }

    fn body<T>(&mut self, table: &Table<T>) -> &mut Self {
        let schema = table.schema(self.generator);
        self.body = Some(json!({"required": table.needs_keys(), "content": {"application/json": {"schema": schema}}}));
        self
    }

    fn reply<T: JsonSchema>(&mut self, reply: &Reply<T>) -> &mut Self {
        let schema = self.generator.subschema_for::<T>();
        self.response(reply.status, reply.about, (reply.kind, schema));
        self
    }

    fn problems(&mut self, problems: Vec<Kind>) {
        let mut by_status: BTreeMap<StatusCode, Vec<Kind>> = BTreeMap::new();
        for kind in problems {
            by_status.entry(kind.facts().0).or_default().push(kind);
        }
        for (status, kinds) in by_status {
            let about: Vec<String> =
                kinds.iter().map(|kind| format!("`{}`: {}", kind.name(), kind.facts().1)).collect();
            let mut schema = self.generator.subschema_for::<Problem>();
            schema.insert("properties".to_owned(), json!({"type": {"enum": kinds}}));
            self.response(status, &about.join(". "), ("application/problem+json", schema));
        }
    }

    /// Adds a response. A status that has several content types has one description.
    fn response(&mut self, status: StatusCode, about: &str, (kind, schema): (&str, Schema)) {
        let response = self.responses.entry(status.as_str()).or_insert_with(|| json!({"description": about}));
        if response["description"] != about {
            let both = format!("{}. {about}", response["description"].as_str().unwrap_or_default());
            response["description"] = both.into();
        }
        response["content"][kind] = json!({"schema": schema});
    }
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
