//! Reads the report of `llvm-cov`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::step::{Failure, Outcome};

/// By file: its lines, and true for those that were run.
pub(super) type FileLines = BTreeMap<String, BTreeMap<usize, bool>>;

/// Reads the format of lcov (`SF:file`, `DA:line,count`), without lines that are not leash's own code or only for
/// tests.
pub(super) fn read(lcov: &str, root: &Path) -> Outcome<FileLines> {
    let mut files = FileLines::new();
    let mut current: Option<(String, usize)> = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let own = Path::new(path).strip_prefix(root).ok().map(|path| path.to_string_lossy().into_owned());
            current = match own.filter(|path| is_product(path)) {
                Some(own) => {
                    let text = fs::read_to_string(path).map_err(Failure::at(Path::new(path)))?;
                    Some((own, tests_begin(&text)))
                }
                None => None,
            };
        } else if let (Some((file, end)), Some(fact)) = (&current, line.strip_prefix("DA:")) {
            let (line, count) = fact.split_once(',').ok_or_else(|| Failure::new(format!("not lcov: `{line}`")))?;
            let count = count.split(',').next().unwrap_or_default();
            let (Ok(line), Ok(count)) = (line.parse::<usize>(), count.parse::<u64>()) else {
                return Err(Failure::new(format!("not lcov: `DA:{fact}`")));
            };
            if line < *end {
                *files.entry(file.clone()).or_default().entry(line).or_default() |= count > 0;
            }
        }
    }
    match files.is_empty() {
        true => Err(Failure::new("nothing was counted")),
        false => Ok(files),
    }
}

/// True for sources of the binary and of the library, except the files that are only for tests.
fn is_product(path: &str) -> bool {
    let is_test = |part: &str| ["tests", "tests.rs", "scripted.rs", "scratch.rs", "cases.rs"].contains(&part);
    path.starts_with("crates/leash")
        && path.contains("/src/")
        && !path.split('/').any(|part| is_test(part) || part.ends_with("_tests.rs"))
}

/// The line where the tests in a file begin, or the line after its end if it has none.
fn tests_begin(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_start = |pair: &[&str]| pair[0].trim() == "#[cfg(test)]" && pair[1].trim().starts_with("mod tests {");
    lines.windows(2).position(is_start).map_or(usize::MAX, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_once_and_without_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository is there");
        let file = root.join("crates/leash-model/src/id.rs");
        let end = tests_begin(&fs::read_to_string(&file).expect("it is there"));
        assert!(end > 3 && end < usize::MAX, "`id.rs` has tests: {end}");
        let lcov = format!(
            "SF:{0}\nDA:1,0\nDA:2,5\nDA:{end},9\nend_of_record\nSF:{0}\nDA:1,1\nDA:3,0\nend_of_record\n\
             SF:/rustc/x/alloc.rs\nDA:1,0\nend_of_record\nSF:{1}/crates/leash/tests/matrix.rs\nDA:1,1\n",
            file.display(),
            root.display()
        );
        let files = read(&lcov, &root).expect("it is lcov");
        assert_eq!(files.keys().collect::<Vec<_>>(), ["crates/leash-model/src/id.rs"]);
        assert_eq!(files["crates/leash-model/src/id.rs"], [(1, true), (2, true), (3, false)].into());
        assert!(read("SF:/rustc/x.rs\nDA:1,1\n", &root).is_err(), "a report without counters is an error");
    }
}
