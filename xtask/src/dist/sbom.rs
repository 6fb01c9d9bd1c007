//! The bill of materials: the crates in the binary, as a CycloneDX document.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::build::Build;
use super::graph::{Graph, Linked};
use super::image::rfc3339;
use crate::step::{Outcome, Workspace};

pub(crate) fn make(workspace: &Workspace, build: &Build) -> Outcome<Vec<PathBuf>> {
    let graph = Graph::read(workspace, &build.target)?;
    let text = format!("{:#}\n", document(&graph, build));
    Ok(vec![build.write(&format!("leash-{}-{}.cdx.json", build.version, build.target), text.as_bytes())?])
}

/// The document. The program itself is its subject; the standard library and musl have no entry in Cargo's graph.
fn document(graph: &Graph, build: &Build) -> Value {
    let is_subject = |linked: &&Linked| linked.name == "mcp-leash";
    let subject = graph.crates.iter().find(is_subject).map(|linked| component(linked, "application"));
    let others = graph.crates.iter().filter(|linked| !is_subject(linked)).map(|linked| component(linked, "library"));
    let uses = graph.crates.iter().map(|linked| {
        let below: Vec<String> = linked.uses.iter().map(|(name, version)| purl(name, version)).collect();
        json!({ "ref": purl(&linked.name, &linked.version), "dependsOn": below })
    });
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": rfc3339(build.epoch),
            "component": subject,
            "properties": [{ "name": "cdx:rustc:target", "value": build.target }],
        },
        "components": others.collect::<Vec<_>>(),
        "dependencies": uses.collect::<Vec<_>>(),
    })
}

fn component(linked: &Linked, kind: &str) -> Value {
    let purl = purl(&linked.name, &linked.version);
    let mut component = json!({
        "type": kind,
        "bom-ref": purl,
        "name": linked.name,
        "version": linked.version,
        "scope": "required",
        // Old manifests write a slash for OR.
        "licenses": [{ "expression": linked.licence.replace('/', " OR ") }],
        "purl": purl,
    });
    if let Some(repository) = &linked.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// The address of a crate in the form that all package registries share.
fn purl(name: &str, version: &str) -> String {
    // `+` begins the build metadata, and would mean a blank.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Reads the real graph, so that a crate without a licence or with a new shape of its metadata is noticed.
    #[test]
    fn every_reference_has_a_component() {
        let workspace = Workspace::find().unwrap_or_else(|why| panic!("{why}"));
        let target = "x86_64-unknown-linux-musl".to_owned();
        let graph = Graph::read(&workspace, &target).unwrap_or_else(|why| panic!("{why}"));
        let build =
            Build { binary: PathBuf::new(), target, version: "0.1.0".to_owned(), out: PathBuf::new(), epoch: 0 };
        let document = document(&graph, &build);
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let components = document["components"].as_array().expect("a list");
        let mut refs: BTreeSet<String> = components.iter().map(|component| text(&component["bom-ref"])).collect();
        assert_eq!(refs.len(), components.len(), "each component is listed once");
        assert!(refs.insert(text(&document["metadata"]["component"]["bom-ref"])));
        for entry in document["dependencies"].as_array().expect("a list") {
            let below = entry["dependsOn"].as_array().expect("a list").iter().map(text);
            let unknown: Vec<String> = below.chain([text(&entry["ref"])]).filter(|one| !refs.contains(one)).collect();
            assert_eq!(unknown, Vec::<String>::new());
        }
        let names: BTreeSet<String> = components.iter().map(|component| text(&component["name"])).collect();
        assert!(["tokio", "ring", "mcp-leash-tree"].iter().all(|name| names.contains(*name)), "{names:?}");
        assert!(["testkit", "proptest", "cc"].iter().all(|name| !names.contains(*name)), "{names:?}");
        let expressions = components.iter().map(|component| text(&component["licenses"][0]["expression"]));
        assert_eq!(expressions.filter(|one| one.contains('/')).collect::<Vec<_>>(), Vec::<String>::new());
    }
}
