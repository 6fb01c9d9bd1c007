//! A type of `leash` has a name of its own, so that a search for it finds one definition.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use crate::source::{self, Crate, is};

/// Names that every crate or state machine may have once more: the module says which one it is.
const SHARED: [&str; 4] = ["Error", "State", "Event", "Effect"];

/// Names that are still defined more than once, under the number of their definitions. Move or remove a name as soon as
/// the test says so, and never add one.
const KNOWN: &[(usize, &str)] = &[
    (2, "Ended Finding Owner Refused Server StandIn Target Transport Word"),
];

#[test]
fn type_names_are_unique() {
    let crates: Vec<Crate> = source::crates().into_iter().filter(|one| !one.name.starts_with("testkit")).collect();
    let known = KNOWN.iter().flat_map(|(times, names)| names.split_whitespace().map(|name| (name, *times)));
    let complaints = judge(&defined(&crates), &known.collect());
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

fn judge(defined: &BTreeMap<String, Vec<String>>, known: &BTreeMap<&str, usize>) -> Vec<String> {
    let times = |name: &str| defined.get(name).map_or(0, Vec::len);
    let is_judged = |name: &str| !SHARED.contains(&name);
    let new = defined.iter().filter(|(name, _)| is_judged(name)).filter_map(|(name, files)| {
        let most = known.get(name.as_str()).map_or(1, |times| *times);
        let is_wrong = files.len() > most;
        is_wrong.then(|| format!("`{name}` needs another name in one of {}", files.join(", ")))
    });
    let gone = known.iter().filter(|(name, most)| times(name) < **most).map(|(name, most)| {
        let to_do = if times(name) > 1 { "move it" } else { "remove it" };
        format!("`{name}` is defined {} times and not {most}: {to_do} in KNOWN", times(name))
    });
    new.chain(gone).collect()
}

#[test]
fn second_definition_is_found() {
    let crates = |files: &[(&str, &str)]| {
        let files: Vec<_> = files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        vec![Crate { name: "sample".to_owned(), sources: source::without_tests(&files) }]
    };
    let judge = |files: &[(&str, &str)], known: &[(&'static str, usize)]| {
        judge(&defined(&crates(files)), &known.iter().copied().collect())
    };
    let twice = [("a.rs", "pub struct One<T>(T); trait Two {}"), ("b.rs", "fn f() { enum One { Two } }")];
    let complaint = "`One` needs another name in one of sample/a.rs, sample/b.rs";
    assert_eq!(judge(&twice, &[]), [complaint]);
    assert_eq!(judge(&twice, &[("One", 2)]), [] as [&str; 0]);
    assert_eq!(judge(&twice, &[("One", 3)]), ["`One` is defined 2 times and not 3: move it in KNOWN"]);
    assert_eq!(judge(&twice, &[("One", 2), ("Two", 2)]), ["`Two` is defined 1 times and not 2: remove it in KNOWN"],);
    let fine = [
        ("a.rs", "struct State; /* struct One; */ struct One; #[cfg(test)] mod tests { struct One; }"),
        ("b.rs", "enum State {} type One = u8; fn f() -> &'static str { \"struct One\" }"),
        ("b/tests.rs", "struct One;"),
    ];
    assert_eq!(judge(&fine, &[]), [] as [&str; 0]);
}
