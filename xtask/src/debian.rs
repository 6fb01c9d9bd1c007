//! Packages of a later Debian than the machine's, unpacked into a directory of their own: nothing of the machine changes, and nobody
//! needs to be root. For tools that must be newer than what the machine has.

use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome, Step, say};

/// The first Debian with valgrind 3.24 and LLVM 22.
pub(crate) const SUITE: &str = "trixie";

/// What every release of Debian is signed with; where it is not here, apt knows its keys.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What is unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// The package alone: it runs on the machine's libraries.
    Alone,
    /// Everything below it too, down to libc.
    Everything,
}

/// Unpacks `package` into `dir`, where it finds itself below `usr`.
pub(crate) fn unpack(package: &str, take: Take, dir: &Path) -> Outcome {
    let apt = Apt::prepare(&dir.join("apt"))?;
    say("Unpacking", format!("`{package}` of Debian {SUITE}"));
    apt.run(&["update", "-qq"])?;
    match take {
        Take::Alone => apt.run(&["download", "-qq", package])?,
        Take::Everything => {
            apt.run(&["install", "-qq", "-y", "--no-install-recommends", "--download-only", package])?;
        }
    }
    for archive in files(&apt.archives)?.filter(|path| path.extension().is_some_and(|kind| kind == "deb")) {
        Step::new("dpkg-deb").args(["-x".as_ref(), archive.as_os_str(), dir.as_os_str()]).quietly()?;
    }
    // The lists are larger than what was asked for.
    fs::remove_dir_all(&apt.dir).map_err(Failure::at(&apt.dir))
}

/// An apt that knows one repository, and of no package that is installed.
struct Apt {
    dir: PathBuf,
    archives: PathBuf,
}

impl Apt {
    fn prepare(dir: &Path) -> Outcome<Self> {
        let apt = Self { dir: dir.to_owned(), archives: dir.join("cache/archives") };
        for part in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(part)).map_err(Failure::at(dir))?;
        }
        let signed = if Path::new(KEYS).exists() { format!("[signed-by={KEYS}] ") } else { String::new() };
        let source = format!("deb {signed}{} {SUITE} main\n", repository()?);
        for (file, text) in [("sources.list", source.as_str()), ("status", "")] {
            fs::write(dir.join(file), text).map_err(Failure::at(dir))?;
        }
        Ok(apt)
    }

    fn run(&self, words: &[&str]) -> Outcome {
        let at = |name: &str, path: &str| format!("-oDir::{name}={}", self.dir.join(path).display());
        Step::new("apt-get")
            .args([
                at("Etc::sourcelist", "sources.list"),
                at("State::status", "status"),
                at("State", "state"),
                at("Cache", "cache"),
            ])
            // Root would become a user who may not enter our directory.
            .args(["-oDir::Etc::sourceparts=-", "-oAPT::Sandbox::User=root", "-oDebug::NoLocking=1"])
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .dir(&self.archives)
            .quietly()
    }
}

/// Where the machine's own Debian comes from.
fn repository() -> Outcome<String> {
    let answer = Step::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
        .answer()
        .ok_or_else(|| Failure::new("there is no apt-get"))?;
    let found = answer.lines().find(|line| line.trim_end_matches('/').ends_with("/debian"));
    found.map(str::to_owned).ok_or_else(|| Failure::new("apt-get knows no repository of Debian"))
}

fn files(dir: &Path) -> Outcome<impl Iterator<Item = PathBuf>> {
    Ok(fs::read_dir(dir).map_err(Failure::at(dir))?.flatten().map(|entry| entry.path()))
}
