//! The second disk of the box: the programs to test, the tests, and the script that runs them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::TestRun;
use crate::step::{Failure, Outcome, Step, Workspace};

/// The place of the second disk in the box.
const INSIDE: &str = "/mnt/box";

/// Builds the programs and the tests, and makes the disk.
pub(crate) fn make(workspace: &Workspace, runs: &[TestRun]) -> Outcome<PathBuf> {
    let dir = workspace.target.join("box/payload");
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(Failure::at(&dir))?;
    }
    fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
    workspace.cargo(["build", "--release", "--package", "mcp-leash", "--package", "testkit", "--bins"]).run()?;
    workspace.fixture().run()?;
    let mut script =
        "#!/bin/sh\n# Runs the tests. The exit code is 1 if one of them failed.\nfailed=0\nexport LEASH_BOX=1\n"
            .to_owned();
    for (variable, program) in workspace.programs() {
        let name = place(Path::new(&program), &dir, None)?;
        script += &format!("export {variable}={INSIDE}/{name}\n");
    }
    for run in runs {
        let name = place(&build(workspace, &run.file)?, &dir, Some(&run.file))?;
        let filters = run.filters.join(" ");
        script += &format!("{INSIDE}/{name} --test-threads 2 {filters} || failed=1\n");
    }
    script += "exit $failed\n";
    let path = dir.join("run");
    fs::write(&path, script).map_err(Failure::at(&path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(Failure::at(&path))?;
    let disk = workspace.target.join("box/payload.ext4");
    Step::new("mkfs.ext4")
        .args(["-q".as_ref(), "-F".as_ref(), "-d".as_ref(), dir.as_os_str(), disk.as_os_str(), "2G".as_ref()])
        .quietly()?;
    Ok(disk)
}

/// Copies a program to `dir` without its debug information. Returns its name there.
fn place(program: &Path, dir: &Path, name: Option<&str>) -> Outcome<String> {
    let own = || program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = name.map_or_else(own, str::to_owned);
    Step::new("strip")
        .args(["--strip-debug".as_ref(), "-o".as_ref(), dir.join(&name).as_os_str(), program.as_os_str()])
        .quietly()?;
    Ok(name)
}

/// Builds a file of tests. Returns the path of its program.
fn build(workspace: &Workspace, file: &str) -> Outcome<PathBuf> {
    let words = ["test", "--no-run", "--message-format=json", "--package", "mcp-leash", "--test", file];
    let output = workspace.cargo(words).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("cannot build the tests of `{file}`: {}", said.trim())));
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let program = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == file && message["target"]["kind"][0] == "test";
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    };
    let found = messages.lines().find_map(program);
    found.ok_or_else(|| Failure::new(format!("cargo does not say where the tests of `{file}` are")))
}
