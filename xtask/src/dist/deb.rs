//! The Debian package, without maintainer scripts: installing it starts and enables nothing, and removing it leaves
//! nothing. It is written here, because cargo-deb takes minutes to compile and would write the same three files.

use std::fs;
use std::path::PathBuf;

use super::archive::{Files, ar, gzip};
use super::build::Build;
use super::contents::Contents;
use crate::step::{Failure, Outcome, Workspace};

pub(crate) fn make(workspace: &Workspace, build: &Build) -> Outcome<Vec<PathBuf>> {
    let contents = Contents::make(workspace, build)?;
    let architecture = architecture(build.machine())?;
    let unit = workspace.root.join("xtask/dist/leash-watch.service");
    let unit = fs::read(&unit).map_err(Failure::at(&unit))?;
    let mut files = Files::default();
    files.program("usr/bin/leash", build.read_binary()?);
    for (page, bytes) in &contents.man {
        files.file(format!("usr/share/man/man1/{page}.gz"), gzip(bytes));
    }
    files.file("usr/lib/systemd/user/leash-watch.service", unit);
    contents.put(&mut files, "usr/", "vendor-completions", "mcp-leash");
    files.file("usr/share/doc/mcp-leash/copyright", COPYRIGHT);
    let mut control = Files::default();
    control.file("control", text(build, architecture, &files));
    let (control, data) = (gzip(&control.tar("./", build.epoch)), gzip(&files.tar("./", build.epoch)));
    let members = [("debian-binary", b"2.0\n".as_slice()), ("control.tar.gz", &control), ("data.tar.gz", &data)];
    let name = format!("mcp-leash_{}_{architecture}.deb", build.version);
    Ok(vec![build.write(&name, &ar(&members, build.epoch))?])
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: leash
Source: https://github.com/mcp-leash/leash

Files: *
Copyright: The leash authors
License: Expat or Apache-2.0
 The texts are LICENSE-MIT and LICENSE-APACHE in this directory. THIRD-PARTY.txt has those of the crates in the program.
";

/// Debian's name for a processor.
fn architecture(machine: &str) -> Outcome<&'static str> {
    match machine {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        _ => Err(Failure::new(format!("the name that Debian has for `{machine}` is not known here"))),
    }
}

/// The file `control`. The program is static: the package depends on nothing.
fn text(build: &Build, architecture: &str, files: &Files) -> String {
    format!(
        "Package: mcp-leash\n\
         Version: {}\n\
         Architecture: {architecture}\n\
         Maintainer: The leash authors <leash@users.noreply.github.com>\n\
         Installed-Size: {}\n\
         Section: utils\n\
         Priority: optional\n\
         Homepage: https://github.com/mcp-leash/leash\n\
         Description: ends MCP servers and sessions with their owner\n \
         When the host of an MCP server is gone, leash ends every process that the\n \
         server started and every session that the host opened, checks that they are\n \
         gone, and writes a receipt.\n",
        build.version,
        files.size().div_ceil(1024),
    )
}
