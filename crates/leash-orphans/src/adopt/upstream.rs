//! Rewrites the entry of an HTTP server into one that starts `leash connect`.
//!
//! The URL becomes a word on a command line, which every user of the machine can read: an entry whose URL contains a
//! secret stays unchanged. Headers go through the environment, which only the same user can read.

use super::rewrite::{PlacedChange, Rewritten, change, unexpected_shape};
use super::secrets::{HARMLESS, holds_secret, refers};
use super::{UnchangedReason, run_words};
use crate::clients::entry::ConfigEntry;
use crate::clients::text::{Format, MapMember, Node, Value, write};
use crate::clients::{ConfigFile, Shape};

/// Keys that tell a client to sign in by itself.
const SIGN_IN: [&str; 6] = ["oauth", "auth", "authProviderType", "oauth_resource", "scopes", "headersHelper"];

/// Rewrites an entry with a URL.
pub fn url(
    file: &ConfigFile,
    entry: &ConfigEntry,
    name: &str,
    url: &str,
    program: &str,
) -> Result<Rewritten, UnchangedReason> {
    let shape = &file.client.shape;
    check_address(url)?;
    if let Some(key) = SIGN_IN.iter().find(|key| entry.node.get(key).is_some()) {
        return Err(UnchangedReason::NeedsClient(format!("the client signs in for it (`{key}`), which leash can't")));
    }
    let address = shape.urls.iter().find_map(|key| entry.node.member(key)).ok_or_else(unexpected_shape)?;
    let mut words = run_words(file.client, name, "connect");
    words.extend(transport(&entry.node, &address.key).map(|name| format!("--transport={name}")));
    let ground = HttpEntryText { text: &file.text, format: file.place.format, map: &entry.node };
    let mut changes = Vec::new();
    changes.extend(ground.headers(shape, &mut words)?);
    changes.extend(ground.bearer(&mut words)?);
    changes.extend(ground.kind(shape)?);
    words.push(url.to_owned());
    changes.push(ground.address(address, shape, program, &words)?);
    Ok(Rewritten::new(entry, changes, None))
}

/// Refuses a URL that contains, or would put, a secret on the command line.
fn check_address(url: &str) -> Result<(), UnchangedReason> {
    if refers(url) {
        // The client would expand it on the command line.
        return Err(UnchangedReason::NeedsClient(
            "the client replaces variables in its address, and other users could see the result on the command line"
                .to_owned(),
        ));
    }
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let rest = rest.ok_or_else(|| UnchangedReason::Unknown("its address is neither http nor https".to_owned()))?;
    if holds_secret(rest) {
        return Err(UnchangedReason::Secret("its address".to_owned()));
    }
    Ok(())
}

/// The transport of the server, if the entry names it. Gemini names it by the key of the URL.
fn transport(entry: &Node, key: &str) -> Option<&'static str> {
    match (entry.get("type").or_else(|| entry.get("transport")).and_then(Node::text), key) {
        (Some("sse"), _) => Some("sse"),
        (Some("http" | "streamableHttp" | "streamable-http" | "streamable_http"), _) | (None, "httpUrl") => {
            Some("http")
        }
        _ => None,
    }
}

struct HttpEntryText<'a> {
    text: &'a str,
    format: Format,
    map: &'a Node,
}

