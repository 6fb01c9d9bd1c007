//! Finds the uses of `unsafe`, and checks that each explains why it is sound. Reads the tokens of the files, so that no
//! comment, string or line break hides one. The compiler checks the expansion of macros of other crates
//! (`unsafe_code`).

use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome};

/// The files that may use it: for system calls without a safe wrapper, and for platform code.
pub(crate) const PLATFORM: [&str; 4] = [
    "crates/leash-tree/src/platform/linux.rs",
    "crates/testkit/src/bin/fixture/sys.rs",
    "crates/testkit/src/bin/zoo/sys.rs",
    "crates/testkit/src/sys.rs",
];

/// Directories with generated files, which are not read.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];

/// The keyword, and the lint that a platform file lifts.
const WORDS: [&str; 2] = ["unsafe", "unsafe_code"];

/// The findings in one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) file: String,
    /// The number of uses of `unsafe`.
    pub(crate) uses: usize,
    /// The complaints, with their lines.
    pub(crate) complaints: Vec<String>,
}

/// Every Rust file below `root` with a use or a complaint.
pub(crate) fn look(root: &Path) -> Outcome<Vec<Found>> {
    let mut found = Vec::new();
    let mut read = 0;
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(Failure::at(&dir))? {
            let path = entry.map_err(Failure::at(&dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match path.is_dir() {
                true if SKIPPED.contains(&name) => {}
                true => dirs.push(path),
                false if name.ends_with(".rs") => {
                    read += 1;
                    found.push(judge(&below(root, &path), &fs::read_to_string(&path).map_err(Failure::at(&path))?));
                }
                false => {}
            }
        }
    }
    if read < 100 {
        return Err(Failure::new(format!("only {read} Rust files below `{}`", root.display())));
    }
    found.retain(|found| found.uses > 0 || !found.complaints.is_empty());
    found.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(found)
}

fn below(root: &Path, path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root).unwrap_or(path).to_owned();
    path.to_string_lossy().into_owned()
}

/// Checks one file.
pub(crate) fn judge(file: &str, text: &str) -> Found {
    let tokens = tokens(text);
    let is_platform = PLATFORM.contains(&file);
    let mut found = Found { file: file.to_owned(), uses: 0, complaints: Vec::new() };
    for (line, word) in &tokens.words {
        if !WORDS.contains(&word.as_str()) {
            continue;
        }
        let complain = |what: &str| format!("{file}:{line}: {what}");
        if !is_platform {
            found.complaints.push(complain(&format!("`{word}` in a file that is not a platform file")));
        } else if word == "unsafe" {
            found.uses += 1;
            if !tokens.is_explained(*line) {
                found.complaints.push(complain("`unsafe` without a `SAFETY:` line right before it"));
            }
        }
    }
    found
}

/// The relevant parts of a file.
struct Tokens {
    /// Identifiers and keywords, with their lines.
    words: Vec<(usize, String)>,
    /// For each line, counted from 1: its comment, if the line is a comment.
    comments: Vec<Option<String>>,
    /// For each line, counted from 1: true if it is an attribute and nothing else.
    attributes: Vec<bool>,
}

impl Tokens {
    /// True if the lines right above `line` are a comment that explains why it is sound. Attributes may be in between.
    fn is_explained(&self, line: usize) -> bool {
        let mut above = (1..line).rev().skip_while(|line| self.attributes[*line]);
        let comment: Vec<&str> = above.by_ref().map_while(|line| self.comments[line].as_deref()).collect();
        comment
            .iter()
            .any(|text| text.strip_prefix("// SAFETY:").is_some_and(|reason| reason.split_whitespace().count() >= 2))
    }
}

