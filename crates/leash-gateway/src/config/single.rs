//! A configuration without a file: one server, given on the command line.

use std::collections::BTreeMap;

use super::mistake::{ConfigMistake, ConfigMistakes};
use super::settings::{ServerSettings, ServerTarget, SessionPolicy, Settings};
use leash_model::limits;

/// Names that are paths of the gateway itself, so that no server can have them.
const TAKEN: [&str; 6] = ["healthz", "readyz", "metrics", "v1", "mcp", "-"];

/// The longest name of a server, in bytes.
const NAME_LENGTH: usize = 64;

/// A gateway with one server and default settings.
pub fn single(name: &str, target: ServerTarget, policy: SessionPolicy) -> Result<Settings, ConfigMistakes> {
    let mut found = Vec::new();
    let mut say = |file: &str, what: String, hint: Option<String>| {
        found.push(ConfigMistake { file: file.to_owned(), line: 0, column: 0, what, hint });
    };
    if let Err((what, hint)) = check_name(name) {
        say("--name", what, Some(hint));
    }
    if matches!(&target, ServerTarget::Command(line) if line.command.is_empty()) {
        say("command", "the command is empty".to_owned(), Some("leash serve --name NAME -- COMMAND".to_owned()));
    }
    for (flag, time) in [
        ("--idle", policy.idle),
        ("--abandoned", policy.abandoned),
        ("--max-age", policy.max_age),
        ("--init-timeout", Some(policy.init_timeout)),
        ("--keep-alive", policy.keep_alive.pause()),
    ] {
        if time.is_some_and(|time| time.is_zero()) {
            say(flag, "0 would end every session at once".to_owned(), Some("leave it out, or give a time".to_owned()));
        }
    }
    let spans = [("--grace", policy.grace), ("--linger", policy.linger), ("--init-timeout", policy.init_timeout)];
    let ends = [
        ("--idle", policy.idle),
        ("--abandoned", policy.abandoned),
        ("--max-age", policy.max_age),
        ("--keep-alive", policy.keep_alive.pause()),
    ];
    let ends = ends.into_iter().filter_map(|(flag, time)| Some((flag, time?)));
    for (flag, _) in spans.into_iter().chain(ends).filter(|(_, time)| *time > limits::LONGEST) {
        say(flag, "the time is too long".to_owned(), Some("at most a year (365d)".to_owned()));
    }
    ConfigMistakes::none(found)?;
    let server = ServerSettings { name: name.to_owned(), policy, target };
    Ok(Settings { servers: BTreeMap::from([(name.to_owned(), server)]), ..Settings::default() })
}

/// True if a server can have this name.
pub fn is_server_name(name: &str) -> bool {
    check_name(name).is_ok()
}

/// Checks that a name can be part of a path. The error is what is wrong with it, and a hint.
pub(super) fn check_name(name: &str) -> Result<(), (String, String)> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() {
        return Err(("the name of a server is empty".to_owned(), "it becomes its path, `/NAME/mcp`".to_owned()));
    }
    if TAKEN.contains(&name) {
        let what = format!("a server cannot be called `{name}`");
        return Err((what, "that is a path of the gateway itself; choose another name".to_owned()));
    }
    // Clients resolve a path segment of dots alone before they send it.
    if name.len() > NAME_LENGTH || !name.bytes().all(fits) || name.bytes().all(|byte| byte == b'.') {
        let what = format!("`{}` cannot be the name of a server", name.escape_debug());
        let hint = format!(
            "it becomes its path, `/NAME/mcp`: at most {NAME_LENGTH} letters, digits, `.`, `_` and `-`, not only dots"
        );
        return Err((what, hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::settings::ServerCommand;
    use super::*;

    fn command(command: &str) -> ServerTarget {
        ServerTarget::Command(ServerCommand { command: command.to_owned(), ..ServerCommand::default() })
    }

    #[test]
    fn one_server_gets_the_default_settings() {
        let settings = single("files", command("npx"), SessionPolicy::default()).expect("valid");
        assert_eq!(settings.servers["files"].target, command("npx"));
        assert_eq!(settings.listen.to_string(), "127.0.0.1:5327");
        assert!(!settings.is_exposed());
    }

    #[test]
    fn both_mistakes_are_reported() {
        let mistakes = single("a/b", command(""), SessionPolicy::default()).expect_err("two mistakes");
        let told: Vec<_> = mistakes.all().iter().map(ToString::to_string).collect();
        assert_eq!(told, ["--name: `a/b` cannot be the name of a server", "command: the command is empty"]);
    }

    #[test]
    fn names_must_fit_into_a_path() {
        for fine in ["a", "A.b_c-9", &"x".repeat(64), "mcp2", "..a"] {
            assert_eq!(check_name(fine), Ok(()), "{fine}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "\u{e4}", "a%20", "mcp", "healthz", "readyz", "metrics", "v1"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name(&"x".repeat(65)).is_err());
    }
}
