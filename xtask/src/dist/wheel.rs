//! The Python wheel: the module `mcp_leash` and the program itself, as a script of the wheel.
//!
//! maturin is not used, because it always compiles: the wheel would have another program than the other artefacts, under
//! one name. flit builds the module with its metadata, and `wheel.py` adds the program and the tags.

use std::path::PathBuf;

use super::build::Build;
use crate::setup;
use crate::step::{Failure, Step, Workspace};

/// Makes the wheel.
pub(crate) fn make(workspace: &Workspace, build: &Build) -> Result<Vec<PathBuf>, Failure> {
    let venv = workspace.target.join("deps/py");
    setup::python(&venv, &workspace.root.join("xtask/deps/requirements.txt"))?;
    let name = format!("mcp_leash-{}-py3-none-{}.whl", build.version, tags(&build.target)?);
    let wheel = build.out.join(name);
    Step::new(venv.join("bin/python"))
        .args([workspace.root.join("xtask/src/dist/wheel.py"), workspace.root.join("clients/python")])
        .args([&build.binary, &wheel])
        .env("SOURCE_DATE_EPOCH", build.epoch.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .quietly()?;
    Ok(vec![wheel])
}

/// The platforms on which a static program of this target runs: those with any glibc, and those with musl.
fn tags(target: &str) -> Result<String, Failure> {
    let processor = target.split_once('-').map_or(target, |(processor, _)| processor);
    match processor {
        "x86_64" | "aarch64" => {
            Ok(format!("manylinux_2_17_{processor}.manylinux2014_{processor}.musllinux_1_1_{processor}"))
        }
        _ => Err(Failure::new(format!("there is no wheel for the target `{target}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_program_runs_with_glibc_and_with_musl() {
        let tags = tags("x86_64-unknown-linux-musl").expect("the target has a wheel");
        assert_eq!(tags, "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64");
    }
}