fn tokens(text: &str) -> Tokens {
    let lines = text.lines().count() + 2;
    let mut tokens = Tokens { words: Vec::new(), comments: vec![None; lines], attributes: vec![false; lines] };
    let mut cursor = Cursor { rest: text, line: 1 };
    while let Some(letter) = cursor.rest.chars().next() {
        let line = cursor.line;
        if cursor.rest.starts_with("//") {
            let comment = cursor.rest.lines().next().unwrap_or_default();
            let starts_line = text.lines().nth(line - 1).is_some_and(|whole| whole.trim_start() == comment.trim_end());
            tokens.comments[line] = starts_line.then(|| comment.to_owned());
            cursor.skip(comment.len());
        } else if cursor.rest.starts_with("/*") {
            cursor.skip_block_comment();
        } else if let Some(length) = raw_string(cursor.rest).or_else(|| quoted(cursor.rest)) {
            cursor.skip(length);
        } else if letter.is_alphabetic() || letter == '_' {
            let word = cursor.word();
            cursor.skip(word.len());
            tokens.words.push((line, word.to_owned()));
        } else {
            if letter == '#' {
                let whole = text.lines().nth(line - 1).unwrap_or_default().trim();
                tokens.attributes[line] |= whole.starts_with("#[") && whole.ends_with(']') && !whole.contains("unsafe");
            }
            cursor.skip(letter.len_utf8());
        }
    }
    tokens
}

struct Cursor<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Cursor<'a> {
    fn skip(&mut self, length: usize) {
        let (skipped, rest) = self.rest.split_at(length);
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }

    /// The identifier that begins here. `r#unsafe` does not count as the keyword.
    fn word(&self) -> &'a str {
        let end =
            |text: &str| text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(text.len());
        match self.rest.strip_prefix("r#") {
            Some(raw) => &self.rest[..2 + end(raw)],
            None => &self.rest[..end(self.rest)],
        }
    }

    /// Skips a block comment, which may contain others.
    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        loop {
            match self.rest.as_bytes() {
                [] => return,
                [b'/', b'*', ..] => {
                    depth += 1;
                    self.skip(2);
                }
                [b'*', b'/', ..] => {
                    depth -= 1;
                    self.skip(2);
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.skip(self.rest.chars().next().map_or(0, char::len_utf8)),
            }
        }
    }
}

