//! Links to places that only some environments name. A start of leash leaves them in the runtime directory that needs
//! no variable, so that commands with another environment find its runs and receipts.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use leash_tree::ledger::store;

/// The directory of the links, below a runtime directory.
const DIR: &str = "known";

/// The kind of a place; the names of its links begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownPlace {
    /// A runtime directory.
    Runtime,
    /// A file of receipts.
    Receipts,
}

impl KnownPlace {
    fn prefix(self) -> &'static str {
        match self {
            KnownPlace::Runtime => "runtime-",
            KnownPlace::Receipts => "receipts-",
        }
    }
}

/// Leaves a link to a place in a runtime directory. Without the link the place is only found by commands with the same
/// environment, so a failure stops no start.
pub(super) fn note(runtime_dir: &Path, kind: KnownPlace, place: &Path) {
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    let link = runtime_dir.join(DIR).join(format!("{}{:016x}", kind.prefix(), hasher.finish()));
    if store::prepare_runtime(runtime_dir).is_ok() && store::prepare_runtime(&runtime_dir.join(DIR)).is_ok() {
        let _ = symlink(place, link);
    }
}

/// The places of a kind that are linked in a runtime directory. Removes links to directories that are gone.
pub(super) fn read(runtime_dir: &Path, kind: KnownPlace) -> Vec<PathBuf> {
    let dir = runtime_dir.join(DIR);
    if store::check_ours(runtime_dir).is_err() || store::check_ours(&dir).is_err() {
        return Vec::new();
    }
    let mut places = Vec::new();
    for link in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let Ok(place) = fs::read_link(link.path()) else { continue };
        if !place.parent().is_some_and(Path::is_dir) {
            let _ = fs::remove_file(link.path());
        } else if link.file_name().to_string_lossy().starts_with(kind.prefix()) {
            places.push(place);
        }
    }
    places.sort();
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Scratch;

    #[test]
    fn a_place_is_found_until_its_directory_is_gone() {
        let dir = Scratch::new();
        let (common, state) = (dir.join("run"), dir.join("state"));
        let receipts = state.join("receipts.jsonl");
        fs::create_dir(&state).unwrap();
        assert_eq!(read(&common, KnownPlace::Receipts), Vec::<PathBuf>::new());
        for _ in 0..2 {
            note(&common, KnownPlace::Receipts, &receipts);
        }
        note(&common, KnownPlace::Runtime, &dir.join("custom"));
        assert_eq!(read(&common, KnownPlace::Receipts), [receipts]);
        assert_eq!(read(&common, KnownPlace::Runtime), [dir.join("custom")]);
        fs::remove_dir(&state).unwrap();
        assert_eq!(read(&common, KnownPlace::Receipts), Vec::<PathBuf>::new());
        assert_eq!(fs::read_dir(common.join(DIR)).unwrap().count(), 1, "the dangling link is removed");
    }

    /// Another user's links must not lead leash to other directories.
    #[test]
    fn a_directory_that_others_can_write_to_is_not_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = Scratch::new();
        let common = dir.join("run");
        note(&common, KnownPlace::Runtime, &dir.join("custom"));
        fs::set_permissions(common.join(DIR), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(read(&common, KnownPlace::Runtime), Vec::<PathBuf>::new());
    }
}
