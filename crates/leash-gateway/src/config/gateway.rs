//! The whole file, and the settings of the gateway itself.

use std::{collections::BTreeMap, net::SocketAddr};

use super::json::{ConfigReader, Field, Object};
use super::keys;
use super::settings::{LocalUsers, Secret, Settings};
use super::terms::{ServerTerms, TERMS, set};

impl<'a> ConfigReader<'a> {
    /// Reads the file. The result is valid only if no mistake was found.
    pub(super) fn file(&mut self) -> Settings {
        let mut settings = Settings::default();
        let Some(root) = self.root() else { return settings };
        let Some(top) = self.object(root, "the file", "the file") else { return settings };
        self.unknown_at_top(&top);
        if let Some(field) = top.get("leash") {
            self.gateway(field, &mut settings);
        }
        if let Some(field) = top.get("budget") {
            set(&mut settings.budget, self.budget(field));
        }
        match top.get("mcpServers") {
            Some(field) => self.servers(field, &mut settings),
            // In this case the key was already reported as unknown.
            None if top.has(&["servers", "mcp_servers", "context_servers"]) => {}
            None => {
                let hint = "a server is written as `{\"mcpServers\": {\"NAME\": {\"command\": ...}}}`";
                self.say(root.get(), "the file has no `mcpServers`", hint.to_owned());
            }
        }
        settings
    }

    fn unknown_at_top(&mut self, top: &Object<'a>) {
        for field in &top.0 {
            let name = field.name.as_str();
            if keys::TOP.contains(&name) || keys::TOP_OF_OTHERS.contains(&name) {
                continue;
            }
            let looks_like_server = {
                let inside = serde_json::from_str::<BTreeMap<String, serde::de::IgnoredAny>>(field.value.get());
                inside.is_ok_and(|inside| inside.contains_key("command") || inside.contains_key("url"))
            };
            let hint = if looks_like_server {
                Some(format!("write it into `mcpServers`: `{{\"mcpServers\": {{\"{}\": ...}}}}`", name.escape_debug()))
            } else {
                keys::hint_at_top(name)
            };
            self.unknown(field, hint);
        }
    }

    /// Reports an unknown key.
    pub(super) fn unknown(&mut self, field: &Field<'a>, hint: Option<String>) {
        self.say(field.key, format!("unknown key `{}` in {}", field.name.escape_debug(), field.place), hint);
    }

    fn servers(&mut self, field: &Field<'a>, settings: &mut Settings) {
        let Some(entries) = self.object(field.value, "`mcpServers`", "`mcpServers`") else { return };
        let before = self.found.len();
        for entry in &entries.0 {
            let mistakes_before = self.found.len();
            let server = self.server(entry);
            if self.tolerant && self.found.len() > mistakes_before {
                settings.unavailable.insert(entry.name.clone(), self.found.split_off(mistakes_before));
                continue;
            }
            if let Some(server) = server {
                settings.origins.insert(server.name.clone(), self.origin(entry.key));
                settings.servers.insert(server.name.clone(), server);
            }
        }
        if settings.servers.is_empty() && settings.unavailable.is_empty() && self.found.len() == before {
            let what = if entries.0.is_empty() { "there are no servers" } else { "every server is switched off" };
            self.say(field.key, what, "a gateway needs at least one server".to_owned());
        }
    }

