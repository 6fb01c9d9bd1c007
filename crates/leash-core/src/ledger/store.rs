//! The runtime directory: one record and one lock per run.
//!
//! `RUN.lock` is locked by supervisor and keeper together (one open file description, inherited), so the kernel drops the lock
//! when the last of the two is gone, however it died: *unlocked* means *nobody looks after this run any more*. `RUN.json` is
//! the record, replaced atomically; it is a second file because a replaced file would lose the lock.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use thiserror::Error;

use super::record::Record;
use crate::limits;

/// Why the runtime directory can't be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It could not be made or entered.
    #[error("runtime directory `{}` is not usable", dir.display())]
    Unusable {
        /// Which.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It belongs to somebody else.
    #[error("runtime directory `{}` belongs to uid {owner}, and we are uid {me}", dir.display())]
    NotOurs {
        /// Which.
        dir: PathBuf,
        /// Its owner.
        owner: u32,
        /// Us.
        me: u32,
    },
    /// Others may write to it.
    #[error("runtime directory `{}` may be written by others (mode {mode:o})", dir.display())]
    Open {
        /// Which.
        dir: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not a directory.
    #[error("runtime directory `{}` is not a directory", dir.display())]
    NotADirectory {
        /// Which.
        dir: PathBuf,
    },
    /// A record could not be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The runtime directory, checked to be ours.
#[derive(Clone, Debug)]
pub struct Store {
    sessions: PathBuf,
}

/// A run's lock and record, held.
#[derive(Debug)]
pub struct Entry {
    store: Store,
    run: String,
    lock: OwnedFd,
}

/// A record found in the directory.
#[derive(Debug)]
pub struct Found {
    /// The run's id, from the file's name.
    pub run: String,
    /// What it says; `None` when it is torn, empty or not a record.
    pub record: Option<Record>,
}

impl Store {
    /// Opens the runtime directory, making it if needed.
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        Ok(Store { sessions: prepare(dir, "sessions")? })
    }

    /// Opens it only if it is there: for commands that only look.
    pub fn look(dir: &Path) -> Result<Option<Store>, StoreError> {
        if !dir.join("sessions").exists() {
            return Ok(None);
        }
        check_ours(dir)?;
        Ok(Some(Store { sessions: dir.join("sessions") }))
    }

    /// Takes a run's lock and writes its first record, before anything it names exists.
    pub fn create(&self, record: &Record) -> Result<Entry, StoreError> {
        let path = self.path(&record.run, "lock");
        let lock = new_lock(&path).map_err(|source| StoreError::Write { path: path.clone(), source })?;
        let entry = Entry { store: self.clone(), run: record.run.clone(), lock };
        if let Err(error) = entry.write(record) {
            entry.remove();
            return Err(error);
        }
        Ok(entry)
    }

    /// Takes over a run that nobody looks after. `None` while somebody does.
    pub fn seize(&self, run: &str) -> Option<Entry> {
        let lock = seize_lock(&self.path(run, "lock"))?;
        Some(Entry { store: self.clone(), run: run.to_owned(), lock })
    }

    /// Whether somebody looks after a run.
    pub fn locked(&self, run: &str) -> bool {
        is_locked(&self.path(run, "lock"))
    }

    /// Every run in the directory, also one of which only a lock is there.
    pub fn list(&self) -> io::Result<Vec<Found>> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(&self.sessions)? {
            let name = entry?.file_name();
            let Some((run, kind)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            if matches!(kind, "lock" | "json") && !runs.iter().any(|known| known == run) {
                runs.push(run.to_owned());
            }
        }
        runs.sort();
        Ok(runs.into_iter().map(|run| Found { record: self.read(&run), run }).collect())
    }

    /// Reads a record.
    pub fn read(&self, run: &str) -> Option<Record> {
        let mut text = Vec::new();
        File::open(self.path(run, "json")).ok()?.take(limits::RECORD_MAX).read_to_end(&mut text).ok()?;
        let record: Record = serde_json::from_slice(&text).ok()?;
        (record.run == run).then_some(record)
    }

    /// Takes hold of an entry whose lock was inherited.
    pub(crate) fn inherit(dir: &Path, run: &str, lock: OwnedFd) -> Entry {
        Entry { store: Store { sessions: dir.join("sessions") }, run: run.to_owned(), lock }
    }

    fn path(&self, run: &str, kind: &str) -> PathBuf {
        self.sessions.join(format!("{run}.{kind}"))
    }
}

impl Entry {
    /// Replaces the record.
    pub fn write(&self, record: &Record) -> Result<(), StoreError> {
        let path = self.store.path(&self.run, "json");
        let young = self.store.path(&self.run, "new");
        let written = || -> io::Result<()> {
            let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&young)?;
            file.write_all(&serde_json::to_vec(record)?)?;
            fs::rename(&young, &path)
        };
        written().map_err(|source| {
            let _ = fs::remove_file(&young);
            StoreError::Write { path: path.clone(), source }
        })
    }

    /// The lock, to be inherited by the keeper.
    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// The record as it is now.
    pub fn read(&self) -> Option<Record> {
        self.store.read(&self.run)
    }

    /// The run is over: its files go, the lock last.
    pub fn remove(self) {
        for kind in ["json", "new", "lock"] {
            // Already gone is as good; a directory that became read-only is met again by the next sweep.
            let _ = fs::remove_file(self.store.path(&self.run, kind));
        }
    }
}

/// Makes the runtime directory, if it is not there, and checks that it is ours.
pub(crate) fn prepare_runtime(dir: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            StoreError::NotADirectory { dir: dir.to_owned() }
        }
        _ => StoreError::Unusable { dir: dir.to_owned(), source },
    })?;
    check_ours(dir)
}

/// Makes the runtime directory and a directory in it, as far as they are not there, and checks that both are ours.
pub(crate) fn prepare(dir: &Path, inner: &str) -> Result<PathBuf, StoreError> {
    prepare_runtime(dir)?;
    let inner = dir.join(inner);
    match DirBuilder::new().mode(0o700).create(&inner) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(StoreError::Unusable { dir: dir.to_owned(), source });
        }
        _ => {}
    }
    check_ours(&inner)?;
    Ok(inner)
}

/// Takes the lock of something new.
pub(crate) fn new_lock(path: &Path) -> io::Result<OwnedFd> {
    loop {
        let file = open_lock(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        // A sweep may have taken the young, unlocked file for a dead one and removed it.
        if still_at(&file, path) {
            return Ok(file.into());
        }
    }
}

/// Takes a lock that nobody holds. `None` while somebody does.
pub(crate) fn seize_lock(path: &Path) -> Option<OwnedFd> {
    let file = open_lock(path).ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    still_at(&file, path).then(|| file.into())
}

/// Whether somebody holds a lock.
pub(crate) fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// Whether the path still names the file that we have open.
pub(crate) fn still_at(file: &File, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()))
}

pub(crate) fn check_ours(dir: &Path) -> Result<(), StoreError> {
    let meta = fs::symlink_metadata(dir).map_err(|source| StoreError::Unusable { dir: dir.to_owned(), source })?;
    let me = rustix::process::geteuid().as_raw();
    if !meta.is_dir() {
        return Err(StoreError::NotADirectory { dir: dir.to_owned() });
    }
    if meta.uid() != me {
        return Err(StoreError::NotOurs { dir: dir.to_owned(), owner: meta.uid(), me });
    }
    if meta.mode() & 0o022 != 0 {
        return Err(StoreError::Open { dir: dir.to_owned(), mode: meta.mode() & 0o7777 });
    }
    Ok(())
}
