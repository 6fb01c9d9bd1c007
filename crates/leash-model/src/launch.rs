//! Reduces a command line to the program that it finally starts, behind shells, `env`, package runners and
//! interpreters, and gives the server a name.

mod name;
mod wrapper;

pub use name::{server_name, server_name_in, short_package};
pub use wrapper::after_run_options;
use wrapper::unwrap;

/// The program that a command line finally starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchedProgram {
    /// A program, a script, a module or a package.
    pub target: String,
    /// The program that starts it.
    pub launcher: Launcher,
    /// Its arguments.
    pub args: Vec<String>,
    /// The directory that the command line itself names (`uv --directory`).
    pub directory: Option<String>,
    /// The interpreter, for a module: it decides where modules are searched.
    pub interpreter: Option<String>,
    /// A program of the project that the directory belongs to (`uv run NAME`).
    pub of_project: bool,
    /// The name that `leash run --name` gives it.
    pub name: Option<String>,
}

/// The program that starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// The kernel.
    Exec,
    /// node, bun, deno or python, from a file.
    Interpreter,
    /// python, by the name of a module.
    Module,
    /// npx, uvx and the like, by the name of a package.
    Runner,
}

/// Programs whose action depends on the project in their directory, or that run a file of it.
const PROJECT_TOOLS: [&str; 40] = [
    "sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "npm", "pnpm", "yarn", "bun", "deno", "node", "nodejs", "make",
    "just", "task", "cargo", "go", "poetry", "pipenv", "pdm", "hatch", "rye", "uv", "bundle", "rake", "ruby", "perl",
    "php", "composer", "lua", "java", "gradle", "mvn", "dotnet", "mix", "nix", "direnv", "mise",
];

/// Endings of files that another program runs.
const SCRIPTS: [&str; 16] = [
    ".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx", ".sh", ".rb", ".pl", ".php", ".lua", ".jar",
    ".dll",
];

/// Packages that only run a script.
const SCRIPT_RUNNERS: [&str; 7] = ["tsx", "ts-node", "nodemon", "vite-node", "node", "bun", "deno"];

impl LaunchedProgram {
    /// The program that these words start. `None` if there are no words.
    pub fn of(argv: &[String]) -> Option<LaunchedProgram> {
        let is_title = |text: &str| text.split_once(' ').is_some_and(|(first, _)| !first.contains('/'));
        let mut words: Vec<String> = match argv {
            // npm writes over its arguments: "npm exec @scope/server /home" in one piece.
            [title] if is_title(title) => title.split_ascii_whitespace().map(str::to_owned).collect(),
            _ => argv.to_vec(),
        };
        let mut name = None;
        // The maximum nesting of wrappers; a real command has two or three.
        for _ in 0..8 {
            let Some(inner) = unwrap(&words) else { break };
            words = inner.words;
            name = inner.name.or(name);
        }
        let (target, args) = words.split_first()?;
        let rest: Vec<&str> = args.iter().map(String::as_str).collect();
        let found = interpret(target, &rest)
            .or_else(|| launch(&[&[target.as_str()], &rest[..]].concat(), 0, Launcher::Exec))?;
        Some(LaunchedProgram { name, ..found })
    }

    /// True if the same words start something else in another directory.
    pub fn depends_on_directory(&self) -> bool {
        let by_target = match self.launcher {
            Launcher::Exec if self.target.contains('/') => !self.target.starts_with('/'),
            Launcher::Exec => {
                PROJECT_TOOLS.contains(&program_name(&self.target)) && !self.args.iter().any(|arg| is_anchored(arg))
            }
            Launcher::Interpreter => !self.target.starts_with('/'),
            // Python looks for modules in the working directory first.
            Launcher::Module => true,
            Launcher::Runner => self.of_project || self.target.starts_with('.'),
        };
        by_target || self.args.iter().any(|arg| is_relative_path(arg))
    }

    /// True if both run modules of the same virtual environment, which does not depend on the directory.
    pub fn shares_environment(&self, other: &LaunchedProgram) -> bool {
        const SYSTEM: [&str; 3] = ["/usr/bin/", "/usr/local/bin/", "/bin/"];
        let own = |path: &&String| path.starts_with('/') && !SYSTEM.iter().any(|dir| path.starts_with(dir));
        self.launcher == Launcher::Module
            && self.interpreter.as_ref().filter(own).is_some()
            && self.interpreter == other.interpreter
    }
}

/// True if a word contains an absolute path.
fn is_anchored(word: &str) -> bool {
    word.starts_with('/') || [" /", "=/", "\"/", "'/"].iter().any(|place| word.contains(place))
}

/// True if an argument looks like a path below the working directory.
fn is_relative_path(arg: &str) -> bool {
    let value = match arg.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ => arg,
    };
    let is_script = || {
        !value.starts_with(['/', '-', '$']) && !value.contains("://") && SCRIPTS.iter().any(|end| value.ends_with(end))
    };
    matches!(value, "." | "..") || value.starts_with("./") || value.starts_with("../") || is_script()
}

