//! Reads logs: from their beginning, and then the lines that were added since.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use leash_model::limits;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

use super::{LOG_VERSION, LogFile, LogHead, files};
use crate::platform::private_file;

/// The longest first line of a log that is read: names are bounded, too.
const LONGEST_HEAD: u64 = 4096;

/// A line of a server's stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The time at which it arrived, milliseconds since 1970.
    pub at_ms: u64,
    /// The id of the run.
    pub run: String,
    /// The session of the run.
    pub session: String,
    /// The server's name.
    pub name: String,
    /// The bytes of the line, without its end. They are the server's: a program that shows them must escape them.
    pub line: Vec<u8>,
}

/// Reads the logs of some directories. It remembers how far it has read.
#[derive(Debug)]
pub struct LogReader {
    dirs: Vec<PathBuf>,
    /// The bytes of each file that were read, by device and inode: a file keeps them when it becomes the older one.
    read: HashMap<(u64, u64), u64>,
    /// Becomes readable when something changes in a directory. `None` if inotify is used up.
    changes: Option<OwnedFd>,
}

impl LogReader {
    /// A reader for these directories. One that does not exist has no logs.
    pub fn new(dirs: impl IntoIterator<Item = PathBuf>) -> LogReader {
        LogReader { dirs: dirs.into_iter().collect(), read: HashMap::new(), changes: None }
    }

    /// The heads of all logs, in no order.
    pub fn heads(&self) -> io::Result<Vec<LogHead>> {
        let mut heads = Vec::new();
        for dir in &self.dirs {
            heads.extend(files(dir)?.into_values().filter_map(|log| log.iter().find_map(|file| head(&file.path))));
        }
        Ok(heads)
    }

    /// The lines that were added since the last call, in the order of their times; at first all of them. Only those of the
    /// runs that the caller wants.
    pub fn news(&mut self, wanted: &dyn Fn(&LogHead) -> bool) -> io::Result<Vec<LogEntry>> {
        let mut entries = Vec::new();
        let mut seen = HashMap::new();
        for dir in &self.dirs {
            for file in files(dir)?.into_values().flatten() {
                // A file that another process has put there, or that is gone by now, has no lines.
                let _ = self.read_file(&file, wanted, &mut seen, &mut entries);
            }
        }
        // Files that are gone are forgotten: a new file may get the number of an old one.
        self.read = seen;
        entries.sort_by_key(|entry: &LogEntry| entry.at_ms);
        Ok(entries)
    }

    fn read_file(
        &self,
        file: &LogFile,
        wanted: &dyn Fn(&LogHead) -> bool,
        seen: &mut HashMap<(u64, u64), u64>,
        entries: &mut Vec<LogEntry>,
    ) -> io::Result<()> {
        let mut open = private_file::read(&file.path)?;
        let meta = open.metadata()?;
        let known = (meta.dev(), meta.ino());
        let from = self.read.get(&known).copied().filter(|from| *from <= meta.len()).unwrap_or(0);
        seen.insert(known, from);
        if from == meta.len() {
            return Ok(());
        }
        let Some(head) = read_head(&open).filter(|head| wanted(head)) else { return Ok(()) };
        open.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        open.take(limits::LOG).read_to_end(&mut bytes)?;
        // The writer may be in the middle of a line.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        seen.insert(known, from + whole as u64);
        let entry = |line: &[u8]| {
            let (at_ms, line) = parse(line)?;
            let LogHead { run, session, name, .. } = head.clone();
            Some(LogEntry { at_ms, run, session, name, line: line.to_vec() })
        };
        entries.extend(bytes[..whole].split(|byte| *byte == b'\n').filter_map(entry));
        Ok(())
    }

    /// Begins to watch the directories, if `on`, and forgets the changes so far. To be called before
    /// [`LogReader::news`], so that a line that comes right after it is noticed.
    pub fn watch(&mut self, on: bool) {
        if on && self.changes.is_none() {
            self.changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        }
        let Some(changes) = &self.changes else { return };
        for dir in &self.dirs {
            // A second watch of the same directory is the same watch.
            let _ = inotify::add_watch(changes, dir, WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO);
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(changes, &mut buffer);
        while events.next().is_ok() {}
    }

    /// A descriptor that becomes readable when there may be new lines. `None` if the kernel gives none; then the caller
    /// must look again after a while, which it must do for a directory that does not exist, too.
    pub fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(AsFd::as_fd)
    }
}

/// The last lines of a session or of a run, the newest last.
pub fn tail(receipts: &Path, session: &str, lines: usize) -> io::Result<Vec<LogEntry>> {
    let wanted = |head: &LogHead| head.session == session || head.run == session;
    let mut entries = LogReader::new([super::dir(receipts)]).news(&wanted)?;
    Ok(entries.split_off(entries.len().saturating_sub(lines)))
}

fn head(path: &Path) -> Option<LogHead> {
    read_head(&private_file::read(path).ok()?)
}

fn read_head(file: &File) -> Option<LogHead> {
    let mut line = Vec::new();
    BufReader::new(file.take(LONGEST_HEAD)).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice(&line).ok().filter(|head: &LogHead| head.version == LOG_VERSION)
}

/// The time and the text of a line; `None` if the line is a head, or was torn.
pub(super) fn parse(line: &[u8]) -> Option<(u64, &[u8])> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    let at_ms = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    Some((at_ms, &line[end + 1..]))
}
