//! The settings of valid configurations.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use super::good;
use crate::config::{KeepAlive, OwnerPolicy, ServerCommand, ServerSettings, ServerTarget, SessionPolicy};
use leash_model::containment::Containment;
use leash_tree::contain::caps::{Caps, CpuCap};
use leash_upstream::address::{HttpTransport, UpstreamServer};

fn server(server: &str) -> ServerSettings {
    good(&format!("{{\"mcpServers\": {{\"a\": {server}}}}}")).servers.remove("a").expect("there is one")
}

fn upstream(text: &str) -> UpstreamServer {
    match server(text).target {
        ServerTarget::Url(upstream) => upstream,
        ServerTarget::Command(line) => panic!("{line:?}"),
    }
}

fn command(text: &str) -> ServerCommand {
    match server(text).target {
        ServerTarget::Command(line) => line,
        ServerTarget::Url(upstream) => panic!("{upstream:?}"),
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn absent_keys_have_their_defaults() {
    let settings = good("{\"mcpServers\": {\"a\": {\"command\": \"c\"}}}");
    assert_eq!(settings.listen.to_string(), "127.0.0.1:5327");
    assert_eq!((settings.max_body, settings.max_sessions, settings.drain), (4 << 20, 10_000, 10 * SECOND));
    assert!(settings.token.is_none() && settings.allowed_hosts.is_empty() && settings.allowed_origins.is_empty());
    assert_eq!(settings.servers["a"].policy, SessionPolicy::default());
    let expected = SessionPolicy {
        idle: Some(1800 * SECOND),
        abandoned: Some(43_200 * SECOND),
        max_age: None,
        max_sessions: None,
        max_sessions_per_client: None,
        grace: 2 * SECOND,
        linger: 5 * SECOND,
        init_timeout: 60 * SECOND,
        keep_alive: KeepAlive::Auto,
        keep_alive_failures: 3,
        revive: false,
        owner: OwnerPolicy::Auto,
        replay: 1 << 20,
        pressure_stop: None,
    };
    assert_eq!(SessionPolicy::default(), expected);
}

#[test]
fn all_keys_of_a_command_are_read() {
    let line = command(
        r#"{"type": "stdio", "command": "${HOME}/bin/x", "args": ["-y", "$HOME", "${NO:-d}"], "env": {"A": "${HOME}/x"}, "cwd": "${HOME}",
        "leash": {"contain": "leaf", "require": "reaper", "spare": ["adb"], "memory": "512M", "pids": 64, "cpu": "50%"}}"#,
    );
    let expected = ServerCommand {
        command: "/home/me/bin/x".to_owned(),
        args: ["-y", "$HOME", "d"].map(str::to_owned).to_vec(),
        env: BTreeMap::from([("A".to_owned(), "/home/me/x".to_owned())]),
        cwd: Some(PathBuf::from("/home/me")),
        contain: Some(Containment::Leaf),
        require: Some(Containment::Reaper),
        spare: vec!["adb".to_owned()],
        caps: Caps { memory: Some(512 << 20), pids: Some(64), cpu: Some(CpuCap::Quota(50)) },
    };
    assert_eq!(line, expected);
}

#[test]
fn a_url_and_its_headers_are_read() {
    let told = upstream(r#"{"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}"#);
    assert_eq!((told.transport, told.url.to_string().as_str()), (HttpTransport::Streamable, "https://h/mcp"));
    let [(name, value)] = told.headers.as_slice() else { panic!("{:?}", told.headers) };
    assert_eq!((name.as_str(), value.to_str().ok()), ("authorization", Some("Bearer s3cret")));
    assert!(value.is_sensitive());
}

#[test]
fn the_type_selects_the_transport() {
    for (kind, transport) in [
        ("\"type\": \"http\",", HttpTransport::Streamable),
        ("\"type\": \"streamable-http\",", HttpTransport::Streamable),
        ("\"type\": \"streamableHttp\",", HttpTransport::Streamable),
        ("", HttpTransport::Streamable),
        ("\"type\": \"sse\",", HttpTransport::Sse),
    ] {
        assert_eq!(upstream(&format!("{{{kind} \"url\": \"http://h/\"}}")).transport, transport, "{kind}");
    }
}

#[test]
fn all_keys_of_a_policy_are_read() {
    let policy = server(
        r#"{"command": "c", "leash": {"idle": "never", "abandoned": "1d", "maxAge": "12h", "maxSessions": 5, "maxSessionsPerClient": 4, "grace": "0", "linger": "1s", "initTimeout": "2m",
        "keepAlive": "30s", "keepAliveFailures": 2, "revive": true, "owner": "traffic", "replay": "64KiB", "pressureStop": "5m"}}"#,
    )
    .policy;
    let expected = SessionPolicy {
        idle: None,
        abandoned: Some(86_400 * SECOND),
        max_age: Some(43_200 * SECOND),
        max_sessions: Some(5),
        max_sessions_per_client: Some(4),
        grace: Duration::ZERO,
        linger: SECOND,
        init_timeout: 120 * SECOND,
        keep_alive: KeepAlive::Every(30 * SECOND),
        keep_alive_failures: 2,
        revive: true,
        owner: OwnerPolicy::Traffic,
        replay: 64 << 10,
        pressure_stop: Some(300 * SECOND),
    };
    assert_eq!(policy, expected);
}

