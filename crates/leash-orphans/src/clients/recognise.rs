//! Recognises the client that a file belongs to, by its path or by its content.

use std::path::{Component, Path};

use super::text::{Format, Node};
use super::{CLIENTS, Client, ConfigPlace, Root, Scope};

/// The client whose file this is, and its place in the client's table. `None` for a file in the format of leash
/// itself, which is also that of a project's `.mcp.json`.
pub fn recognise(path: &Path, text: &str) -> Option<(&'static Client, &'static ConfigPlace)> {
    by_path(path).or_else(|| by_content(path, text)).filter(|(_, place)| place.path != ".mcp.json")
}

fn by_path(path: &Path) -> Option<(&'static Client, &'static ConfigPlace)> {
    let all = CLIENTS.iter().flat_map(|client| client.places.iter().map(move |place| (client, place)));
    all.into_iter().find(|(_, place)| is_at(path, place))
}

/// True if the path ends as this place says.
fn is_at(path: &Path, place: &ConfigPlace) -> bool {
    let dir = if let Root::Variable(_, dir) = place.root { dir } else { "" };
    let wanted: Vec<&str> = dir.split('/').chain(place.path.split('/')).filter(|part| !part.is_empty()).collect();
    let parts: Vec<&str> = path
        .components()
        .filter_map(|part| if let Component::Normal(part) = part { part.to_str() } else { None })
        .collect();
    parts.len() >= wanted.len()
        && parts[parts.len() - wanted.len()..]
            .iter()
            .zip(&wanted)
            .all(|(part, wanted)| *wanted == "*" || part == wanted)
}

/// A file at another place, such as a copy: its ending and its first keys tell.
fn by_content(path: &Path, text: &str) -> Option<(&'static Client, &'static ConfigPlace)> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => return user("codex", &["mcp_servers"]),
        Some("yaml" | "yml") => return user("goose", &["extensions"]),
        _ => {}
    }
    let root = Format::Json.parse(text).ok()?;
    let is_map = |node: Option<&Node>| node.and_then(Node::members).is_some();
    let has = |key: &str| is_map(root.get(key));
    if root.get("mcpServers").is_some() {
        // The format of leash itself, unless only Claude Code has such a file.
        return if has("projects") { user("claude-code", &["mcpServers"]) } else { None };
    }
    if has("servers") {
        user("vscode", &["servers"])
    } else if has("context_servers") {
        user("zed", &["context_servers"])
    } else if has("mcp.servers") || is_map(root.get("mcp").and_then(|mcp| mcp.get("servers"))) {
        user("vscode", &["mcp", "servers"])
    } else if has("mcp") {
        user("opencode", &["mcp"])
    } else {
        None
    }
}

/// The user's own file of a client with this map of servers.
fn user(id: &str, map: &[&str]) -> Option<(&'static Client, &'static ConfigPlace)> {
    let client = Client::find(id)?;
    let place = client.places.iter().find(|place| place.scope == Scope::User && place.maps.contains(&map));
    Some((client, place?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: Option<&str>) {
        assert_eq!(recognise(Path::new(path), text).map(|(client, _)| client.id), expected, "{path} {text}");
    }

    #[test]
    fn files_are_recognised_by_their_path() {
        for (path, client) in [
            ("/home/u/.claude.json", "claude-code"),
            ("/home/u/.cursor/mcp.json", "cursor"),
            ("/p/.cursor/mcp.json", "cursor"),
            ("/home/u/.config/Code/User/mcp.json", "vscode"),
            ("/home/u/.config/Code/User/profiles/1a/mcp.json", "vscode"),
            ("/p/.vscode/mcp.json", "vscode"),
            ("/home/u/.codex/config.toml", "codex"),
            ("/home/u/.gemini/settings.json", "gemini"),
            ("/home/u/.config/zed/settings.json", "zed"),
            ("/home/u/.config/goose/config.yaml", "goose"),
            ("/home/u/.codeium/windsurf/mcp_config.json", "windsurf"),
        ] {
            check(path, "", Some(client));
        }
    }

    #[test]
    fn copies_are_recognised_by_their_content() {
        for (path, text, client) in [
            ("c.json", r#"{"numStartups": 1, "mcpServers": {}, "projects": {}}"#, Some("claude-code")),
            ("c.json", r#"{"servers": {}} // mine"#, Some("vscode")),
            ("c.json", r#"{"mcp": {"servers": {}}}"#, Some("vscode")),
            ("c.json", r#"{"context_servers": {}}"#, Some("zed")),
            ("c.jsonc", r#"{"mcp": {"a": {}}}"#, Some("opencode")),
            ("c.toml", "", Some("codex")),
            ("c.yml", "", Some("goose")),
            ("c.json", r#"{"mcpServers": {}}"#, None),
            ("c.json", r#"{"mcpServers": {}, "mcp": {"allowed": []}}"#, None),
            ("c.json", "{", None),
            ("/p/.mcp.json", r#"{"mcpServers": {}}"#, None),
        ] {
            check(path, text, client);
        }
    }
}
