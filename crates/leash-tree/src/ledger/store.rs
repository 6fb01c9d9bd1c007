//! The runtime directory: one record and one lock per run.
//!
//! Supervisor and keeper lock `RUN.lock` together (one open file description, inherited). So the kernel drops the lock
//! when the last of the two is gone, for whatever reason: *unlocked* means *no process of leash looks after this run
//! any more*. `RUN.json` is the record, replaced atomically. It is a second file because a replaced file would lose the
//! lock.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use thiserror::Error;

use crate::ledger::receipts::is_shortage;
use crate::places::Places;
use crate::platform::identity::{boot_id, pid_namespace};
use crate::platform::{poll, private_file};
use leash_model::clock::{self, Moment};
use leash_model::error;
use leash_model::limits;
use leash_model::record::Record;

/// The directory of the records, below the runtime directory.
pub(super) const DIR: &str = "sessions";

/// True if the pids in a record can still mean something: they were given in this boot.
pub fn is_of_this_boot(record: &Record) -> bool {
    record.boot == boot_id()
}

/// True if the pids in a record mean to this process what they meant to its writer: same boot, same PID namespace.
pub fn is_of_this_place(record: &Record) -> bool {
    is_of_this_boot(record) && record.pid_namespace == pid_namespace()
}

/// The reason why the runtime directory can't be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It could not be made or entered.
    #[error("runtime directory `{}` is not usable", dir.display())]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It belongs to another user.
    #[error("runtime directory `{}` belongs to uid {owner}; expected our own, {me}", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
        /// Its owner.
        owner: u32,
        /// Our uid.
        me: u32,
    },
    /// Other users may write to it.
    #[error("runtime directory `{}` is writable by other users (mode {mode:o})", dir.display())]
    Open {
        /// The directory.
        dir: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not a directory.
    #[error("runtime directory `{}` is not a directory", dir.display())]
    NotADirectory {
        /// The directory.
        dir: PathBuf,
    },
    /// A record could not be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The runtime directory, checked to belong to us.
#[derive(Clone, Debug)]
pub struct Store {
    sessions: PathBuf,
}

/// A run's lock and record, held by this process.
#[derive(Debug)]
pub struct LockedRun {
    store: Store,
    run: String,
    lock: OwnedFd,
}

/// A run found in the directory.
#[derive(Debug)]
pub struct FoundRun {
    /// The run's id, from the file's name.
    pub run: String,
    /// Its record; `None` if it is torn, empty or not a record, or can't be read.
    pub record: Option<Record>,
}

/// The identity of the file of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordFile {
    file: (u64, u64),
    changed: (i64, i64),
}

