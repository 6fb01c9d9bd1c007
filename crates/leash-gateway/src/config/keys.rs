//! The keys of a configuration: ours, those of other programs, and hints for all other keys.

use super::{server::SERVER, terms::TERMS};

/// The keys at top level.
pub(super) const TOP: [&str; 3] = ["mcpServers", "leash", "budget"];

/// Keys at top level that are for other programs and ignored here.
pub(super) const TOP_OF_OTHERS: [&str; 10] = [
    // `leash run` reads its defaults there.
    "run",
    // Editors.
    "$schema",
    // VS Code asks its user for these; a `${input:...}` that is used in a value is reported there.
    "inputs",
    "sandbox",
    // Claude Desktop.
    "globalShortcut",
    "preferences",
    // Gemini CLI: the allowed servers.
    "mcp",
    // Catalogues and generators.
    "name",
    "description",
    "version",
];

/// Keys of a server that are for clients and ignored by a gateway: allowed tools, appearance, timeouts of the client,
/// sign-in. A key that would change the server itself (`envFile`) is not among them.
pub(super) const SERVER_OF_OTHERS: [&str; 31] = [
    // Cline, Roo Code, Kilo Code, Kiro.
    "alwaysAllow",
    "autoApprove",
    "disabledTools",
    "remoteConfigured",
    "timeout",
    "watchPaths",
    // Claude Code. The gateway passes the client's own headers on, so headers that the client makes from these still
    // arrive.
    "alwaysLoad",
    "headersHelper",
    "oauth",
    // Gemini CLI.
    "authProviderType",
    "description",
    "excludeTools",
    "extension",
    "includeTools",
    "targetAudience",
    "targetServiceAccount",
    "trust",
    // Cursor.
    "auth",
    // VS Code.
    "dev",
    "gallery",
    "sandbox",
    "sandboxEnabled",
    "version",
    // Copilot CLI, Crush, Windsurf.
    "disabled_tools",
    "enabled_tools",
    "tools",
    // FastMCP, catalogues.
    "authentication",
    "icon",
    "metadata",
    "name",
    "tags",
];

/// Keys of other programs that have another name here.
const ELSEWHERE: [(&str, &str); 12] = [
    ("servers", "call it `mcpServers`"),
    ("mcp_servers", "call it `mcpServers`"),
    ("context_servers", "call it `mcpServers`"),
    ("httpUrl", "write `\"type\": \"http\"` and `\"url\"`"),
    ("serverUrl", "call it `url`"),
    ("endpoint", "call it `url`"),
    ("transport", "call it `type`"),
    ("transportType", "call it `type`"),
    ("environment", "call it `env`"),
    ("cmd", "call it `command`"),
    ("workingDirectory", "call it `cwd`"),
    ("envFile", "leash reads no such file: write the variables into `env`, or start leash with them"),
];

/// The keys of `leash` for commands only.
pub(super) const OF_COMMANDS: [&str; 7] = ["contain", "require", "spare", "memory", "pids", "cpu", "pressureStop"];

/// The keys of the `leash` at top level only.
pub(super) const GATEWAY: [&str; 9] =
    ["listen", "token", "localUsers", "allowedHosts", "allowedOrigins", "page", "maxBody", "drain", "takeover"];

/// The hint for an unknown key at top level.
pub(super) fn hint_at_top(key: &str) -> Option<String> {
    elsewhere(key).or_else(|| settings_belong_into_leash(key)).or_else(|| did_you_mean(key, &TOP))
}

/// The hint for an unknown key of a server.
pub(super) fn hint_in_server(key: &str) -> Option<String> {
    elsewhere(key).or_else(|| settings_belong_into_leash(key)).or_else(|| known_keys(key, &SERVER.names()))
}

/// The hint for an unknown key of a `leash` object.
pub(super) fn hint_in_leash(key: &str, at_top: bool) -> Option<String> {
    if !at_top && GATEWAY.contains(&key) {
        return Some(format!("`{key}` is a setting of the whole gateway: write it into the `leash` at top level"));
    }
    if SERVER.names().contains(&key) {
        return Some(format!("`{key}` is a key of a server: write it next to `leash`, not into it"));
    }
    let mut known = TERMS.names();
    if at_top {
        known.extend(GATEWAY);
    }
    known_keys(key, &known)
}

/// The hint that names the nearest of the known keys, or all of them.
pub(super) fn known_keys(key: &str, known: &[&str]) -> Option<String> {
    did_you_mean(key, known).or_else(|| Some(format!("leash knows {}", known.join(", "))))
}

fn elsewhere(key: &str) -> Option<String> {
    ELSEWHERE.iter().find(|(theirs, _)| *theirs == key).map(|(_, hint)| (*hint).to_owned())
}

fn settings_belong_into_leash(key: &str) -> Option<String> {
    let ours = TERMS.names().contains(&key) || GATEWAY.contains(&key);
    ours.then(|| format!("write it into `leash`: `\"leash\": {{\"{key}\": ...}}`"))
}

/// Suggests the nearest of the known words, if it is near enough.
pub fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    let plain = |word: &str| word.chars().filter(|c| !"_- ".contains(*c)).collect::<String>().to_lowercase();
    let typed = plain(word);
    // Two typing errors are allowed, but only one in a short word, where any other word would be two away.
    let allowed = if typed.chars().count() <= 4 { 1 } else { 2 };
    let near = known.iter().filter(|word| word.len().abs_diff(typed.len()) <= 2 * allowed);
    let (slips, best) = near.map(|word| (strsim::osa_distance(&typed, &plain(word)), *word)).min()?;
    (slips <= allowed).then(|| format!("did you mean `{best}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_key_is_suggested() {
        let all: Vec<&str> = TERMS.names().into_iter().chain(GATEWAY).collect();
        for (typed, meant) in [
            ("idel", "idle"),
            ("max_age", "maxAge"),
            ("MAXAGE", "maxAge"),
            ("max-sesions", "maxSessions"),
            ("keepalive", "keepAlive"),
            ("pid", "pids"),
            ("allowedhost", "allowedHosts"),
        ] {
            assert_eq!(did_you_mean(typed, &all), Some(format!("did you mean `{meant}`?")), "{typed}");
        }
        for far in ["", "x", "colour", "ttl", &"long".repeat(1000)] {
            assert_eq!(did_you_mean(far, &all), None, "{far}");
        }
    }

    #[test]
    fn no_key_is_in_two_lists() {
        assert!(SERVER.names().iter().all(|key| !SERVER_OF_OTHERS.contains(key)));
        assert!(OF_COMMANDS.iter().all(|key| TERMS.names().contains(key)));
        assert!(TOP.iter().all(|key| !TOP_OF_OTHERS.contains(key)));
        let known = |key: &str| SERVER.names().contains(&key) || SERVER_OF_OTHERS.contains(&key) || TOP.contains(&key);
        assert!(ELSEWHERE.iter().all(|(key, _)| !known(key)));
    }
}
