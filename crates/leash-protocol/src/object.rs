//! Reads some fields of a JSON object, as they are written. Everything else is only checked for being JSON.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object, in the order of the requested names.
pub(super) type Fields<'a, const N: usize> = [Option<&'a RawValue>; N];

/// Reads the fields `names` of the object in `text`. If a name occurs twice, the last one counts, as in JavaScript and
/// Python: a server must not see another message than leash does.
pub(super) fn fields<'a, const N: usize>(
    text: &'a str,
    names: &[&'static str; N],
) -> Result<Fields<'a, N>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(FieldVisitor { names })?;
    reader.end()?;
    Ok(found)
}

/// One field of an object; also `None` if `object` is not an object.
pub(super) fn field<'a>(object: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let mut reader = serde_json::Deserializer::from_str(object.get());
    let [found] = reader.deserialize_map(FieldVisitor { names: &[name] }).ok()?;
    found
}

/// The text of a string, borrowed unless it has escapes. Half a surrogate pair, which JavaScript writes and Rust cannot
/// hold, becomes the replacement character.
pub(super) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    let inner = value.get().strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let bytes = serde_json::Deserializer::from_str(value.get()).deserialize_bytes(StringVisitor).ok()?;
    Some(Cow::Owned(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(wide) => String::from_utf8_lossy(wide.as_bytes()).into_owned(),
    }))
}

/// True if a value is an object.
pub(super) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

struct FieldVisitor<'n, const N: usize> {
    names: &'n [&'n str; N],
}

impl<const N: usize> FieldVisitor<'_, N> {
    fn place(&self, key: &RawValue) -> Option<usize> {
        let key = string(key)?;
        self.names.iter().position(|name| *name == key)
    }
}

impl<'de, const N: usize> Visitor<'de> for FieldVisitor<'_, N> {
    type Value = Fields<'de, N>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        // Keys are read as raw values: read as text, a key with half a surrogate pair would be an error.
        while let Some(key) = map.next_key::<&'de RawValue>()? {
            match self.place(key) {
                Some(place) => found[place] = Some(map.next_value::<&'de RawValue>()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

struct StringVisitor;

impl Visitor<'_> for StringVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(bytes.to_owned())
    }
}

/// Checks that `text` is one JSON value and nothing else.
pub(super) fn check(text: &str) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    IgnoredAny::deserialize(&mut reader)?;
    reader.end()
}
