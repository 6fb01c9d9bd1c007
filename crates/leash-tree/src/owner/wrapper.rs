//! Recognizes wrapper programs between a host and its server. In `claude -> npm exec -> sh -> leash` the owner is
//! `claude`.

use std::path::Path;

/// Programs that only run another program.
const WRAPPERS: [&str; 22] = [
    "env", "nice", "ionice", "timeout", "stdbuf", "setsid", "nohup", "sudo", "doas", "npm", "npx", "pnpm", "pnpx",
    "yarn", "bunx", "uv", "uvx", "pipx", "mise", "direnv", "chrt", "taskset",
];

/// Shells. A shell without arguments belongs to a user's terminal and owns what runs in it. With a command or a script
/// it is a wrapper.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "fish"];

/// Scripts that node runs for npm.
const NODE_WRAPPERS: [&str; 4] = ["npm-cli.js", "npx-cli.js", "npm", "npx"];

/// True if a process is a wrapper, by its short name and its arguments.
pub fn is_wrapper(comm: &str, argv: &[String]) -> bool {
    let base = |text: &str| {
        let word = text.split_ascii_whitespace().next().unwrap_or_default();
        let name = Path::new(word).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // A login shell is written with a dash.
        name.trim_start_matches('-').to_owned()
    };
    // npm overwrites its arguments with a title: "npm exec @scope/server".
    let program = argv.first().map_or_else(|| base(comm), |first| base(first));
    let arguments = argv.iter().skip(1).map(String::as_str);
    if WRAPPERS.contains(&program.as_str()) {
        return true;
    }
    if SHELLS.contains(&program.as_str()) {
        return arguments.clone().any(|argument| argument == "-c" || !argument.starts_with('-'));
    }
    program == "node" && arguments.take(1).any(|script| NODE_WRAPPERS.contains(&base(script).as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &[&str], wrapper: bool) {
        let argv: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(is_wrapper("whatever", &argv), wrapper, "{command:?}");
    }

    #[test]
    fn wrappers_are_recognized() {
        check(&["sh", "-c", "leash run -- x"], true);
        check(&["/bin/bash", "/home/u/start-server.sh"], true);
        check(&["npm exec @modelcontextprotocol/server-everything"], true);
        check(&["node", "/usr/lib/node_modules/npm/bin/npx-cli.js", "-y", "x"], true);
        check(&["/usr/bin/env", "A=b", "leash"], true);
        check(&["uvx", "mcp-server-git"], true);
    }

    #[test]
    fn hosts_and_login_shells_are_not_wrappers() {
        check(&["-bash"], false);
        check(&["zsh", "-i"], false);
        check(&["claude"], false);
        check(&["node", "/opt/host/index.js"], false);
        check(&["python3", "host.py"], false);
        check(&[], false);
    }
}
