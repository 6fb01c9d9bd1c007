//! The part of `deny.toml` that needs no cargo-deny, for every run of the tests: licences, and one version of each
//! dependency. Building cargo-deny would take too long here; `cargo xtask sanitise dependencies` builds it and runs all
//! checks.
#![expect(clippy::disallowed_methods, reason = "it asks cargo, and waits for the answer")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

#[test]
fn licences_are_among_those_allowed() {
    let allowed = list("allow");
    assert!(allowed.iter().any(|licence| licence == "MIT"), "{allowed:?}");
    let mut packages = packages();
    packages.retain(|package| !package.own && !satisfied(&package.licence, &allowed));
    let refused = packages;
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn there_is_one_version_of_each() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(package.name).or_default().insert(package.version);
    }
    let skips = skips();
    let duplicates: Vec<_> = versions
        .iter()
        .filter(|(name, versions)| {
            let skipped = |version: &&String| skips.iter().any(|skip| is_skipped(skip, name, version));
            versions.iter().filter(|version| !skipped(version)).count() > 1
        })
        .collect();
    assert!(duplicates.is_empty(), "{duplicates:#?}");
    // An unused skip would hide the next duplicate.
    for skip in &skips {
        let used = versions.iter().any(|(name, versions)| {
            versions.len() > 1 && versions.iter().any(|version| is_skipped(skip, name, version))
        });
        assert!(used, "`{skip}` in deny.toml is not needed");
    }
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed: Vec<String> = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for (expression, well) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("", false),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("ISC AND MIT", true),
        ("MIT OR GPL-3.0 AND LGPL-3.0", true),
        ("(MIT OR GPL-3.0) AND LGPL-3.0", false),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
        ("Apache-2.0", false),
    ] {
        assert_eq!(satisfied(expression, &allowed), well, "{expression}");
    }
}

/// A package of the build.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
    /// True for a package of this repository.
    own: bool,
}

/// All packages that are built on Linux, with all features and for tests. `cargo metadata` would name more.
fn packages() -> BTreeSet<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--workspace", "--all-features", "--target", "x86_64-unknown-linux-gnu"])
        .args(["--edges", "normal,build,dev", "--prefix", "none", "--no-dedupe", "--format", "{p}|{l}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo answers");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let packages: BTreeSet<Package> = String::from_utf8_lossy(&output.stdout).lines().filter_map(package).collect();
    assert!(packages.len() > 100, "only {} packages", packages.len());
    packages
}

/// Parses `syn v2.0.119|MIT OR Apache-2.0`. Packages of this repository have their path behind the version.
fn package(line: &str) -> Option<Package> {
    let (package, licence) = line.split_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    let own = words.any(|word| word.starts_with("(/"));
    Some(Package { name: name.to_owned(), version: version.to_owned(), licence: licence.trim().to_owned(), own })
}

fn deny() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml")).expect("it is there")
}

/// A list of strings in one line of `deny.toml`.
fn list(key: &str) -> Vec<String> {
    let deny = deny();
    let line =
        deny.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('=')).expect("the key is there");
    serde_json::from_str(line).expect("a list in one line")
}

/// The names with versions that `deny.toml` skips.
fn skips() -> Vec<String> {
    let deny = deny();
    let skips = deny.split_once("skip = [").and_then(|(_, rest)| rest.split_once("\n]")).expect("there are skips").0;
    skips.lines().filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// True if a skip matches: `syn@2` stands for every version that begins with 2.
fn is_skipped(skip: &str, name: &str, version: &str) -> bool {
    let (skipped, from) = skip.split_once('@').unwrap_or((skip, ""));
    skipped == name && (from.is_empty() || version.starts_with(&format!("{from}.")) || version == from)
}

/// OR binds less than AND, as in SPDX. A slash is the old form of OR.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.trim();
    let either = parts(expression, &[" OR ", "/"]);
    if either.len() > 1 {
        return either.iter().any(|part| satisfied(part, allowed));
    }
    let both = parts(expression, &[" AND "]);
    if both.len() > 1 {
        return both.iter().all(|part| satisfied(part, allowed));
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => satisfied(inner, allowed),
        None => allowed.iter().any(|licence| licence == expression),
    }
}

/// Splits at separators that are not in parentheses.
fn parts<'a>(text: &'a str, separators: &[&str]) -> Vec<&'a str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && at >= start => {
                if let Some(separator) = separators.iter().find(|separator| text[at..].starts_with(**separator)) {
                    parts.push(&text[start..at]);
                    start = at + separator.len();
                }
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}
