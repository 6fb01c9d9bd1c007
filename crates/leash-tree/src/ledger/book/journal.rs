//! The journal of a book: one line for whatever happens, read back to what is open.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Cover, Entry};
use crate::platform::private_file;
use leash_model::limits;

/// A line of the journal, as it is written.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Line<'a> {
    /// The first one.
    Book(&'a Cover),
    /// A session is open, or something about it is different now.
    Open(&'a Entry),
    /// A session is over.
    Over(&'a str),
}

/// A line of the journal, as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReadLine {
    Book(Cover),
    Open(Entry),
    Over(String),
}

/// What a journal says.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) cover: Option<Cover>,
    /// In the order they were opened.
    pub(super) open: Vec<Entry>,
}

/// The open journal, and what is known of it without reading it.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) file: File,
    pub(super) bytes: u64,
    lines: usize,
    pub(super) open: usize,
    /// The last write broke off: the next line begins a new one.
    pub(super) torn: bool,
    /// From this size on it is rewritten.
    pub(super) rewrite_at: u64,
}

impl Journal {
    pub(super) fn create(path: &Path, cover: &Cover, open: &[Entry]) -> io::Result<Journal> {
        // A left-over of the same name is another attempt of ours at the same.
        let _ = fs::remove_file(path);
        let file = File::options().create_new(true).append(true).mode(0o600).open(path)?;
        let mut text = text_of(&Line::Book(cover))?;
        for entry in open {
            text.extend_from_slice(&text_of(&Line::Open(entry))?);
        }
        (&file).write_all(&text)?;
        let bytes = text.len() as u64;
        let rewrite_at = limits::BOOK_REWRITE;
        Ok(Journal { file, bytes, lines: open.len() + 1, open: open.len(), torn: false, rewrite_at })
    }

    /// One write, so that a process that dies in the middle of its work has written the line or has not.
    pub(super) fn write(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut text = text_of(line)?;
        if self.torn {
            text.insert(0, b'\n');
        }
        // A full disk may take a part of it.
        self.torn = true;
        self.file.write_all(&text)?;
        self.torn = false;
        self.bytes += text.len() as u64;
        self.lines += 1;
        Ok(())
    }

    pub(super) fn wants_rewriting(&self) -> bool {
        self.bytes >= self.rewrite_at && self.lines > 2 * self.open + 1
    }
}

pub(super) fn text_of(line: &Line<'_>) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// Reads a journal. Lines that can't be read (torn writes, empty ones) are passed over.
pub(super) fn read(path: &Path) -> io::Result<Pages> {
    let mut pages = Pages::default();
    let mut places = HashMap::new();
    let mut open: Vec<Option<Entry>> = Vec::new();
    for line in BufReader::new(private_file::read(path)?.take(limits::BOOK_MAX)).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(ReadLine::Book(cover)) => pages.cover = Some(cover),
            Ok(ReadLine::Open(entry)) => match places.get(&entry.session) {
                Some(place) => open[*place] = Some(entry),
                None => {
                    places.insert(entry.session.clone(), open.len());
                    open.push(Some(entry));
                }
            },
            Ok(ReadLine::Over(session)) => {
                if let Some(place) = places.remove(&session) {
                    open[place] = None;
                }
            }
            Err(_) => {}
        }
    }
    pages.open = open.into_iter().flatten().collect();
    Ok(pages)
}
