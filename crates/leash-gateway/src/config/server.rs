//! One entry of `mcpServers`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};

use super::json::{ConfigReader, Field, Object};
use super::keys;
use super::settings::{ServerCommand, ServerSettings, ServerTarget};
use super::single::check_name;
use super::table::{Key, KeySchema, Table, key, shapes};
use super::terms::ServerTerms;
use leash_upstream::address::{self, HttpTransport, UpstreamServer};

/// The spellings of `type`.
const TYPES: [(&str, ServerKind); 5] = [
    ("stdio", ServerKind::Stdio),
    ("http", ServerKind::Http(HttpTransport::Streamable)),
    ("streamable-http", ServerKind::Http(HttpTransport::Streamable)),
    ("streamableHttp", ServerKind::Http(HttpTransport::Streamable)),
    ("sse", ServerKind::Http(HttpTransport::Sse)),
];

/// The kind of a server by its `type`.
#[derive(Clone, Copy)]
enum ServerKind {
    Stdio,
    Http(HttpTransport),
}

/// The values of an entry, before the reader knows whether they fit together.
#[derive(Default)]
pub(super) struct ServerEntry {
    disabled: bool,
    enabled: Option<bool>,
    kind: Option<ServerKind>,
    line: ServerCommand,
    url: Option<Uri>,
    headers: Vec<(HeaderName, HeaderValue)>,
    terms: ServerTerms,
}

/// The keys of an entry.
pub(super) const SERVER: Table<ServerEntry> = Table {
    name: "NewServer",
    about: "A server of a new session: `command` or `url`. Keys that only MCP clients use are ignored, and so are empty values \
            of keys for the other kind of server.",
    keys: &[
        key!("command", command => line.command, "A program."),
        key!("args", arguments => line.args, "Its arguments."),
        key!("env", environment => line.env, "Variables added to the daemon's environment."),
        key!(
            "cwd",
            directory => Some(line.cwd),
            "Its working directory; without this key it is the one in which the daemon was started."
        ),
        key!("type", kind => Some(kind), "The transport. Without this key it is `stdio` for a program, else `http`."),
        key!("url", url => Some(url), "A server elsewhere."),
        key!("headers", headers => headers, "Headers sent to it."),
        key!("disabled", boolean => disabled, "`true`: the entry is ignored."),
        key!("enabled", boolean => Some(enabled), "`false`: the entry is ignored."),
        key!("leash", own_terms => terms, "The terms of its trees and client sessions."),
    ],
    ignored: &keys::SERVER_OF_OTHERS,
    ..Table::EMPTY
};

/// The keys that switch an entry off.
const SWITCHES: [&str; 2] = ["disabled", "enabled"];

/// The keys that are read only for a program.
const OF_COMMANDS: [&str; 3] = ["args", "env", "cwd"];

/// The keys that are read only for a server elsewhere.
const OF_URLS: [&str; 1] = ["headers"];

impl<'a> ConfigReader<'a> {
    /// Reads a server; `None` if it is switched off or has a mistake.
    pub(super) fn server(&mut self, entry: &Field<'a>) -> Option<ServerSettings> {
        let place = format!("server `{}`", entry.name.escape_debug());
        if let Err((what, hint)) = check_name(&entry.name) {
            self.say(entry.key, what, hint);
        }
        let object = self.object(entry.value, &place, &place)?;
        let read = self.entry(&object)?;
        self.contradictions(entry, &object, read.kind);
        match (object.has(&["command"]), object.has(&["url"])) {
            (true, false) => self.command_server(entry, &object, read),
            (false, true) => self.url_server(entry, &object, read),
            _ => None,
        }
    }

    /// The values of an entry; `None` if the user has switched it off. Then its other mistakes are not reported.
    fn entry(&mut self, object: &Object<'a>) -> Option<ServerEntry> {
        let mut entry = ServerEntry { terms: self.defaults.clone(), ..ServerEntry::default() };
        let is_switch = |field: &&Field<'a>| SWITCHES.contains(&field.name.as_str());
        for field in object.0.iter().filter(is_switch) {
            self.field(field, &SERVER, &mut entry);
        }
        if entry.disabled || entry.enabled == Some(false) {
            return None;
        }
        let (command, url) = (object.has(&["command"]), object.has(&["url"]));
        for field in object.0.iter().filter(|field| !is_switch(field)) {
            let name = field.name.as_str();
            // Such a key of the other kind of server is reported with the contradictions.
            if (!command && OF_COMMANDS.contains(&name)) || (!url && OF_URLS.contains(&name)) {
                continue;
            }
            if !self.field(field, &SERVER, &mut entry) {
                self.unknown(field, keys::hint_in_server(name));
            }
        }
        Some(entry)
    }

