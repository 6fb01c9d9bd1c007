//! Archives with the same bytes every time: sorted entries, one time, no owner. tar is written here, because the
//! programs `tar` and `gzip` of two machines may differ; the version of flate2 is in Cargo.lock.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::{Compression, GzBuilder};

/// The size of a block in a tar file.
const BLOCK: usize = 512;

/// One file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File { bytes: Vec<u8>, mode: u32 },
    Dir { mode: u32 },
}

/// The files of an archive by path. Paths are relative and have no `.` in front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files(BTreeMap<String, Entry>);

impl Files {
    /// Adds an ordinary file, and the directories above it.
    pub(crate) fn file(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.put(path.into(), Entry::File { bytes: bytes.into(), mode: 0o644 });
    }

    /// Adds a program, and the directories above it.
    pub(crate) fn program(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.put(path.into(), Entry::File { bytes: bytes.into(), mode: 0o755 });
    }

    /// Adds a directory, and those above it.
    pub(crate) fn dir(&mut self, path: impl Into<String>, mode: u32) {
        self.put(path.into(), Entry::Dir { mode });
    }

    fn put(&mut self, path: String, entry: Entry) {
        let above = path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect::<Vec<_>>();
        for dir in above {
            self.0.entry(dir).or_insert(Entry::Dir { mode: 0o755 });
        }
        self.0.insert(path, entry);
    }

    /// The paths and bytes of all files, without the directories.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().filter_map(|(path, entry)| match entry {
            Entry::File { bytes, .. } => Some((path.as_str(), bytes.as_slice())),
            Entry::Dir { .. } => None,
        })
    }

    /// The sum of the sizes, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.contents().map(|(_, bytes)| bytes.len()).sum()
    }

    /// A tar file (ustar). `prefix` is put in front of every path. Everything belongs to root.
    pub(crate) fn tar(&self, prefix: &str, epoch: u64) -> Vec<u8> {
        let mut tar = Vec::new();
        for (path, entry) in &self.0 {
            let path = format!("{prefix}{path}");
            match entry {
                Entry::Dir { mode } => tar.extend(header(&format!("{path}/"), b'5', *mode, 0, epoch)),
                Entry::File { bytes, mode } => {
                    tar.extend(header(&path, b'0', *mode, bytes.len(), epoch));
                    tar.extend(bytes);
                    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
                }
            }
        }
        // Two empty blocks end the file.
        tar.resize(tar.len() + 2 * BLOCK, 0);
        tar
    }
}

/// The block in front of a file or directory.
fn header(path: &str, kind: u8, mode: u32, size: usize, epoch: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    assert!(path.len() < 100, "a path of at most 99 bytes fits into a tar header: {path}");
    put(0, path);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, &format!("{epoch:011o}"));
    // The checksum counts its own field as blanks.
    put(148, "        ");
    put(257, "ustar");
    put(263, "00");
    put(265, "root");
    put(297, "root");
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Compresses without a name and a time in the header.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    let written = writer.write_all(bytes).and_then(|()| writer.finish());
    written.expect("writing to memory does not fail")
}

/// The SHA-256 sum in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An `ar` file, as a Debian package is.
pub(crate) fn ar(members: &[(&str, &[u8])], epoch: u64) -> Vec<u8> {
    let mut ar = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let owner = 0;
        let head = format!("{name:<16}{epoch:<12}{owner:<6}{owner:<6}{:<8}{:<10}`\n", "100644", bytes.len());
        ar.extend(head.bytes());
        ar.extend(*bytes);
        if bytes.len() % 2 == 1 {
            ar.push(b'\n');
        }
    }
    ar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Step;

    fn files() -> Files {
        let mut files = Files::default();
        files.program("usr/bin/leash", "ELF");
        files.file("usr/share/doc/leash/copyright", vec![b'x'; 700]);
        files.dir("tmp", 0o1777);
        files
    }

    #[test]
    fn order_of_adding_does_not_matter() {
        let mut other = Files::default();
        other.dir("tmp", 0o1777);
        other.file("usr/share/doc/leash/copyright", vec![b'x'; 700]);
        other.program("usr/bin/leash", "ELF");
        assert_eq!(gzip(&files().tar("./", 7)), gzip(&other.tar("./", 7)));
        assert_ne!(files().tar("./", 7), files().tar("./", 8));
        assert_eq!(files().size(), 703);
    }

    #[test]
    fn gnu_tar_reads_the_archive() {
        let path = std::env::temp_dir().join(testkit::unique("leash-xtask-tar"));
        std::fs::write(&path, gzip(&files().tar("leash/", 86_400))).expect("the directory can be written");
        let listing = Step::new("tar").args(["--utc", "--full-time", "-tvzf"]).args([&path]).answer();
        std::fs::remove_file(&path).expect("the file was written");
        let listing = listing.expect("tar reads it");
        let lines: Vec<Vec<&str>> = listing.lines().map(|line| line.split_whitespace().collect()).collect();
        let of =
            |name: &str| lines.iter().find(|line| line.last() == Some(&name)).unwrap_or_else(|| panic!("{listing}"));
        assert_eq!(of("leash/usr/bin/leash")[..5], ["-rwxr-xr-x", "root/root", "3", "1970-01-02", "00:00:00"]);
        assert_eq!(of("leash/tmp/")[0], "drwxrwxrwt");
        assert_eq!(of("leash/usr/share/doc/leash/copyright")[2], "700");
    }

    #[test]
    fn sums_are_those_of_the_standard() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
