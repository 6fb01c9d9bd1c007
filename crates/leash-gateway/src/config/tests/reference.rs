//! docs/reference/config.md agrees with the code.

use super::good;
use crate::config::{ServerTarget, SessionPolicy, Settings, keys, read};
use crate::{config::server::SERVER, config::terms::TERMS};

const PAGE: &str = include_str!("../../../../../docs/reference/config.md");

fn examples() -> Vec<&'static str> {
    PAGE.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// The keys in the first cells of all tables.
fn keys_in_tables() -> Vec<&'static str> {
    PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn the_example_is_valid() {
    let environment = |name: &str| match name {
        "HOME" => Some("/home/me".to_owned()),
        "WEB_TOKEN" | "LEASH_TOKEN" => Some("s3cret".to_owned()),
        _ => None,
    };
    let settings = read(examples()[0], "config.md", &environment).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(settings.servers.keys().collect::<Vec<_>>(), ["files", "old", "web"]);
    assert!(!settings.is_exposed());
}

#[test]
fn the_example_of_defaults_has_the_real_defaults() {
    let (told, real) = (good(examples()[1]), Settings::default());
    assert_eq!(told.servers["any"].policy, SessionPolicy::default());
    assert_eq!(
        (told.listen, told.max_body, told.max_sessions, told.drain, told.takeover),
        (real.listen, real.max_body, real.max_sessions, real.drain, real.takeover)
    );
    assert_eq!((told.allowed_hosts, told.allowed_origins), (real.allowed_hosts, real.allowed_origins));
    assert!(told.token.is_none() && real.token.is_none());
    assert_eq!(told.local_users, real.local_users);
    let ServerTarget::Command(line) = &told.servers["any"].target else { panic!("it is a command") };
    assert!(line.contain.is_none() && line.require.is_none() && !line.caps.any());
}

#[test]
fn the_tables_have_exactly_the_known_keys() {
    let mut told = keys_in_tables();
    // These have two meanings, one in a server and one at top level or in `budget`, so they are in two tables.
    let mut known: Vec<_> = SERVER.names().into_iter().chain(TERMS.names()).chain(keys::GATEWAY).collect();
    known.extend(["maxSessions", "maxSessionsPerClient", "memory", "pids", "cpu"]);
    told.sort_unstable();
    known.sort_unstable();
    assert_eq!(told, known);
}

#[test]
fn the_ignored_keys_are_listed() {
    let ignored = PAGE.split("Keys for clients are ignored").nth(1).and_then(|rest| rest.split("\n\n").next());
    let (of_servers, at_top) = ignored.and_then(|text| text.split_once("at top level")).expect("both lists");
    for (text, expected) in [(of_servers, &keys::SERVER_OF_OTHERS[..]), (at_top, &keys::TOP_OF_OTHERS[..])] {
        let mut told: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        let mut known = expected.to_vec();
        told.sort_unstable();
        known.sort_unstable();
        assert_eq!(told, known);
    }
}
