//! The knowledge about each MCP client: the places and formats of its configuration, and how its processes are
//! recognised.
//!
//! The knowledge is a table ([`CLIENTS`], in `table.rs`). [`configs`] reads the files that exist below the given
//! [`Roots`], and [`entry::entries`] returns the servers that a file declares. A file that can't be read gives a [`Note`],
//! never an error, because the file belongs to another program.

pub mod entry;
pub mod places;
mod recognise;
pub mod table;
pub mod text;
pub mod translate;

use std::path::PathBuf;

pub use entry::{ConfigEntry, ServerLaunch};
pub use places::{ConfigFile, Roots, configs, found_project_configs, project_configs};
pub use recognise::recognise;
pub use table::CLIENTS;
pub use text::Format;

/// One MCP client.
#[derive(Debug, PartialEq, Eq)]
pub struct Client {
    /// Its name on the command line, such as `claude-code`.
    pub id: &'static str,
    /// Its name in messages.
    pub name: &'static str,
    /// The places of its configuration files.
    pub places: &'static [ConfigPlace],
    /// The format of an entry in its configuration.
    pub shape: Shape,
    /// The pattern that recognises its processes.
    pub host: ProgramPattern,
    /// Variables that it sets for the processes it starts.
    pub marks: &'static [&'static str],
}

impl Client {
    /// The client with this id.
    pub fn find(id: &str) -> Option<&'static Client> {
        CLIENTS.iter().find(|client| client.id == id)
    }

    /// The variable that names the client's own session in the environment of its servers, if it sets one.
    pub fn session_variable(&self) -> Option<&'static str> {
        self.marks.iter().copied().find(|mark| table::SESSION_VARIABLES.contains(mark))
    }
}

/// A file in which a client looks for servers.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigPlace {
    /// The users to whom it applies.
    pub scope: Scope,
    /// The directory the path starts from.
    pub root: Root,
    /// The path below that directory. A component `*` matches any directory.
    pub path: &'static str,
    /// The format of the file.
    pub format: Format,
    /// The keys that lead to the map of servers, one list for each map that the file may have. A key `*` matches any
    /// key.
    pub maps: &'static [&'static [&'static str]],
}

/// The users and projects to which a configuration applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All work of this user.
    User,
    /// All users who work on the project.
    Project,
    /// The users who installed the plugin.
    Plugin,
    /// All users of this machine; its administrator owns the file.
    System,
}

impl Scope {
    /// True if leash may change such a file. False for a file that a package manager or an administrator owns.
    pub fn is_ours_to_edit(self) -> bool {
        !matches!(self, Scope::Plugin | Scope::System)
    }
}

/// The directory at which a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The home directory.
    Home,
    /// `XDG_CONFIG_HOME`, else `~/.config`.
    Config,
    /// The value of this variable, else a directory below the home directory.
    Variable(&'static str, &'static str),
    /// The project's directory.
    Project,
    /// The root of the file system.
    System,
}

/// The format of an entry. Whether `command` is a string, a list (opencode) or a map with a path (Zed) is seen in the
/// entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// The key of the program.
    pub command: &'static str,
    /// The key of its arguments.
    pub args: &'static str,
    /// The key of its environment.
    pub env: &'static str,
    /// The possible keys of an HTTP server's URL.
    pub urls: &'static [&'static str],
    /// The key of its headers.
    pub headers: &'static str,
    /// The value of `type` in an entry of a stdio server; `None` if such an entry has no `type`.
    pub stdio_type: Option<&'static str>,
    /// True if the client expands variables in `env` as it does in `headers`.
    pub env_expands: bool,
}

/// The pattern that recognises the processes of a client. One match is enough.
#[derive(Debug, PartialEq, Eq)]
pub struct ProgramPattern {
    /// Names in `/proc/PID/comm`, and file names of the executable.
    pub names: &'static [&'static str],
    /// A part of the path of a script that an interpreter (node, bun, python) runs: a directory if it ends with `/`,
    /// else the end of the path.
    pub scripts: &'static [&'static str],
}

/// Something in a configuration that leash did not understand, and its place.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Note {
    /// The file.
    #[serde(serialize_with = "shown")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub path: PathBuf,
    /// The server, if the note is about one.
    pub server: Option<String>,
    /// The text for the user.
    pub text: String,
}

/// JSON has no path that is not UTF-8.
fn shown<S: serde::Serializer>(path: &std::path::Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_client_has_a_place() {
        for (index, client) in CLIENTS.iter().enumerate() {
            assert!(!client.places.is_empty(), "{}", client.id);
            assert!(CLIENTS[index + 1..].iter().all(|other| other.id != client.id), "{}", client.id);
            assert_eq!(Client::find(client.id), Some(client));
        }
    }
}
