//! The logs of servers: copies of their stderr, in a directory beside the receipts. A run has one log of two files: new
//! lines are appended to `RUN.log`; when it is full, it becomes `RUN.log.1`. The first line of each file is a [`LogHead`].

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use leash_model::limits;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::platform::private_file;

mod reader;
pub use reader::{LogEntry, LogReader, tail};

/// The version of the format of a log.
pub const LOG_VERSION: u32 = 1;

/// The run to which a log belongs: the first line of its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHead {
    /// [`LOG_VERSION`].
    pub version: u32,
    /// The id of the run.
    pub run: String,
    /// The session it belongs to.
    pub session: String,
    /// The server's name.
    pub name: String,
}

/// The directory of the logs that belong to a file of receipts.
pub fn dir(receipts: &Path) -> PathBuf {
    receipts.parent().unwrap_or(Path::new("")).join("logs")
}

/// Writes the log of one run. It makes no file before there is a line to write.
#[derive(Debug)]
pub struct LogWriter {
    dir: PathBuf,
    head: LogHead,
    file: Option<OpenLog>,
    /// The bytes written since the writer last looked at the sum of all logs.
    unchecked: u64,
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    size: u64,
    /// The last write failed in the middle of a line.
    is_torn: bool,
}

impl LogWriter {
    /// A writer for a run. It opens nothing yet.
    pub fn new(receipts: &Path, head: LogHead) -> LogWriter {
        LogWriter { dir: dir(receipts), head, file: None, unchecked: limits::LOG_LOOK }
    }

    /// Appends lines that arrived at this time, milliseconds since 1970. If it fails, these lines are missing in the log;
    /// later ones can be appended.
    pub fn append(&mut self, at_ms: u64, lines: &[Vec<u8>]) -> io::Result<()> {
        let mut text = Vec::with_capacity(lines.iter().map(|line| line.len() + 16).sum());
        for line in lines {
            text.extend_from_slice(format!("{at_ms} ").as_bytes());
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        if text.is_empty() {
            return Ok(());
        }
        let room = limits::LOG / 2;
        // Another process removed the file: it makes room for newer logs, or a user cleans up.
        let is_removed = |open: &OpenLog| open.file.metadata().is_ok_and(|meta| meta.nlink() == 0);
        self.file.take_if(|open| is_removed(open));
        if self.file.as_ref().is_some_and(|open| open.size + text.len() as u64 > room) {
            self.file = None;
            fs::rename(self.path(), older(&self.path()))?;
        }
        let open = match self.file.take() {
            Some(open) => open,
            None => self.open()?,
        };
        let written = self.file.insert(open).write(&text);
        self.unchecked += text.len() as u64;
        if self.unchecked >= limits::LOG_LOOK {
            self.unchecked = 0;
            make_room(&self.dir, limits::LOGS);
        }
        written
    }

    fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.head.run))
    }

    fn open(&self) -> io::Result<OpenLog> {
        DirBuilder::new().mode(0o700).recursive(true).create(&self.dir)?;
        let file = private_file::open(File::options().create(true).append(true), &self.path())?;
        // The lock says that the log is in use. A reader needs no lock, and a lost lock only lets the log be removed earlier.
        let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
        let mut open = OpenLog { size: file.metadata()?.len(), file, is_torn: false };
        if open.size == 0 {
            let mut head = serde_json::to_vec(&self.head)?;
            head.push(b'\n');
            open.write(&head)?;
        }
        Ok(open)
    }
}

impl OpenLog {
    fn write(&mut self, mut text: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
            (self.is_torn, self.size) = (false, self.size + 1);
        }
        while !text.is_empty() {
            match self.file.write(text) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    text = &text[count..];
                    self.size += count as u64;
                    self.is_torn = !text.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// A file of a log.
struct LogFile {
    path: PathBuf,
    size: u64,
    modified_ms: u64,
}

/// The run to which a file of this name belongs; `None` if it is not a file of a log.
fn run_of(name: &str) -> Option<&str> {
    name.strip_suffix(".1").unwrap_or(name).strip_suffix(".log")
}

/// The files of all logs, by their runs; those of a run with the older one first.
fn files(dir: &Path) -> io::Result<BTreeMap<String, Vec<LogFile>>> {
    let mut found: BTreeMap<String, Vec<LogFile>> = BTreeMap::new();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        // Another writer may have renamed or removed it meanwhile.
        let (Some(run), Ok(meta)) = (name.to_str().and_then(run_of), entry.metadata()) else { continue };
        if meta.is_file() {
            let modified_ms = meta.mtime().unsigned_abs() * 1000 + meta.mtime_nsec().unsigned_abs() / 1_000_000;
            let file = LogFile { path: entry.path(), size: meta.len(), modified_ms };
            found.entry(run.to_owned()).or_default().push(file);
        }
    }
    // `RUN.log.1` is greater than `RUN.log`.
    found.values_mut().for_each(|files| files.sort_by(|a, b| b.path.cmp(&a.path)));
    Ok(found)
}

/// Removes the oldest files if all logs together are larger than `most`. Files that a writer has open stay. What cannot be
/// read or removed is left for the next look.
fn make_room(dir: &Path, most: u64) {
    let mut all: Vec<LogFile> = files(dir).unwrap_or_default().into_values().flatten().collect();
    let mut sum: u64 = all.iter().map(|file| file.size).sum();
    if sum <= most {
        return;
    }
    all.sort_by_key(|file| file.modified_ms);
    for file in all {
        if sum <= most / 4 * 3 {
            return;
        }
        if !is_in_use(&file.path) && fs::remove_file(&file.path).is_ok() {
            sum -= file.size;
        }
    }
}

/// Removes the logs whose last line is older than this time, milliseconds since 1970, and that no writer has open.
pub(super) fn forget_before(dir: &Path, time_ms: u64) {
    for log in files(dir).unwrap_or_default().into_values() {
        let is_over = log.iter().all(|file| file.modified_ms < time_ms && !is_in_use(&file.path));
        for file in log.iter().filter(|_| is_over) {
            let _ = fs::remove_file(&file.path);
        }
    }
}

/// True if a writer has the file open. One that cannot be opened counts as in use: leash did not make it.
fn is_in_use(path: &Path) -> bool {
    let taken = |file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    !private_file::read(path).is_ok_and(taken)
}

#[cfg(test)]
mod tests;
