//! The receipts file: appended to, rotated, read back.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use leash_model::limits;
use leash_model::receipt::Receipt;
use rustix::io::Errno;

use super::logs;
use crate::platform::private_file;

/// Appends a receipt, and rotates the file if it is full.
pub fn append(path: &Path, receipt: &Receipt) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    if fs::metadata(path).is_ok_and(|meta| meta.len() >= limits::RECEIPTS_ROTATE) {
        // If two processes rotate at once, the second rename moves the new file over the old one. That loses history,
        // but never a receipt that was just written: the append below goes to the file that is there.
        fs::rename(path, rotated(path))?;
        forget_logs(path);
    }
    let mut line = serde_json::to_vec(receipt)?;
    line.push(b'\n');
    let mut file = private_file::open(File::options().create(true).append(true), path)?;
    // One write, so that lines of several processes do not mix (O_APPEND).
    file.write_all(&line)
}

/// Removes the logs of runs that have no receipt any more. The receipts are in the order of their ends.
fn forget_logs(path: &Path) {
    let mut oldest = None;
    let read = each_line(path, |line| {
        if oldest.is_none() {
            oldest = serde_json::from_slice(line).ok().map(|receipt: Receipt| receipt.ended_ms);
        }
    });
    if let (Ok(()), Some(oldest)) = (read, oldest) {
        logs::forget_before(&logs::dir(path), oldest);
    }
}

/// Appends a receipt unless the run has one, for a process that finishes the work of a killed one.
pub fn append_once(path: &Path, receipt: &Receipt) -> io::Result<()> {
    let (known, _) = read(path)?;
    if known.iter().any(|known| known.run == receipt.run) { Ok(()) } else { append(path, receipt) }
}

/// True if a receipt could not be written because this process or the machine has too few descriptors. Unlike a full
/// disk, this ends with the process: the next process can write the receipt.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// The run id of the receipt for a whole session of the control API. Runs and client sessions in it have other ids.
pub fn whole(session: &str) -> String {
    format!("{session}.0")
}

/// The receipt for a whole session of the control API.
pub fn find(path: &Path, session: &str) -> io::Result<Option<Receipt>> {
    let (mut found, run) = (None, whole(session));
    each_line(path, |line| {
        // Most lines belong to other sessions; they are not parsed.
        let named = || std::str::from_utf8(line).is_ok_and(|line| line.contains(&run));
        let same = |receipt: &Receipt| receipt.session == session && receipt.run == run;
        if let Some(receipt) = named().then(|| serde_json::from_slice(line).ok()).flatten().filter(same) {
            found = Some(receipt);
        }
    })?;
    Ok(found)
}

/// Reads all receipts, oldest first. Skips and counts lines that are not receipts (a torn write on a full disk).
pub fn read(path: &Path) -> io::Result<(Vec<Receipt>, usize)> {
    let (mut receipts, mut broken) = (Vec::new(), 0);
    each_line(path, |line| match serde_json::from_slice(line) {
        Ok(receipt) => receipts.push(receipt),
        Err(_) => broken += 1,
    })?;
    Ok((receipts, broken))
}

/// Calls `take` with every line, the oldest first.
fn each_line(path: &Path, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    for path in [rotated(path), path.to_owned()] {
        let file = match private_file::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).split(b'\n') {
            take(&line?);
        }
    }
    Ok(())
}

/// Reads the receipts of a file as they are appended.
#[derive(Debug)]
pub struct ReceiptsReader {
    path: PathBuf,
    /// The file that was read last, and the end of what was read of it.
    read: Option<((u64, u64), u64)>,
}

impl ReceiptsReader {
    /// Begins before the first receipt.
    pub fn new(path: PathBuf) -> ReceiptsReader {
        ReceiptsReader { path, read: None }
    }

    /// The receipts since the last call, the oldest first. A file that can't be read has none.
    pub fn read_new(&mut self) -> Vec<Receipt> {
        let mut receipts = Vec::new();
        let Some(now) = identity(&self.path) else { return receipts };
        match self.read {
            Some((file, _)) if file == now => {}
            // The file was rotated, or this is the first call: the old one may have receipts that were not read.
            Some((file, at)) if identity(&rotated(&self.path)) == Some(file) => {
                read_from(&rotated(&self.path), at, &mut receipts);
                self.read = Some((now, 0));
            }
            Some(_) => self.read = Some((now, 0)),
            None => {
                read_from(&rotated(&self.path), 0, &mut receipts);
                self.read = Some((now, 0));
            }
        }
        if let Some((_, at)) = &mut self.read {
            *at = read_from(&self.path, *at, &mut receipts);
        }
        receipts
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Reads the whole lines of a file from a place on, and returns the place behind them.
fn read_from(path: &Path, at: u64, receipts: &mut Vec<Receipt>) -> u64 {
    let mut text = Vec::new();
    let read = private_file::read(path).and_then(|mut file| {
        // Most calls find nothing new.
        if file.metadata()?.len() > at {
            file.seek(SeekFrom::Start(at))?;
            file.read_to_end(&mut text)?;
        }
        Ok(())
    });
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    if read.is_err() || end == 0 {
        return at;
    }
    receipts.extend(text[..end].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()));
    at + end as u64
}

fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
