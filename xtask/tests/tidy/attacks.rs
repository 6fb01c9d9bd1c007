//! The tests that prove what `docs/reference/attacks.md` says exist.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Source, root, sources};

#[test]
fn every_attack_names_tests_that_exist() {
    let root = root();
    let mut files = sources(&root);
    let at = files.iter().position(|file| file.path == Path::new("docs/reference/attacks.md"));
    let page = files.swap_remove(at.expect("the page is there")).text;
    let named: Vec<String> = tests(&page).collect();
    assert!(named.len() > 50, "the tables were not found: {named:?}");
    let places: Vec<Place> = files.into_iter().filter(|file| file.is("rs")).map(Place::of).collect();
    let exists = |name: &String| is_test(name, &places) || root.join(name).exists();
    let missing: Vec<String> = named.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "no such tests:\n{}\n", missing.join("\n"));
}

/// The names in the last column of the tables. `a_{b,c}` is two names. A replay of `cargo xtask chaos` is no test.
fn tests(page: &str) -> impl Iterator<Item = String> {
    let cells = page.lines().filter_map(|line| line.strip_suffix('|')?.rsplit('|').next());
    cells.flat_map(code).flat_map(|name| expand(&name))
}

/// The code in a cell.
fn code(cell: &str) -> Vec<String> {
    let parts: Vec<&str> = cell.split('`').collect();
    let code = parts.chunks_exact(2).filter(|pair| !pair[0].ends_with("chaos: "));
    code.map(|pair| pair[1].to_owned()).collect()
}

fn expand(name: &str) -> Vec<String> {
    match name.split_once('{').and_then(|(stem, rest)| Some((stem, rest.strip_suffix('}')?))) {
        Some((stem, ends)) => ends.split(',').map(|end| format!("{stem}{end}")).collect(),
        None => vec![name.to_owned()],
    }
}

/// Code, and the crate, program and modules that it is in.
struct Place {
    names: BTreeSet<String>,
    text: String,
}

impl Place {
    /// `gateway` stands for `leash-gateway`.
    fn of(file: Source) -> Self {
        let path = file.path.with_extension("");
        let path = path.iter().map(|part| part.to_string_lossy().trim_start_matches("leash-").to_owned());
        let modules = file.text.lines().filter_map(|line| line.trim_start().strip_prefix("mod ")?.strip_suffix(" {"));
        Self { names: path.chain(modules.map(str::to_owned)).collect(), text: file.text }
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(name) || has_function(&self.text, name)
    }
}

/// True if a function, a module or a test program has this name, at a place that has all names in front of it. The
/// name may end with `*`, and begin with the name of a test program or with two dots for a path that was named before.
fn is_test(name: &str, places: &[Place]) -> bool {
    let words: Vec<&str> = name.trim_start_matches('.').split([':', ' ']).filter(|word| !word.is_empty()).collect();
    let Some((last, path)) = words.split_last() else { return false };
    places.iter().any(|place| path.iter().all(|name| place.names.contains(*name)) && place.has(last))
}

fn has_function(text: &str, name: &str) -> bool {
    let (stem, end) = name.strip_suffix('*').map_or((name, "("), |stem| (stem, ""));
    text.contains(&format!("fn {stem}{end}"))
}

#[test]
fn names_of_tests_are_found_and_judged() {
    let page = "| `no` | `no` | `a::b`, chaos: `no 0` (`c_{d,e}`) |\nno `x` |no\n|---|---|\n";
    assert_eq!(tests(page).collect::<Vec<_>>(), ["a::b", "c_d", "c_e"]);

    let text = "mod inner {\n    fn it_holds() {}\n}\n".to_owned();
    let places = [Place::of(Source { path: "crates/leash-gateway/tests/doors/main.rs".into(), text })];
    for (name, exists) in [
        ("it_holds", true),
        ("it_hol", false),
        ("it_hol*", true),
        ("doors", true),
        ("inner", true),
        ("inner::it_holds", true),
        ("doors inner::it_holds", true),
        ("gateway::doors::inner::it_holds", true),
        ("..it_holds", true),
        ("other::it_holds", false),
        ("it_holds_no_more", false),
        ("", false),
    ] {
        assert_eq!(is_test(name, &places), exists, "{name}");
    }
}
