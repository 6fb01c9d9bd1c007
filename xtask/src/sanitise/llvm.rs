//! The two tools that read the counters of instrumented programs. They must be as new as the LLVM of the compiler.

use std::fs;
use std::path::{Path, PathBuf};

use crate::debian::{self, Take};
use crate::setup;
use crate::step::{Failure, Outcome, Step, Workspace};

/// `llvm-profdata` and `llvm-cov`.
pub(super) struct Llvm {
    dir: PathBuf,
    suffix: String,
    /// The loader and the libraries, if they are not the machine's.
    loader: Option<(PathBuf, PathBuf)>,
}

impl Llvm {
    /// Finds those of rustup, the machine's own, or Debian's.
    pub(super) fn find(workspace: &Workspace) -> Outcome<Self> {
        let (sysroot, host, wanted) = compiler()?;
        let own = |dir: PathBuf, suffix: &str| Self { dir, suffix: suffix.to_owned(), loader: None };
        let candidates = [
            own(sysroot.join("lib/rustlib").join(host).join("bin"), ""),
            own(PathBuf::new(), &format!("-{wanted}")),
            own(PathBuf::new(), ""),
        ];
        if let Some(found) = candidates.into_iter().find(|llvm| llvm.major() >= Some(wanted)) {
            return Ok(found);
        }
        let dir = workspace.target.join("tools/llvm");
        let package = format!("llvm-{wanted}");
        let recipe = format!("{package} of {}", debian::SUITE);
        setup::once(&dir, &recipe, || debian::unpack(&package, Take::Everything, &dir)).map_err(|failure| {
            Failure::new(format!("no llvm-cov {wanted}: {failure}\n`rustup component add llvm-tools` may help"))
        })?;
        let unpacked = Self {
            dir: dir.join(format!("usr/lib/{package}/bin")),
            suffix: String::new(),
            loader: Some((
                one_below(&dir.join("usr/lib64"), "ld-linux")?,
                one_below(&dir.join("usr/lib"), "-linux-gnu")?,
            )),
        };
        match unpacked.major() {
            Some(found) if found >= wanted => Ok(unpacked),
            found => Err(Failure::new(format!("llvm-cov {wanted} is wanted and {found:?} was found"))),
        }
    }

    /// One of the tools.
    pub(super) fn tool(&self, name: &str) -> Step {
        let program = self.dir.join(format!("{name}{}", self.suffix));
        match &self.loader {
            Some((loader, libraries)) => {
                Step::new(loader).args(["--library-path".as_ref(), libraries.as_os_str(), program.as_os_str()])
            }
            None => Step::new(program),
        }
    }

    fn major(&self) -> Option<u32> {
        self.tool("llvm-profdata").args(["--version"]).answer()?;
        let answer = self.tool("llvm-cov").args(["--version"]).answer()?;
        let line = answer.lines().find(|line| line.contains("LLVM version"))?;
        Some(setup::version(line)[0])
    }
}

/// The compiler's sysroot, its target, and its LLVM version.
fn compiler() -> Outcome<(PathBuf, String, u32)> {
    let answer = |words: &[&str]| {
        Step::new("rustc").args(words).answer().ok_or_else(|| Failure::new("rustc does not say what it is"))
    };
    let about = answer(&["-vV"])?;
    let value = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
    let major = setup::version(&value("LLVM version: "))[0];
    Ok((answer(&["--print=sysroot"])?.into(), value("host: "), major))
}

/// The entry of `dir` whose name contains `part`: these names differ between architectures.
fn one_below(dir: &Path, part: &str) -> Outcome<PathBuf> {
    let entries = fs::read_dir(dir).map_err(Failure::at(dir))?.flatten().map(|entry| entry.path());
    let mut found = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(part)));
    found.next().ok_or_else(|| Failure::new(format!("nothing like `{part}` in `{}`", dir.display())))
}
