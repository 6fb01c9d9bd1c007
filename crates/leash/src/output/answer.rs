//! The JSON that commands print with `--json`.

use schemars::JsonSchema;
use serde::Serialize;

/// The version of these formats; raised when a field disappears or changes its meaning.
const VERSION: u32 = 1;

/// The answer of a command, with the version of its format.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}")]
pub(crate) struct VersionedAnswer<T> {
    /// The version of this format, 1. New fields do not change it.
    version: u32,
    #[serde(flatten)]
    body: T,
}

impl<T> VersionedAnswer<T> {
    pub(crate) fn new(body: T) -> VersionedAnswer<T> {
        VersionedAnswer { version: VERSION, body }
    }
}
