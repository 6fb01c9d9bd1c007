//! The command with which clients start leash: the native program by its path, never a launcher of a package manager.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::named::Refusal;
use crate::args::Adopt;
use crate::installed::PackageCache;
use crate::places;

/// The word in a file that others share. The path of leash differs from user to user.
const SHARED: &str = "leash";

/// The words with which clients start leash.
pub(super) struct ClientWords {
    /// For files of this user.
    pub(super) own: String,
    /// For files that others share.
    pub(super) shared: String,
}

impl ClientWords {
    /// The word that was typed, or the path of this program.
    pub(super) fn find(args: &Adopt) -> ClientWords {
        match &args.leash {
            Some(typed) => ClientWords { own: typed.clone(), shared: typed.clone() },
            None => ClientWords { own: own(), shared: SHARED.to_owned() },
        }
    }

    /// Refuses a program that other programs would not find later.
    pub(super) fn check_own(&self) -> Result<(), Refusal> {
        let Some(cache) = PackageCache::of(Path::new(&self.own)) else { return Ok(()) };
        let text = format!("this leash is in a cache of {}, where it does not stay: {}", cache.owner, self.own);
        Err((text, format!("install it with `{}`, then run `leash adopt` again", cache.install)))
    }
}

/// True if the user's own PATH has a `leash`.
pub(super) fn is_on_path() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).filter(|dir| dir.is_absolute()).any(|dir| dir.join(SHARED).is_file())
}

/// The path of this program, by a name that survives an upgrade where there is one. A client does not have the PATH of
/// this shell.
fn own() -> String {
    let Some(program) = places::program() else { return SHARED.to_owned() };
    let same =
        |name: &PathBuf| fs::canonicalize(name).is_ok_and(|name| fs::canonicalize(&program).is_ok_and(|me| me == name));
    let system = ["/usr/local/bin/leash", "/usr/bin/leash", "/bin/leash"].map(PathBuf::from);
    let stable = system.into_iter().chain(without_version(&program)).find(same);
    stable.unwrap_or(program).to_string_lossy().into_owned()
}

/// pnpm's link to a package: `.pnpm/node_modules/NAME`. The package itself is in a directory with the version in its name,
/// `.pnpm/NAME@VERSION/node_modules/NAME`.
fn without_version(program: &Path) -> Option<PathBuf> {
    let parts: Vec<_> = program.iter().collect();
    let store = parts.iter().position(|part| *part == ".pnpm")?;
    (parts.get(store + 2)? == &"node_modules").then(|| parts[..=store].iter().chain(&parts[store + 2..]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_pnpm_has_a_name_without_the_version() {
        let program = "/p/node_modules/.pnpm/@mcp-leash+linux-x64@0.1.0/node_modules/@mcp-leash/linux-x64/bin/leash";
        let link = "/p/node_modules/.pnpm/node_modules/@mcp-leash/linux-x64/bin/leash";
        assert_eq!(without_version(Path::new(program)), Some(PathBuf::from(link)));
        assert_eq!(without_version(Path::new("/usr/bin/leash")), None);
        assert_eq!(without_version(Path::new("/p/.pnpm/leash")), None);
    }
}
