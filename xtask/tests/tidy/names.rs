//! A type of `leash` has a name of its own, so that a search for it finds one definition.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use crate::source::{self, Crate, is};

/// Names that every crate or state machine may have once more: the module says which one it is.
const SHARED: [&str; 4] = ["Error", "State", "Event", "Effect"];

#[test]
fn type_names_are_unique() {
    let crates: Vec<Crate> = source::crates().into_iter().filter(|one| !one.name.starts_with("testkit")).collect();
    let complaints = judge(&defined(&crates));
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The files that define each type, once per definition.
fn defined(crates: &[Crate]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in crates {
        for source in &one.sources {
            let file = format!("{}/{}", one.name, source.path.display());
            let mut names = Vec::new();
            types(source.tokens.clone(), &mut names);
            names.into_iter().for_each(|name| found.entry(name).or_default().push(file.clone()));
        }
    }
    found
}

/// The names of the structs, enums and traits in some code, also inside of functions and macros.
fn types(tokens: TokenStream, found: &mut Vec<String>) {
    let mut is_next = false;
    for token in tokens {
        match &token {
            TokenTree::Group(group) => types(group.stream(), found),
            TokenTree::Ident(name) if is_next => found.push(name.to_string()),
            _ => {}
        }
        is_next = ["struct", "enum", "trait"].iter().any(|word| is(&token, word));
    }
}

fn judge(defined: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let twice = defined.iter().filter(|(name, files)| !SHARED.contains(&name.as_str()) && files.len() > 1);
    twice.map(|(name, files)| format!("`{name}` needs another name in one of {}", files.join(", "))).collect()
}

#[test]
fn second_definition_is_found() {
    let judge = |files: &[(&str, &str)]| {
        let files: Vec<_> = files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        judge(&defined(&[Crate { name: "sample".to_owned(), sources: source::without_tests(&files) }]))
    };
    let twice = [("a.rs", "pub struct One<T>(T); trait Two {}"), ("b.rs", "fn f() { enum One { Two } }")];
    assert_eq!(judge(&twice), ["`One` needs another name in one of sample/a.rs, sample/b.rs"]);
    let fine = [
        ("a.rs", "struct State; /* struct One; */ struct One; #[cfg(test)] mod tests { struct One; }"),
        ("b.rs", "enum State {} type One = u8; fn f() -> &'static str { \"struct One\" }"),
        ("b/tests.rs", "struct One;"),
    ];
    assert_eq!(judge(&fine), [] as [&str; 0]);
}