impl HttpEntryText<'_> {
    /// Moves headers into the environment, each under a variable name of leash.
    fn headers(&self, shape: &Shape, words: &mut Vec<String>) -> Result<Option<PlacedChange>, UnchangedReason> {
        for key in ["env_http_headers", "requestInit", "headers_from_env"] {
            if self.map.get(key).is_some() {
                return Err(UnchangedReason::NeedsClient(format!("its headers come from `{key}`")));
            }
        }
        let Some(member) = self.map.member(shape.headers) else { return Ok(None) };
        let headers = member.node.members().ok_or_else(unexpected_shape)?;
        if headers.is_empty() {
            // An empty list of headers is harmless in the entry of a stdio server.
            return Ok(None);
        }
        let mut variables = Vec::new();
        for header in headers {
            let value = header.node.text().ok_or_else(unexpected_shape)?;
            if !refers(value) && !HARMLESS.contains(&header.key.to_ascii_lowercase().as_str()) {
                return Err(UnchangedReason::Secret(format!("its header `{}`", header.key)));
            }
            if refers(value) && !shape.env_expands {
                return Err(UnchangedReason::NeedsClient(format!(
                    "its header `{}` has variables that only the client replaces",
                    header.key
                )));
            }
            let variable = variable(&header.key);
            words.push(format!("--header-env={}={variable}", header.key));
            variables.push((variable, self.text[header.node.span.clone()].to_owned()));
        }
        if self.map.get(shape.env).is_some() {
            return Err(unexpected_shape());
        }
        Ok(Some(self.change(member, (shape.env, shape.env), self.environment(member, shape, &variables)?)))
    }

    /// The map of variables, in the place and the layout of the headers.
    fn environment(
        &self,
        member: &MapMember,
        shape: &Shape,
        variables: &[(String, String)],
    ) -> Result<String, UnchangedReason> {
        if self.format != Format::Json {
            return Err(unexpected_shape());
        }
        // Only names change. Go backwards, so that the earlier positions stay valid.
        let mut after = self.text[member.span()].to_owned();
        let start = member.key_span.start;
        let headers = member.node.members().unwrap_or_default();
        for (header, (variable, _)) in headers.iter().zip(variables).rev() {
            let span = header.key_span.start - start..header.key_span.end - start;
            after.replace_range(span, &write::word(self.format, variable));
        }
        let key = member.key_span.len();
        after.replace_range(..key, &write::word(self.format, shape.env));
        Ok(after)
    }

    /// Codex names the variable of the token; `env_vars` passes it on to the programs that Codex starts.
    fn bearer(&self, words: &mut Vec<String>) -> Result<Option<PlacedChange>, UnchangedReason> {
        let Some(member) = self.map.member("bearer_token_env_var") else { return Ok(None) };
        let variable = member.node.text().ok_or_else(unexpected_shape)?;
        if self.map.get("env_vars").is_some() {
            return Err(unexpected_shape());
        }
        words.push(format!("--bearer-env={variable}"));
        let after =
            format!("{}{}", write::key(self.format, "env_vars"), write::list(self.format, &[variable.to_owned()]));
        Ok(Some(self.change(member, ("env_vars", "env_vars"), after)))
    }

    /// Changes `type` to that of a stdio server.
    fn kind(&self, shape: &Shape) -> Result<Option<PlacedChange>, UnchangedReason> {
        let Some(member) = self.map.member("type") else { return Ok(None) };
        let kind = shape.stdio_type.ok_or_else(unexpected_shape)?;
        if !matches!(member.node.value, Value::Text(_)) {
            return Err(unexpected_shape());
        }
        let head = &self.text[member.key_span.start..member.node.span.start];
        Ok(Some(self.change(member, ("type", "type"), format!("{head}{}", write::word(self.format, kind)))))
    }

    fn address(
        &self,
        address: &MapMember,
        shape: &Shape,
        program: &str,
        words: &[String],
    ) -> Result<PlacedChange, UnchangedReason> {
        if self.map.get(shape.args).is_some() {
            return Err(unexpected_shape());
        }
        // opencode has program and arguments in one list; its entries have the type `remote`.
        let one_list = shape.env == "environment";
        let all: Vec<String> = std::iter::once(program.to_owned()).chain(words.iter().cloned()).collect();
        let key = write::key(self.format, shape.command);
        if one_list {
            let after = format!("{key}{}", write::list(self.format, &all));
            return Ok(self.change(address, (shape.command, shape.command), after));
        }
        let list = format!("{}{}", write::key(self.format, shape.args), write::list(self.format, words));
        let added = write::sibling(self.text, self.map, address, &list).ok_or_else(unexpected_shape)?;
        let after = format!("{key}{}{added}", write::word(self.format, program));
        Ok(self.change(address, (shape.command, shape.args), after))
    }

    fn change(&self, member: &MapMember, keys: (&str, &str), after: String) -> PlacedChange {
        change(self.text, &[], member, keys, after)
    }
}

/// The variable that carries a header.
fn variable(header: &str) -> String {
    let name: String = header
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("LEASH_HEADER_{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_secrets_are_refused() {
        for fine in [
            "https://mcp.example.com/mcp",
            "http://127.0.0.1:8080/sse?debug=1",
            "https://a/very-long-but-plain-words/mcp",
        ] {
            assert_eq!(check_address(fine), Ok(()), "{fine}");
        }
        for secret in [
            "https://user:pw@h/mcp",
            "https://h/mcp?api_key=1",
            "https://h/mcp?x=1&accessToken=2",
            "https://actions.zapier.com/mcp/sk-ak-93kdkd93kfjfj203/sse",
        ] {
            assert_eq!(check_address(secret), Err(UnchangedReason::Secret("its address".to_owned())), "{secret}");
        }
        for unexpected_shape in ["https://h/${KEY}/mcp", "https://$HOST/", "ftp://h/", "{env:URL}"] {
            assert!(check_address(unexpected_shape).is_err(), "{unexpected_shape}");
        }
    }

    #[test]
    fn variables_that_a_client_expands_are_found() {
        for text in ["${A}", "Bearer $A", "x ${env:A}", "{env:A}", "$_x"] {
            assert!(refers(text), "{text}");
        }
        for text in ["plain", "5$", "$ 5", "$5", ""] {
            assert!(!refers(text), "{text}");
        }
        assert_eq!(variable("X-Api-Key"), "LEASH_HEADER_X_API_KEY");
    }
}