    fn command_server(&mut self, entry: &Field<'a>, object: &Object<'a>, read: ServerEntry) -> Option<ServerSettings> {
        let ServerEntry { mut line, terms, .. } = read;
        if line.command.is_empty() {
            return None;
        }
        terms.govern(&mut line);
        if let Some(why) = terms.impossible() {
            let at = object.get("leash").map_or(entry.key, |leash| leash.key);
            let hint = "look at `contain`, `require`, `spare`, `memory`, `pids` and `cpu` together";
            let what = format!("no containment is left for server `{}`; {why}", entry.name.escape_debug());
            self.say(at, what, hint.to_owned());
        }
        Some(ServerSettings { name: entry.name.clone(), policy: terms.policy, target: ServerTarget::Command(line) })
    }

    fn url_server(&mut self, entry: &Field<'a>, object: &Object<'a>, read: ServerEntry) -> Option<ServerSettings> {
        let own = object.get("leash").map_or(Object(Vec::new()), Object::again);
        self.only_for_commands(&own);
        let transport =
            if let Some(ServerKind::Http(transport)) = read.kind { transport } else { HttpTransport::Streamable };
        let mut policy = read.terms.policy;
        if transport == HttpTransport::Sse {
            self.no_revival(&own);
            // A default for all servers does not apply to this one, which cannot be revived.
            policy.revive = false;
        }
        let upstream = UpstreamServer { transport, url: read.url?, headers: read.headers };
        Some(ServerSettings { name: entry.name.clone(), policy, target: ServerTarget::Url(upstream) })
    }

    fn kind(&mut self, field: &Field<'a>) -> Option<ServerKind> {
        let text = self.string(field)?;
        let known = TYPES.into_iter().find(|(name, _)| *name == text).map(|(_, kind)| kind);
        if known.is_none() {
            let names = TYPES.map(|(name, _)| name);
            let hint = keys::did_you_mean(&text, &names).unwrap_or_else(|| format!("one of {}", names.join(", ")));
            self.say(field.value.get(), format!("{field}: `{}` is unknown", text.escape_debug()), hint);
        }
        known
    }

    fn command(&mut self, field: &Field<'a>) -> Option<String> {
        let command = self.expanded(field)?;
        if command.trim().is_empty() {
            self.say(field.value.get(), format!("{field} is empty"), None);
        }
        Some(command)
    }

    fn arguments(&mut self, field: &Field<'a>) -> Option<Vec<String>> {
        let arguments = self.array(field, "texts")?;
        Some(arguments.iter().filter_map(|argument| self.expanded(argument)).collect())
    }

    fn environment(&mut self, field: &Field<'a>) -> Option<BTreeMap<String, String>> {
        let mut variables = BTreeMap::new();
        let place = format!("`env` of {}", field.place);
        let object = self.object(field.value, &field.to_string(), &place)?;
        for field in object.0 {
            if field.name.is_empty() || field.name.contains(['=', '\0']) {
                let what = format!("`{}` in {place} cannot be the name of a variable", field.name.escape_debug());
                self.say(field.key, what, None);
            }
            if let Some(value) = self.expanded(&field) {
                variables.insert(field.name, value);
            }
        }
        Some(variables)
    }

    fn directory(&mut self, field: &Field<'a>) -> Option<PathBuf> {
        let path = self.expanded(field)?;
        if path.is_empty() {
            self.say(field.value.get(), format!("{field} is empty"), None);
        }
        Some(PathBuf::from(path))
    }

    fn url(&mut self, field: &Field<'a>) -> Option<Uri> {
        let url = self.expanded(field)?;
        let address = address::address(&url);
        if let Err(error) = &address {
            self.say(field.value.get(), format!("{field}: {error}"), error.hint().to_owned());
        }
        address.ok()
    }

