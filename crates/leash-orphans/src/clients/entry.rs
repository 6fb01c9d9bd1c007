//! Reads the servers that a configuration file declares.

use std::path::Path;

use leash_model::launch::after_run_options;

use super::text::{self, Node, Value};
use super::{ConfigFile, Shape};

/// The way in which a client reaches a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerLaunch {
    /// The client starts a program.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables that the client sets for it.
        env: Vec<(String, String)>,
    },
    /// The client sends HTTP requests.
    Url {
        /// The URL.
        url: String,
    },
}

impl ServerLaunch {
    /// The program and its arguments in one list.
    pub fn words(&self) -> Vec<&str> {
        match self {
            ServerLaunch::Stdio { command, args, .. } => {
                std::iter::once(command).chain(args).map(String::as_str).collect()
            }
            ServerLaunch::Url { .. } => Vec::new(),
        }
    }

    /// True if it already runs under leash, perhaps through a wrapper (`env`, `sudo`, a path).
    pub fn is_leashed(&self) -> bool {
        leash_word(&self.words()).is_some()
    }

    /// The server's own command line: the words after `leash run` and its options, or all words.
    pub fn unleashed(&self) -> Vec<&str> {
        let words = self.words();
        let own = leash_word(&words)
            .filter(|leash| words[leash + 1] == "run")
            .map(|leash| after_run_options(&words, leash + 2));
        own.map_or_else(|| words.clone(), |own| words[own..].to_vec())
    }
}

/// The index of the word `leash`, if the next word is a leash command that holds a server.
fn leash_word(words: &[&str]) -> Option<usize> {
    // The package is called `mcp-leash`, in npx and uvx perhaps with a version: `mcp-leash@0.1.0`.
    let is_leash = |word: &str| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name == "leash" || name == "mcp-leash" || name.starts_with("mcp-leash@")
    };
    words.windows(2).position(|pair| is_leash(pair[0]) && matches!(pair[1], "run" | "connect" | "attach"))
}

/// One entry of a file, with its place in the text.
#[derive(Clone, Debug)]
pub struct ConfigEntry {
    /// The keys that lead to it; the last one is its name.
    pub path: Vec<String>,
    /// The entry as written.
    pub node: Node,
    /// The kind of the entry: a server, or something else.
    pub kind: EntryKind,
}

impl ConfigEntry {
    /// The name of the server.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// The project, if the user's own file declares the server for one.
    pub fn project(&self) -> Option<&str> {
        match &self.path[..] {
            [projects, project, ..] if projects == "projects" => Some(project),
            _ => None,
        }
    }
}

/// The meaning of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A server.
    Server {
        /// The way in which the client reaches it.
        launch: ServerLaunch,
        /// True if the client uses it.
        enabled: bool,
    },
    /// A part of the client itself, without a process of its own.
    BuiltIn,
    /// Something that leash does not understand, and the reason.
    Unknown(String),
}

/// The entries of a file, in the order of its maps.
pub fn entries(file: &ConfigFile) -> Result<Vec<ConfigEntry>, text::TextError> {
    // An empty file declares nothing.
    if file.text.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']).is_empty() {
        return Ok(Vec::new());
    }
    Ok(entries_in(&file.place.format.parse(&file.text)?, file))
}

/// The entries of a file whose text was parsed.
pub fn entries_in(root: &Node, file: &ConfigFile) -> Vec<ConfigEntry> {
    let mut found: Vec<ConfigEntry> = Vec::new();
    for map in file.place.maps {
        for (path, node) in follow(root, map, Vec::new()) {
            for member in node.members().unwrap_or_default() {
                let mut path = path.clone();
                path.push(member.key.clone());
                // A shorter path may lead to the map of a longer one.
                let is_map_itself = file.place.maps.iter().any(|other| same(other, &path));
                if is_map_itself || found.iter().any(|entry| entry.path.starts_with(&path)) {
                    continue;
                }
                // It depends on the client which of two equal keys counts.
                let kind = match node.all(&member.key).count() {
                    1 => kind(&member.node, &file.client.shape),
                    _ => EntryKind::Unknown("it is written twice".to_owned()),
                };
                found.push(ConfigEntry { path, node: member.node.clone(), kind });
            }
        }
    }
    found
}

fn same(map: &[&str], path: &[String]) -> bool {
    map.len() == path.len() && map.iter().zip(path).all(|(wanted, key)| wanted == key || *wanted == "*")
}

