//! The files beside the binary: manual pages, completions and licences. The binary itself writes the first two.

use std::fs;
use std::path::Path;

use super::archive::Files;
use super::build::Build;
use super::graph::Graph;
use crate::step::{Failure, Outcome, Step, Workspace};

/// The files of a package that installs them below a prefix such as `/usr`.
pub(crate) struct Contents {
    /// The manual pages, by file name.
    pub(crate) man: Vec<(String, Vec<u8>)>,
    pub(crate) bash: Vec<u8>,
    pub(crate) zsh: Vec<u8>,
    pub(crate) fish: Vec<u8>,
    /// Texts for `share/doc`, by file name.
    pub(crate) doc: Vec<(String, Vec<u8>)>,
}

/// The files of the repository that go into `share/doc`.
const DOC: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The name of the file with the licences of the crates in the binary.
const THIRD_PARTY: &str = "THIRD-PARTY.txt";

impl Contents {
    pub(crate) fn make(workspace: &Workspace, build: &Build) -> Outcome<Self> {
        let script = |shell: &str| completions(build, shell);
        let read = |name: &str| {
            let path = workspace.root.join(name);
            Ok((name.to_owned(), fs::read(&path).map_err(Failure::at(&path))?))
        };
        let mut doc: Vec<(String, Vec<u8>)> = DOC.iter().map(|name| read(name)).collect::<Outcome<_>>()?;
        doc.push((THIRD_PARTY.to_owned(), Graph::read(workspace, &build.target)?.licences()?.into_bytes()));
        Ok(Self { man: man(build)?, bash: script("bash")?, zsh: script("zsh")?, fish: script("fish")?, doc })
    }

    /// Everything but manual pages, where programs look for it below a prefix.
    pub(crate) fn put(&self, files: &mut Files, prefix: &str, zsh: &str, doc: &str) {
        files.file(format!("{prefix}share/bash-completion/completions/leash"), self.bash.clone());
        files.file(format!("{prefix}share/zsh/{zsh}/_leash"), self.zsh.clone());
        files.file(format!("{prefix}share/fish/vendor_completions.d/leash.fish"), self.fish.clone());
        for (name, bytes) in &self.doc {
            files.file(format!("{prefix}share/doc/{doc}/{name}"), bytes.clone());
        }
    }
}

/// The manual pages, in the order of their names.
fn man(build: &Build) -> Outcome<Vec<(String, Vec<u8>)>> {
    let dir = build.out.join("man");
    clear(&dir)?;
    Step::new(&build.binary).args(["man", "--dir"]).args([&dir]).quietly()?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(&dir).map_err(Failure::at(&dir))? {
        let path = entry.map_err(Failure::at(&dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        pages.push((name, fs::read(&path).map_err(Failure::at(&path))?));
    }
    fs::remove_dir_all(&dir).map_err(Failure::at(&dir))?;
    pages.sort();
    match pages.is_empty() {
        true => Err(Failure::new("`leash man` wrote no page")),
        false => Ok(pages),
    }
}

fn clear(dir: &Path) -> Outcome {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(Failure::at(dir))?;
    }
    fs::create_dir_all(dir).map_err(Failure::at(dir))
}

/// The completion script for a shell. The script names the binary by its path; an installed one is found in PATH.
fn completions(build: &Build, shell: &str) -> Outcome<Vec<u8>> {
    let script = Step::new(&build.binary).args(["completions", shell]).answer();
    let script = script.ok_or_else(|| Failure::new(format!("`leash completions {shell}` failed")))?;
    let path = build.binary.display().to_string();
    match script.contains(&path) {
        true => Ok(format!("{}\n", script.replace(&path, "leash")).into_bytes()),
        false => Err(Failure::new(format!("the completions for {shell} do not name `{path}`"))),
    }
}
