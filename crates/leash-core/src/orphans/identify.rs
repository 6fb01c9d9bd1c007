//! Is it an MCP server, and which? By the exact command of a client's configuration, or by a known package; never by a word in
//! its name. Between the configuration and the process stand npx, uvx, shells and interpreters: each form is led back to what
//! was meant.

use std::path::Path;

use super::knowledge::{Declared, HostPattern, Knowledge, Package};
use super::verdict::Evidence;

/// What a command line starts in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// A program, a script, a module or a package.
    what: String,
    by: Starter,
    args: Vec<String>,
}

/// Who starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starter {
    /// The kernel.
    Exec,
    /// node, bun, deno or python, from a file.
    Interpreter,
    /// python, by the name of a module.
    Module,
    /// npx, uvx and the like, by the name of a package.
    Runner,
}

/// What is known, made ready for many questions.
#[derive(Debug)]
pub struct Matcher<'a> {
    declared: Vec<(&'a Declared, Option<Launch>)>,
    packages: &'a [Package],
    hosts: &'a [HostPattern],
}

impl<'a> Matcher<'a> {
    /// Reads what is known once.
    pub fn new(knowledge: &'a Knowledge) -> Matcher<'a> {
        let launch = |declared: &'a Declared| (declared, Launch::of(&declared.command));
        Matcher {
            declared: knowledge.declared.iter().map(launch).collect(),
            packages: &knowledge.packages,
            hosts: &knowledge.hosts,
        }
    }

    /// Why a command line is taken for that of an MCP server; `None`: it is not.
    pub fn server(&self, argv: &[String]) -> Option<Evidence> {
        let launch = Launch::of(argv)?;
        let is_meant = |(declared, meant): &&(&Declared, Option<Launch>)| {
            same_words(argv, &declared.command) || meant.as_ref().is_some_and(|meant| launch.is(meant))
        };
        if let Some((declared, _)) = self.declared.iter().find(is_meant) {
            return Some(Evidence::Declared { client: declared.client.clone(), name: declared.name.clone() });
        }
        let package = self.packages.iter().find(|package| launch.is_package(package))?;
        Some(Evidence::Package { package: package_name(&launch.what, package) })
    }

    /// The client whose program this is.
    pub fn host(&self, comm: &str, argv: &[String]) -> Option<&'a HostPattern> {
        let first = argv.first().map(|first| base(first)).unwrap_or_default();
        // The title may have been overwritten: "claude --resume" in one piece.
        let first = first.split_ascii_whitespace().next().unwrap_or_default();
        let script = argv.iter().skip(1).find(|word| !word.starts_with('-'));
        self.hosts.iter().find(|host| {
            host.names.iter().any(|name| name == comm || name == first)
                || script.is_some_and(|script| host.scripts.iter().any(|part| is_part(script, part)))
        })
    }
}

/// A part that ends with a slash is a directory, anywhere in the path; another is the end of it.
fn is_part(script: &str, part: &str) -> bool {
    if part.ends_with('/') { script.contains(part) } else { script.ends_with(part) }
}

fn same_words(argv: &[String], declared: &[String]) -> bool {
    match (argv.split_first(), declared.split_first()) {
        (Some((program, args)), Some((meant, meant_args))) => {
            same_program(program, meant) && same_args(args, meant_args)
        }
        _ => false,
    }
}

/// Whether the arguments are the declared ones. What the client fills in (`${HOME}`) may be anything.
fn same_args(args: &[String], declared: &[String]) -> bool {
    let same = |(arg, declared): (&String, &String)| arg == declared || declared.contains("${");
    args.len() == declared.len() && args.iter().zip(declared).all(same)
}

/// A name without a directory was looked for in PATH.
fn same_program(a: &str, b: &str) -> bool {
    a == b || ((!a.contains('/') || !b.contains('/')) && base(a) == base(b))
}

