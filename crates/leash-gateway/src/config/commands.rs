//! Checks on this machine that the programs of a configuration exist.

use std::ffi::OsStr;

use super::mistake::Mistake;
use super::settings::{CommandLine, Origin, Settings, Target};
use leash_tree::platform::resolve::{ResolveError, resolve};

/// Searches for the program and the directory of every server. `path` is the PATH of this process, which a server
/// inherits unless its `env` has another one.
pub fn check_commands(settings: &Settings, path: Option<&OsStr>) -> Vec<Mistake> {
    missing(settings, path).into_iter().map(|(_, mistake)| mistake).collect()
}

/// The same, with the name of each server.
pub(super) fn missing(settings: &Settings, path: Option<&OsStr>) -> Vec<(String, Mistake)> {
    let mut found = Vec::new();
    for (name, server) in &settings.servers {
        let Err((what, hint)) = check_target(&server.target, path) else { continue };
        let nowhere = Origin { file: "command".to_owned(), line: 0, column: 0 };
        let Origin { file, line, column } = settings.origins.get(name).cloned().unwrap_or(nowhere);
        let mistake = Mistake { file, line, column, what: format!("server `{name}`: {what}"), hint: Some(hint) };
        found.push((name.clone(), mistake));
    }
    found.sort_by_key(|(_, mistake)| (mistake.line, mistake.column));
    found
}

/// True if the program and the directory of a server exist.
pub(crate) fn is_startable(target: &Target, path: Option<&OsStr>) -> bool {
    check_target(target, path).is_ok()
}

fn check_target(target: &Target, path: Option<&OsStr>) -> Result<(), (String, String)> {
    match target {
        Target::Command(line) => check(line, path),
        Target::Url(_) => Ok(()),
    }
}

fn check(line: &CommandLine, path: Option<&OsStr>) -> Result<(), (String, String)> {
    if let Some(cwd) = line.cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
        let what = format!("`{}` is not a directory", cwd.display());
        return Err((what, "check its `cwd`; it is taken relative to where leash was started".to_owned()));
    }
    let path = line.env.get("PATH").map(OsStr::new).or(path);
    let Err(error) = resolve(OsStr::new(&line.command), path, line.cwd.as_deref()) else { return Ok(()) };
    let hint = match &error {
        _ if line.command.starts_with("~/") => "write `${HOME}` instead of `~`".to_owned(),
        ResolveError::NotFound { .. } if line.command.contains(' ') => {
            "a command is one program: write its arguments into `args`".to_owned()
        }
        ResolveError::NotFound { path: Some(path), .. } => {
            format!("it is in none of the directories of PATH: {}", path.to_string_lossy())
        }
        ResolveError::NotFound { path: None, .. } => "check the path; it is taken relative to `cwd`".to_owned(),
        ResolveError::NotExecutable { path, .. } => format!("make it executable: chmod +x {}", path.display()),
    };
    Err((error.to_string(), hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read;

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
                "leash.json:10:13: server `cwd`: `/nowhere` is not a directory (check its `cwd`; it is taken relative to where leash was started)",
            ],
        );
    }

    #[test]
    fn a_mistake_without_a_file_has_no_line() {
        let line = CommandLine { command: "no-such-program".to_owned(), ..CommandLine::default() };
        let settings = crate::config::single("a", Target::Command(line), Default::default()).expect("valid");
        let found = check_commands(&settings, Some(OsStr::new("/bin")));
        assert_eq!(found[0].to_string(), "command: server `a`: command `no-such-program` was not found");
    }
}