    fn headers(&mut self, field: &Field<'a>) -> Option<Vec<(HeaderName, HeaderValue)>> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        let place = format!("`headers` of {}", field.place);
        let object = self.object(field.value, &field.to_string(), &place)?;
        for field in &object.0 {
            let Some(value) = self.expanded(field) else { continue };
            let header = address::header(&field.name, &value).and_then(|header| match header {
                // The same spelling twice was already reported when the object was read.
                Some((name, _)) if headers.iter().any(|(there, _)| *there == name) && !twice(&object, field) => {
                    Err(address::AddressError::Twice(field.name.clone()))
                }
                other => Ok(other),
            });
            match header {
                Ok(header) => headers.extend(header),
                Err(error) => self.say(field.key, format!("{place}: {error}"), error.hint().to_owned()),
            }
        }
        Some(headers)
    }

    /// Reports fields that contradict each other.
    fn contradictions(&mut self, entry: &Field<'a>, object: &Object<'a>, kind: Option<ServerKind>) {
        let place = format!("server `{}`", entry.name.escape_debug());
        match (object.get("command"), object.get("url")) {
            (Some(_), Some(url)) => {
                let hint = "a server is either started here (`command`) or reached elsewhere (`url`): remove one";
                self.say(url.key, format!("{place} has both `command` and `url`"), hint.to_owned());
                return;
            }
            // In this case the key in the place of one of them was already reported as unknown.
            (None, None) if object.has(&["cmd", "httpUrl", "serverUrl", "endpoint"]) => return,
            (None, None) => {
                let hint = match kind {
                    Some(ServerKind::Http(_)) => "its `type` needs a `url`",
                    Some(ServerKind::Stdio) => "its `type` needs a `command`",
                    None => "write what starts it (`command`, `args`) or where it is (`url`)",
                };
                self.say(entry.key, format!("{place} has neither `command` nor `url`"), hint.to_owned());
                return;
            }
            (Some(_), None) => self.needless(object, &OF_URLS, "for a `url`, and this server has a `command`"),
            (None, Some(_)) => {
                self.needless(object, &OF_COMMANDS, "for a `command`, and this server has a `url`");
            }
        }
        let Some(field) = object.get("type") else { return };
        match (kind, object.get("url")) {
            (Some(ServerKind::Stdio), Some(_)) => {
                let hint = "write \"http\" (or \"sse\" for the old transport)";
                self.say(
                    field.value.get(),
                    format!("{place} has a `url`, but its `type` is \"stdio\""),
                    hint.to_owned(),
                );
            }
            (Some(ServerKind::Http(_)), None) => {
                let what = format!("{place} has a `command`, but its `type` is an HTTP type");
                self.say(field.value.get(), what, "write \"stdio\", or leave it out".to_owned());
            }
            _ => {}
        }
    }

    /// Reports fields of the other kind of server. Empty ones are accepted, because some programs write them.
    fn needless(&mut self, object: &Object<'a>, names: &[&str], why: &str) {
        for field in names.iter().filter_map(|name| object.get(name)) {
            let bare: String = field.value.get().split_ascii_whitespace().collect();
            if !["[]", "{}", "\"\""].contains(&bare.as_str()) {
                self.say(field.key, format!("{field} is {why}"), "remove it".to_owned());
            }
        }
    }

    fn only_for_commands(&mut self, own: &Object<'a>) {
        for field in own.0.iter().filter(|field| keys::OF_COMMANDS.contains(&field.name.as_str())) {
            let what = format!("{field} is for commands, and this server has a `url`");
            self.say(field.key, what, "remove it: leash starts no process for this server".to_owned());
        }
    }

    fn no_revival(&mut self, own: &Object<'a>) {
        if let Some(field) = own.0.iter().find(|field| field.name == "revive" && field.value.get() == "true") {
            let hint = "its session is one connection, which leash cannot open again for the client: remove it";
            self.say(field.key, format!("{field} does not work with `type` \"sse\""), hint.to_owned());
        }
    }
}

shapes! {
    command: {"type": "string", "minLength": 1, "examples": ["npx"]},
    arguments: {"type": "array", "items": {"type": "string"}},
    environment: {"type": "object", "additionalProperties": {"type": "string"}},
    directory: {"type": "string", "minLength": 1, "examples": ["/srv"]},
    kind: {"type": "string", "enum": TYPES.map(|(name, _)| name)},
    url: {"type": "string", "examples": ["https://example.com/mcp"]},
    headers: {"type": "object", "additionalProperties": {"type": "string"}},
}

/// True if an earlier field has exactly this name.
fn twice(object: &Object<'_>, field: &Field<'_>) -> bool {
    object.0.iter().take_while(|other| other.key.as_ptr() != field.key.as_ptr()).any(|other| other.name == field.name)
}