impl Launch {
    /// What these words start. `None` when there are none.
    fn of(argv: &[String]) -> Option<Launch> {
        let mut words: Vec<String> = match argv {
            // npm writes over its arguments: "npm exec @scope/server /home" in one piece.
            [title] if title.contains(' ') => title.split_ascii_whitespace().map(str::to_owned).collect(),
            _ => argv.to_vec(),
        };
        // As deep as wrappers may be nested; a real command has two or three.
        for _ in 0..8 {
            match unwrap(&words) {
                Some(inner) => words = inner,
                None => break,
            }
        }
        interpret(&words).or_else(|| {
            let (what, args) = words.split_first()?;
            Some(Launch { what: what.clone(), by: Starter::Exec, args: args.to_vec() })
        })
    }

    /// Whether this is a form of what was meant.
    fn is(&self, meant: &Launch) -> bool {
        if !same_args(&self.args, &meant.args) {
            return false;
        }
        match (self.by, meant.by) {
            (Starter::Runner, Starter::Runner) => unversioned(&self.what) == unversioned(&meant.what),
            // What npx and uvx start in the end is a file of the package.
            (Starter::Interpreter | Starter::Exec, Starter::Runner) => comes_from(&self.what, unversioned(&meant.what)),
            // `#!/usr/bin/env node`.
            (Starter::Interpreter, Starter::Exec) => {
                same_program(&self.what, &meant.what) || is_shim(&self.what, &meant.what)
            }
            (Starter::Exec, Starter::Exec)
            | (Starter::Interpreter, Starter::Interpreter)
            | (Starter::Module, Starter::Module) => same_program(&self.what, &meant.what),
            (Starter::Exec | Starter::Module | Starter::Interpreter, _) | (Starter::Runner, _) => false,
        }
    }

    fn is_package(&self, package: &Package) -> bool {
        let name = package.name.strip_suffix('*');
        match self.by {
            Starter::Runner => match name {
                Some(beginning) => unversioned(&self.what).starts_with(beginning),
                None => unversioned(&self.what) == package.name,
            },
            Starter::Module => name.is_none() && self.what.split('.').next() == Some(&package.name.replace('-', "_")),
            Starter::Interpreter => match name {
                Some(beginning) => self.what.contains(&format!("/node_modules/{beginning}")),
                None => {
                    comes_from(&self.what, &package.name)
                        || package.programs.iter().any(|program| is_installed_as(&self.what, program))
                }
            },
            // A program of its own may have any name.
            Starter::Exec => false,
        }
    }
}

/// Whether a file is the program, or lies in the directory, of a package.
fn comes_from(path: &str, package: &str) -> bool {
    let last = package.rsplit('/').next().unwrap_or(package);
    let scoped = package.starts_with('@');
    path.contains(&format!("/node_modules/{package}/"))
        || is_installed_as(path, last) && !scoped
        || scoped
            && (is_installed_as(path, &format!("mcp-{last}")) || is_installed_as(path, last) && path.contains("/_npx/"))
}

/// Whether a path is where installers put a package's program.
fn is_installed_as(path: &str, program: &str) -> bool {
    let in_bin = Path::new(path).parent().is_some_and(|dir| dir.ends_with(".bin") || dir.ends_with("bin"));
    in_bin && base(path) == program
}

/// A program in PATH is often a link that its interpreter is given by another path: `/usr/local/bin/x` for `x`.
fn is_shim(path: &str, program: &str) -> bool {
    !program.contains('/') && is_installed_as(path, program)
}

fn package_name(what: &str, package: &Package) -> String {
    match package.name.strip_suffix('*') {
        None => package.name.clone(),
        Some(beginning) => {
            let rest = what.find(beginning).map_or(what, |at| &what[at + beginning.len()..]);
            let rest = rest.split('/').next().unwrap_or_default();
            format!("{beginning}{}", unversioned(rest))
        }
    }
}

