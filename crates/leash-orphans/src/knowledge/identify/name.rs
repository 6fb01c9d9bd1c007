//! The name of a server, by its command line: what it is, not the program that starts it.

use super::base;
use super::launch::{LaunchedProgram, Launcher};

/// Names of files and directories that say nothing about a server.
const PLAIN_NAMES: [&str; 13] =
    ["index", "main", "server", "cli", "app", "run", "start", "dist", "build", "src", "lib", "bin", "out"];

/// Options of container engines that take a value.
const WITH_VALUE: [&str; 25] = [
    "-e",
    "--env",
    "--env-file",
    "-v",
    "--volume",
    "--mount",
    "--name",
    "-p",
    "--publish",
    "--network",
    "--net",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--entrypoint",
    "-l",
    "--label",
    "--platform",
    "-m",
    "--memory",
    "--cpus",
    "--add-host",
    "--tmpfs",
    "--pull",
];

/// The name of the server that these words start: its package, script, module, image or program. `None` if there are no
/// words.
pub fn server_name(argv: &[String]) -> Option<String> {
    let launch = LaunchedProgram::of(argv)?;
    let name = match launch.launcher {
        Launcher::Runner => package(&launch.target),
        Launcher::Module => launch.target.replace('_', "-"),
        Launcher::Interpreter => script(&launch.target),
        Launcher::Exec => image(&launch).unwrap_or_else(|| base(&launch.target).to_owned()),
    };
    Some(name).filter(|name| !name.is_empty())
}

/// A package without its scope and its version: `@scope/server@1.2` is `server`.
fn package(word: &str) -> String {
    let word = word.trim_end_matches('/').trim_end_matches(".git");
    let last = base(word);
    // A version follows an `@`, or one of pip's operators.
    let end =
        last.char_indices().skip(1).find(|(_, letter)| "@=<>~![".contains(*letter)).map_or(last.len(), |(at, _)| at);
    last[..end].to_owned()
}

/// The name of a script: its package below `node_modules`, its file, or the nearest directory with a name of its own.
fn script(path: &str) -> String {
    if let Some((_, inside)) = path.rsplit_once("node_modules/") {
        let mut parts = inside.split('/');
        let first = parts.next().unwrap_or_default();
        return if first.starts_with('@') { parts.next().unwrap_or(first) } else { first }.to_owned();
    }
    let stem = |part: &str| {
        part.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map_or(part, |(stem, _)| stem).to_owned()
    };
    let mut names = path.split('/').rev().filter(|part| !matches!(*part, "" | "." | "..")).map(stem);
    let first = names.next().unwrap_or_default();
    if !PLAIN_NAMES.contains(&first.as_str()) {
        return first;
    }
    names.find(|name| !PLAIN_NAMES.contains(&name.as_str())).unwrap_or(first)
}

/// The image that a container engine runs, without its registry and its tag.
fn image(launch: &LaunchedProgram) -> Option<String> {
    if !matches!(base(&launch.target), "docker" | "podman" | "nerdctl") {
        return None;
    }
    let run = launch.args.iter().position(|word| word == "run")?;
    let mut words = launch.args[run + 1..].iter();
    loop {
        match words.next()?.as_str() {
            option if WITH_VALUE.contains(&option) => _ = words.next(),
            option if option.starts_with('-') => {}
            image => return base(image).split([':', '@']).next().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_called_by_what_it_is() {
        for (line, name) in [
            ("npx -y @modelcontextprotocol/server-everything", "server-everything"),
            ("npx -y @playwright/mcp@latest --headless", "mcp"),
            ("uvx mcp-server-git==1.2 --repository /x", "mcp-server-git"),
            ("uvx --from git+https://github.com/o/r serena", "serena"),
            ("python3 -m mcp_server_git", "mcp-server-git"),
            ("uv run --directory /x server.py", "server"),
            ("node /opt/notes/dist/index.js", "notes"),
            ("node /x/node_modules/@o/tool/dist/index.js", "tool"),
            ("node ./weather.mjs", "weather"),
            ("docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:1", "github-mcp-server"),
            ("/usr/local/bin/mcp-files --root /", "mcp-files"),
            ("env A=1 mcp-files", "mcp-files"),
            ("sh -c cat", "cat"),
            ("cat", "cat"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(server_name(&words).as_deref(), Some(name), "{line}");
        }
        assert_eq!(server_name(&[]), None);
    }
}
