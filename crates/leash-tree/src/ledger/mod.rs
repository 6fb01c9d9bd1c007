//! The ledger: the durable, per-host record of live sessions, and the receipts of ended ones. No daemon keeps it.

use std::path::{Path, PathBuf};

use crate::places::Places;

pub mod book;
pub mod logs;
pub mod receipts;
pub mod store;

/// Every runtime directory in which runs of this user may be recorded: our own, and the others that exist and that no
/// other user can write to. Any user can make a directory of that name in /tmp.
pub fn runtime_dirs(places: &Places) -> impl Iterator<Item = &Path> {
    let others = places.other_runtime_dirs.iter().map(|dir| &**dir).filter(|dir| store::check_ours(dir).is_ok());
    std::iter::once(&*places.runtime_dir).chain(others)
}

/// The directories in which a file appears, is replaced or vanishes when a run, a connection or a gateway begins, changes
/// or ends. Not all of them exist.
pub fn watched_dirs(places: &Places) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in runtime_dirs(places) {
        dirs.extend([dir.to_owned(), dir.join(store::DIR), dir.join(book::DIR)]);
    }
    dirs
}
