//! The tarball: a directory that is laid out like a prefix (`bin`, `share`), and `install.sh`, which copies it.

use std::fs;
use std::path::PathBuf;

use super::archive::{Files, gzip};
use super::build::Build;
use super::contents::Contents;
use crate::step::{Failure, Outcome, Workspace};

pub(crate) fn make(workspace: &Workspace, build: &Build) -> Outcome<Vec<PathBuf>> {
    let contents = Contents::make(workspace, build)?;
    let name = format!("leash-{}-{}", build.version, build.target);
    let mut files = Files::default();
    files.program("bin/leash", build.read_binary()?);
    for (page, bytes) in &contents.man {
        files.file(format!("share/man/man1/{page}"), bytes.clone());
    }
    contents.put(&mut files, "", "site-functions", "leash");
    let archive = gzip(&files.tar(&format!("{name}/"), build.epoch));
    let script = workspace.root.join("xtask/dist/install.sh");
    let script = fs::read(&script).map_err(Failure::at(&script))?;
    Ok(vec![build.write(&format!("{name}.tar.gz"), &archive)?, build.write("install.sh", &script)?])
}
