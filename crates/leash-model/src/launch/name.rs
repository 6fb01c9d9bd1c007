//! The name of a server, by its command line: what it is, not the program that starts it.

use std::path::{Component, Path, PathBuf};

use super::wrapper::shell_text;
use super::{LaunchedProgram, Launcher, first_operand, program_name};
use crate::limits::LABEL_LENGTH;

/// Names of files, directories and packages that say nothing about a server.
const PLAIN_NAMES: [&str; 15] = [
    "index",
    "main",
    "server",
    "cli",
    "app",
    "run",
    "start",
    "dist",
    "build",
    "src",
    "lib",
    "bin",
    "out",
    "mcp",
    "mcp-server",
];

/// Options of container engines that take a value.
const CONTAINER_OPTIONS: [&str; 25] = [
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

/// The deepest nesting of command lines in a command line; a real one has two levels.
const DEPTH: usize = 4;

/// The name of the server that these words start: its package, script, module, image or program. `None` if there are no
/// words.
pub fn server_name(argv: &[String]) -> Option<String> {
    server_name_in(argv, None, &|_| None)
}

/// The same for a command that starts in `directory`. `package_in` is the name of the package in a directory, if its
/// `package.json` has one.
pub fn server_name_in(
    argv: &[String],
    directory: Option<&Path>,
    package_in: &dyn Fn(&Path) -> Option<String>,
) -> Option<String> {
    let name = NameSearch { directory, package_in }.name(argv, DEPTH)?;
    // A file may have any name; a name in a listing is one short line.
    let mut name: String = name.chars().filter(|letter| !letter.is_control()).collect();
    name.truncate(name.floor_char_boundary(LABEL_LENGTH));
    Some(name).filter(|name| !name.is_empty())
}

struct NameSearch<'a> {
    directory: Option<&'a Path>,
    package_in: &'a dyn Fn(&Path) -> Option<String>,
}

impl NameSearch<'_> {
    fn name(&self, argv: &[String], depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let launch = LaunchedProgram::of(argv)?;
        if launch.name.is_some() {
            return launch.name;
        }
        let args: Vec<&str> = launch.args.iter().map(String::as_str).collect();
        let directory = launch.directory.as_deref();
        let name = match (launch.launcher, &args[..]) {
            // `mcp run server.py`, with the command of the Python SDK.
            (Launcher::Runner, ["run" | "dev", file, ..]) if matches!(&*launch.target, "mcp" | "fastmcp") => {
                self.script(file, directory)
            }
            // `npx .` starts the package of a directory.
            (Launcher::Runner, _) if launch.target.starts_with('.') => {
                self.of_directory(&self.path(&launch.target, None)).unwrap_or_else(|| launch.target.clone())
            }
            (Launcher::Runner, _) => short_package(&launch.target),
            (Launcher::Module, _) => module(&launch.target),
            (Launcher::Interpreter, _) => self.script(&launch.target, directory),
            (Launcher::Exec, args) => {
                let program = program_name(&launch.target);
                self.of_tool(program, args, depth).unwrap_or_else(|| program.to_owned())
            }
        };
        Some(name)
    }

    /// The name of the server that a tool starts. `None` if the program is no such tool.
    fn of_tool(&self, program: &str, args: &[&str], depth: usize) -> Option<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let script = |args: &[&str]| Some(self.script(args.get(first_operand(args, &["-I", "-C", "-tags"])?)?, None));
        match (program, args) {
            ("docker" | "podman" | "nerdctl", args) => container(args),
            ("sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "fish", args) => match shell_text(args) {
                Some(text) => self.name(&last_command(text)?, depth),
                None => script(args),
            },
            ("npm" | "pnpm" | "yarn" | "bun", args) => self.of_project(args),
            ("poetry" | "pipenv" | "pdm" | "hatch" | "rye", ["run", args @ ..]) => self.name(&words(args), depth),
            ("conda" | "mamba", ["run", args @ ..]) => {
                self.name(&words(&args[first_operand(args, &["-n", "--name", "-p", "--prefix"])?..]), depth)
            }
            ("cargo", args) => option(args, &["-p", "--package", "--bin"]).map(str::to_owned),
            ("java", args) => option(args, &["-jar"]).map(|jar| self.script(jar, None)),
            ("dotnet", ["run", args @ ..]) => option(args, &["--project"]).map(|project| self.script(project, None)),
            ("go", ["run", args @ ..]) => script(args),
            ("dotnet" | "ruby" | "perl" | "php", args) => script(args),
            _ => None,
        }
    }

    /// The name of a script of a project (`npm run NAME`): that of the project's package or directory, or its own.
    fn of_project(&self, args: &[&str]) -> Option<String> {
        const DIRECTORY: [&str; 4] = ["--prefix", "-C", "--cwd", "--dir"];
        let at = first_operand(args, &DIRECTORY)?;
        let operands: Vec<&str> = args[at..].iter().filter(|word| !word.starts_with('-')).copied().collect();
        let own = match operands[..] {
            ["run" | "run-script", name, ..] => Some(name.to_owned()),
            ["start", ..] => None,
            _ => return None,
        };
        self.of_directory(&self.path(".", option(args, &DIRECTORY))).or(own)
    }

    /// The name of a script: its package below `node_modules`, its file, or that of its directory.
    fn script(&self, path: &str, directory: Option<&str>) -> String {
        if let Some((_, inside)) = path.rsplit_once("node_modules/") {
            let mut parts = inside.splitn(3, '/');
            let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            return match first {
                ".bin" => second.to_owned(),
                _ if first.starts_with('@') => short_package(&format!("{first}/{second}")),
                _ => first.to_owned(),
            };
        }
        if path.starts_with("npm:") || path.starts_with("jsr:") {
            return short_package(path);
        }
        let path = self.path(path, directory);
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = stem.split('@').next().unwrap_or_default().to_owned();
        if !PLAIN_NAMES.contains(&stem.as_str()) {
            return stem;
        }
        path.parent().and_then(|parent| self.of_directory(parent)).unwrap_or(stem)
    }

    /// The name of the package in this directory, or of the directory. Directories such as `dist` have none, so their
    /// parents count.
    fn of_directory(&self, directory: &Path) -> Option<String> {
        for dir in directory.ancestors() {
            if let Some(package_name) = (self.package_in)(dir) {
                return Some(short_package(&package_name)).filter(|name| !name.is_empty());
            }
            let name = dir.file_name()?.to_str()?;
            if !PLAIN_NAMES.contains(&name) {
                return (!is_home_or_top(dir)).then(|| name.to_owned());
            }
        }
        None
    }

    /// A path of the command line, as far as its directory is known.
    fn path(&self, path: &str, directory: Option<&str>) -> PathBuf {
        let is_windows = path.contains('\\') && !path.contains('/');
        let path = if is_windows { path.replace('\\', "/") } else { path.to_owned() };
        let base = self.directory.unwrap_or(Path::new("")).join(directory.unwrap_or_default());
        let mut whole = PathBuf::new();
        for part in base.join(path).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => _ = whole.pop(),
                part => whole.push(part),
            }
        }
        whole
    }
}

