//! Checks on this machine that the programs of a configuration exist.

use std::ffi::OsStr;

use super::mistake::ConfigMistake;
use super::settings::{FilePosition, ServerTarget, Settings};
use leash_model::start_failure::{CommandOrigin, StartFailure};
use leash_tree::platform::resolve::resolve;

/// Searches for the program and the directory of every server. `path` is the PATH of this process, which a server
/// inherits unless its `env` has another one.
pub fn check_commands(settings: &Settings, path: Option<&OsStr>) -> Vec<ConfigMistake> {
    missing(settings, path).into_iter().map(|(_, mistake)| mistake).collect()
}

/// The same, with the name of each server.
pub(super) fn missing(settings: &Settings, path: Option<&OsStr>) -> Vec<(String, ConfigMistake)> {
    let mut found = Vec::new();
    for (name, server) in &settings.servers {
        let Err(failure) = check(&server.target, path) else { continue };
        let nowhere = FilePosition { file: "command".to_owned(), line: 0, column: 0 };
        let FilePosition { file, line, column } = settings.origins.get(name).cloned().unwrap_or(nowhere);
        let (what, hint) = (format!("server `{name}`: {}", failure.line()), failure.hint(CommandOrigin::File));
        found.push((name.clone(), ConfigMistake { file, line, column, what, hint: Some(hint) }));
    }
    found.sort_by_key(|(_, mistake)| (mistake.line, mistake.column));
    found
}

/// True if the program and the directory of a server exist.
pub(crate) fn is_startable(target: &ServerTarget, path: Option<&OsStr>) -> bool {
    check(target, path).is_ok()
}

fn check(target: &ServerTarget, path: Option<&OsStr>) -> Result<(), StartFailure> {
    let ServerTarget::Command(line) = target else { return Ok(()) };
    let path = line.env.get("PATH").map(OsStr::new).or(path);
    resolve(OsStr::new(&line.command), path, line.cwd.as_deref()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerCommand, read};

    fn check(servers: &str, expected: &[&str]) {
        let text = format!("{{\"mcpServers\": {{\n{servers}\n}}}}");
        let settings = read(&text, "leash.json", &|_| None).expect("valid");
        let found = check_commands(&settings, Some(OsStr::new("/bin")));
        let told: Vec<_> = found
            .iter()
            .map(|mistake| format!("{mistake} ({})", mistake.hint.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn missing_programs_and_directories_are_mistakes() {
        check(
            r#""z": {"command": "no-such-program"},
            "a": {"command": "sh -c true"},
            "fine": {"command": "sh", "cwd": "/bin"},
            "slash": {"command": "./sh", "cwd": "/bin"},
            "path": {"command": "sh", "env": {"PATH": "/nowhere"}},
            "tilde": {"command": "~/server"},
            "gone": {"command": "/nowhere/server"},
            "data": {"command": "/etc/passwd"},
            "cwd": {"command": "sh", "cwd": "/nowhere"},
            "web": {"url": "http://127.0.0.1/"}"#,
            &[
                "leash.json:2:1: server `z`: command `no-such-program` was not found (it is in none of the directories of PATH: /bin)",
                "leash.json:3:13: server `a`: command `sh -c true` was not found (a command is one program: write its arguments into `args`)",
                "leash.json:6:13: server `path`: command `sh` was not found (it is in none of the directories of PATH: /nowhere)",
                "leash.json:7:13: server `tilde`: command `~/server` was not found (write `${HOME}` instead of `~`)",
                "leash.json:8:13: server `gone`: command `/nowhere/server` was not found (check the path; it is taken relative to `cwd`)",
                "leash.json:9:13: server `data`: `/etc/passwd` cannot be executed: permission denied (make it executable: chmod +x /etc/passwd)",
                "leash.json:10:13: server `cwd`: cannot change to the directory `/nowhere`: No such file or directory (os error 2) (check its `cwd`; it is taken relative to where leash was started)",
            ],
        );
    }

    #[test]
    fn a_mistake_without_a_file_has_no_line() {
        let line = ServerCommand { command: "no-such-program".to_owned(), ..ServerCommand::default() };
        let settings = crate::config::single("a", ServerTarget::Command(line), Default::default()).expect("valid");
        let found = check_commands(&settings, Some(OsStr::new("/bin")));
        assert_eq!(found[0].to_string(), "command: server `a`: command `no-such-program` was not found");
    }
}
