//! Checks that the compiler does not make: sizes, names and style of the files of this repository.

mod attacks;
mod names;
#[path = "../source/mod.rs"]
mod source;

use std::fs;
use std::path::{Path, PathBuf};

/// The largest number of lines in a file. A longer file has more than one subject.
const LINES: usize = 800;

/// Names that say nothing about the content.
const REFUSED: [&str; 11] =
    ["manager", "handler", "helper", "helpers", "util", "utils", "common", "imp", "data", "info", "misc"];

/// Directories of foreign or generated files, which are not read.
const SKIPPED: [&str; 4] = ["target", ".git", "node_modules", "__pycache__"];

#[test]
fn files_are_small_enough_to_read() {
    check("has more than 800 lines", |file| {
        (file.is("rs") && file.text.lines().count() > LINES).then(|| file.text.lines().count().to_string())
    });
}

/// The largest number of lines in a document that is read first, by people who have little time.
const DOCUMENT_LINES: usize = 120;

#[test]
fn first_documents_are_short() {
    check("has more than 120 lines", |file| {
        let is_first = ["README.md", "ARCHITECTURE.md"].iter().any(|name| file.path == Path::new(name));
        let lines = file.text.lines().count();
        (is_first && lines > DOCUMENT_LINES).then(|| lines.to_string())
    });
}

#[test]
fn file_names_describe_the_content() {
    check("has a name that says nothing", |file| {
        let names = file.path.iter().filter_map(|part| Path::new(part).file_stem()?.to_str());
        names.map(str::to_owned).find(|name| REFUSED.contains(&name.as_str()))
    });
}

#[test]
fn refused_attributes_are_not_used() {
    // Written in two parts, otherwise this line would be found as well.
    let refused = [
        ["#[", "ignore"].concat(),
        ["#[", "should_panic"].concat(),
        ["#![", "allow("].concat(),
        ["#[", "allow("].concat(),
    ];
    check("has an attribute that is refused here", |file| {
        let is_refused = |line: &&str| refused.iter().any(|attribute| line.trim_start().starts_with(attribute));
        if file.is("rs") { file.text.lines().find(is_refused).map(str::to_owned) } else { None }
    });
}

#[test]
fn lines_have_no_trailing_blanks_or_tabs() {
    check("has a tab, a trailing blank or no last newline", |file| {
        let is_code = ["rs", "toml", "md", "py", "mjs", "json"].iter().any(|kind| file.is(kind));
        if !is_code || file.text.is_empty() {
            return None;
        }
        let wrong = |line: &&str| line.contains('\t') || line.ends_with(' ');
        let last = (!file.text.ends_with('\n')).then_some("the end");
        file.text.lines().find(wrong).or(last).map(|line| format!("{line:?}"))
    });
}

#[test]
fn links_between_documents_are_valid() {
    check("has a dead link", |file| {
        let dir = root().join(&file.path);
        let leads = |target: &str| {
            let target = target.split('#').next().unwrap_or_default();
            target.is_empty() || target.contains("://") || dir.with_file_name("").join(target).exists()
        };
        let targets = file.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        if file.is("md") { targets.map(str::to_owned).find(|target| !leads(target)) } else { None }
    });
}

/// One file of the repository.
struct Source {
    /// Relative to the root.
    path: PathBuf,
    text: String,
}

impl Source {
    fn is(&self, kind: &str) -> bool {
        self.path.extension().is_some_and(|found| found == kind)
    }
}

/// Lists every file for which `complaint` returns a text.
fn check(what: &str, complaint: impl Fn(&Source) -> Option<String>) {
    let sources = sources(&root());
    assert!(sources.len() > 20, "the repository was not found");
    let complaints: Vec<String> = sources
        .iter()
        .filter_map(|source| Some(format!("{} {what}: {}", source.path.display(), complaint(source)?)))
        .collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("the repository can be read").flatten() {
            let path = entry.path();
            let is_skipped = entry.file_name().to_str().is_some_and(|name| SKIPPED.contains(&name));
            if path.is_dir() && !is_skipped {
                dirs.push(path);
            } else if let (false, Ok(text)) = (is_skipped, fs::read_to_string(&path)) {
                let path = path.strip_prefix(root).expect("it is below the root").to_owned();
                found.push(Source { path, text });
            }
        }
    }
    found
}
