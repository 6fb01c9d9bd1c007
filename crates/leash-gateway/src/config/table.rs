//! Tables of the keys of an object. The row of a key says how the key is read and what the OpenAPI document says about
//! it, so that the document and the reader cannot differ.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::json::{ConfigReader, Field, Object};

/// The keys of an object that is read into a `T`.
pub(crate) struct Table<T: 'static> {
    /// Its name in the OpenAPI document.
    pub(super) name: &'static str,
    /// Its description there.
    pub(super) about: &'static str,
    pub(super) keys: &'static [Key<T>],
    /// Keys that are accepted and not read.
    pub(super) ignored: &'static [&'static str],
    /// True if the value `null` means that the key is absent.
    pub(super) null_is_absent: bool,
}

/// One key of an object that is read into a `T`.
pub(super) struct Key<T> {
    pub(super) name: &'static str,
    /// Its description in the OpenAPI document.
    pub(super) about: &'static str,
    /// The hint if the key is missing; `None` if it may be.
    pub(super) needed: Option<&'static str>,
    /// Reads the value. After a mistake, `T` stays as it is.
    pub(super) read: for<'r, 'a> fn(&'r mut ConfigReader<'a>, &'r Field<'a>, &'r mut T),
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
}

/// The schemas of values. Each function has the name of the method of [`ConfigReader`] that reads such a value.
pub(super) struct KeySchema;

/// The row of a key: its name, the method of [`ConfigReader`] that reads it together with the function of [`KeySchema`]
/// of the same name, the place of the value, and the description.
macro_rules! key {
    ($name:literal, $kind:ident => Some($($slot:ident).+), $about:literal) => {
        key!(@ $name, $kind, $about, |into, value| into.$($slot).+ = Some(value))
    };
    ($name:literal, $kind:ident => $($slot:ident).+, $about:literal) => {
        key!(@ $name, $kind, $about, |into, value| into.$($slot).+ = value)
    };
    (@ $name:literal, $kind:ident, $about:literal, |$into:ident, $value:ident| $set:expr) => {
        Key {
            name: $name,
            about: $about,
            needed: None,
            read: |reader, field, $into| {
                if let Some($value) = reader.$kind(field) {
                    $set;
                }
            },
            schema: KeySchema::$kind,
        }
    };
}
pub(super) use key;

/// The schemas of values: the name of the method of [`ConfigReader`] that reads such a value, and its schema.
macro_rules! shapes {
    ($($kind:ident: $schema:tt,)+) => {
        impl KeySchema {
            $(pub(super) fn $kind(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            })+
        }
    };
}
pub(super) use shapes;

impl<T> Table<T> {
    /// A table without keys.
    pub(super) const EMPTY: Table<T> = Table { name: "", about: "", keys: &[], ignored: &[], null_is_absent: true };

    /// The names of its keys.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }

    /// True if the object cannot be empty.
    pub(crate) fn needs_keys(&self) -> bool {
        self.keys.iter().any(|key| key.needed.is_some())
    }

    /// Its schema, as a reference to a component of the OpenAPI document.
    pub(crate) fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        let property = |key: &Key<T>| {
            let schema = (key.schema)(generator);
            let mut schema = if self.null_is_absent && key.needed.is_none() { or_null(schema) } else { schema };
            schema.insert("description".to_owned(), key.about.into());
            (key.name.to_owned(), schema.to_value())
        };
        let properties: Map<String, Value> = self.keys.iter().map(property).collect();
        let mut object = json_schema!({"type": "object", "description": self.about, "properties": properties});
        let needed: Vec<&str> = self.keys.iter().filter(|key| key.needed.is_some()).map(|key| key.name).collect();
        if !needed.is_empty() {
            object.insert("required".to_owned(), needed.into());
        }
        if self.ignored.is_empty() {
            object.insert("additionalProperties".to_owned(), false.into());
        } else {
            let accepted: Vec<&str> = self.names().into_iter().chain(self.ignored.iter().copied()).collect();
            object.insert("propertyNames".to_owned(), json_schema!({"enum": accepted}).to_value());
        }
        generator.definitions_mut().insert(self.name.to_owned(), object.to_value());
        Schema::new_ref(format!("#{}/{}", generator.settings().definitions_path, self.name))
    }
}

/// The schema that also accepts `null`.
fn or_null(mut schema: Schema) -> Schema {
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(Value::Array(kinds)) => kinds.push("null".into()),
        Some(kind) => *kind = Value::from(vec![kind.take(), "null".into()]),
        None => return json_schema!({"anyOf": [schema, {"type": "null"}]}),
    }
    schema
}

impl<'a> ConfigReader<'a> {
    /// Reads a field of an object. Returns false if the object has no such key.
    pub(super) fn field<T>(&mut self, field: &Field<'a>, table: &Table<T>, into: &mut T) -> bool {
        let Some(key) = table.keys.iter().find(|key| key.name == field.name) else {
            return table.ignored.contains(&field.name.as_str());
        };
        if !(table.null_is_absent && field.is_null()) {
            (key.read)(self, field, into);
        }
        true
    }

    /// Reads all fields of an object. Reports each unknown key with its hint.
    pub(super) fn fields<T>(
        &mut self,
        object: &Object<'a>,
        table: &Table<T>,
        into: &mut T,
        hint: impl Fn(&str) -> Option<String>,
    ) {
        for field in &object.0 {
            if !self.field(field, table, into) {
                self.unknown(field, hint(&field.name));
            }
        }
    }
}