impl Store {
    /// Opens the runtime directory, and makes it if needed.
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        Ok(Store { sessions: prepare(dir, DIR)? })
    }

    /// Opens it only if it exists, for commands that only read.
    pub fn look(dir: &Path) -> Result<Option<Store>, StoreError> {
        if !dir.join(DIR).exists() {
            return Ok(None);
        }
        check_ours(dir)?;
        Ok(Some(Store { sessions: dir.join(DIR) }))
    }

    /// The runtime directory.
    pub(crate) fn runtime_dir(&self) -> &Path {
        self.sessions.parent().unwrap_or(&self.sessions)
    }

    /// The stores of all runtime directories of this user that exist, for commands that only read.
    pub fn look_all(places: &Places) -> Result<Vec<Store>, StoreError> {
        let stores = super::runtime_dirs(places).map(Store::look);
        Ok(stores.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// Takes a run's lock and writes its first record, before anything that the record names exists.
    pub fn create(&self, record: &Record) -> Result<LockedRun, StoreError> {
        let path = self.path(&record.run, "lock");
        let lock = new_lock(&path).map_err(|source| StoreError::Write { path: path.clone(), source })?;
        let entry = LockedRun { store: self.clone(), run: record.run.clone(), lock };
        if let Err(error) = entry.write(record) {
            entry.remove();
            return Err(error);
        }
        Ok(entry)
    }

    /// Takes over a run that no process of leash looks after. `None` if one does.
    pub fn seize(&self, run: &str) -> io::Result<Option<LockedRun>> {
        let lock = seize_lock(&self.path(run, "lock"))?;
        Ok(lock.map(|lock| LockedRun { store: self.clone(), run: run.to_owned(), lock }))
    }

    /// Takes over a run whose lock is held by a process that is not leash's: the server may have taken a copy of the
    /// lock.
    pub(crate) fn take(&self, run: &str) -> io::Result<LockedRun> {
        let lock = open_lock(&self.path(run, "lock"))?.into();
        Ok(LockedRun { store: self.clone(), run: run.to_owned(), lock })
    }

    /// Waits until no other process writes down the end of a run. While the returned file is open, other processes wait
    /// here. Two sweeps can have the same run: one has its lock, and the other has found that the server holds the
    /// lock. It waits at most [`limits::NEW_LOCK`] for a process that keeps the directory locked: two receipts are
    /// better than none.
    pub(crate) fn wait_for_turn(&self) -> Option<File> {
        let dir = File::open(&self.sessions).ok()?;
        let give_up = Moment::now() + limits::NEW_LOCK;
        while rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Moment::now() >= give_up {
                return None;
            }
            poll::pause(limits::KILL_ROUND);
        }
        Some(dir)
    }

    /// True if a process holds the lock of a run.
    pub fn locked(&self, run: &str) -> bool {
        is_locked(&self.path(run, "lock"))
    }

    /// True if a process has the lock of a run open.
    pub(crate) fn is_lock_open_in(&self, run: &str, pid: i32) -> bool {
        let Ok(lock) = fs::symlink_metadata(self.path(run, "lock")) else { return false };
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let is_lock = |fd: fs::Metadata| (fd.dev(), fd.ino()) == (lock.dev(), lock.ino());
        fds.filter_map(|fd| fs::metadata(fd.path()).ok()).any(is_lock)
    }

    /// Every run in the directory, also one that has only a lock.
    pub fn list(&self) -> io::Result<Vec<FoundRun>> {
        let found = runs(&self.sessions, &["lock", "json"])?.into_iter().map(|run| match self.read(&run) {
            // A process without free descriptors can read no record: an empty list would be wrong.
            Err(error) if is_shortage(&error) => Err(error),
            read => Ok(FoundRun { run, record: read.ok().flatten() }),
        });
        found.collect()
    }

    /// Every run in the directory that has a record.
    pub(crate) fn recorded(&self) -> io::Result<BTreeSet<String>> {
        runs(&self.sessions, &["json"])
    }

    /// The file in which a record is now. A record is replaced and never changed, so the same file is the same record.
    pub(crate) fn record_file(&self, run: &str) -> Option<RecordFile> {
        let meta = fs::symlink_metadata(self.path(run, "json")).ok()?;
        Some(RecordFile { file: (meta.dev(), meta.ino()), changed: (meta.ctime(), meta.ctime_nsec()) })
    }

    /// Reads a record; `None` if it does not exist, or is torn. Any other failure says nothing about the run.
    pub fn read(&self, run: &str) -> io::Result<Option<Record>> {
        let mut text = Vec::new();
        match private_file::read(&self.path(run, "json")) {
            Ok(file) => file.take(limits::RECORD_MAX).read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let record: Option<Record> = serde_json::from_slice(&text).ok();
        Ok(record.filter(|record| record.run == run))
    }

    /// Makes an entry from a lock that was inherited.
    pub(crate) fn inherit(dir: &Path, run: &str, lock: OwnedFd) -> LockedRun {
        LockedRun { store: Store { sessions: dir.join(DIR) }, run: run.to_owned(), lock }
    }

    fn path(&self, run: &str, kind: &str) -> PathBuf {
        path(&self.sessions, run, kind)
    }
}

impl LockedRun {
    /// Replaces the record.
    pub fn write(&self, record: &Record) -> Result<(), StoreError> {
        let path = self.store.path(&self.run, "json");
        let young = self.store.path(&self.run, "new");
        let written = || -> io::Result<()> {
            let mut file = private_file::replace(&young)?;
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

    /// True if the record was last changed before this boot. The kernel sets the time of change, so no server can turn
    /// it back.
    pub(crate) fn is_from_before_boot(&self) -> bool {
        let booted_ms = clock::unix_ms().saturating_sub(clock::since_boot_ms());
        fs::symlink_metadata(self.store.path(&self.run, "json"))
            .is_ok_and(|meta| u64::try_from(meta.ctime()).is_ok_and(|ctime| ctime * 1000 + 999 < booted_ms))
    }

    /// The record as it is now; see [`Store::read`].
    pub fn read(&self) -> io::Result<Option<Record>> {
        self.store.read(&self.run)
    }

    /// True if the record still exists.
    pub(crate) fn is_there(&self) -> bool {
        fs::symlink_metadata(self.store.path(&self.run, "json")).is_ok()
    }

    /// See [`Store::wait_for_turn`].
    pub(crate) fn wait_for_turn(&self) -> Option<File> {
        self.store.wait_for_turn()
    }

    /// Removes the files of a run that is over, the lock last.
    pub fn remove(self) {
        remove(&self.store.sessions, &self.run, &["json", "new", "lock"]);
    }
}

/// The path of a run's file.
pub(super) fn path(dir: &Path, run: &str, kind: &str) -> PathBuf {
    dir.join(format!("{run}.{kind}"))
}

/// Removes files of a run.
pub(super) fn remove(dir: &Path, run: &str, kinds: &[&str]) {
    for kind in kinds {
        // A file that is already gone is fine. The next sweep tries again in a directory that became read-only.
        let _ = fs::remove_file(path(dir, run, kind));
    }
}

/// The runs that have a file of one of these kinds, sorted.
pub(super) fn runs(dir: &Path, kinds: &[&str]) -> io::Result<BTreeSet<String>> {
    let mut runs = BTreeSet::new();
    for entry in fs::read_dir(dir).map_err(error::at(dir))? {
        let name = entry?.file_name();
        let run = name.to_str().and_then(|name| name.rsplit_once('.')).filter(|(_, kind)| kinds.contains(kind));
        runs.extend(run.map(|(run, _)| run.to_owned()));
    }
    Ok(runs)
}

/// Makes the runtime directory, if it does not exist, and checks that it belongs to us.
pub fn prepare_runtime(dir: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            StoreError::NotADirectory { dir: dir.to_owned() }
        }
        _ => StoreError::Unusable { dir: dir.to_owned(), source },
    })?;
    check_ours(dir)
}

