//! Saves the old texts of changed files in leash's own state directory: one directory for each change, with the old
//! text and a record of the change. It is complete before the file is changed, and is deleted when the change was
//! undone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Adopted, TextSplice, apply};
use leash_model::{clock, id};
use leash_tree::platform::private_file;

/// The version of the record format.
const VERSION: u32 = 1;

/// The directory, locked against other leash processes.
#[derive(Debug)]
pub struct BackupStore {
    dir: PathBuf,
    /// Closing this file releases the lock.
    _lock: File,
}

/// The reason why it can't be used.
#[derive(Debug, thiserror::Error)]
#[error("`{}` can't be used", path.display())]
pub struct BackupError {
    /// The file or directory.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    move |source| BackupError { path: path.to_owned(), source }
}

/// One change of a file.
#[derive(Clone, Debug)]
pub struct Backup {
    /// Its directory name; later changes sort after earlier ones.
    pub name: String,
    /// The record of the change.
    pub record: BackupRecord,
    /// The text before.
    pub before: String,
}

impl Backup {
    /// The text after; `None` if the record does not fit the text.
    pub fn after(&self) -> Option<String> {
        apply(&self.before, &self.record.splices)
    }
}

/// The record of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupRecord {
    /// The version of this format.
    pub version: u32,
    /// The time, in milliseconds of Unix time.
    pub at_ms: u64,
    /// The client, by its id.
    pub client: String,
    /// The index of the place in the client's table.
    pub place: usize,
    /// The file.
    pub path: PathBuf,
    /// The changes, against the text before.
    pub splices: Vec<TextSplice>,
    /// The servers that leash still starts because of this change.
    pub adopted: Vec<Adopted>,
}

impl BackupRecord {
    /// A record with the current time.
    pub fn new(client: &str, place: usize, path: &Path) -> BackupRecord {
        BackupRecord {
            version: VERSION,
            at_ms: clock::unix_ms(),
            client: client.to_owned(),
            place,
            path: path.to_owned(),
            splices: Vec::new(),
            adopted: Vec::new(),
        }
    }
}

impl BackupStore {
    /// Opens the directory and waits while another leash holds the lock.
    pub fn open(dir: &Path) -> Result<BackupStore, BackupError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at(dir))?;
        let path = dir.join(".lock");
        let mut options = OpenOptions::new();
        let lock = private_file::open(options.write(true).create(true).truncate(false), &path).map_err(at(&path))?;
        lock.lock().map_err(at(&path))?;
        let store = BackupStore { dir: dir.to_owned(), _lock: lock };
        store.clean()?;
        Ok(store)
    }

    /// Removes directories that were incomplete when leash was killed.
    fn clean(&self) -> Result<(), BackupError> {
        for name in self.names()?.iter().filter(|name| name.starts_with(".half-")) {
            let path = self.dir.join(name);
            fs::remove_dir_all(&path).map_err(at(&path))?;
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, BackupError> {
        let entries = fs::read_dir(&self.dir).map_err(at(&self.dir))?;
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// All saved changes, the oldest first. An unreadable one is an error, because it may be the only copy of a user's
    /// file.
    pub fn list(&self) -> Result<Vec<Backup>, BackupError> {
        let names = self.names()?.into_iter().filter(|name| !name.starts_with('.'));
        names.map(|name| self.read(name)).collect()
    }

    fn read(&self, name: String) -> Result<Backup, BackupError> {
        let path = self.dir.join(&name);
        let (record, before) = (path.join("record.json"), path.join("before"));
        let mut bytes = Vec::new();
        private_file::read(&record).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(at(&record))?;
        let change: BackupRecord = serde_json::from_slice(&bytes).map_err(|error| at(&record)(error.into()))?;
        if change.version != VERSION {
            return Err(at(&record)(io::Error::other("it was written by another version of leash")));
        }
        let mut text = String::new();
        private_file::read(&before).and_then(|mut file| file.read_to_string(&mut text)).map_err(at(&before))?;
        Ok(Backup { name, record: change, before: text })
    }

    /// Saves a text and the record of the planned change. Both are on disk when this returns.
    pub fn keep(&self, before: &str, record: BackupRecord) -> Result<Backup, BackupError> {
        let name = format!("{:015}-{}", record.at_ms, id::random());
        let half = self.dir.join(format!(".half-{name}"));
        DirBuilder::new().mode(0o700).create(&half).map_err(at(&half))?;
        let path = self.dir.join(&name);
        let made = write(&half.join("before"), before.as_bytes())
            .and_then(|()| write(&half.join("record.json"), &json(&record)))
            .and_then(|()| sync(&half))
            .and_then(|()| fs::rename(&half, &path).map_err(at(&path)));
        if made.is_err() {
            // The disk may be full; then these incomplete files only waste space.
            let _ = fs::remove_dir_all(&half);
        }
        made?;
        sync(&self.dir)?;
        Ok(Backup { name, record, before: before.to_owned() })
    }

    /// Replaces a record with a smaller one.
    pub fn keep_only(&self, backup: &Backup, record: &BackupRecord) -> Result<(), BackupError> {
        let dir = self.dir.join(&backup.name);
        let (fresh, path) = (dir.join("record.new"), dir.join("record.json"));
        let _ = fs::remove_file(&fresh);
        write(&fresh, &json(record))?;
        fs::rename(&fresh, &path).map_err(at(&path))?;
        sync(&dir)
    }

    /// Deletes the record of a change.
    pub fn forget(&self, backup: &Backup) -> Result<(), BackupError> {
        let (path, half) = (self.dir.join(&backup.name), self.dir.join(format!(".half-{}", backup.name)));
        fs::rename(&path, &half).map_err(at(&path))?;
        fs::remove_dir_all(&half).map_err(at(&half))
    }

    /// The path of the saved text, to show to the user.
    pub fn place_of(&self, backup: &Backup) -> PathBuf {
        self.dir.join(&backup.name).join("before")
    }
}

fn json(record: &BackupRecord) -> Vec<u8> {
    // A record consists of strings and numbers, so serialising it can't fail.
    serde_json::to_vec_pretty(record).unwrap_or_default()
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    // Configurations may contain secrets, so only the user may read the copy.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(at(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at(path))
}

fn sync(dir: &Path) -> Result<(), BackupError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use testkit::Scratch;

    #[test]
    fn a_saved_text_is_found_again_and_is_private() {
        let dir = Scratch::new();
        let dir = dir.join("a/b");
        let store = BackupStore::open(&dir).expect("it opens");
        let record = BackupRecord {
            splices: vec![TextSplice { at: 1, before: "b".to_owned(), after: "XY".to_owned() }],
            ..BackupRecord::new("codex", 0, Path::new("/f"))
        };
        let kept = store.keep("abc", record.clone()).expect("it is kept");
        drop(store);
        fs::create_dir(dir.join(".half-x")).expect("a directory");
        let store = BackupStore::open(&dir).expect("it opens");
        assert!(!dir.join(".half-x").exists());
        let backups = store.list().expect("readable");
        assert_eq!((backups.len(), &backups[0].record, backups[0].after().as_deref()), (1, &record, Some("aXYc")));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&store.place_of(&kept))), (0o700, 0o600));
        store.keep_only(&kept, &BackupRecord { adopted: Vec::new(), ..record }).expect("it is replaced");
        store.forget(&kept).expect("it is forgotten");
        assert_eq!(store.list().expect("readable").len(), 0);
    }
}
