//! Translates the servers of a client's file into the format of a gateway, `{"mcpServers": {NAME: {...}}}`, with the positions that
//! its parts have in the file.

use std::path::Path;

use super::ConfigFile;
use super::entry::{ConfigEntry, EntryKind, ServerLaunch, entries};
use super::text::{Node, TextError, Value};

mod variables;

pub use variables::{DOLLAR, dollar};

/// The servers of a file, in the format of a gateway.
#[derive(Clone, Debug)]
pub struct Translation {
    /// The configuration, on one line.
    pub text: String,
    /// For each part of `text`, in their order: its position, and that of its source in the file.
    places: Vec<(usize, usize)>,
    /// Entries that leash does not understand.
    pub unknown: Vec<UnknownEntry>,
    /// Names that had to change because they become parts of a path: the old one and the new one.
    pub renamed: Vec<(String, String)>,
    /// The number of servers that only belong to other projects.
    pub elsewhere: usize,
}

/// An entry that leash does not understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEntry {
    /// The name that its server would have.
    pub name: String,
    /// The position in the file.
    pub at: usize,
    /// The reason.
    pub why: String,
}

/// Translates a file. Fails if it can't be parsed.
///
/// `directory` is the one in which the gateway was started: of the servers that a user's file declares for single
/// projects, only those of this project are served. `is_name` says if a server can have a name.
pub fn translate(
    file: &ConfigFile,
    directory: Option<&Path>,
    is_name: &dyn Fn(&str) -> bool,
) -> Result<Translation, TextError> {
    let mut entries = entries(file)?;
    let all = entries.len();
    entries.retain(|entry| entry.project().is_none_or(|project| directory == Some(Path::new(project))));
    let elsewhere = all - entries.len();
    // The entry for this project replaces the user's entry of the same name.
    let local: Vec<String> =
        entries.iter().filter(|entry| entry.project().is_some()).map(|entry| entry.name().to_owned()).collect();
    entries.retain(|entry| entry.project().is_some() || !local.iter().any(|name| name == entry.name()));
    let mut made =
        Translation { text: String::new(), places: Vec::new(), unknown: Vec::new(), renamed: Vec::new(), elsewhere };
    let mut names: Vec<String> = Vec::new();
    let mut writer = Writer { file, text: String::new(), places: Vec::new() };
    writer.text.push_str("{\"mcpServers\": {");
    for entry in &entries {
        let (launch, enabled) = match &entry.kind {
            EntryKind::BuiltIn => continue,
            EntryKind::Unknown(_) => (None, true),
            EntryKind::Server { launch, enabled } => (Some(launch), *enabled),
        };
        if !enabled {
            continue;
        }
        let name = name_for(entry.name(), &names, is_name);
        names.push(name.clone());
        if name != entry.name() {
            made.renamed.push((entry.name().to_owned(), name.clone()));
        }
        match (&entry.kind, launch) {
            (_, Some(launch)) => writer.server(&name, entry, launch),
            (EntryKind::Unknown(why), _) => {
                made.unknown.push(UnknownEntry { name, at: entry.node.span.start, why: why.clone() });
            }
            _ => {}
        }
    }
    writer.text.push_str("}}");
    made.text = writer.text;
    made.places = writer.places;
    Ok(made)
}

impl Translation {
    /// The position in the file of a part of the translated text.
    pub fn source(&self, at: usize) -> usize {
        let before = self.places.partition_point(|(place, _)| *place <= at);
        before.checked_sub(1).map_or(0, |last| self.places[last].1)
    }
}

/// The name of a server in a path: `name`, with other characters replaced. It differs from all `others`.
pub fn name_for(name: &str, others: &[String], is_name: &dyn Fn(&str) -> bool) -> String {
    let fits = |name: &String| is_name(name) && !others.contains(name);
    let plain: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' })
        .collect();
    let plain = plain.trim_matches('-');
    let short = Some(&plain[plain.len().saturating_sub(48)..]).filter(|short| !short.is_empty()).unwrap_or("server");
    let numbered = (2..).map(|number| format!("{short}-{number}"));
    [name.to_owned(), short.to_owned()].into_iter().chain(numbered).find(fits).unwrap_or_default()
}

struct Writer<'a> {
    file: &'a ConfigFile,
    text: String,
    places: Vec<(usize, usize)>,
}

