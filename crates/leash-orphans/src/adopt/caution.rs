//! Warnings about servers for which leash changes more than the program that starts them.

use std::path::Path;

use serde::Serialize;

use crate::clients::ServerLaunch;
use crate::clients::entry::{ConfigEntry, EntryKind};
use crate::clients::text::Node;

/// A warning about a server that leash would start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Caution {
    /// The name of the server.
    pub server: String,
    /// The text for the user.
    pub text: String,
}

/// The warning about an entry, if there is one.
pub(super) fn caution(entry: &ConfigEntry) -> Option<Caution> {
    let EntryKind::Server { launch, .. } = &entry.kind else { return None };
    let text = match launch {
        ServerLaunch::Stdio { .. } => container(&launch.words())?,
        ServerLaunch::Url { .. } => sign_in(&entry.node, entry.name())?,
    };
    Some(Caution { server: entry.name().to_owned(), text })
}

/// The warning about a server that a container engine starts.
fn container(words: &[&str]) -> Option<String> {
    let base = |word: &str| Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let engine = words.iter().position(|word| matches!(base(word).as_str(), "docker" | "nerdctl" | "podman"))?;
    words[engine + 1..].iter().find(|word| matches!(**word, "run" | "exec"))?;
    let text = match base(words[engine]).as_str() {
        "podman" => {
            "podman's own processes are in its tree: leash ends them with it, also the pause process that other \
             containers of yours may need"
        }
        _ => {
            "a daemon runs its container: leash ends the command, but can't check that the container is gone (keep \
             `-i --rm` in its arguments)"
        }
    };
    Some(text.to_owned())
}

/// The warning about an HTTP server for which the client may have signed in.
fn sign_in(entry: &Node, name: &str) -> Option<String> {
    let has_credentials = ["headers", "http_headers", "bearer_token_env_var"]
        .iter()
        .any(|key| entry.get(key).is_some_and(|node| node.members().is_none_or(|members| !members.is_empty())));
    if has_credentials {
        return None;
    }
    Some(format!(
        "it goes through `leash connect`, where the client can't sign in (OAuth); if it must, `leash release --server \
         {name}` undoes it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_recognised() {
        let is_warned = |line: &str| container(&line.split(' ').collect::<Vec<_>>());
        for line in ["docker run -i x", "/usr/bin/docker --context c run x", "sudo docker exec -i x y", "nerdctl run x"]
        {
            assert!(is_warned(line).is_some_and(|text| text.starts_with("a daemon runs")), "{line}");
        }
        assert!(is_warned("podman run -i x").is_some_and(|text| text.starts_with("podman's own")));
        for line in ["npx docker-mcp run", "docker version", "mcp-docker", "npx -y server run"] {
            assert_eq!(is_warned(line), None, "{line}");
        }
    }
}