#[test]
fn terms_at_top_level_are_defaults_for_all_servers() {
    let settings = good(
        r#"{"leash": {"idle": "1m", "grace": "1s", "revive": true, "memory": "1G", "maxSessions": 7, "maxSessionsPerClient": 6},
        "mcpServers": {
            "plain": {"command": "c"},
            "own": {"command": "c", "leash": {"idle": "never", "memory": "2G", "maxSessions": 2, "revive": false}},
            "web": {"url": "http://h"},
            "old": {"type": "sse", "url": "http://h"}}}"#,
    );
    let policy = |name: &str| settings.servers[name].policy.clone();
    let memory = |name: &str| match &settings.servers[name].target {
        ServerTarget::Command(line) => line.caps.memory,
        ServerTarget::Url(_) => None,
    };
    assert_eq!((settings.max_sessions, settings.max_sessions_per_client), (7, Some(6)));
    assert_eq!(policy("plain").max_sessions_per_client, None);
    assert_eq!(
        (policy("plain").idle, policy("plain").max_sessions, memory("plain")),
        (Some(60 * SECOND), None, Some(1 << 30))
    );
    assert_eq!((policy("own").idle, policy("own").max_sessions, memory("own")), (None, Some(2), Some(2 << 30)));
    assert_eq!((policy("own").grace, policy("web").grace), (SECOND, SECOND));
    let revived = ["plain", "own", "web", "old"].map(|name| policy(name).revive);
    assert_eq!(revived, [true, false, true, false], "a stream of the old kind cannot be revived");
}

#[test]
fn all_keys_of_a_gateway_are_read() {
    let settings = good(
        r#"{"mcpServers": {"a": {"command": "c"}}, "leash": {"listen": "[::]:8443", "token": "${TOKEN}", "allowedHosts": ["h.example"],
        "allowedOrigins": ["https://h.example"], "maxBody": "1M", "maxSessions": 3, "drain": "1s", "takeover": "0s"}}"#,
    );
    assert_eq!(settings.listen.to_string(), "[::]:8443");
    assert_eq!(settings.token.as_ref().map(|token| token.expose()), Some("s3cret"));
    assert_eq!(settings.token_variables.iter().collect::<Vec<_>>(), ["TOKEN"]);
    assert!(!settings.is_exposed());
    assert_eq!(
        (settings.allowed_hosts, settings.allowed_origins),
        (vec!["h.example".to_owned()], vec!["https://h.example".to_owned()])
    );
    assert_eq!((settings.max_body, settings.max_sessions, settings.drain), (1 << 20, 3, SECOND));
    assert_eq!(settings.takeover, Duration::ZERO);
}

#[test]
fn disabled_servers_are_left_out() {
    let settings = good(
        r#"{"mcpServers": {"a": {"command": "c"}, "b": {"command": "c", "disabled": true}, "c": {"url": "http://h", "enabled": false}}}"#,
    );
    assert_eq!(settings.servers.keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_server_that_only_moved_is_equal() {
    let (one, other) =
        (server("{\"command\": \"c\"}"), server("\n\n{\"env\": {},\n \"command\": \"c\", \"timeout\": 3}"));
    assert_eq!(one, other);
    assert_ne!(one, server("{\"command\": \"c\", \"leash\": {\"idle\": \"1m\"}}"));
    assert_ne!(server("{\"command\": \"${HOME}\"}"), server("{\"command\": \"${NO:-x}\"}"));
}

#[test]
fn debug_output_has_no_secrets() {
    let settings = good(
        r#"{"mcpServers": {"a": {"command": "c", "args": ["${TOKEN}"], "env": {"KEY": "${TOKEN}"}},
        "b": {"url": "http://h/?k=${TOKEN}", "headers": {"X": "${TOKEN}"}}}, "leash": {"token": "${TOKEN}"}}"#,
    );
    let shown = format!("{settings:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("KEY") && shown.contains("***"), "{shown}");
}
