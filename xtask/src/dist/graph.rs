//! The crates that are linked into the binary, as `cargo metadata` lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::step::{Failure, Outcome, Workspace};

/// One crate in the binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Linked {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
    pub(crate) repository: Option<String>,
    /// True if it comes from crates.io.
    pub(crate) is_foreign: bool,
    /// The names and versions of the crates that it uses.
    pub(crate) uses: Vec<(String, String)>,
    dir: PathBuf,
}

/// The crates in the binary, by name and version.
pub(crate) struct Graph {
    pub(crate) crates: Vec<Linked>,
}

impl Graph {
    /// The crates that `mcp-leash` uses on a target, without those for builds and tests.
    pub(crate) fn read(workspace: &Workspace, target: &str) -> Outcome<Self> {
        let words = ["metadata", "--format-version=1", "--locked", "--filter-platform", target];
        let answer = workspace.cargo(words).answer().ok_or_else(|| Failure::new("`cargo metadata` failed"))?;
        let facts = serde_json::from_str(&answer).map_err(|error| Failure::new(error.to_string()))?;
        Self::from_metadata(&facts).ok_or_else(|| Failure::new("`cargo metadata` has no crate `mcp-leash`"))
    }

    fn from_metadata(facts: &Value) -> Option<Self> {
        let by_id = |list: &'_ Value| -> BTreeMap<String, Value> {
            let items = list.as_array().cloned().unwrap_or_default();
            items.into_iter().filter_map(|item| Some((item["id"].as_str()?.to_owned(), item))).collect()
        };
        let (packages, nodes) = (by_id(&facts["packages"]), by_id(&facts["resolve"]["nodes"]));
        let root = packages.iter().find(|(_, package)| package["name"] == "mcp-leash")?.0.clone();
        let mut seen = BTreeSet::from([root.clone()]);
        let mut open = vec![root];
        let mut crates = Vec::new();
        while let Some(id) = open.pop() {
            let uses = linked(nodes.get(&id)?);
            let used = uses.iter().filter_map(|id| Some(name_and_version(packages.get(id)?))).collect();
            crates.push(Linked::new(packages.get(&id)?, used));
            open.extend(uses.into_iter().filter(|id| seen.insert(id.clone())));
        }
        crates.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Some(Self { crates })
    }

    /// The licence texts of all foreign crates, each text once.
    pub(crate) fn licences(&self) -> Outcome<String> {
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut list = String::new();
        for linked in self.crates.iter().filter(|linked| linked.is_foreign) {
            let title = format!("{} {}", linked.name, linked.version);
            let _ = writeln!(list, "{title}: {}", linked.licence);
            for text in licence_texts(&linked.dir)? {
                texts.entry(text).or_default().push(title.clone());
            }
        }
        let head = "The program `leash` contains the Rust standard library (MIT OR Apache-2.0), musl (MIT) and these \
                    crates. Their licence texts follow.";
        let mut all = format!("{head}\n\n{list}");
        for (text, titles) in &texts {
            let line = "-".repeat(78);
            let _ = write!(all, "\n{line}\n{}\n{line}\n\n{text}\n", titles.join(", "));
        }
        Ok(all)
    }
}

impl Linked {
    fn new(package: &Value, mut uses: Vec<(String, String)>) -> Self {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        let (name, version) = name_and_version(package);
        let manifest = PathBuf::from(text("manifest_path").unwrap_or_default());
        uses.sort();
        uses.dedup();
        Self {
            name,
            version,
            licence: text("license").unwrap_or_else(|| "see its licence text".to_owned()),
            repository: text("repository"),
            is_foreign: package["source"].is_string(),
            uses,
            dir: manifest.parent().unwrap_or(Path::new("/")).to_owned(),
        }
    }
}

fn name_and_version(package: &Value) -> (String, String) {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    (text("name"), text("version"))
}

/// The ids of the crates that a crate links to.
fn linked(node: &Value) -> Vec<String> {
    let all = node["deps"].as_array().cloned().unwrap_or_default();
    let is_normal = |dep: &&Value| {
        let kinds = dep["dep_kinds"].as_array().cloned().unwrap_or_default();
        kinds.iter().any(|kind| kind["kind"].is_null())
    };
    all.iter().filter(is_normal).filter_map(|dep| dep["pkg"].as_str().map(str::to_owned)).collect()
}

/// The licence files of a crate, in the order of their names.
fn licence_texts(dir: &Path) -> Outcome<Vec<String>> {
    let entries = fs::read_dir(dir).map_err(Failure::at(dir))?;
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"].iter().any(|start| name.starts_with(start))
            && path.is_file()
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_licence).collect();
    paths.sort();
    let read = |path: &PathBuf| Ok(fs::read_to_string(path).map_err(Failure::at(path))?.trim().to_owned());
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_linked_crates_are_listed() {
        let package = |name: &str, source: Value| {
            json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source,
                    "manifest_path": format!("/nowhere/{name}/Cargo.toml") })
        };
        let dep = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let facts = json!({
            "packages": [
                package("mcp-leash", Value::Null),
                package("linked", json!("registry")),
                package("below", json!("registry")),
                package("in-build", json!("registry")),
                package("in-tests", json!("registry")),
                package("stranger", json!("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "mcp-leash", "deps": [dep("linked", Value::Null), dep("in-tests", json!("dev"))] },
                { "id": "linked", "deps": [dep("below", Value::Null), dep("in-build", json!("build"))] },
                { "id": "below", "deps": [dep("linked", Value::Null)] },
            ] },
        });
        let graph = Graph::from_metadata(&facts).expect("it has the crate");
        let names: Vec<&str> = graph.crates.iter().map(|linked| linked.name.as_str()).collect();
        assert_eq!(names, ["below", "linked", "mcp-leash"]);
        assert_eq!(graph.crates[2].uses, [("linked".to_owned(), "1.0.0".to_owned())]);
        assert!(!graph.crates[2].is_foreign && graph.crates[0].is_foreign);
    }
}
