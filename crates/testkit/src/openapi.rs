//! Checks responses of the control API against its OpenAPI document.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// An OpenAPI document.
#[derive(Debug)]
pub struct OpenApi(Value);

/// `docs/reference/openapi.json`. A test of the gateway proves that it equals the document that a daemon serves.
pub static PUBLISHED: LazyLock<OpenApi> = LazyLock::new(|| {
    let text = include_str!("../../../docs/reference/openapi.json");
    OpenApi(serde_json::from_str(text).expect("the document is JSON"))
});

impl OpenApi {
    /// Takes a document.
    pub fn new(document: Value) -> Self {
        Self(document)
    }

    /// The whole document.
    pub fn document(&self) -> &Value {
        &self.0
    }

    /// Checks a whole response: its status, its content type and its body. Of an event stream, it checks every event.
    ///
    /// # Panics
    /// If the document does not have such a response.
    pub fn check(&self, (method, path): (&str, &str), status: u16, kind: &str, body: &[u8]) {
        let here = format!("{method} {path}: {status} {kind}");
        let text = String::from_utf8_lossy(body);
        let read = |text: &str| -> Value {
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{here}: {error}: {text}"))
        };
        let Some(operation) = self.operation(method, path) else {
            assert!(matches!(status, 404 | 405), "{here}: this operation is not in the document");
            return self.check_value(&here, &self.0["components"]["schemas"]["Problem"], &read(&text));
        };
        let schema = operation["responses"][status.to_string()]["content"].get(kind).map(|content| &content["schema"]);
        let schema = schema.unwrap_or_else(|| panic!("{here}: this response is not in the document: {text}"));
        if kind == "text/event-stream" {
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            data.for_each(|data| self.check_value(&here, schema, &read(data)));
        } else {
            self.check_value(&here, schema, &read(&text));
        }
    }

    /// The operation of a request.
    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap_or_default();
        let matches = |template: &str| {
            let (wanted, given): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
            let fits =
                |(wanted, given): (&&str, &&str)| wanted == given || (wanted.starts_with('{') && !given.is_empty());
            wanted.len() == given.len() && wanted.iter().zip(&given).all(fits)
        };
        let paths = self.0["paths"].as_object()?;
        paths.iter().find(|(template, _)| matches(template))?.1.get(method.to_ascii_lowercase())
    }

    fn check_value(&self, here: &str, schema: &Value, value: &Value) {
        if let Err(why) = self.validate(schema, value) {
            panic!("{here}: {why}");
        }
    }

    /// Checks a value against a schema. The error names the rule that it breaks.
    ///
    /// # Panics
    /// If the schema has a keyword that this function does not know.
    pub fn validate(&self, schema: &Value, value: &Value) -> Result<(), String> {
        match self.broken_rule(schema, value) {
            Some(rule) => Err(format!("{value} does not fit `{rule}` of {schema}")),
            None => Ok(()),
        }
    }

    /// The first rule of a schema that a value breaks.
    fn broken_rule<'s>(&self, schema: &'s Value, value: &Value) -> Option<&'s str> {
        match schema {
            Value::Bool(true) => None,
            Value::Object(rules) => {
                let mut rules = rules.iter().map(|(keyword, rule)| (keyword.as_str(), rule));
                rules.find(|rule| !self.keeps(*rule, schema, value)).map(|(keyword, _)| keyword)
            }
            _ => Some("false"),
        }
    }

    /// True if a value keeps one rule of a schema.
    fn keeps(&self, (keyword, rule): (&str, &Value), schema: &Value, value: &Value) -> bool {
        let fits = |schema: &Value, value: &Value| self.broken_rule(schema, value).is_none();
        let each = || rule.as_array().into_iter().flatten();
        let object = value.as_object();
        let most = |count: Option<usize>| count.is_none_or(|count| count as u64 <= rule.as_u64().unwrap_or(0));
        let least = |count: Option<usize>| count.is_none_or(|count| count as u64 >= rule.as_u64().unwrap_or(0));
        let length = value.as_str().map(|text| text.chars().count());
        match keyword {
            "description" | "examples" | "format" => true,
            "$ref" => {
                let pointer = rule.as_str().and_then(|reference| reference.strip_prefix('#'));
                pointer.and_then(|pointer| self.0.pointer(pointer)).is_some_and(|schema| fits(schema, value))
            }
            "type" if rule.is_array() => each().any(|kind| is_of(value, kind)),
            "type" => is_of(value, rule),
            "const" => value == rule,
            "enum" => each().any(|known| known == value),
            "anyOf" => each().any(|schema| fits(schema, value)),
            "oneOf" => each().filter(|schema| fits(schema, value)).count() == 1,
            "required" => {
                each().all(|name| object.is_none_or(|fields| fields.contains_key(name.as_str().unwrap_or(""))))
            }
            "properties" => object
                .into_iter()
                .flatten()
                .all(|(name, value)| rule.get(name).is_none_or(|schema| fits(schema, value))),
            "additionalProperties" => object.into_iter().flatten().all(|(name, value)| {
                schema.get("properties").is_some_and(|known| known.get(name).is_some()) || fits(rule, value)
            }),
            "propertyNames" => object.into_iter().flatten().all(|(name, _)| fits(rule, &name.as_str().into())),
            "items" => value.as_array().into_iter().flatten().all(|item| fits(rule, item)),
            "minimum" => value.as_f64().is_none_or(|number| Some(number) >= rule.as_f64()),
            "maximum" => value.as_f64().is_none_or(|number| Some(number) <= rule.as_f64()),
            "minLength" => least(length),
            "maxLength" => most(length),
            "minProperties" => least(object.map(Map::len)),
            "maxProperties" => most(object.map(Map::len)),
            other => panic!("the keyword `{other}` is not known here"),
        }
    }
}

