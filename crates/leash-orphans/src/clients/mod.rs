//! The knowledge about each MCP client: the places and formats of its configuration, and how its processes are
//! recognised.
//!
//! The knowledge is a table ([`CLIENTS`], in `table.rs`). [`configs`] reads the files that exist below the given
//! [`Roots`], and [`servers`] returns the servers that a file declares. A file that can't be read or understood gives
//! a [`Note`], never an error, because the file belongs to another program.

pub mod entry;
pub mod places;
mod recognise;
pub mod table;
pub mod text;
pub mod translate;

use std::path::PathBuf;

pub use entry::{ConfigEntry, DeclaredServer, ServerLaunch, servers};
pub use places::{ConfigFile, Roots, configs, project_configs};
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
    pub host: Host,
    /// Variables that it sets for the processes it starts.
    pub marks: &'static [Mark],
}

impl Client {
    /// The client with this id.
    pub fn find(id: &str) -> Option<&'static Client> {
        CLIENTS.iter().find(|client| client.id == id)
    }

    /// The variable that names the client's own session in the environment of its servers, if it sets one.
    pub fn session_variable(&self) -> Option<&'static str> {
        self.marks.iter().find(|mark| mark.meaning == Meaning::Session).map(|mark| mark.variable)
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
    /// True if leash may change the file. False for a file that a package manager or an administrator owns.
    pub ours_to_edit: bool,
}

/// The users and projects to which a configuration applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All work of this user.
    User,
    /// One project of this user, written in the user's own file.
    Local,
    /// All users who work on the project.
    Project,
    /// The users who installed the plugin.
    Plugin,
    /// All users of this machine; its administrator owns the file.
    System,
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
pub struct Host {
    /// Names in `/proc/PID/comm`.
    pub comms: &'static [&'static str],
    /// File names of the executable.
    pub programs: &'static [&'static str],
    /// A part of the path of a script that an interpreter (node, bun, python) runs: a directory if it ends with `/`,
    /// else the end of the path.
    pub scripts: &'static [&'static str],
}

impl Host {
    /// True if a process with this name, executable and command line belongs to the client. Only file names and whole
    /// path components are compared, so that a server called `cursor-notes` is not taken for Cursor.
    pub fn is(&self, comm: &str, exe: Option<&str>, argv: &[String]) -> bool {
        let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let is_program = |path: &str| self.programs.contains(&base(path).as_str());
        self.comms.contains(&comm)
            || exe.is_some_and(is_program)
            || argv.first().is_some_and(|word| is_program(word))
            || (argv.iter().skip(1).find(|word| !word.starts_with('-')))
                .is_some_and(|script| self.scripts.iter().any(|part| is_part(script, part)))
    }
}

fn is_part(script: &str, part: &str) -> bool {
    if part.ends_with('/') { script.contains(part) } else { script.ends_with(part) }
}

/// A variable that a client sets in the environment of the processes that it starts.
#[derive(Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its name.
    pub variable: &'static str,
    /// The meaning of its value.
    pub meaning: Meaning,
}

/// The meaning of a mark's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// No more than that the client is an ancestor.
    Presence,
    /// The client's own session.
    Session,
    /// The pid of the client's process.
    Pid,
}

/// Something in a configuration that leash did not understand, and its place.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The file.
    pub path: PathBuf,
    /// The server, if the note is about one.
    pub server: Option<String>,
    /// The text for the user.
    pub text: String,
}

/// A package that is known to be an MCP server, independent of its client and its configuration.
///
/// The names are those that appear in the command lines of npx, uvx, node and python.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// The name of the package, or the beginning of the name if it ends with `*`.
    pub name: &'static str,
    /// The registry that publishes it.
    pub registry: PackageRegistry,
}

/// A registry of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageRegistry {
    /// npm: run by npx, bunx, pnpm dlx, or node on a file below `node_modules/NAME/`.
    Npm,
    /// PyPI: run by uvx, pipx, or python on a script or module of that name.
    PyPi,
}

impl Package {
    /// True if `word`, such as `@playwright/mcp@latest` or `mcp-server-git==1.2`, names this package.
    pub fn is_named_by(&self, word: &str) -> bool {
        // A version follows an `@` that is not the first character, or one of pip's operators.
        let bare = match word.char_indices().skip(1).find(|(_, letter)| "@=<>~![".contains(*letter)) {
            Some((end, _)) => &word[..end],
            None => word,
        };
        match self.name.strip_suffix('*') {
            Some(beginning) => bare.starts_with(beginning),
            None => bare == self.name,
        }
    }
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

    #[test]
    fn a_version_does_not_change_the_package() {
        let package = |name| Package { name, registry: PackageRegistry::Npm };
        for word in ["@playwright/mcp", "@playwright/mcp@latest", "@playwright/mcp@0.0.30"] {
            assert!(package("@playwright/mcp").is_named_by(word), "{word}");
        }
        assert!(package("mcp-server-git").is_named_by("mcp-server-git==1.2"));
        assert!(package("@modelcontextprotocol/server-*").is_named_by("@modelcontextprotocol/server-memory@1"));
        for word in ["@playwright/mcp-helper", "playwright/mcp", "@playwright", ""] {
            assert!(!package("@playwright/mcp").is_named_by(word), "{word}");
        }
    }

    #[test]
    fn only_processes_of_the_client_are_its_hosts() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let is = |id: &str, comm: &str, exe: &str, line: &str| {
            Client::find(id).expect("a known client").host.is(comm, Some(exe), &words(line))
        };
        assert!(is("claude-code", "claude", "/home/u/.local/share/claude/versions/2.1.3", "claude"));
        assert!(is(
            "claude-code",
            "node",
            "/usr/bin/node",
            "node --x /usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"
        ));
        assert!(is("codex", "codex", "/opt/codex", "/opt/codex mcp list"));
        assert!(!is("cursor", "node", "/usr/bin/node", "node /home/u/cursor-notes/server.js"));
        assert!(!is("claude-code", "node", "/usr/bin/node", "node server.js @anthropic-ai/claude-code/cli.js"));
    }
}
