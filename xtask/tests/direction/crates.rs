//! Which crate of this repository may depend on which.
#![expect(clippy::disallowed_methods, reason = "it asks cargo, and waits for the answer")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The crates of this repository that each published crate may depend on, besides dependencies of its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("mcp-leash-model", &[]),
    ("mcp-leash-protocol", &[]),
    ("mcp-leash-tree", &["model"]),
    ("mcp-leash-upstream", &["model", "protocol", "tree"]),
    ("mcp-leash-gateway", &["model", "protocol", "tree", "upstream"]),
    ("mcp-leash-connect", &["model", "protocol", "tree", "upstream"]),
    ("mcp-leash-orphans", &["model", "tree"]),
    ("mcp-leash-check", &["model", "protocol", "tree", "upstream", "orphans"]),
    ("mcp-leash-tower", &["model", "protocol"]),
    ("mcp-leash-core", &["model", "tree", "tower"]),
    ("mcp-leash", &["model", "protocol", "tree", "upstream", "gateway", "connect", "orphans", "check", "tower"]),
];

#[test]
fn crates_have_one_direction() {
    let complaints = judge(&dependencies(), ALLOWED);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The packages below `crates/` that are published, each with the packages of this repository that it depends on.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .expect("cargo answers");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().expect("there are packages").iter();
    let published = packages.filter(|package| package["publish"].is_null());
    let own = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().expect("there is a list").iter();
        // Only a package of this repository has a path.
        let own = all.filter(|one| one["path"].is_string() && one["kind"] != "dev");
        own.map(|one| text(&one["name"])).collect()
    };
    published.map(|package| (text(&package["name"]), own(package))).collect()
}

fn judge(found: &BTreeMap<String, BTreeSet<String>>, allowed: &[(&str, &[&str])]) -> Vec<String> {
    let rows: BTreeMap<&str, Vec<String>> = allowed
        .iter()
        .map(|(name, uses)| (*name, uses.iter().map(|short| format!("mcp-leash-{short}")).collect()))
        .collect();
    let mut complaints: Vec<String> = rows
        .keys()
        .filter(|name| !found.contains_key(**name))
        .map(|name| format!("there is no crate `{name}` any more: remove it from ALLOWED"))
        .collect();
    for (name, uses) in found {
        match rows.get(name.as_str()) {
            None => complaints.push(format!("`{name}` has no row in ALLOWED")),
            Some(row) => complaints.extend(
                uses.iter()
                    .filter(|used| !row.contains(used))
                    .map(|used| format!("`{name}` must not depend on `{used}`")),
            ),
        }
    }
    complaints
}

#[test]
fn dependency_that_is_not_allowed_is_found() {
    let found = |uses: &[&str]| {
        let uses = uses.iter().map(|name| (*name).to_owned()).collect();
        BTreeMap::from([("mcp-leash-tree".to_owned(), uses)])
    };
    let allowed: &[(&str, &[&str])] = &[("mcp-leash-tree", &["model"])];
    assert_eq!(judge(&found(&["mcp-leash-model"]), allowed), [] as [&str; 0]);
    assert_eq!(judge(&found(&[]), allowed), [] as [&str; 0]);
    assert_eq!(judge(&found(&["testkit"]), allowed), ["`mcp-leash-tree` must not depend on `testkit`"]);
    assert_eq!(judge(&found(&[]), &[]), ["`mcp-leash-tree` has no row in ALLOWED"]);
    let gone = "there is no crate `mcp-leash-old` any more: remove it from ALLOWED";
    assert_eq!(judge(&found(&[]), &[allowed[0], ("mcp-leash-old", &[])]), [gone]);
}
