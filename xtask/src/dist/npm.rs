//! The npm packages: `mcp-leash`, which has the library and the launcher, and `@mcp-leash/linux-x64`, which has the
//! program. The package for the platform is an optional dependency with `os` and `cpu`, because package managers do not run
//! install scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::archive::{Files, gzip};
use super::build::Build;
use crate::step::{Failure, Outcome, Workspace};

/// The source of the package `mcp-leash`.
const SOURCE: &str = "clients/typescript";

/// The licences, which every package contains.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Makes both packages, as `npm install FILE` takes them.
pub(crate) fn make(workspace: &Workspace, build: &Build) -> Result<Vec<PathBuf>, Failure> {
    let cpu = cpu(&build.target)?;
    let source = workspace.root.join(SOURCE);
    let manifest = source.join("package.json");
    let text = fs::read_to_string(&manifest).map_err(Failure::at(&manifest))?;
    let library = read(&text)?;
    if library["version"] != build.version.as_str() {
        let found = &library["version"];
        return Err(Failure::new(format!("`{}` has the version {found}, not {}", manifest.display(), build.version)));
    }
    let mut program = Files::default();
    program.program("bin/leash", build.read_binary()?);
    let platform = pack(workspace, build, &pretty(&platform_manifest(&library, cpu))?, program)?;
    let mut sources = Files::default();
    for name in library["files"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        add(&mut sources, &source, name)?;
    }
    Ok(vec![pack(workspace, build, &with_platform(&text, cpu, &build.version), sources)?, platform])
}

/// Adds a file of the source, or everything in a directory.
fn add(files: &mut Files, source: &Path, name: &str) -> Outcome {
    let path = source.join(name);
    if path.is_dir() {
        for entry in fs::read_dir(&path).map_err(Failure::at(&path))? {
            let entry = entry.map_err(Failure::at(&path))?;
            add(files, source, &format!("{name}/{}", entry.file_name().to_string_lossy()))?;
        }
        return Ok(());
    }
    let bytes = fs::read(&path).map_err(Failure::at(&path))?;
    let mode = path.metadata().map_err(Failure::at(&path))?.permissions().mode();
    if mode & 0o100 == 0 {
        files.file(name, bytes)
    } else {
        files.program(name, bytes)
    }
    Ok(())
}

/// Writes a package, under the name that `npm pack` would give it.
fn pack(workspace: &Workspace, build: &Build, manifest: &str, mut files: Files) -> Outcome<PathBuf> {
    for licence in LICENCES {
        let path = workspace.root.join(licence);
        files.file(licence, fs::read(&path).map_err(Failure::at(&path))?);
    }
    files.file("package.json", manifest);
    let name = read(manifest)?["name"].as_str().unwrap_or_default().replace('@', "").replace('/', "-");
    build.write(&format!("{name}-{}.tgz", build.version), &gzip(&files.tar("package/", build.epoch)))
}

/// The name that npm has for the processor of a target.
fn cpu(target: &str) -> Outcome<&'static str> {
    match target.split_once('-').map_or(target, |(processor, _)| processor) {
        "x86_64" => Ok("x64"),
        "aarch64" => Ok("arm64"),
        _ => Err(Failure::new(format!("there is no npm package for the target `{target}`"))),
    }
}

fn read(manifest: &str) -> Outcome<Value> {
    serde_json::from_str(manifest).map_err(|error| Failure::new(format!("a package.json: {error}")))
}

fn pretty(manifest: &Value) -> Outcome<String> {
    let text = serde_json::to_string_pretty(manifest).map_err(|error| Failure::new(error.to_string()))?;
    Ok(text + "\n")
}

/// The manifest of the library, with the package of the platform in the same version. The text is not written anew: the
/// order of the conditions in `exports` has a meaning, and a `Value` sorts them.
fn with_platform(library: &str, cpu: &str, version: &str) -> String {
    let member = format!("{{\n  \"optionalDependencies\": {{ \"@mcp-leash/linux-{cpu}\": \"{version}\" }},");
    library.replacen('{', &member, 1)
}

/// The manifest of the package of the platform.
fn platform_manifest(library: &Value, cpu: &str) -> Value {
    json!({
        "name": format!("@mcp-leash/linux-{cpu}"),
        "version": library["version"],
        "description": format!("The program of mcp-leash for Linux on {cpu}"),
        "license": library["license"],
        "repository": library["repository"],
        "os": ["linux"],
        "cpu": [cpu],
        // Yarn keeps packages in zip files, from which the kernel cannot start a program.
        "preferUnplugged": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_its_processor() {
        assert_eq!(cpu("x86_64-unknown-linux-musl").ok(), Some("x64"));
        assert_eq!(cpu("aarch64-unknown-linux-musl").ok(), Some("arm64"));
        assert!(cpu("riscv64gc-unknown-linux-gnu").is_err());
    }

    #[test]
    fn the_platform_is_an_optional_package_of_the_same_version() {
        let library = json!({"name": "mcp-leash", "version": "1.2.3", "license": "MIT"});
        let platform = platform_manifest(&library, "x64");
        assert_eq!(platform["version"], "1.2.3");
        assert_eq!((&platform["os"], &platform["cpu"]), (&json!(["linux"]), &json!(["x64"])));
        assert!(platform.get("scripts").is_none());
        let text = r#"{"exports": {"types": "a", "default": "b"}}"#;
        let text = with_platform(text, "x64", "1.2.3");
        let library = read(&text).expect("the text is JSON");
        assert_eq!(library["optionalDependencies"], json!({"@mcp-leash/linux-x64": "1.2.3"}));
        assert!(text.find("types") < text.find("default"), "{text}");
    }
}
