//! The Rust source of the crates below `crates/` as tokens, without comments and without test code.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// One library or program.
pub(crate) struct Crate {
    /// The name of its folder; a program in `src/bin` has that path in its name.
    pub(crate) name: String,
    pub(crate) sources: Vec<Source>,
}

/// One file of a crate.
pub(crate) struct Source {
    /// Relative to the crate's `src`.
    pub(crate) path: PathBuf,
    /// Comments are not among the tokens, and the text of a string is one token.
    pub(crate) tokens: TokenStream,
}

/// Reads every crate below `crates/`.
pub(crate) fn crates() -> Vec<Crate> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut found = Vec::new();
    for dir in entries(&crates) {
        let name = name(&dir);
        let (programs, files): (Vec<_>, Vec<_>) =
            entries(&dir.join("src")).into_iter().partition(|path| path.ends_with("src/bin"));
        found.push(Crate { name: name.clone(), sources: read(&dir.join("src"), files) });
        for program in programs.iter().flat_map(|bin| entries(bin)) {
            let sources = read(&program, vec![program.clone()]);
            found.push(Crate { name: format!("{name}/src/bin/{}", self::name(&program)), sources });
        }
    }
    assert!(found.len() > 10, "the crates were not found");
    found
}

/// The files that are not test code, each without its test code. A file is given as its path below `src` and its text.
pub(crate) fn without_tests(files: &[(PathBuf, String)]) -> Vec<Source> {
    let (mut sources, mut tests) = (Vec::new(), Vec::new());
    for (path, text) in files {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (tokens, modules) = strip(tokens);
        let module = module(path);
        tests.extend(modules.into_iter().map(|name| [&module[..], &[name]].concat()));
        sources.push(Source { path: path.clone(), tokens });
    }
    sources.retain(|source| {
        let module = module(&source.path);
        let is_named_so = module.iter().any(|name| name == "tests" || name.ends_with("_tests"));
        !is_named_so && !tests.iter().any(|test| module.starts_with(test))
    });
    sources
}

/// The module in a file: `["guard", "sse"]` for `guard/sse.rs`, nothing for the root of the crate.
pub(crate) fn module(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut names: Vec<String> = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let is_root = names.len() == 1 && ["lib", "main"].contains(&names[0].as_str());
    if is_root || names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// Removes every item under `#[cfg(test)]` or `#[cfg(all(test, ..))]`. Also returns the names of the modules among
/// them, because each may be a file.
fn strip(tokens: TokenStream) -> (TokenStream, Vec<String>) {
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let next = tokens.peek().map(ToString::to_string).unwrap_or_default();
        if is(&token, "#") && is_test(&next) {
            modules.extend(skip_item(&mut tokens));
            continue;
        }
        kept.push(match token {
            TokenTree::Group(group) => {
                let (inner, found) = strip(group.stream());
                modules.extend(found);
                TokenTree::Group(Group::new(group.delimiter(), inner))
            }
            other => other,
        });
    }
    (kept.into_iter().collect(), modules)
}

fn is_test(attribute: &str) -> bool {
    let attribute: String = attribute.split_whitespace().collect();
    attribute == "[cfg(test)]" || attribute.starts_with("[cfg(all(test,")
}

/// Takes the tokens of one item, which ends with a semicolon or a block. Returns its name if it is a module.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) -> Option<String> {
    let (mut module, mut last) = (None, String::new());
    for token in tokens {
        let is_block = matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        if last == "mod" {
            module = Some(token.to_string());
        }
        if is_block || is(&token, ";") {
            break;
        }
        last = token.to_string();
    }
    module
}

/// True if a token is this word or sign.
pub(crate) fn is(token: &TokenTree, text: &str) -> bool {
    match token {
        TokenTree::Ident(word) => word == text,
        TokenTree::Punct(sign) => text.len() == 1 && text.starts_with(sign.as_char()),
        TokenTree::Group(_) | TokenTree::Literal(_) => false,
    }
}

/// Reads the Rust files below `paths`, which are in `src`.
fn read(src: &Path, paths: Vec<PathBuf>) -> Vec<Source> {
    let (mut files, mut paths) = (Vec::new(), paths);
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(entries(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = fs::read_to_string(&path).expect("a source file is text");
            files.push((path.strip_prefix(src).expect("it is below src").to_owned(), text));
        }
    }
    files.sort();
    without_tests(&files)
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