/// The maps that `keys` lead to.
fn follow<'a>(node: &'a Node, keys: &[&str], path: Vec<String>) -> Vec<(Vec<String>, &'a Node)> {
    let Some((key, rest)) = keys.split_first() else { return vec![(path, node)] };
    let members = node.members().unwrap_or_default().iter();
    let chosen = members.filter(|member| *key == "*" || member.key == *key);
    chosen
        .flat_map(|member| {
            let mut path = path.clone();
            path.push(member.key.clone());
            follow(&member.node, rest, path)
        })
        .collect()
}

/// The meaning of an entry.
fn kind(node: &Node, shape: &Shape) -> EntryKind {
    let unknown = |text: &str| EntryKind::Unknown(text.to_owned());
    if node.members().is_none() {
        return unknown("it is not a map");
    }
    if let Some(key) = text::written_twice(node) {
        return EntryKind::Unknown(format!("`{key}` is written twice in it"));
    }
    let kind = node.get("type").and_then(Node::text);
    // Parts of goose itself.
    if matches!(kind, Some("builtin" | "platform" | "frontend" | "inline_python")) {
        return EntryKind::BuiltIn;
    }
    let says = |key: &str, value: bool| node.get(key).is_some_and(|node| node.value == Value::Bool(value));
    let enabled = !says("disabled", true) && !says("enabled", false);
    let url = shape.urls.iter().find_map(|key| node.get(key)).filter(|url| url.value != Value::Null);
    match (node.get(shape.command), url) {
        (Some(_), Some(_)) => unknown("it has both a command and an address"),
        (Some(command), None) => match stdio(node, command, shape) {
            Ok(launch) => EntryKind::Server { launch, enabled },
            Err(why) => unknown(why),
        },
        (None, Some(url)) => match url.text() {
            Some(url) => EntryKind::Server { launch: ServerLaunch::Url { url: url.to_owned() }, enabled },
            None => unknown("its address is not a string"),
        },
        // Zed has entries that only hold settings for a server that an extension starts.
        (None, None)
            if node.get("settings").is_some() || node.get("source").and_then(Node::text) == Some("extension") =>
        {
            unknown("an extension starts it; leash can't be put in front")
        }
        (None, None) => unknown("it has neither a command nor an address"),
    }
}

