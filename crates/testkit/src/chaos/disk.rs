//! A small disk for the ledger, which can be full or read-only.

use std::cell::Cell;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

use super::action::Disk;

/// The disk, mounted over a directory; see [`crate::sys::own_mounts`]. Dropping it unmounts it.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    dir: PathBuf,
    /// True if the read-only view of the disk is mounted over it.
    is_covered: Cell<bool>,
}

impl SmallDisk {
    pub(crate) fn mount(dir: &Path, uid: u32) -> io::Result<Self> {
        let options = std::ffi::CString::new(format!("size=128k,mode=0700,uid={uid},gid={uid}"))?;
        mount("none", dir, "tmpfs", MountFlags::empty(), Some(&*options))?;
        Ok(Self { dir: dir.to_owned(), is_covered: Cell::new(false) })
    }

    /// Changes the disk. The error is the reason why that is not possible now.
    pub(crate) fn change(&self, disk: Disk) -> io::Result<()> {
        let ballast = self.dir.join("ballast");
        match disk {
            Disk::Full => fill(&ballast),
            Disk::Free => fs::remove_file(ballast),
            Disk::ReadOnly => self.cover(),
            Disk::Writable => self.uncover(),
        }
    }

    /// The kernel refuses to make a mount read-only while a file on it is open for writing, and leash has such files. A
    /// second, read-only mount of the same disk over it has no open files: everything that is opened, made, renamed or
    /// removed from now on meets the read-only one.
    fn cover(&self) -> io::Result<()> {
        if self.is_covered.get() {
            return Err(io::Error::other("it is so already"));
        }
        mount_bind(&self.dir, &self.dir)?;
        self.is_covered.set(true);
        Ok(mount_remount(&self.dir, MountFlags::BIND | MountFlags::RDONLY, c"")?)
    }

    fn uncover(&self) -> io::Result<()> {
        if !self.is_covered.get() {
            return Err(io::Error::other("it is so already"));
        }
        unmount(&self.dir, UnmountFlags::DETACH)?;
        self.is_covered.set(false);
        Ok(())
    }

    /// True if it can be written.
    pub(crate) fn is_good(&self) -> bool {
        !self.is_covered.get() && !self.dir.join("ballast").exists()
    }

    /// Makes it writable and frees its space. Does nothing to a good disk.
    pub(crate) fn heal(&self) {
        let _ = self.change(Disk::Writable);
        let _ = self.change(Disk::Free);
    }
}

fn fill(ballast: &Path) -> io::Result<()> {
    let mut file = fs::File::create(ballast)?;
    loop {
        match file.write_all(&[0; 4096]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.heal();
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which writes succeed after each change of a disk that has an open file.
    #[test]
    fn a_disk_is_full_and_read_only_under_an_open_file() {
        crate::or_skip!(crate::sys::own_mounts());
        let dir = std::env::temp_dir().join(crate::unique("leash-disk"));
        fs::create_dir(&dir).expect("cannot make a directory");
        let disk = SmallDisk::mount(&dir, rustix::process::getuid().as_raw()).expect("cannot mount a disk");
        let mut open = fs::File::create(dir.join("open")).expect("a new disk has room");
        open.write_all(b"something").expect("a new disk has room");
        let kind = |name: &str| fs::write(dir.join(name), [0; 5000]).err().map(|error| error.kind());
        for (change, expected) in [
            (Disk::Full, Some(io::ErrorKind::StorageFull)),
            (Disk::Free, None),
            (Disk::ReadOnly, Some(io::ErrorKind::ReadOnlyFilesystem)),
            (Disk::Writable, None),
        ] {
            disk.change(change).unwrap_or_else(|error| panic!("{change}: {error}"));
            assert_eq!(kind("new"), expected, "{change}");
            assert_eq!(disk.is_good(), expected.is_none(), "{change}");
        }
        disk.change(Disk::ReadOnly).expect("works although a file is open");
        disk.heal();
        assert_eq!(kind("new"), None);
        drop((open, disk));
        fs::remove_dir(dir).expect("the directory is empty");
    }
}