/// The program that an interpreter or a package runner is told to start.
fn interpret(program: &str, rest: &[&str]) -> Option<LaunchedProgram> {
    match (program_name(program), rest) {
        ("npx" | "bunx" | "pnpx" | "uvx", rest) => runner(rest),
        ("npm", ["exec" | "x", rest @ ..]) | ("pnpm" | "yarn", ["dlx", rest @ ..]) => runner(rest),
        ("bun", ["x", rest @ ..]) | ("pipx", ["run", rest @ ..]) => runner(rest),
        ("uv", rest) => uv(rest),
        ("node" | "nodejs", [script, rest @ ..]) if program_name(script) == "npx-cli.js" => runner(rest),
        ("node" | "nodejs", [script, "exec" | "x", rest @ ..]) if program_name(script) == "npm-cli.js" => runner(rest),
        ("node" | "nodejs" | "deno" | "tsx" | "ts-node" | "nodemon" | "vite-node", rest) => {
            let rest = rest.strip_prefix(&["watch"]).unwrap_or(rest);
            script(rest, &["-r", "--require", "--import", "--loader", "--env-file", "--tsconfig", "--config"])
        }
        ("bun", rest) => script(rest, &[]),
        (name, rest) if is_python(name) => python(program, rest),
        _ => None,
    }
}

/// The file name of a program, without the ending that Windows gives to programs.
pub fn program_name(word: &str) -> &str {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word).trim_start_matches('-');
    [".exe", ".cmd", ".bat"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

fn is_python(name: &str) -> bool {
    name == "py"
        || name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Options of runners that take a value. `-p` and `--from` only name the place of the package's program.
const WITH_VALUE: [&str; 18] = [
    "-p",
    "--package",
    "--from",
    "--with",
    "--with-editable",
    "--python",
    "--directory",
    "--project",
    "--index-url",
    "--env-file",
    "--with-requirements",
    "--extra",
    "--group",
    "--index",
    "--extra-index-url",
    "--cache-dir",
    "--registry",
    "--prefix",
];

/// The package a runner is told to run.
fn runner(words: &[&str]) -> Option<LaunchedProgram> {
    let at = first_operand(words, &WITH_VALUE)?;
    match words.get(at..)? {
        [program, rest @ ..] if SCRIPT_RUNNERS.contains(program) => interpret(program, rest),
        _ => launch(words, at, Launcher::Runner),
    }
}

/// `uv [OPTIONS] run [OPTIONS] WHAT` and `uv [OPTIONS] tool run PACKAGE`.
fn uv(words: &[&str]) -> Option<LaunchedProgram> {
    let at = first_operand(words, &WITH_VALUE)?;
    let (before, command) = words.split_at(at);
    match command {
        ["tool", "run", rest @ ..] => runner(rest),
        ["run", rest @ ..] => {
            let operand = first_operand(rest, &[&WITH_VALUE[..], &["-m", "--module"]].concat());
            let options = &rest[..operand.unwrap_or(rest.len())];
            let directory = directory(options).or_else(|| directory(before));
            let module = rest.iter().position(|word| matches!(*word, "-m" | "--module"));
            let module = module.filter(|at| operand.is_none_or(|operand| *at < operand));
            let found = match (module, operand.map(|at| &rest[at..])) {
                (Some(at), _) => launch(rest, at + 1, Launcher::Module),
                (None, Some([program, rest @ ..])) if is_python(program_name(program)) => python(program, rest),
                (None, Some(target @ [script, ..])) if script.contains('/') || script.ends_with(".py") => {
                    launch(target, 0, Launcher::Interpreter)
                }
                (None, Some(target)) => {
                    launch(target, 0, Launcher::Runner).map(|found| LaunchedProgram { of_project: true, ..found })
                }
                (None, None) => None,
            };
            found.map(|found| LaunchedProgram { directory, ..found })
        }
        _ => None,
    }
}

/// The value of `--directory`, as two words or as one.
fn directory(options: &[&str]) -> Option<String> {
    let at = options.iter().position(|word| *word == "--directory");
    let value = at.and_then(|at| options.get(at + 1).copied());
    value.or_else(|| options.iter().find_map(|word| word.strip_prefix("--directory="))).map(str::to_owned)
}

fn script(words: &[&str], with_value: &[&str]) -> Option<LaunchedProgram> {
    let words = if words.first() == Some(&"run") { &words[1..] } else { words };
    if words.iter().any(|word| matches!(*word, "-e" | "--eval" | "-p" | "--print")) {
        return None;
    }
    launch(words, first_operand(words, with_value)?, Launcher::Interpreter)
}

fn python(program: &str, words: &[&str]) -> Option<LaunchedProgram> {
    let mut at = 0;
    loop {
        match *words.get(at)? {
            "-c" => return None,
            "-m" => {
                let found = launch(words, at + 1, Launcher::Module)?;
                return Some(LaunchedProgram { interpreter: Some(program.to_owned()), ..found });
            }
            "-W" | "-X" => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => return launch(words, at, Launcher::Interpreter),
        }
    }
}

fn launch(words: &[&str], at: usize, launcher: Launcher) -> Option<LaunchedProgram> {
    let target = (*words.get(at)?).to_owned();
    let args = words[at + 1..].iter().map(|word| (*word).to_owned()).collect();
    Some(LaunchedProgram { target, launcher, args, directory: None, interpreter: None, of_project: false, name: None })
}

/// The first word that is neither an option nor an option's value.
fn first_operand(words: &[&str], with_value: &[&str]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        match *word {
            "--" => return (at + 1 < words.len()).then_some(at + 1),
            word if with_value.contains(&word) => at += 2,
            word if word.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
    None
}
