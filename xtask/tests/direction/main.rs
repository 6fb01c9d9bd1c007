//! The direction of dependencies: the top-level modules of a crate use each other without a cycle, and a crate uses
//! only the crates that it may use.

mod crates;
mod graph;
#[path = "../source/mod.rs"]
mod source;

use std::collections::BTreeSet;
use std::path::PathBuf;

use graph::Graph;
use source::Crate;

/// The cycles that are still there: a crate, and the modules that use each other. Remove a module as soon as the test
/// says that it is in no cycle any more, and never add one.
const KNOWN: &[(&str, &[&str])] = &[("testkit/src/bin/fixture", &["input_required", "prompts", "server", "tools"])];

#[test]
fn modules_of_a_crate_have_one_direction() {
    let crates = source::crates();
    let mut complaints: Vec<String> = crates.iter().flat_map(|one| judge(one, KNOWN)).collect();
    let strays = KNOWN.iter().filter(|(name, _)| !crates.iter().any(|one| one.name == *name));
    complaints.extend(strays.map(|(name, _)| format!("there is no crate `{name}` any more: remove it from KNOWN")));
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The new cycles of a crate, and the modules that `known` lists although they are in no cycle any more.
fn judge(one: &Crate, known: &[(&str, &[&str])]) -> Vec<String> {
    let graph = Graph::of(&one.sources);
    let cycles = graph.components();
    let known: Vec<&[&str]> = known.iter().filter(|(name, _)| *name == one.name).map(|(_, modules)| *modules).collect();
    let is_known = |cycle: &BTreeSet<&str>| known.iter().any(|modules| cycle.iter().all(|name| modules.contains(name)));
    let new = cycles.iter().filter(|cycle| !is_known(cycle)).map(|cycle| {
        // A cycle that got another module is shown by a way through that module.
        let unknown = cycle.iter().copied().filter(|name| !known.iter().any(|modules| modules.contains(name)));
        let unknown: BTreeSet<&str> = unknown.collect();
        let steps = graph.shortest_cycle(if unknown.is_empty() { cycle } else { &unknown });
        format!("{}: these modules use each other:\n{}", one.name, steps.join("\n"))
    });
    let gone = known
        .iter()
        .flat_map(|modules| modules.iter())
        .filter(|name| !cycles.iter().any(|cycle| cycle.contains(*name)));
    let gone = gone.map(|name| format!("{}: `{name}` is in no cycle any more: remove it from KNOWN", one.name));
    new.chain(gone).collect()
}

/// Judges a crate with these files, given as path and text. The root declares `a`, `b` and `c`.
fn check(known: &[(&str, &[&str])], files: &[(&str, &str)], expected: &[&str]) {
    let root = ("lib.rs", "mod a; mod b; pub mod c; pub use b::{inner::Thing, Other as Renamed};");
    let files: Vec<(PathBuf, String)> =
        files.iter().chain([&root]).map(|(path, text)| (path.into(), (*text).to_owned())).collect();
    let one = Crate { name: "sample".to_owned(), sources: source::without_tests(&files) };
    assert_eq!(judge(&one, known), expected);
}

const A_AND_B: &str = "sample: these modules use each other:\n  a uses b: a.rs\n  b uses a: b.rs";

#[test]
fn one_direction_is_accepted() {
    check(&[], &[("a.rs", "use crate::b::X; use crate::c;"), ("b.rs", "use super::c::Y;"), ("c.rs", "")], &[]);
}

#[test]
fn cycle_through_a_list_of_imports_is_found() {
    check(&[], &[("a.rs", "use crate::{c, b::{X, Y}};"), ("b.rs", "pub use crate::a;")], &[A_AND_B]);
}

#[test]
fn cycle_through_super_is_found() {
    let files = [("a/mod.rs", ""), ("a/one/two.rs", "use super::super::super::b::X;"), ("b.rs", "use super::a::Y;")];
    check(&[], &files, &["sample: these modules use each other:\n  a uses b: a/one/two.rs\n  b uses a: b.rs"]);
    // These stay inside of `a`, which has a module `b` of its own.
    let files = [("a/mod.rs", ""), ("a/one/two.rs", "use super::super::b::X;"), ("b.rs", "use super::a::Y;")];
    check(&[], &files, &[]);
}

#[test]
fn cycle_through_super_in_a_list_is_found() {
    let files = [("a/mod.rs", "mod one;"), ("a/one.rs", "use super::{super::b, X};"), ("b.rs", "use super::{a, c};")];
    check(&[], &files, &["sample: these modules use each other:\n  a uses b: a/one.rs\n  b uses a: b.rs"]);
}

#[test]
fn cycle_through_a_path_is_found() {
    check(&[], &[("a.rs", "fn f() { g(crate::b::h(1)) }"), ("b.rs", "fn h() -> super::a::T { todo() }")], &[A_AND_B]);
    check(&[], &[("a.rs", "fn f() { call!({ crate::b::h() }) }"), ("b.rs", "impl crate::a::T for U {}")], &[A_AND_B]);
}

#[test]
fn cycle_through_a_module_without_a_file_is_found() {
    check(&[], &[("a.rs", "mod inner { use super::super::b::X; }"), ("b.rs", "use crate::a::Y;")], &[A_AND_B]);
    check(&[], &[("a.rs", "mod inner { use super::b::X; }"), ("b.rs", "use crate::a::Y;")], &[]);
}

#[test]
fn cycle_through_a_name_that_the_root_imports_is_found() {
    check(&[], &[("a.rs", "use crate::Thing;"), ("b.rs", "use crate::a::Y;")], &[A_AND_B]);
    check(&[], &[("a.rs", "use crate::{Renamed, c};"), ("b.rs", "use crate::a::Y;")], &[A_AND_B]);
    check(&[], &[("a.rs", "use crate::Other;"), ("b.rs", "use crate::a::Y;")], &[]);
}

#[test]
fn shortest_cycle_is_printed_with_its_files() {
    let files = [
        ("a/mod.rs", "use crate::b;"),
        ("a/more.rs", "fn f() { crate::b::g() }"),
        ("b.rs", "use crate::{a, c};"),
        ("c.rs", "use crate::a;"),
    ];
    let steps = "  a uses b: a/mod.rs, a/more.rs\n  b uses a: b.rs";
    check(&[], &files, &[&format!("sample: these modules use each other:\n{steps}")]);
    let files = [("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a;")];
    let steps = "  a uses b: a.rs\n  b uses c: b.rs\n  c uses a: c.rs";
    check(&[], &files, &[&format!("sample: these modules use each other:\n{steps}")]);
}

#[test]
fn cycle_in_test_code_is_accepted() {
    for (path, text) in [
        ("b.rs", "#[cfg(test)] mod tests { use crate::a::Y; }"),
        ("b.rs", "#[cfg(test)] #[path = \"x.rs\"] mod tests; #[cfg(all(test, unix))] fn f() { crate::a::g() }"),
        ("b.rs", "impl T { #[cfg(test)] fn f(&self) -> crate::a::Y { g() } }"),
        ("b/tests.rs", "use crate::a::Y;"),
        ("b/tests/more.rs", "use crate::a::Y;"),
        ("b_tests.rs", "use crate::a::Y;"),
    ] {
        check(&[], &[("a.rs", "use crate::b::X;"), (path, text)], &[]);
    }
    let fake = [("b.rs", "#[cfg(test)] mod fake;"), ("b/fake.rs", "use crate::a::Y;")];
    check(&[], &[&[("a.rs", "use crate::b::X;")], &fake[..]].concat(), &[]);
    // The code after it is no test code.
    check(&[], &[("a.rs", "use crate::b;"), ("b.rs", "#[cfg(test)] use x::y; use crate::a;")], &[A_AND_B]);
}

#[test]
fn mention_in_a_comment_or_a_string_is_accepted() {
    let text = r##"
        //! See crate::a::Y.
        /* use crate::a; */
        /// And [`crate::a`].
        fn f() { ("use crate::a;", r#"crate::a"#, b"crate::a", 'a') }
    "##;
    check(&[], &[("a.rs", "use crate::b::X;"), ("b.rs", text)], &[]);
}

#[test]
fn known_cycle_must_be_there() {
    let files = [("a.rs", "use crate::b;"), ("b.rs", "use crate::a;")];
    check(&[("sample", &["a", "b"]), ("other", &["c"])], &files, &[]);
    let gone = "sample: `c` is in no cycle any more: remove it from KNOWN";
    check(&[("sample", &["a", "b", "c"])], &files, &[gone]);
    // Two cycles that became one are new.
    check(&[("sample", &["a"]), ("sample", &["b"])], &files, &[A_AND_B]);
}

#[test]
fn known_cycle_with_another_module_is_new() {
    let files = [("a.rs", "use crate::b;"), ("b.rs", "use crate::{a, c};"), ("c.rs", "use crate::a;")];
    let steps = "  c uses a: c.rs\n  a uses b: a.rs\n  b uses c: b.rs";
    check(&[("sample", &["a", "b"])], &files, &[&format!("sample: these modules use each other:\n{steps}")]);
}
