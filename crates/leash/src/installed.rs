//! How this leash was installed, judged by the place of its executable. leash never updates itself: the package manager
//! that owns the file does.

use std::path::{Path, PathBuf};
use std::{env, fs};

use schemars::JsonSchema;
use serde::Serialize;

/// The installation script of the latest release.
const SCRIPT: &str = "curl -fsSL https://github.com/mcp-leash/leash/releases/latest/download/install.sh | sh";

/// The ways in which leash can be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum InstalledBy {
    /// npm, for all projects.
    Npm,
    /// npm, for one project.
    Project,
    /// pnpm.
    Pnpm,
    /// yarn.
    Yarn,
    /// npx, into its cache.
    Npx,
    /// `pnpm dlx`, into its cache.
    Dlx,
    /// bunx, into its cache.
    Bunx,
    /// pip, into an environment of Python.
    Pip,
    /// `uv tool install`.
    Uv,
    /// uvx, into its cache.
    Uvx,
    /// pipx.
    Pipx,
    /// `pipx run`, into its cache.
    PipxRun,
    /// The Debian package.
    Deb,
    /// `cargo install` or `cargo binstall`.
    Cargo,
    /// `install.sh`.
    Script,
    /// The container image.
    Image,
    /// A build in a checkout of the repository.
    Build,
    /// By hand: from the tarball, or as a copy.
    Hand,
}

/// The installation of this process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Installed {
    /// The way in which it was installed.
    pub(crate) by: InstalledBy,
    /// The executable.
    #[serde(serialize_with = "lossy")]
    #[schemars(with = "String")]
    pub(crate) path: PathBuf,
}

/// A path need not be UTF-8, JSON must be.
fn lossy<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl Installed {
    /// Looks at the executable of this process. `None` if its path is not known.
    pub(crate) fn find() -> Option<Installed> {
        let path = env::current_exe().ok()?;
        let names = |dir: &Path| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        Some(Installed { by: judge(&path, &names), path })
    }

    /// The sentence about the way.
    pub(crate) fn how(&self) -> &'static str {
        match self.by {
            InstalledBy::Npm => "by npm, for all projects",
            InstalledBy::Project => "by npm, for one project",
            InstalledBy::Pnpm => "by pnpm",
            InstalledBy::Yarn => "by yarn",
            InstalledBy::Npx => "by npx, in its cache",
            InstalledBy::Dlx => "by pnpm dlx, in its cache",
            InstalledBy::Bunx => "by bunx, in its cache",
            InstalledBy::Pip => "by pip",
            InstalledBy::Uv => "by uv",
            InstalledBy::Uvx => "by uvx, in its cache",
            InstalledBy::Pipx => "by pipx",
            InstalledBy::PipxRun => "by pipx run, in its cache",
            InstalledBy::Deb => "by the Debian package mcp-leash",
            InstalledBy::Cargo => "by cargo",
            InstalledBy::Script => "by install.sh",
            InstalledBy::Image => "in the container image",
            InstalledBy::Build => "as a build of the source",
            InstalledBy::Hand => "by hand",
        }
    }

    /// The command that installs the newest version in the same way.
    pub(crate) fn upgrade(&self) -> String {
        match self.by {
            InstalledBy::Npm => "npm install --global mcp-leash@latest".to_owned(),
            InstalledBy::Project => "npm install mcp-leash@latest".to_owned(),
            InstalledBy::Pnpm => "pnpm update --latest mcp-leash".to_owned(),
            InstalledBy::Yarn => "yarn up mcp-leash".to_owned(),
            InstalledBy::Npx => "npx mcp-leash@latest".to_owned(),
            InstalledBy::Dlx => "pnpm dlx mcp-leash@latest".to_owned(),
            InstalledBy::Bunx => "bunx mcp-leash@latest".to_owned(),
            InstalledBy::Pip => {
                format!("{} -m pip install --upgrade mcp-leash", quoted(&self.path.with_file_name("python")))
            }
            InstalledBy::Uv => "uv tool upgrade mcp-leash".to_owned(),
            InstalledBy::Uvx => "uvx mcp-leash@latest".to_owned(),
            InstalledBy::Pipx => "pipx upgrade mcp-leash".to_owned(),
            InstalledBy::PipxRun => "pipx run --no-cache mcp-leash".to_owned(),
            InstalledBy::Deb => "sudo apt install ./mcp-leash_VERSION_ARCHITECTURE.deb".to_owned(),
            InstalledBy::Cargo => "cargo install mcp-leash".to_owned(),
            InstalledBy::Script => match self.path.ancestors().nth(2) {
                Some(prefix) if !prefix.ends_with(".local") => format!("{SCRIPT} -s -- --prefix {}", quoted(prefix)),
                _ => SCRIPT.to_owned(),
            },
            InstalledBy::Image => "podman pull ghcr.io/mcp-leash/leash".to_owned(),
            InstalledBy::Build => "git pull && cargo build --release".to_owned(),
            InstalledBy::Hand => SCRIPT.to_owned(),
        }
    }

    /// A remark about the command, if it alone is not enough.
    pub(crate) fn remark(&self) -> Option<&'static str> {
        match self.by {
            InstalledBy::Deb => Some("the package is on https://github.com/mcp-leash/leash/releases"),
            InstalledBy::Hand => {
                Some("it installs to ~/.local/bin; no package manager owns this file, so remove it yourself")
            }
            InstalledBy::Project | InstalledBy::Pnpm | InstalledBy::Yarn => {
                Some("run it in the directory of the project")
            }
            _ => None,
        }
    }
}

