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

/// Scripts with which node only runs another program, for package managers.
const NODE_WRAPPERS: [&str; 10] =
    ["npm-cli.js", "npx-cli.js", "npm", "npx", "pnpm.cjs", "pnpx.cjs", "pnpm", "pnpx", "yarn.js", "yarn"];

/// The launcher of our npm package, by its file and by the links to it.
const LAUNCHERS: [&str; 3] = ["leash.cjs", "leash", "mcp-leash"];

/// True if a process is a wrapper, by its short name and its arguments.
pub fn is_wrapper(comm: &str, argv: &[String]) -> bool {
    // npm overwrites its arguments with a title: "npm exec @scope/server".
    let program = base(argv.first().map_or(comm, String::as_str));
    let mut arguments = argv.iter().skip(1).map(String::as_str);
    if WRAPPERS.contains(&program.as_str()) {
        return true;
    }
    if SHELLS.contains(&program.as_str()) {
        return arguments.any(|argument| argument == "-c" || !argument.starts_with('-'));
    }
    // A project has its own yarn: `.yarn/releases/yarn-4.17.1.cjs`.
    let is_own_yarn = |script: &str| script.starts_with("yarn-") && script.ends_with(".cjs");
    let runs = |script: String| NODE_WRAPPERS.contains(&script.as_str()) || is_own_yarn(&script);
    is_launcher(argv) || node_script(argv).is_some_and(runs)
}

/// True if a process is the launcher of our npm package, which Node runs, by its arguments.
pub fn is_launcher(argv: &[String]) -> bool {
    node_script(argv).is_some_and(|script| LAUNCHERS.contains(&script.as_str()))
}

/// The name of the script that Node runs. Yarn puts `--require PATH/.pnp.cjs` in front of it.
fn node_script(argv: &[String]) -> Option<String> {
    let (program, arguments) = argv.split_first()?;
    let script = arguments.iter().find(|word| !word.starts_with('-') && !word.ends_with("/.pnp.cjs"))?;
    (base(program) == "node").then(|| base(script))
}

/// The file name of the first word.
fn base(text: &str) -> String {
    let word = text.split_ascii_whitespace().next().unwrap_or_default();
    let name = Path::new(word).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A login shell is written with a dash.
    name.trim_start_matches('-').to_owned()
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
        check(&["node", "/p/.yarn/releases/yarn-4.17.1.cjs", "leash"], true);
        check(&["/usr/bin/node", "/p/node_modules/.bin/leash", "run", "--", "x"], true);
        let launcher = "/p/.yarn/cache/mcp-leash-npm-1.zip/node_modules/mcp-leash/bin/leash.cjs";
        check(&["node", "--require", "/p/.pnp.cjs", launcher, "run"], true);
        check(&["/usr/bin/env", "A=b", "leash"], true);
        check(&["uvx", "mcp-server-git"], true);
    }

    #[test]
    fn only_our_launcher_is_one() {
        let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(is_launcher(&argv(&["node", "/p/node_modules/.bin/mcp-leash", "run"])));
        assert!(!is_launcher(&argv(&["node", "/usr/bin/npx", "leash"])));
        assert!(!is_launcher(&argv(&["leash", "run"])));
    }

    #[test]
    fn hosts_and_login_shells_are_not_wrappers() {
        check(&["-bash"], false);
        check(&["zsh", "-i"], false);
        check(&["claude"], false);
        check(&["node", "/opt/host/index.js"], false);
        check(&["node", "--require", "/p/.pnp.cjs", "host.js", "leash"], false);
        check(&["node"], false);
        check(&["python3", "host.py"], false);
        check(&[], false);
    }
}