/// `@scope/name@1.2` and `name==1.2` without the version.
fn unversioned(package: &str) -> &str {
    let name = package.split("==").next().unwrap_or(package);
    match name.char_indices().skip(1).find(|(_, c)| *c == '@') {
        Some((at, _)) => &name[..at],
        None => name,
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// One wrapper less. `None` when there is none.
fn unwrap(words: &[String]) -> Option<Vec<String>> {
    let (program, rest) = words.split_first()?;
    let rest_from = |at: usize| (at < rest.len()).then(|| rest[at..].to_vec());
    match base(program).trim_start_matches('-') {
        "env" => rest_from(rest.iter().position(|word| !word.starts_with('-') && !word.contains('='))?),
        "nohup" | "setsid" | "exec" | "command" => rest_from(rest.iter().position(|word| !word.starts_with('-'))?),
        "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" => {
            let at = rest.iter().position(|word| word == "-c" || word == "-lc")?;
            let mut words = simple_words(rest.get(at + 1)?)?;
            // npm: sh -c 'mcp-server "$@"' sh ARGS would need a shell to understand; it is matched by its other processes.
            if words.first().is_some_and(|first| first == "exec") {
                words.remove(0);
            }
            Some(words).filter(|words| !words.is_empty())
        }
        // A script with a shell's first line.
        _ => None,
    }
}

/// The words of a shell command that is nothing but words, quoted or not.
fn simple_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"'), '$' | '`' | '\\') => return None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '$' | '`' | '\\' | ';' | '&' | '|' | '<' | '>' | '(' | ')' | '*' | '?' | '#' | '~' | '{') => {
                return None;
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// What an interpreter or a package runner is told to start.
fn interpret(words: &[String]) -> Option<Launch> {
    let (program, rest) = words.split_first()?;
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let name = base(program);
    match (name, rest.as_slice()) {
        ("npx" | "bunx" | "pnpx", rest) => runner(rest),
        ("npm", ["exec" | "x", rest @ ..]) | ("pnpm" | "yarn", ["dlx", rest @ ..]) => runner(rest),
        ("bun", ["x", rest @ ..]) => runner(rest),
        ("uvx", rest)
        | ("uv", ["tool", "run", rest @ ..])
        | ("uv", ["run", rest @ ..])
        | ("pipx", ["run", rest @ ..]) => runner(rest),
        ("node" | "nodejs", [script, rest @ ..]) if base(script) == "npx-cli.js" => runner(rest),
        ("node" | "nodejs", [script, "exec" | "x", rest @ ..]) if base(script) == "npm-cli.js" => runner(rest),
        ("node" | "nodejs" | "deno" | "tsx" | "ts-node", rest) => {
            script(rest, &["-r", "--require", "--import", "--loader"])
        }
        ("bun", rest) => script(rest, &[]),
        (name, rest) if is_python(name) => python(rest),
        _ => None,
    }
}

fn is_python(name: &str) -> bool {
    name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The package a runner is told to run. `-p` and `--from` only say where to find its program.
fn runner(words: &[&str]) -> Option<Launch> {
    const WITH_VALUE: [&str; 8] =
        ["-p", "--package", "--from", "--with", "--python", "--directory", "--project", "--index-url"];
    let at = first_operand(words, &WITH_VALUE)?;
    launch(words, at, Starter::Runner)
}

fn script(words: &[&str], with_value: &[&str]) -> Option<Launch> {
    let words = if words.first() == Some(&"run") { &words[1..] } else { words };
    if words.iter().any(|word| matches!(*word, "-e" | "--eval" | "-p" | "--print")) {
        return None;
    }
    launch(words, first_operand(words, with_value)?, Starter::Interpreter)
}

fn python(words: &[&str]) -> Option<Launch> {
    let mut at = 0;
    loop {
        match *words.get(at)? {
            "-c" => return None,
            "-m" => return launch(words, at + 1, Starter::Module),
            "-W" | "-X" => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => return launch(words, at, Starter::Interpreter),
        }
    }
}

fn launch(words: &[&str], at: usize, by: Starter) -> Option<Launch> {
    let what = (*words.get(at)?).to_owned();
    Some(Launch { what, by, args: words[at + 1..].iter().map(|word| (*word).to_owned()).collect() })
}

/// The first word that is no option and no option's value.
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

#[cfg(test)]
mod tests;