/// A directory from which a package manager removes programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackageCache {
    /// The command that fills it.
    pub(crate) owner: &'static str,
    /// The command that installs leash to stay.
    pub(crate) install: &'static str,
}

impl PackageCache {
    /// The cache in which an executable is, judged by its path.
    pub(crate) fn of(path: &Path) -> Option<PackageCache> {
        let (owner, install) = match judge(path, &|_| Vec::new()) {
            InstalledBy::Npx => ("npx", "npm install --global mcp-leash"),
            InstalledBy::Dlx => ("pnpm dlx", "pnpm add --global mcp-leash"),
            InstalledBy::Bunx => ("bunx", "bun add --global mcp-leash"),
            // The name of the directory has the version in it; yarn has no global packages.
            InstalledBy::Yarn => ("yarn", "npm install --global mcp-leash"),
            InstalledBy::Uvx => ("uvx", "uv tool install mcp-leash"),
            InstalledBy::PipxRun => ("pipx run", "pipx install mcp-leash"),
            _ => return None,
        };
        Some(PackageCache { owner, install })
    }
}

/// Judges the path of an executable. `names` lists the names in a directory.
fn judge(path: &Path, names: &dyn Fn(&Path) -> Vec<String>) -> InstalledBy {
    let own: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    // A part that ends with `*` is the beginning of a name.
    let is = |own: &str, part: &str| part.strip_suffix('*').map_or(own == part, |start| own.starts_with(start));
    let has = |part: &str| {
        let parts: Vec<&str> = part.split('/').collect();
        own.windows(parts.len()).any(|window| window.iter().zip(&parts).all(|(own, part)| is(own, part)))
    };
    let by_javascript = [
        ("_npx", InstalledBy::Npx),
        ("pnpm/dlx", InstalledBy::Dlx),
        ("bunx-*", InstalledBy::Bunx),
        (".pnpm", InstalledBy::Pnpm),
        (".yarn", InstalledBy::Yarn),
        ("lib/node_modules", InstalledBy::Npm),
        ("node_modules", InstalledBy::Project),
    ];
    let by_directory = [
        ("uv/tools", InstalledBy::Uv),
        ("pipx/venvs", InstalledBy::Pipx),
        ("archive-v*", InstalledBy::Uvx),
        ("environments-v*", InstalledBy::Uvx),
        (".cache/pipx", InstalledBy::PipxRun),
        ("pipx/.cache", InstalledBy::PipxRun),
    ];
    if has("node_modules")
        && let Some((_, by)) = by_javascript.iter().find(|(part, _)| has(part))
    {
        return *by;
    }
    if let Some((_, by)) = by_directory.iter().find(|(part, _)| has(part)) {
        return *by;
    }
    let is_there = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.parent().is_some_and(|dir| names(dir).iter().any(|found| *found == name))
    };
    let above = path.ancestors().nth(2).unwrap_or(Path::new("/"));
    if path == Path::new("/leash") {
        InstalledBy::Image
    } else if path == Path::new("/usr/bin/leash") && is_there(Path::new("/var/lib/dpkg/info/mcp-leash.list")) {
        InstalledBy::Deb
    } else if is_there(&above.join("share/leash/installed")) {
        InstalledBy::Script
    } else if is_there(&above.join(".crates.toml")) {
        InstalledBy::Cargo
    } else if is_in_python(above, names) {
        InstalledBy::Pip
    } else if has("target")
        && ["debug", "release", "static"].iter().any(|profile| above.join(profile) == path.with_file_name(""))
    {
        InstalledBy::Build
    } else {
        InstalledBy::Hand
    }
}

/// True if an environment of Python has the package.
fn is_in_python(environment: &Path, names: &dyn Fn(&Path) -> Vec<String>) -> bool {
    let lib = environment.join("lib");
    let versions = names(&lib).into_iter().filter(|name| name.starts_with("python3"));
    let mut packages = versions.flat_map(|version| {
        ["site-packages", "dist-packages"].map(|packages| names(&lib.join(&version).join(packages)))
    });
    packages.any(|names| names.iter().any(|name| name.starts_with("mcp_leash-")))
}

