//! Programs that only start another program: `env`, `timeout`, shells, `leash run`.

use super::{first_operand, program_name};

/// A wrapper that takes options and some words of its own before the command.
struct Wrapper {
    names: &'static [&'static str],
    /// Its options that take a value.
    with_value: &'static [&'static str],
    /// The number of words between its options and the command.
    operands: usize,
}

const WRAPPERS: [Wrapper; 8] = [
    wrapper(&["nohup", "setsid", "command", "time", "caffeinate"], &[], 0),
    wrapper(&["exec"], &["-a"], 0),
    wrapper(&["nice"], &["-n", "--adjustment"], 0),
    wrapper(&["ionice"], &["-c", "--class", "-n", "--classdata"], 0),
    wrapper(&["stdbuf"], &["-i", "--input", "-o", "--output", "-e", "--error"], 0),
    wrapper(&["timeout"], &["-s", "--signal", "-k", "--kill-after"], 1),
    wrapper(&["sudo", "doas"], &["-u", "--user", "-g", "--group", "-D", "--chdir", "-C"], 0),
    wrapper(&["direnv"], &[], 2),
];

const fn wrapper(names: &'static [&'static str], with_value: &'static [&'static str], operands: usize) -> Wrapper {
    Wrapper { names, with_value, operands }
}

/// Programs whose command comes after `--`: `op run --env-file=.env -- npx server`.
const BEFORE_DASHES: [&str; 9] =
    ["mise", "op", "doppler", "infisical", "aws-vault", "chamber", "dotenv", "dotenvx", "xvfb-run"];

/// The option of `leash run` that names the server.
const NAME: &str = "--name";

/// A command without one of its wrappers.
pub(super) struct Unwrapped {
    pub(super) words: Vec<String>,
    /// The name that the wrapper gives to the server.
    pub(super) name: Option<String>,
}

/// Removes one wrapper. `None` if there is none.
pub(super) fn unwrap(words: &[String]) -> Option<Unwrapped> {
    let (program, rest) = words.split_first()?;
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let program = program_name(program);
    let words = match program {
        "env" => environment(&rest)?,
        "leash" | "mcp-leash" => return leash_run(&rest),
        "cmd" => rest.iter().position(|word| word.eq_ignore_ascii_case("/c")).map(|at| owned(&rest[at + 1..]))?,
        "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" => {
            // npm: sh -c 'mcp-server "$@"' sh ARGS needs a shell to interpret; its other processes are matched
            // instead.
            simple_words(shell_text(&rest)?)?
        }
        _ if BEFORE_DASHES.contains(&program) => {
            rest.iter().position(|word| *word == "--").map(|at| owned(&rest[at + 1..]))?
        }
        _ => {
            let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&program))?;
            let at = first_operand(&rest, wrapper.with_value)? + wrapper.operands;
            owned(rest.get(at..)?)
        }
    };
    (!words.is_empty()).then_some(Unwrapped { words, name: None })
}

/// The command in the arguments of a shell: `-c TEXT`, also as `-lc`.
pub(super) fn shell_text<'a>(rest: &[&'a str]) -> Option<&'a str> {
    let is_command = |word: &&str| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    rest.get(rest.iter().position(is_command)? + 1).copied()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// `env [OPTIONS] [NAME=VALUE]... COMMAND`.
fn environment(rest: &[&str]) -> Option<Vec<String>> {
    let mut at = first_operand(rest, &["-u", "--unset", "-C", "--chdir"])?;
    at += rest[at..].iter().position(|word| !word.contains('='))?;
    Some(owned(&rest[at..]))
}

/// `leash run [OPTIONS] [--] COMMAND`.
fn leash_run(rest: &[&str]) -> Option<Unwrapped> {
    let rest = rest.strip_prefix(&["run"])?;
    let at = after_run_options(rest, 0);
    let (options, words) = rest.split_at(at);
    let value = options.iter().position(|word| *word == NAME).and_then(|at| options.get(at + 1).copied());
    let value = value.or_else(|| options.iter().find_map(|word| word.strip_prefix(NAME)?.strip_prefix('=')));
    (!words.is_empty()).then(|| Unwrapped { words: owned(words), name: value.map(str::to_owned) })
}

/// The index of the first word that is neither an option of `leash run` nor an option's value. Of its options, only
/// `-v` and `--log` have no value.
pub fn after_run_options(words: &[&str], mut at: usize) -> usize {
    while let Some(word) = words.get(at) {
        match *word {
            "--" => return at + 1,
            "-v" | "--verbose" | "--log" => at += 1,
            word if word.starts_with("--") && word.contains('=') => at += 1,
            word if word.starts_with('-') => at += 2,
            _ => return at,
        }
    }
    words.len()
}

/// The words of a shell command that consists of words only, quoted or not.
pub(super) fn simple_words(text: &str) -> Option<Vec<String>> {
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