impl Writer<'_> {
    fn server(&mut self, name: &str, entry: &ConfigEntry, launch: &ServerLaunch) {
        if !self.text.ends_with('{') {
            self.text.push_str(", ");
        }
        self.string(name, entry.node.span.start);
        self.text.push_str(": {");
        match launch {
            ServerLaunch::Stdio { .. } => self.stdio(entry, launch),
            ServerLaunch::Url { url } => self.http(entry, url),
        }
        if let Some(leash) = entry.node.get("leash") {
            self.key("leash", leash);
            self.value(leash);
        }
        self.text.push('}');
    }

    fn stdio(&mut self, entry: &ConfigEntry, launch: &ServerLaunch) {
        let shape = &self.file.client.shape;
        let words = own_words(launch);
        let Some(command) = entry.node.get(shape.command) else { return };
        // Older files of Zed have the program, its arguments and its environment in one map.
        let map = if command.members().is_some() { command } else { &entry.node };
        let args = map.get(shape.args).unwrap_or(command);
        self.key("command", command);
        self.expanded(words.first().copied().unwrap_or_default(), command.span.start);
        self.key("args", args);
        self.text.push('[');
        for word in words.iter().skip(1) {
            if !self.text.ends_with('[') {
                self.text.push_str(", ");
            }
            self.expanded(word, args.span.start);
        }
        self.text.push(']');
        if let Some(env) = map.get(shape.env).filter(|env| env.members().is_some()) {
            self.key("env", env);
            self.texts(env);
        }
        if let Some(cwd) = entry.node.get("cwd").filter(|cwd| cwd.text().is_some()) {
            self.key("cwd", cwd);
            self.expanded(cwd.text().unwrap_or_default(), cwd.span.start);
        }
    }

    fn http(&mut self, entry: &ConfigEntry, url: &str) {
        let shape = &self.file.client.shape;
        let Some(address) = shape.urls.iter().find_map(|key| entry.node.member(key)) else { return };
        let at = address.node.span.start;
        self.key("url", &address.node);
        self.expanded(url, at);
        self.key("type", entry.node.get("type").unwrap_or(&address.node));
        self.string(transport(self.file.client.id, &entry.node, &address.key, url), at);
        let headers =
            entry.node.get(shape.headers).filter(|headers| headers.members().is_some_and(|all| !all.is_empty()));
        if let Some(headers) = headers {
            self.key("headers", headers);
            self.texts(headers);
        } else if let Some(variable) = entry.node.get("bearer_token_env_var").filter(|node| node.text().is_some()) {
            self.key("headers", variable);
            self.text.push_str("{\"Authorization\": ");
            self.string(&format!("Bearer ${{{}}}", variable.text().unwrap_or_default()), variable.span.start);
            self.text.push('}');
        } else if let Some(variables) = entry.node.get("env_http_headers").filter(|node| node.members().is_some()) {
            self.key("headers", variables);
            self.map(variables, |writer, node| {
                writer.string(&format!("${{{}}}", node.text().unwrap_or_default()), node.span.start);
            });
        }
    }

    /// A map of texts in which the client inserts variables.
    fn texts(&mut self, map: &Node) {
        self.map(map, |writer, node| match (&node.value, node.text()) {
            (_, Some(text)) => writer.expanded(text, node.span.start),
            (Value::Null, _) => writer.text.push_str("null"),
            // A number or a truth value: a client passes on what is written.
            _ => writer.string(writer.file.text[node.span.clone()].trim(), node.span.start),
        });
    }

    fn map(&mut self, map: &Node, mut value: impl FnMut(&mut Self, &Node)) {
        self.text.push('{');
        for member in map.members().unwrap_or_default() {
            self.key(&member.key, &member.node);
            value(self, &member.node);
        }
        self.text.push('}');
    }

    /// Any value, as it is written.
    fn value(&mut self, node: &Node) {
        match &node.value {
            Value::Text(text) => self.string(text, node.span.start),
            Value::Bool(flag) => self.text.push_str(if *flag { "true" } else { "false" }),
            Value::List(items) => {
                self.text.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.text.push_str(if index > 0 { ", " } else { "" });
                    self.value(item);
                }
                self.text.push(']');
            }
            Value::Map(_) => self.map(node, Self::value),
            Value::Other | Value::Null => {
                let source = self.file.text[node.span.clone()].trim();
                let is_json = serde_json::from_str::<serde_json::Number>(source).is_ok();
                self.text.push_str(if is_json { source } else { "null" });
            }
        }
    }

    /// A key of a map that has been begun. `node` is its value.
    fn key(&mut self, name: &str, node: &Node) {
        if !self.text.ends_with('{') {
            self.text.push_str(", ");
        }
        self.string(name, node.span.start);
        self.text.push_str(": ");
    }

    /// A text in which the client inserts variables.
    fn expanded(&mut self, text: &str, at: usize) {
        self.string(&variables::translated(self.file.client.id, text), at);
    }

    fn string(&mut self, text: &str, at: usize) {
        self.places.push((self.text.len(), at));
        self.text.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// The words that start the server itself. `leash adopt` puts `leash run` in front of them, which the gateway does not
/// need.
fn own_words(launch: &ServerLaunch) -> Vec<&str> {
    let words = launch.words();
    let is_adopted = launch.is_leashed()
        && words.get(1) == Some(&"run")
        && words
            .iter()
            .skip(2)
            .take_while(|word| **word != "--")
            .all(|word| word.starts_with("--name=") || word.starts_with("--session-env="));
    if is_adopted { launch.unleashed() } else { words }
}

/// The transport of an HTTP server. Gemini names it by the key of the address; other clients try both if the entry does
/// not name it.
fn transport(client: &str, entry: &Node, key: &str, url: &str) -> &'static str {
    let named = entry.get("type").or_else(|| entry.get("transport")).and_then(Node::text);
    let path = url.split(['?', '#']).next().unwrap_or_default();
    match (named, key) {
        (Some("sse"), _) => "sse",
        (Some("http" | "streamableHttp" | "streamable-http" | "streamable_http"), _) | (None, "httpUrl") => "http",
        (None, "url") if client == "gemini" => "sse",
        _ if path.trim_end_matches('/').ends_with("/sse") => "sse",
        _ => "http",
    }
}

#[cfg(test)]
mod tests;
