//! The static binary of which every artefact is made.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::setup::apt_install;
use crate::step::{Failure, Outcome, Step, Workspace, say};

/// The binary, and the facts that every artefact needs.
pub(crate) struct Build {
    /// The static executable, without symbols.
    pub(crate) binary: PathBuf,
    /// The target, as rustc names it.
    pub(crate) target: String,
    pub(crate) version: String,
    /// The directory of the artefacts.
    pub(crate) out: PathBuf,
    /// The time in every archive: that of the last commit (SOURCE_DATE_EPOCH), in seconds.
    pub(crate) epoch: u64,
}

impl Build {
    /// The first part of the target, as `uname -m` prints it.
    pub(crate) fn machine(&self) -> &str {
        self.target.split('-').next().unwrap_or_default()
    }

    pub(crate) fn read_binary(&self) -> Outcome<Vec<u8>> {
        fs::read(&self.binary).map_err(Failure::at(&self.binary))
    }

    /// Writes an artefact, and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Outcome<PathBuf> {
        let path = self.out.join(name);
        fs::write(&path, bytes).map_err(Failure::at(&path))?;
        Ok(path)
    }
}

/// The musl target for the processor of this machine.
pub(crate) fn native_target() -> String {
    format!("{}-unknown-linux-musl", env::consts::ARCH)
}

/// Builds the binary for a musl target, unless there is one.
pub(crate) fn build(workspace: &Workspace, target: &str, binary: Option<PathBuf>) -> Outcome<Build> {
    let binary = match binary {
        Some(binary) => fs::canonicalize(&binary).map_err(Failure::at(&binary))?,
        None => compile(workspace, target)?,
    };
    is_static(&binary)?;
    let out = workspace.target.join("dist");
    fs::create_dir_all(&out).map_err(Failure::at(&out))?;
    Ok(Build { binary, target: target.to_owned(), version: version(workspace)?, out, epoch: epoch(workspace)? })
}

pub(crate) fn compile(workspace: &Workspace, target: &str) -> Outcome<PathBuf> {
    let compiler = requirements(target)?;
    let words = ["build", "--profile", "static", "--locked", "--package", "mcp-leash", "--bin", "leash", "--target"];
    let mut flags: Vec<String> = remapped(workspace).iter().map(|flag| format!("--remap-path-prefix={flag}")).collect();
    // A fixed address; crates/leash/build.rs says why.
    flags.push("-Crelocation-model=static".to_owned());
    workspace
        .cargo(words)
        .args([target])
        .env("CARGO_TARGET_DIR", &workspace.target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        // ring has C code.
        .env(&format!("CC_{}", target.replace('-', "_")), compiler)
        .run()?;
    Ok(program(workspace, target))
}

/// The path of the static executable.
pub(crate) fn program(workspace: &Workspace, target: &str) -> PathBuf {
    workspace.target.join(target).join("static/leash")
}

/// Installs what the compilation needs, where it is missing. Returns the C compiler.
pub(crate) fn requirements(target: &str) -> Outcome<String> {
    need_target(target)?;
    need_compiler(target)
}

/// Adds the target to the toolchain, if it is missing.
fn need_target(target: &str) -> Outcome {
    let sysroot = Step::new("rustc").args(["--print", "sysroot"]).answer();
    let sysroot = sysroot.ok_or_else(|| Failure::new("`rustc --print sysroot` failed"))?;
    if Path::new(&sysroot).join("lib/rustlib").join(target).join("lib").exists() {
        return Ok(());
    }
    say("Adding", format!("the target `{target}` to the Rust toolchain"));
    Step::new("rustup").args(["target", "add", target]).quietly().map_err(|failure| {
        Failure::new(format!(
            "the Rust toolchain has no standard library for `{target}`, and rustup cannot add it: {failure}"
        ))
    })
}

/// The C compiler for a target. On the machine's own processor it is musl-gcc of the package `musl-tools`.
fn need_compiler(target: &str) -> Outcome<String> {
    let named = format!("CC_{}", target.replace('-', "_"));
    if let Ok(compiler) = env::var(&named) {
        return Ok(compiler);
    }
    if target != native_target() {
        return Err(Failure::new(format!("set `{named}` to a C compiler for `{target}`")));
    }
    let answers = || Step::new("musl-gcc").args(["--version"]).answer().is_some();
    if !answers() {
        say("Installing", "musl-tools, the C compiler for static programs");
        apt_install(&["musl-tools"])?;
    }
    match answers() {
        true => Ok("musl-gcc".to_owned()),
        false => Err(Failure::new("there is no musl-gcc; install the package `musl-tools`")),
    }
}

/// The paths of this machine that would be in the binary, each with its replacement. The last one that fits is used.
fn remapped(workspace: &Workspace) -> Vec<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let mut pairs = vec![(workspace.root.clone(), "/leash".to_owned())];
    // It has sources, too: those that build scripts write.
    if !workspace.target.starts_with(&workspace.root) {
        pairs.push((workspace.target.clone(), "/leash/target".to_owned()));
    }
    let sources = cargo.map(|cargo| cargo.join("registry/src"));
    // Below it, the directory of each registry has a name of its own.
    let registries = sources.and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    pairs.extend(registries.map(|registry| (registry.path(), "/registry".to_owned())));
    pairs.into_iter().map(|(path, name)| format!("{}={name}", path.display())).collect()
}

