//! The receipts file: appended to, rotated, read back.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use leash_model::limits;
use leash_model::receipt::Receipt;
use rustix::io::Errno;

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
    }
    let mut line = serde_json::to_vec(receipt)?;
    line.push(b'\n');
    let mut file = private_file::open(File::options().create(true).append(true), path)?;
    // One write, so that lines of several processes do not mix (O_APPEND).
    file.write_all(&line)
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

fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