    fn gateway(&mut self, field: &Field<'a>, settings: &mut Settings) {
        let mut defaults = ServerTerms::default();
        let Some(leash) = self.object(field.value, "`leash`", "`leash`") else { return };
        for field in &leash.0 {
            match field.name.as_str() {
                "listen" => set(&mut settings.listen, self.listen(field)),
                "token" => {
                    settings.token_variables = self.variables(field);
                    set(&mut settings.token, self.token(field).map(Some));
                }
                "localUsers" => set(&mut settings.local_users, self.local_users(field)),
                "allowedHosts" => set(&mut settings.allowed_hosts, self.hosts(field)),
                "allowedOrigins" => set(&mut settings.allowed_origins, self.origins(field)),
                "page" => set(&mut settings.page, self.boolean(field)),
                "maxBody" => set(&mut settings.max_body, self.buffer(field)),
                // Here it is the limit of all servers together; the limit of one server is in its own `leash`.
                "maxSessions" => set(&mut settings.max_sessions, self.count(field)),
                "maxSessionsPerClient" => {
                    set(&mut settings.max_sessions_per_client, self.count(field).map(Some));
                }
                "drain" => set(&mut settings.drain, self.span(field)),
                "takeover" => set(&mut settings.takeover, self.span(field)),
                _ if self.field(field, &TERMS, &mut defaults) => {}
                name => self.unknown(field, keys::hint_in_leash(name, true)),
            }
        }
        self.defaults = defaults;
        let exposed = settings.is_exposed() && !leash.has(&["token"]) && !self.overridden;
        if let Some(listen) = leash.get("listen").filter(|_| exposed) {
            let what = format!("{} can be reached from other machines, and there is no token", settings.listen);
            let hint = "set `token` in `leash`, for example to \"${LEASH_TOKEN}\", or listen on 127.0.0.1";
            self.say(listen.value.get(), what, hint.to_owned());
        }
    }

    fn listen(&mut self, field: &Field<'a>) -> Option<SocketAddr> {
        let text = self.string(field)?;
        // The name always means this machine (RFC 6761).
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address = numeric.as_ref().unwrap_or(&text).parse().ok();
        if address.is_none() {
            let hint = "write an IP address and a port, as in \"127.0.0.1:5327\" or \"[::1]:5327\"";
            let what = format!("{field}: `{}` is not an address", text.escape_debug());
            self.say(field.value.get(), what, hint.to_owned());
        }
        address
    }

    fn token(&mut self, field: &Field<'a>) -> Option<Secret> {
        let token = self.expanded(field)?;
        if token.is_empty() {
            self.say(field.value.get(), format!("{field} is empty"), "remove it, or set the variable".to_owned());
            return None;
        }
        // A bearer token can only have these characters; a client could not send any other.
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let hint = "use plain ASCII without spaces; a variable may hold a line break";
            let what = format!("{field} has a character that a bearer token cannot have");
            self.say(field.value.get(), what, hint.to_owned());
            return None;
        }
        Some(Secret::new(token))
    }

    fn local_users(&mut self, field: &Field<'a>) -> Option<LocalUsers> {
        match self.string(field)?.as_str() {
            "own" => Some(LocalUsers::Own),
            "any" => Some(LocalUsers::Any),
            other => {
                let hint = "\"own\" serves the gateway's user and root, \"any\" every user of this machine";
                let what = format!("{field}: `{}` is not one of own, any", other.escape_debug());
                self.say(field.value.get(), what, hint.to_owned());
                None
            }
        }
    }

    fn hosts(&mut self, field: &Field<'a>) -> Option<Vec<String>> {
        let hosts = self.strings(field)?;
        for (at, host) in &hosts {
            if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte)) {
                let hint = "write what `Host` will say, as in \"gateway.example\" or \"gateway.example:8443\"";
                self.say(at.get(), format!("{field}: `{}` is not a host", host.escape_debug()), hint.to_owned());
            }
        }
        Some(hosts.into_iter().map(|(_, host)| host).collect())
    }

    fn origins(&mut self, field: &Field<'a>) -> Option<Vec<String>> {
        let origins = self.strings(field)?;
        for (at, origin) in &origins {
            let is_host = |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
            let is_scheme = |scheme: &str| !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_graphic());
            if !origin.split_once("://").is_some_and(|(scheme, host)| is_scheme(scheme) && is_host(host)) {
                let hint = "write scheme and host without a path, as in \"https://app.example\"";
                self.say(at.get(), format!("{field}: `{}` is not an origin", origin.escape_debug()), hint.to_owned());
            }
        }
        Some(origins.into_iter().map(|(_, origin)| origin).collect())
    }
}
