//! The lists beside the packages: sums, manifest, bill of materials.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;
use testkit::or_skip;

use super::dist::{dist, package, succeed};

#[test]
fn every_file_is_listed_with_its_sum() {
    let dist = or_skip!(dist());
    succeed(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&dist));
    let sums = fs::read_to_string(dist.join("SHA256SUMS")).expect("it can be read");
    let listed: BTreeSet<String> = sums.lines().filter_map(|line| Some(line.split_once("  ")?.1.to_owned())).collect();
    let files = fs::read_dir(&dist).expect("it exists").flatten();
    let files = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(files.filter(|name| name != "SHA256SUMS").collect::<BTreeSet<_>>(), listed);

    let manifest = fs::read_to_string(dist.join("manifest.json")).expect("it can be read");
    let manifest: Value = serde_json::from_str(&manifest).expect("it is JSON");
    for artefact in manifest["artefacts"].as_array().expect("a list") {
        let line =
            format!("{}  {}\n", artefact["sha256"].as_str().unwrap_or("-"), artefact["file"].as_str().unwrap_or("-"));
        assert!(sums.contains(&line), "{line}");
    }
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
}

/// The required fields of CycloneDX 1.6, and the identity of the program.
#[test]
fn bill_of_materials_names_the_program() {
    let path = or_skip!(package(".cdx.json"));
    let bill: Value = serde_json::from_slice(&fs::read(path).expect("it can be read")).expect("it is JSON");
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"], &bill["version"]),
        (&"CycloneDX".into(), &"1.6".into(), &1.into())
    );
    assert_eq!(bill["metadata"]["component"]["purl"], format!("pkg:cargo/mcp-leash@{}", env!("CARGO_PKG_VERSION")));
    for component in bill["components"].as_array().expect("a list") {
        let is_text = |key: &str| component[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(["type", "name", "version", "purl", "bom-ref"].iter().all(|key| is_text(key)), "{component:#}");
    }
}
