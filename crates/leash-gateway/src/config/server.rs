//! One entry of `mcpServers`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hyper::header::{HeaderName, HeaderValue};

use super::json::{ConfigReader, Field, Object};
use leash_upstream::address::{self, HttpTransport, UpstreamServer};

use super::keys;
use super::settings::{ServerCommand, ServerSettings, ServerTarget};
use super::single::check_name;
use super::terms::ServerTerms;

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

impl<'a> ConfigReader<'a> {
    /// Reads a server; `None` if it is switched off or has a mistake.
    pub(super) fn server(&mut self, entry: &Field<'a>, defaults: &ServerTerms) -> Option<ServerSettings> {
        let place = format!("server `{}`", entry.name.escape_debug());
        if let Err((what, hint)) = check_name(&entry.name) {
            self.say(entry.key, what, hint);
        }
        let object = self.object(entry.value, &place, &place)?;
        if self.is_off(&object) {
            return None;
        }
        self.unknown_keys(&object);
        let kind = object.get("type").and_then(|field| self.kind(field));
        let (terms, own) = self.own_terms(&object, defaults);
        let command = object.get("command").map(|field| self.command_line(field, &object));
        let url = object.get("url").map(|field| self.url(field, &object, kind));
        self.contradictions(entry, &object, kind);
        match (command, url) {
            (Some(Some(mut line)), None) => {
                terms.govern(&mut line);
                if let Some(why) = terms.impossible() {
                    let at = object.get("leash").map_or(entry.key, |leash| leash.key);
                    let hint = "look at `contain`, `require`, `spare`, `memory` and `pids` together";
                    self.say(at, format!("no containment is left for {place}; {why}"), hint.to_owned());
                }
                Some(ServerSettings {
                    name: entry.name.clone(),
                    policy: terms.policy,
                    target: ServerTarget::Command(line),
                })
            }
            (None, Some(upstream)) => {
                self.only_for_commands(&own);
                let mut policy = terms.policy;
                if matches!(kind, Some(ServerKind::Http(HttpTransport::Sse))) {
                    self.no_revival(&own);
                    // A default for all servers does not apply to this one, which cannot be revived.
                    policy.revive = false;
                }
                Some(ServerSettings { name: entry.name.clone(), policy, target: ServerTarget::Url(upstream?) })
            }
            _ => None,
        }
    }

    /// True if the user has switched the server off in a client. Then its other mistakes are not reported.
    fn is_off(&mut self, object: &Object<'a>) -> bool {
        let disabled = object.get("disabled").and_then(|field| self.boolean(field));
        let enabled = object.get("enabled").and_then(|field| self.boolean(field));
        disabled == Some(true) || enabled == Some(false)
    }

    fn unknown_keys(&mut self, object: &Object<'a>) {
        for field in &object.0 {
            let name = field.name.as_str();
            if !keys::SERVER.contains(&name) && !keys::SERVER_OF_OTHERS.contains(&name) {
                self.unknown(field, keys::hint_in_server(name));
            }
        }
    }

    /// The terms of this server, and the fields of its own `leash`.
    fn own_terms(&mut self, object: &Object<'a>, defaults: &ServerTerms) -> (ServerTerms, Object<'a>) {
        let mut terms = defaults.clone();
        let Some(field) = object.get("leash") else { return (terms, Object(Vec::new())) };
        let Some(own) = self.object(field.value, &field.to_string(), &field.place) else {
            return (terms, Object(Vec::new()));
        };
        for field in &own.0 {
            if !self.term(field, &mut terms) {
                self.unknown(field, keys::hint_in_leash(&field.name, false));
            }
        }
        (terms, own)
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

    fn command_line(&mut self, field: &Field<'a>, object: &Object<'a>) -> Option<ServerCommand> {
        let command = self.expanded(field);
        if command.as_ref().is_some_and(|command| command.trim().is_empty()) {
            self.say(field.value.get(), format!("{field} is empty"), None);
        }
        let args = object.get("args").and_then(|field| self.array(field, "texts")).unwrap_or_default();
        let args = args.iter().filter_map(|arg| self.expanded(arg)).collect();
        let env = object.get("env").map(|field| self.environment(field)).unwrap_or_default();
        let cwd = object.get("cwd").and_then(|field| self.directory(field));
        Some(ServerCommand { command: command?, args, env, cwd, ..ServerCommand::default() })
    }

    fn environment(&mut self, field: &Field<'a>) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        let place = format!("`env` of {}", field.place);
        let Some(object) = self.object(field.value, &field.to_string(), &place) else { return variables };
        for field in object.0 {
            if field.name.is_empty() || field.name.contains(['=', '\0']) {
                let what = format!("`{}` in {place} cannot be the name of a variable", field.name.escape_debug());
                self.say(field.key, what, None);
            }
            if let Some(value) = self.expanded(&field) {
                variables.insert(field.name, value);
            }
        }
        variables
    }

    fn directory(&mut self, field: &Field<'a>) -> Option<PathBuf> {
        let path = self.expanded(field)?;
        if path.is_empty() {
            self.say(field.value.get(), format!("{field} is empty"), None);
        }
        Some(PathBuf::from(path))
    }

    fn url(&mut self, field: &Field<'a>, object: &Object<'a>, kind: Option<ServerKind>) -> Option<UpstreamServer> {
        let transport =
            if let Some(ServerKind::Http(transport)) = kind { transport } else { HttpTransport::Streamable };
        let headers = object.get("headers").map(|field| self.headers(field)).unwrap_or_default();
        let url = self.expanded(field)?;
        match address::address(&url) {
            Ok(url) => Some(UpstreamServer { transport, url, headers }),
            Err(error) => {
                self.say(field.value.get(), format!("{field}: {error}"), error.hint().to_owned());
                None
            }
        }
    }

    fn headers(&mut self, field: &Field<'a>) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        let place = format!("`headers` of {}", field.place);
        let Some(object) = self.object(field.value, &field.to_string(), &place) else { return headers };
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
        headers
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
            (Some(_), None) => self.needless(object, &["headers"], "for a `url`, and this server has a `command`"),
            (None, Some(_)) => {
                self.needless(object, &["args", "env", "cwd"], "for a `command`, and this server has a `url`");
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
        for field in own.0.iter().filter(|field| keys::TREE.contains(&field.name.as_str())) {
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

/// True if an earlier field has exactly this name.
fn twice(object: &Object<'_>, field: &Field<'_>) -> bool {
    object.0.iter().take_while(|other| other.key.as_ptr() != field.key.as_ptr()).any(|other| other.name == field.name)
}
