//! A small disk for the ledger, which can be full or read-only.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use super::action::Disk;

/// The disk, mounted over a directory; see [`crate::sys::own_mounts`]. It is gone when dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    dir: PathBuf,
}

impl SmallDisk {
    pub(crate) fn mount(dir: &Path, uid: u32) -> io::Result<Self> {
        let options = std::ffi::CString::new(format!("size=128k,mode=0700,uid={uid},gid={uid}"))?;
        mount("none", dir, "tmpfs", MountFlags::empty(), Some(&*options))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Does it, or says why it cannot be done at this moment.
    pub(crate) fn change(&self, disk: Disk) -> io::Result<()> {
        let ballast = self.dir.join("ballast");
        match disk {
            Disk::Full => fill(&ballast),
            Disk::Free => fs::remove_file(ballast),
            // Refused while somebody has a file open for writing: then it is only tried.
            Disk::ReadOnly => Ok(mount_remount(&self.dir, MountFlags::RDONLY, c"")?),
            Disk::Writable => Ok(mount_remount(&self.dir, MountFlags::empty(), c"")?),
        }
    }

    /// Makes it a good disk again.
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
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
    }
}