fn stdio(node: &Node, command: &Node, shape: &Shape) -> Result<ServerLaunch, &'static str> {
    let no_list = "its arguments are not a list of strings";
    let args_of = |node: &Node| match node.get(shape.args).map(|args| (&args.value, args.texts())) {
        None | Some((Value::Null, _)) => Ok(Vec::new()),
        Some((_, Some(args))) => Ok(args.into_iter().map(str::to_owned).collect()),
        Some((_, None)) => Err(no_list),
    };
    if node.all(shape.args).count() > 1 {
        return Err("its arguments are written twice");
    }
    let mut env_of = node;
    let (command, args) = match &command.value {
        Value::Text(program) => (program.clone(), args_of(node)?),
        Value::List(_) => {
            let words = command.texts().ok_or("its command is not a list of strings")?;
            let (program, args) = words.split_first().ok_or("its command is empty")?;
            ((*program).to_owned(), args.iter().map(|word| (*word).to_owned()).collect())
        }
        Value::Map(_) => {
            env_of = command;
            let program = command.get("path").and_then(Node::text).ok_or("its command has no path")?;
            (program.to_owned(), args_of(command)?)
        }
        _ => return Err("its command is not a string"),
    };
    if command.trim().is_empty() {
        return Err("its command is empty");
    }
    let env = env_of.get(shape.env).and_then(Node::members).unwrap_or_default();
    let env = env.iter().filter_map(|member| Some((member.key.clone(), member.node.text()?.to_owned()))).collect();
    Ok(ServerLaunch::Stdio { command, args, env })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::clients::Client;

    fn file(client: &str, text: &str) -> ConfigFile {
        let client = Client::find(client).expect("a known client");
        ConfigFile { client, place: &client.places[0], path: PathBuf::from("/f"), text: text.to_owned() }
    }

    fn shown(client: &str, text: &str) -> Vec<String> {
        let server = |entry: &ConfigEntry, launch: &ServerLaunch, enabled: bool| {
            let what = match launch {
                ServerLaunch::Stdio { command, args, .. } => {
                    format!("{command} {}", args.join(" ")).trim_end().to_owned()
                }
                ServerLaunch::Url { url } => url.clone(),
            };
            let project = entry.project().map(|project| format!(" in {project}")).unwrap_or_default();
            format!("{}{project}{}: {what}", entry.name(), if enabled { "" } else { " off" })
        };
        let entry = |entry: &ConfigEntry| match &entry.kind {
            EntryKind::Server { launch, enabled } => Some(server(entry, launch, *enabled)),
            EntryKind::BuiltIn => None,
            EntryKind::Unknown(why) => Some(format!("unknown {}: {why}", entry.name())),
        };
        match entries(&file(client, text)) {
            Ok(entries) => entries.iter().filter_map(entry).collect(),
            Err(error) => vec![format!("error: {error}")],
        }
    }

    #[test]
    fn claude_code_scopes_are_read() {
        let text = r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"]}},
            "projects": {"/p": {"mcpServers": {"b": {"type": "http", "url": "https://b/mcp"}}}, "/q": {}}}"#;
        assert_eq!(shown("claude-code", text), ["a: npx -y x", "b in /p: https://b/mcp"]);
        assert_eq!(shown("claude-code", " \n"), [""; 0]);
        assert_eq!(shown("claude-code", "{"), ["error: line 1: a key in quotes is expected"]);
    }

    #[test]
    fn entries_of_other_clients_are_read() {
        assert_eq!(
            shown("opencode", r#"{"mcp": {"a": {"type": "local", "command": ["bun", "x"], "enabled": false}}}"#),
            ["a off: bun x"]
        );
        assert_eq!(shown("opencode", r#"{"mcp": {"servers": {"b": {"command": ["bun"]}}}}"#), ["b: bun"]);
        assert_eq!(
            shown(
                "zed",
                r#"{"context_servers": {"a": {"command": {"path": "p", "args": ["x"]}}, "b": {"settings": {}}}}"#
            ),
            ["a: p x", "unknown b: an extension starts it; leash can't be put in front"]
        );
        assert_eq!(shown("codex", "[mcp_servers.a]\ncommand = \"x\"\nargs = ['y']\n"), ["a: x y"]);
        assert_eq!(shown("windsurf", r#"{"mcpServers": {"a": {"serverUrl": "http://h/"}}}"#), ["a: http://h/"]);
        assert_eq!(
            shown(
                "goose",
                "extensions:\n  a:\n    type: builtin\n  b:\n    type: stdio\n    cmd: uvx\n    args:\n    - x\n"
            ),
            ["b: uvx x"]
        );
    }

    #[test]
    fn an_entry_that_is_not_understood_says_why() {
        for (entry, why) in [
            ("1", "it is not a map"),
            ("{}", "it has neither a command nor an address"),
            (r#"{"command": "x", "url": "y"}"#, "it has both a command and an address"),
            (r#"{"command": ""}"#, "its command is empty"),
            (r#"{"command": 1}"#, "its command is not a string"),
            (r#"{"command": "x", "args": "y"}"#, "its arguments are not a list of strings"),
            (r#"{"command": "x", "args": [1]}"#, "its arguments are not a list of strings"),
            (r#"{"command": "x", "command": "y"}"#, "`command` is written twice in it"),
        ] {
            let text = format!("{{\"mcpServers\": {{\"a\": {entry}}}}}");
            assert_eq!(shown("claude-code", &text), [format!("unknown a: {why}")], "{entry}");
        }
        let twice = r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#;
        assert_eq!(shown("claude-code", twice), ["unknown a: it is written twice"]);
    }

    #[test]
    fn leashed_servers_are_recognised() {
        let launch = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            ServerLaunch::Stdio { command: words.next().expect("a word"), args: words.collect(), env: Vec::new() }
        };
        for line in [
            "leash run -- x",
            "/usr/bin/leash run -- x y",
            "env A=1 leash connect http://h",
            "npx -y mcp-leash run -- x",
            "uvx mcp-leash@0.1.0 run x",
        ] {
            assert!(launch(line).is_leashed(), "{line}");
        }
        for line in ["npx leash", "leash-tool run", "x leash", "dog --leash run", "mcp-leash-tool run"] {
            assert!(!launch(line).is_leashed(), "{line}");
        }
        for line in [
            "leash run --name=a -- npx x",
            "leash run npx x",
            "leash run -v --grace 2s --name=a npx x",
            "env A=1 leash run --verbose npx x",
            "npx x",
        ] {
            assert_eq!(launch(line).unleashed(), ["npx", "x"], "{line}");
        }
        assert_eq!(launch("leash run npx -- x").unleashed(), ["npx", "--", "x"]);
        assert_eq!(launch("leash connect http://h").unleashed(), ["leash", "connect", "http://h"]);
    }
}