/// A word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    match text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The judgement about an executable on a machine with these files.
    fn check(path: &str, files: &[&str]) -> InstalledBy {
        let names = |dir: &Path| {
            let below = |file: &&str| Some(Path::new(file).strip_prefix(dir).ok()?.iter().next()?.to_str()?.to_owned());
            files.iter().filter_map(below).collect()
        };
        judge(Path::new(path), &names)
    }

    #[test]
    fn place_of_the_executable_names_the_package_manager() {
        const NPM: &str = "node_modules/@mcp-leash/linux-x64/bin/leash";
        for (dir, expected) in [
            ("/usr/lib", InstalledBy::Npm),
            ("/home/a/.nvm/versions/node/v24.1.0/lib", InstalledBy::Npm),
            ("/home/a/project", InstalledBy::Project),
            ("/home/a/.npm/_npx/0123456789abcdef", InstalledBy::Npx),
            ("/home/a/project/node_modules/.pnpm/@mcp-leash+linux-x64@0.1.0", InstalledBy::Pnpm),
            ("/home/a/project/.yarn/unplugged/@mcp-leash-linux-x64-npm-0.1.0-0123456789", InstalledBy::Yarn),
        ] {
            assert_eq!(check(&format!("{dir}/{NPM}"), &[]), expected, "{dir}");
        }
        for (path, expected) in [
            ("/home/a/.local/share/uv/tools/mcp-leash/bin/leash", InstalledBy::Uv),
            ("/home/a/.cache/uv/archive-v0/x1y2/bin/leash", InstalledBy::Uvx),
            ("/home/a/.local/share/pipx/venvs/mcp-leash/bin/leash", InstalledBy::Pipx),
            ("/leash", InstalledBy::Image),
            ("/home/a/leash/target/release/leash", InstalledBy::Build),
            ("/home/a/leash/target/x86_64-unknown-linux-musl/static/leash", InstalledBy::Build),
            ("/usr/bin/leash", InstalledBy::Hand),
            ("/home/a/.local/bin/leash", InstalledBy::Hand),
            ("/home/a/target/leash", InstalledBy::Hand),
        ] {
            assert_eq!(check(path, &[]), expected, "{path}");
        }
    }

    #[test]
    fn files_beside_the_executable_name_the_package_manager() {
        for (path, file, expected) in [
            ("/usr/bin/leash", "/var/lib/dpkg/info/mcp-leash.list", InstalledBy::Deb),
            ("/usr/local/bin/leash", "/var/lib/dpkg/info/mcp-leash.list", InstalledBy::Hand),
            ("/home/a/.local/bin/leash", "/home/a/.local/share/leash/installed", InstalledBy::Script),
            ("/home/a/.cargo/bin/leash", "/home/a/.cargo/.crates.toml", InstalledBy::Cargo),
            (
                "/venv/bin/leash",
                "/venv/lib/python3.13/site-packages/mcp_leash-0.1.0.dist-info/RECORD",
                InstalledBy::Pip,
            ),
            (
                "/usr/local/bin/leash",
                "/usr/local/lib/python3.11/dist-packages/mcp_leash-0.1.0.dist-info/RECORD",
                InstalledBy::Pip,
            ),
            ("/venv/bin/leash", "/venv/lib/python3.13/site-packages/other-0.1.0.dist-info/RECORD", InstalledBy::Hand),
        ] {
            assert_eq!(check(path, &[file]), expected, "{path} {file}");
        }
    }

    #[test]
    fn a_cache_is_known_by_the_path() {
        for (path, owner) in [
            ("/h/.npm/_npx/2d57cc8896a198e5/node_modules/@mcp-leash/linux-x64/bin/leash", Some("npx")),
            ("/h/.cache/pnpm/dlx/9771/1a1e/node_modules/.pnpm/x@1/node_modules/x/bin/leash", Some("pnpm dlx")),
            ("/tmp/bunx-0-mcp-leash@latest/node_modules/@mcp-leash/linux-x64/bin/leash", Some("bunx")),
            ("/p/.yarn/unplugged/@mcp-leash-linux-x64-npm-0.1.0-638d/node_modules/x/bin/leash", Some("yarn")),
            ("/h/.cache/uv/archive-v0/3uWpbCTC8bVNhyRY/bin/leash", Some("uvx")),
            ("/h/.cache/pipx/a1b2c3/bin/leash", Some("pipx run")),
            ("/h/.local/share/uv/tools/mcp-leash/bin/leash", None),
            ("/h/.local/share/pipx/venvs/mcp-leash/bin/leash", None),
            ("/usr/lib/node_modules/mcp-leash/node_modules/@mcp-leash/linux-x64/bin/leash", None),
            ("/p/node_modules/.pnpm/x@1/node_modules/x/bin/leash", None),
            ("/h/.cargo/bin/leash", None),
            ("leash", None),
        ] {
            assert_eq!(PackageCache::of(Path::new(path)).map(|cache| cache.owner), owner, "{path}");
        }
    }

    #[test]
    fn upgrade_names_the_environment() {
        let upgrade = |by, path: &str| Installed { by, path: path.into() }.upgrade();
        assert_eq!(upgrade(InstalledBy::Pip, "/v/bin/leash"), "/v/bin/python -m pip install --upgrade mcp-leash");
        assert_eq!(upgrade(InstalledBy::Pip, "/a b/bin/leash"), "'/a b/bin/python' -m pip install --upgrade mcp-leash");
        assert_eq!(upgrade(InstalledBy::Script, "/home/a/.local/bin/leash"), SCRIPT);
        assert_eq!(upgrade(InstalledBy::Script, "/opt/x/bin/leash"), format!("{SCRIPT} -s -- --prefix /opt/x"));
    }
}