/// Refuses a binary that needs an interpreter.
fn is_static(binary: &Path) -> Outcome {
    let bytes = fs::read(binary).map_err(Failure::at(binary))?;
    match has_interpreter(&bytes) {
        Some(false) => Ok(()),
        Some(true) => Err(Failure::new(format!("`{}` is not static", binary.display()))),
        None => Err(Failure::new(format!("`{}` is no 64-bit ELF file", binary.display()))),
    }
}

/// True if an ELF file has a program header PT_INTERP. `None` if it is not a little-endian 64-bit ELF file.
fn has_interpreter(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
    let mut headers = (0..count).map(|index| elf.get(table + index * size..)?.get(..4));
    headers.try_fold(false, |found, kind| Some(found || u32::from_le_bytes(kind?.try_into().ok()?) == PT_INTERP))
}

/// The version of the workspace.
fn version(workspace: &Workspace) -> Outcome<String> {
    let answer = workspace.cargo(["metadata", "--no-deps", "--format-version=1"]).answer();
    let facts: Value = answer.and_then(|answer| serde_json::from_str(&answer).ok()).unwrap_or_default();
    let packages = facts["packages"].as_array().cloned().unwrap_or_default();
    let leash = packages.iter().find(|package| package["name"] == "mcp-leash");
    let version = leash.and_then(|leash| leash["version"].as_str().map(str::to_owned));
    version.ok_or_else(|| Failure::new("`cargo metadata` does not say the version of mcp-leash"))
}

/// SOURCE_DATE_EPOCH, or the time of the last commit.
fn epoch(workspace: &Workspace) -> Outcome<u64> {
    let commit = || Step::new("git").args(["log", "-1", "--format=%ct"]).dir(&workspace.root).answer();
    let seconds = env::var("SOURCE_DATE_EPOCH").ok().or_else(commit);
    seconds
        .and_then(|seconds| seconds.parse().ok())
        .ok_or_else(|| Failure::new("git does not know the time of the last commit; set SOURCE_DATE_EPOCH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_programs_are_recognised() {
        // This test itself is linked to the machine's libc.
        let me = fs::read("/proc/self/exe").expect("it can be read");
        assert_eq!(has_interpreter(&me), Some(true));
        assert_eq!(has_interpreter(b"#!/bin/sh\n"), None);
        assert_eq!(has_interpreter(&me[..64]), None);
        let mut none = me[..64].to_vec();
        none[56..58].fill(0);
        assert_eq!(has_interpreter(&none), Some(false));
    }
}
