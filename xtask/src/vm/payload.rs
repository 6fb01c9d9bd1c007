//! The second disk of the box: the programs to test, the tests, and the script that runs them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::TestRun;
use crate::step::{Failure, Outcome, Step, Workspace};

/// The place of the second disk in the box.
const INSIDE: &str = "/mnt/box";

/// A directory on the first disk of the box, which lives until the box is off: `LEASH_BOX` for the tests.
const STATE: &str = "/var/lib/leash-box";

/// The third disk of the box, to which the counters of instrumented programs are written.
const COUNTERS_DISK: &str = "/dev/vdc";

/// The programs that go into the box. They are built already.
pub(crate) struct Programs<'a> {
    /// The variables by which tests find them.
    pub(crate) variables: [(&'static str, OsString); 3],
    /// A step of cargo that builds tests of the same packages with the same features, so that nothing is compiled twice.
    pub(crate) cargo: &'a dyn Fn(&[&str]) -> Step,
    /// True if they count the lines that they run.
    pub(crate) instrumented: bool,
}

/// Builds the tests and makes the disk.
pub(crate) fn make(workspace: &Workspace, programs: &Programs<'_>, runs: &[TestRun]) -> Outcome<PathBuf> {
    let dir = workspace.target.join("box/payload");
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(Failure::at(&dir))?;
    }
    fs::create_dir_all(&dir).map_err(Failure::at(&dir))?;
    let mut exports = format!("export LEASH_BOX={STATE}\n");
    for (variable, program) in &programs.variables {
        let name = place(Path::new(program), &dir, None)?;
        exports += &format!("export {variable}={INSIDE}/{name}\n");
    }
    for run in runs {
        place(&build(programs.cargo, &run.file)?, &dir, Some(&run.file))?;
    }
    let path = dir.join("run");
    fs::write(&path, script(&exports, runs, programs.instrumented)).map_err(Failure::at(&path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(Failure::at(&path))?;
    let disk = workspace.target.join("box/payload.ext4");
    Step::new("mkfs.ext4")
        .args(["-q".as_ref(), "-F".as_ref(), "-d".as_ref(), dir.as_os_str(), disk.as_os_str(), "2G".as_ref()])
        .quietly()?;
    Ok(disk)
}

/// The script that runs the tests. A test that needs a reboot writes the file `reboot`; the second half of the test runs
/// after it. The reboot is that of a power failure: no process ends before.
fn script(exports: &str, runs: &[TestRun], instrumented: bool) -> String {
    let all: String = runs
        .iter()
        .map(|run| format!("{INSIDE}/{} --test-threads 2 {} || failed=1\n", run.file, run.filters.join(" ")))
        .collect();
    let (begin, end) = match instrumented {
        true => (COUNT, format!("tar -cf {COUNTERS_DISK} -C {STATE}/counters .\n")),
        false => ("", String::new()),
    };
    format!(
        "#!/bin/sh\n\
         # Runs the tests. The exit code is 1 if one of them failed.\n\
         {exports}mkdir -p {STATE}\n\
         {begin}\
         if [ -e {STATE}/failed ]; then\n\
         failed=$(cat {STATE}/failed)\n\
         {INSIDE}/desktop reboot::after || failed=1\n\
         else\n\
         failed=0\n\
         {all}\
         if [ -e {STATE}/reboot ]; then\n\
         echo $failed > {STATE}/failed\n\
         sync\n\
         systemctl reboot --force --force\n\
         sleep infinity\n\
         fi\n\
         fi\n\
         {end}\
         exit $failed\n"
    )
}

/// Tells every process where to count: those of this script, of logins, and of user managers. All users write to the
/// file that the first process of leash makes.
const COUNT: &str = r#"dir=$LEASH_BOX/counters
mkdir -p -m 777 "$dir"
export LLVM_PROFILE_FILE="$dir/%m%c.profraw"
mkdir -p /etc/environment.d
echo "LLVM_PROFILE_FILE=$LLVM_PROFILE_FILE" | tee /etc/environment /etc/environment.d/counters.conf > /dev/null
"$LEASH_BIN" --version > /dev/null
chmod 666 "$dir"/*
"#;

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
fn build(cargo: &dyn Fn(&[&str]) -> Step, file: &str) -> Outcome<PathBuf> {
    let words = ["test", "--no-run", "--message-format=json", "--test", file];
    let output = cargo(&words).output()?;
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