/// True for `/opt` and `/home/USER`, which say nothing about a server in them.
fn is_home_or_top(dir: &Path) -> bool {
    let parts: Vec<_> = dir.iter().map(|part| part.to_string_lossy()).collect();
    matches!(&parts[..], [root, _] if root == "/")
        || matches!(&parts[..], [.., home, _] if home == "home" || home == "Users")
}

/// A package without its scope and its version: `@scope/server-git@1.2` is `server-git`. The scope if only that says
/// something: `@playwright/mcp` is `playwright`.
pub fn short_package(word: &str) -> String {
    let word = word.trim_end_matches('/');
    let mut parts = word.rsplit('/').map(|part| {
        let part = part.rsplit(':').next().unwrap_or(part);
        // A version follows an `@`, or one of pip's operators; a branch follows a `#`.
        let end = part.char_indices().skip(1).find(|(_, letter)| "@=<>~![#".contains(*letter));
        part[..end.map_or(part.len(), |(at, _)| at)].trim_end_matches(".git").trim_start_matches('@')
    });
    significant(&mut parts)
}

/// The image of a container without its registry and its tag: `ghcr.io/acme/notes:1` is `notes`.
fn image(word: &str) -> String {
    significant(&mut word.rsplit('/').map(|part| part.split([':', '@']).next().unwrap_or_default()))
}

/// The first of these words, or the second if the first says nothing.
fn significant<'a>(parts: &mut impl Iterator<Item = &'a str>) -> String {
    let first = parts.next().unwrap_or_default();
    let second = if PLAIN_NAMES.contains(&first) { parts.next() } else { None };
    second.filter(|second| !second.is_empty()).unwrap_or(first).to_owned()
}

/// A module as its package is written: `mcp_server_git.server` is `mcp-server-git`.
fn module(name: &str) -> String {
    let says = |part: &&str| !PLAIN_NAMES.contains(part) && *part != "__main__";
    name.rsplit('.').find(says).unwrap_or(name).replace('_', "-")
}

/// The image or the container that a container engine runs.
fn container(args: &[&str]) -> Option<String> {
    let at = args.iter().position(|word| matches!(*word, "run" | "exec"))?;
    let args = &args[at + 1..];
    Some(image(args.get(first_operand(args, &CONTAINER_OPTIONS)?)?))
}

/// The value of the first of these options, as two words or as one.
fn option<'a>(args: &[&'a str], names: &[&str]) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
        Some((name, value)) if names.contains(&name) => Some(value),
        _ if names.contains(word) => args.get(at + 1).copied(),
        _ => None,
    })
}

/// The words of the last command in a shell's text: `cd /srv && exec npx server` starts `npx server`. `None` if the
/// text ends with something else than a plain command.
fn last_command(text: &str) -> Option<Vec<String>> {
    const KEYWORDS: [&str; 6] = ["done", "fi", "esac", "wait", "exit", "return"];
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    for token in text.split_whitespace() {
        let word = token.trim_end_matches([';', '&', ')']);
        let is_plain = !word.is_empty() && !word.contains(['<', '>']);
        // A variable before a command is set for it: `A=1 npx server`.
        let command = commands.last_mut()?;
        let is_variable = command.is_empty() && word.contains('=');
        if is_plain && !is_variable {
            command.push(word.trim_matches(['"', '\'']).to_owned());
        }
        if word.len() < token.len() || token == "||" {
            commands.push(Vec::new());
        }
    }
    let last = commands.into_iter().rfind(|command| command.iter().any(|word| word != "||"))?;
    let command: Vec<String> = last.into_iter().take_while(|word| word != "|").collect();
    let is_name = |word: &String| word.starts_with(|letter: char| letter.is_alphanumeric() || "/._@".contains(letter));
    let first = command.first().filter(|first| is_name(first) && !KEYWORDS.contains(&first.as_str()));
    first.is_some().then_some(command)
}

#[cfg(test)]
mod tests;