/// The length of a raw string that begins here.
fn raw_string(text: &str) -> Option<usize> {
    let start = ["br", "cr", "r"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = start.len() - start.trim_start_matches('#').len();
    let inside = start[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(text.len() - inside.len() + length)
}

/// The length of a string or of a character that begins here. `None` for a lifetime such as `'a`.
fn quoted(text: &str) -> Option<usize> {
    let start = text.strip_prefix(['b', 'c']).filter(|rest| rest.starts_with(['"', '\''])).unwrap_or(text);
    let quote = start.chars().next().filter(|letter| ['"', '\''].contains(letter))?;
    let mut letters = start[1..].char_indices();
    if quote == '\'' {
        let (_, first) = letters.clone().next()?;
        let second = start[1 + first.len_utf8()..].chars().next()?;
        if first != '\\' && second != '\'' {
            return None;
        }
    }
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            _ if letter == quote => return Some(text.len() - start.len() + 1 + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = PLATFORM[0];

    fn complaints(file: &str, text: &str) -> usize {
        judge(file, text).complaints.len()
    }

    #[test]
    fn unsafe_is_only_in_platform_files_with_reasons() {
        let found = look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).expect("the repository can be read");
        let complaints: Vec<&String> = found.iter().flat_map(|found| &found.complaints).collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
        let files: Vec<&str> = found.iter().map(|found| found.file.as_str()).collect();
        assert_eq!(files, PLATFORM, "a platform file without unsafe code should not be in the list");
    }

    /// The compiler refuses it where no attribute lifts the ban, and this check also searches for that attribute.
    #[test]
    fn compiler_refuses_unsafe_in_every_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |file: &str| fs::read_to_string(root.join(file)).expect("it is there");
        let workspace = read("Cargo.toml");
        assert!(workspace.lines().any(|line| line == r#"unsafe_code = "deny""#));
        let (_, list) = workspace.split_once("\nmembers = [").expect("there are members");
        let (list, _) = list.split_once(']').expect("the list ends");
        // Every second part is between quotation marks.
        let members: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert!(members.len() >= 13, "{members:?}");
        for member in members {
            assert!(read(&format!("{member}/Cargo.toml")).contains("[lints]\nworkspace = true"), "{member}");
        }
    }

    #[test]
    fn unsafe_is_refused_elsewhere_in_every_form() {
        for text in [
            "unsafe { f() }",
            "unsafe\n{ f() }",
            "unsafe fn f() {}",
            "pub unsafe extern \"C\" fn f() {}",
            "unsafe impl Send for X {}",
            "unsafe trait T {}",
            "#[unsafe(no_mangle)]",
            "/* a */unsafe/* b */{ f() }",
            "/* /* nested */ */ unsafe { f() }",
            "let s = \"// \"; unsafe { f() }",
            "let s = r#\"\"\"#; unsafe { f() }",
            "let c = '\"'; unsafe { f() } // '\"'",
            "let c = '\\''; unsafe { f() }",
            "fn f<'a>(x: &'a str) { unsafe { g() } }",
            "b'\"'; unsafe { f() }",
            "macro_rules! m { () => { unsafe { f() } } }",
            "// SAFETY: it is all right.\nunsafe { f() }",
            "#![expect(unsafe_code, reason = \"why not\")]",
        ] {
            assert_eq!(complaints("crates/leash-tree/src/tree/kill.rs", text), 1, "{text}");
        }
    }

    #[test]
    fn unsafe_in_comments_and_strings_is_ignored() {
        for text in [
            "// unsafe { f() }",
            "/// All unsafe code is elsewhere.",
            "/* unsafe { f() } */",
            "/* /* */ unsafe */",
            "let s = \"unsafe { f() }\";",
            "let s = \"\\\" unsafe { f() }\";",
            "let s = r#\"\" unsafe { f() }\"#;",
            "let s = br\"unsafe\";",
            "let s = c\"unsafe\";",
            "git.args([\"--unsafe-paths\"]);",
            "fn unsafe_op() {} let is_unsafe = 1; unshare_unsafe();",
            "let r#unsafe = 1;",
        ] {
            let found = judge("crates/leash/src/main.rs", text);
            assert_eq!((found.uses, found.complaints), (0, Vec::new()), "{text}");
        }
    }

    #[test]
    fn each_use_needs_its_reason_right_before_it() {
        for good in [
            "// SAFETY: plain integers.\nunsafe { f() };",
            "// SAFETY: a long reason,\n// with a second line.\nlet x = unsafe { f() };",
            "// Before it.\n// SAFETY: plain integers.\nunsafe { f() };",
            "#[cfg(x)]\n// SAFETY: plain integers.\nunsafe { f() };",
            "// SAFETY: plain integers.\n#[used]\n#[unsafe(link_section = \"x\")]\nstatic X: u8 = 0;",
        ] {
            let found = judge(FILE, good);
            assert_eq!((found.uses, found.complaints), (1, Vec::new()), "{good}");
        }
        for bad in [
            "unsafe { f() };",
            "// It is fine.\nunsafe { f() };",
            "// SAFETY:\nunsafe { f() };",
            "// SAFETY: ok\nunsafe { f() };",
            "// SAFETY: plain integers.\n\nunsafe { f() };",
            "// SAFETY: plain integers.\nlet x = 1;\nunsafe { f() };",
            "let x = 1; // SAFETY: plain integers.\nunsafe { f() };",
            "let s = \"\n// SAFETY: plain integers.\n\";unsafe { f() };",
            "/* SAFETY: plain integers. */\nunsafe { f() };",
            "unsafe { f() }; // SAFETY: plain integers.",
            "// SAFETY: plain integers.\nunsafe { f() };\nunsafe { f() };",
        ] {
            assert_eq!(complaints(FILE, bad), 1, "{bad}");
        }
    }
}
