//! What is known of each MCP client: where its configuration is, how it is written, how its processes are recognised.
//!
//! The knowledge is a table ([`CLIENTS`], in `table.rs`). [`configs`] reads the files that exist below the given [`Roots`], and
//! [`servers`] says which servers a file declares. What can't be read or understood is a [`Note`], never an error: somebody
//! else's file is never ours to complain about.

pub mod entry;
pub mod places;
pub mod table;
pub mod text;

use std::path::PathBuf;

pub use entry::{Declared, Entry, Launch, servers};
pub use places::{ConfigFile, Roots, configs};
pub use table::CLIENTS;
pub use text::Format;

/// One MCP client.
#[derive(Debug, PartialEq, Eq)]
pub struct Client {
    /// How it is called on the command line, such as `claude-code`.
    pub id: &'static str,
    /// How people call it.
    pub name: &'static str,
    /// Where its configuration may be.
    pub places: &'static [Place],
    /// How an entry of its configuration is written.
    pub shape: Shape,
    /// How its processes are recognised.
    pub host: Host,
    /// Variables that it sets for the processes it starts.
    pub marks: &'static [Mark],
}

impl Client {
    /// The client of that id.
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
pub struct Place {
    /// For whom it is.
    pub scope: Scope,
    /// The directory the path starts from.
    pub root: Root,
    /// The path below it. A component `*` stands for any directory.
    pub path: &'static str,
    /// How it is written.
    pub format: Format,
    /// The keys that lead to the map of servers, one list for each map that the file may have. A key `*` stands for any.
    pub maps: &'static [&'static [&'static str]],
    /// Whether leash may change the file. False for what a package manager or an administrator owns.
    pub ours_to_edit: bool,
}

/// For whom a configuration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Everything this user does.
    User,
    /// One project of this user, written in the user's own file.
    Local,
    /// Everybody who works on the project.
    Project,
    /// Whoever installed the plugin.
    Plugin,
    /// Everybody on this machine, by its administrator.
    System,
}

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The home directory.
    Home,
    /// `XDG_CONFIG_HOME`, else `~/.config`.
    Config,
    /// What this variable names, else a directory below the home directory.
    Variable(&'static str, &'static str),
    /// The project's directory.
    Project,
    /// The root of the file system.
    System,
}

/// How an entry is written. Whether `command` is a text, a list (opencode) or a map with a path (Zed) is seen in the entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// The key of the program.
    pub command: &'static str,
    /// The key of its arguments.
    pub args: &'static str,
    /// The key of its environment.
    pub env: &'static str,
    /// The keys under which an HTTP server's address may be.
    pub urls: &'static [&'static str],
    /// The key of its headers.
    pub headers: &'static str,
    /// What `type` is in an entry of a stdio server; nothing where such an entry has no `type`.
    pub stdio_type: Option<&'static str>,
    /// Whether variables in `env` are expanded as they are in `headers`.
    pub env_expands: bool,
}

/// How the processes of a client are recognised. Any one of these is enough.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    /// Names in `/proc/PID/comm`.
    pub comms: &'static [&'static str],
    /// File names of the executable.
    pub programs: &'static [&'static str],
    /// What the path of a script run by an interpreter (node, bun, python) contains, or ends with where it does not end with `/`.
    pub scripts: &'static [&'static str],
}

impl Host {
    /// Whether a process with this name, executable and command line is one. Paths are compared by what they end in and by whole
    /// components, so that a server called `cursor-notes` is not Cursor.
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

/// A variable in the environment of what a client starts.
#[derive(Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its name.
    pub variable: &'static str,
    /// What its value says.
    pub meaning: Meaning,
}

/// What the value of a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Only that the client is somewhere above.
    Presence,
    /// The client's own session.
    Session,
    /// The pid of the client's process.
    Pid,
}

/// Something that was not understood, with the place it is about.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The file.
    pub path: PathBuf,
    /// The server, if it is about one.
    pub server: Option<String>,
    /// What was found, for people.
    pub text: String,
}

/// A package that is known to be an MCP server, whoever started it and however it is configured.
///
/// The names are those that npx, uvx, node and python have on their command lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// The name of the package, or the beginning of it when it ends with `*`.
    pub name: &'static str,
    /// Where it comes from.
    pub registry: Registry,
}

/// Where packages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry {
    /// npm: run by npx, bunx, pnpm dlx, or node on a file below `node_modules/NAME/`.
    Npm,
    /// PyPI: run by uvx, pipx, or python on a script or module of that name.
    PyPi,
}

impl Package {
    /// Whether `word`, such as `@playwright/mcp@latest` or `mcp-server-git==1.2`, names this package.
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
    fn packages_with_versions() {
        let package = |name| Package { name, registry: Registry::Npm };
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
    fn hosts_are_not_mistaken() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let is = |id: &str, comm: &str, exe: &str, line: &str| {
            Client::find(id).expect("it is known").host.is(comm, Some(exe), &words(line))
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
