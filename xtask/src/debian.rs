//! Unpacks packages of a later Debian than the machine's into a separate directory: this changes nothing on the
//! machine, and needs no root. For tools that must be newer than those of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome, Step, say};

/// The first Debian with valgrind 3.24 and LLVM 22.
pub(crate) const SUITE: &str = "trixie";

/// The signing keys of every Debian release. If the file is missing, apt uses its own keys.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The packages to unpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// The package alone: it runs on the machine's libraries.
    Alone,
    /// Also all of its dependencies, down to libc.
    Everything,
}

/// Unpacks `package` into `dir`. Its files are then below `usr`.
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
    // The package lists are larger than the package itself.
    fs::remove_dir_all(&apt.dir).map_err(Failure::at(&apt.dir))
}

/// An apt that knows one repository, and considers no package as installed.
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
            // As root, apt would switch to a user that may not enter our directory.
            .args(["-oDir::Etc::sourceparts=-", "-oAPT::Sandbox::User=root", "-oDebug::NoLocking=1"])
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .dir(&self.archives)
            .quietly()
    }
}

/// The repository of the machine's own Debian.
pub(crate) fn repository() -> Outcome<String> {
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