/// True if a value is of a type of JSON Schema.
fn is_of(value: &Value, kind: &Value) -> bool {
    match kind.as_str() {
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("null") => value.is_null(),
        _ => panic!("the type {kind} is not known here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_checked_against_schemas() {
        let api = OpenApi::new(json!({"components": {"schemas": {"A": {"type": "integer", "minimum": 1}}}}));
        let a = json!({"$ref": "#/components/schemas/A"});
        let object =
            json!({"type": "object", "properties": {"a": a}, "required": ["a"], "additionalProperties": false});
        let names = json!({"propertyNames": {"enum": ["x"]}});
        for (schema, good, bad) in [
            (&a, json!(1), json!(0)),
            (&a, json!(7), json!(1.5)),
            (&object, json!({"a": 1}), json!({})),
            (&object, json!({"a": 2}), json!({"a": 1, "b": 1})),
            (&object, json!({"a": 2}), json!({"a": 0})),
            (&names, json!({"x": 1}), json!({"y": 1})),
            (&json!({"type": ["string", "null"], "maxLength": 2}), json!("ab"), json!("abc")),
            (&json!({"items": {"enum": [true, null]}}), json!([true, null]), json!([false])),
            (&json!({"oneOf": [{"const": 1}, {"type": "integer"}]}), json!(2), json!(1)),
            (&json!({"anyOf": [a, {"type": "null"}]}), json!(null), json!("1")),
            (
                &json!({"maxProperties": 1, "additionalProperties": {"type": "string"}}),
                json!({"a": "b"}),
                json!({"a": 1}),
            ),
        ] {
            assert_eq!(api.validate(schema, &good), Ok(()), "{schema} {good}");
            assert!(api.validate(schema, &bad).is_err(), "{schema} {bad}");
        }
    }

    #[test]
    fn operations_are_found_by_method_and_path() {
        let found = |method: &str, path: &str| PUBLISHED.operation(method, path).map(|one| one["operationId"].clone());
        assert_eq!(found("GET", "/v1/sessions/x?all=true"), Some(json!("getSession")));
        assert_eq!(found("DELETE", "/v1/sessions"), Some(json!("endSessions")));
        assert_eq!(found("PATCH", "/v1/sessions"), None);
        assert_eq!(found("GET", "/v1/sessions/"), None);
    }
}
