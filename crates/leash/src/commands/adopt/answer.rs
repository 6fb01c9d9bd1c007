//! The JSON of `leash adopt`.

use leash_orphans::adopt::{Adopted, Caution, UnchangedServer};
use leash_orphans::clients::{Note, Scope};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FileChange, PassedOver};

/// What `leash adopt --json` prints.
#[derive(Serialize, JsonSchema)]
pub(in super::super) struct AdoptAnswer<'a> {
    /// The files that leash may change.
    files: Vec<AdoptedFile<'a>>,
    /// The files that leash does not change.
    passed_over: Vec<PassedFile<'a>>,
    /// Files and servers that leash could not read.
    notes: &'a [Note],
}

/// A file that leash may change.
#[derive(Serialize, JsonSchema)]
struct AdoptedFile<'a> {
    /// The id of the client, as in the reference of clients.
    client: &'static str,
    /// The users whose clients read it.
    scope: Scope,
    /// The file.
    path: String,
    /// The command with which the client starts leash: its path, or its name in a file that others share.
    program: &'a str,
    /// The servers that are put on the leash, or would be with `--yes`.
    adopted: Vec<&'a str>,
    /// Warnings about servers for which leash changes more than the program that starts them.
    warnings: &'a [Caution],
    /// The servers that stay as they are.
    left: Vec<LeftServer<'a>>,
    /// The change as a unified diff, with secrets hidden.
    diff: String,
    /// True if the file was written; without `--yes` it is not.
    written: bool,
    /// The reason why it could not be changed.
    error: Option<&'a str>,
    /// What to do about the error.
    hint: Option<&'static str>,
}

/// A server that stays as it is.
#[derive(Serialize, JsonSchema)]
struct LeftServer<'a> {
    /// Its name.
    server: &'a str,
    /// The reason.
    why: String,
    /// What to do about it.
    hint: Option<String>,
}

/// A file that leash does not change.
#[derive(Serialize, JsonSchema)]
struct PassedFile<'a> {
    /// The id of the client, as in the reference of clients.
    client: &'static str,
    /// The file.
    path: String,
    /// Its servers.
    servers: &'a [String],
    /// The reason.
    why: &'a str,
    /// What to do about it.
    hint: Option<&'static str>,
}

impl<'a> AdoptAnswer<'a> {
    pub(super) fn new(changes: &'a [FileChange], passed: &'a [PassedOver], notes: &'a [Note]) -> AdoptAnswer<'a> {
        AdoptAnswer {
            files: changes.iter().map(AdoptedFile::new).collect(),
            passed_over: passed.iter().map(PassedFile::new).collect(),
            notes,
        }
    }
}

impl<'a> AdoptedFile<'a> {
    fn new(change: &'a FileChange) -> AdoptedFile<'a> {
        let left = |left: &'a UnchangedServer| LeftServer {
            server: left.name(),
            why: left.why.to_string(),
            hint: left.why.hint(left.name()),
        };
        AdoptedFile {
            client: change.file.client.id,
            scope: change.file.place.scope,
            path: change.file.path.display().to_string(),
            program: &change.program,
            adopted: change.plan.adopted.iter().map(Adopted::name).collect(),
            warnings: &change.plan.cautions,
            left: change.plan.left.iter().map(left).collect(),
            diff: change.diff(),
            written: change.written,
            error: change.result.as_ref().err().map(String::as_str),
            hint: change.hint,
        }
    }
}

impl<'a> PassedFile<'a> {
    fn new(passed: &'a PassedOver) -> PassedFile<'a> {
        PassedFile {
            client: passed.client.id,
            path: passed.path.display().to_string(),
            servers: &passed.servers,
            why: passed.why,
            hint: passed.hint,
        }
    }
}