/// Makes the runtime directory and a directory in it, if they do not exist, and checks that both belong to us.
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

/// Takes the lock of a new run or book.
pub(crate) fn new_lock(path: &Path) -> io::Result<OwnedFd> {
    let give_up = Moment::now() + limits::NEW_LOCK;
    loop {
        let file = open_lock(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // A sweep may have taken the new, still unlocked file for a dead run's and removed it.
            Ok(()) if still_at(&file, path) => return Ok(file.into()),
            Ok(()) => {}
            Err(errno) if Moment::now() >= give_up => return Err(errno.into()),
            Err(_) => poll::pause(limits::KILL_ROUND),
        }
    }
}

/// Takes a lock that no process holds. `None` if one does.
pub(crate) fn seize_lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    let file = open_lock(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(still_at(&file, path).then(|| file.into())),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// True if a process holds a lock, or if it can't be opened: then a process may hold it.
pub(crate) fn is_locked(path: &Path) -> bool {
    match private_file::read(path) {
        Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Opens the file that a living process keeps locked.
pub fn open_lock(path: &Path) -> io::Result<File> {
    private_file::open(File::options().create(true).truncate(false).write(true), path)
}

/// True if the path still names the file that we have open.
pub fn still_at(file: &File, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()))
}

/// Checks that a directory belongs to this user and that no other user can write to it.
pub fn check_ours(dir: &Path) -> Result<(), StoreError> {
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
