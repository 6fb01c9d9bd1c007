//! Replaces a file of another program atomically: at every moment it is either the complete old file or the complete
//! new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid, XattrFlags, fchown, fgetxattr, flistxattr, fsetxattr};

use crate::clients::places;

/// The reason why a file was not changed. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file, or the target of its link, can't be examined.
    #[error("`{}` can't be followed", path.display())]
    Follow {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It has several hard links; a new file would replace only one of them.
    #[error("`{}` has {links} names (hard links), and only one of them would change", path.display())]
    HardLinks {
        /// The file.
        path: PathBuf,
        /// The number of hard links.
        links: u64,
    },
    /// It is read-only for all users.
    #[error("`{}` is read-only", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// No file can be written in its directory.
    #[error("a new file can't be written in `{}`", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It belongs to another user, who would lose the ownership.
    #[error("`{}` belongs to another user or group, and a new file can't be given to them", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another program wrote to it in the meantime.
    #[error("`{}` was changed by another program in the meantime", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The rename over the old file failed.
    #[error("`{}` can't be replaced", path.display())]
    Replace {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl WriteError {
    /// The advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            WriteError::Follow { .. } => "check the link and the directories above it",
            WriteError::HardLinks { .. } => "make it a single file, or a symbolic link",
            WriteError::ReadOnly { .. } => "make it writable (chmod u+w) if leash may change it",
            WriteError::Directory { source, .. }
                if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                "make room on the disk and try again; the file is as it was"
            }
            WriteError::Directory { .. } => {
                "make the directory writable; leash writes a new file beside the old one and never half a file"
            }
            WriteError::Owner { .. } => "run leash as the user that it belongs to",
            WriteError::Changed { .. } => "close the client and try again",
            WriteError::Replace { .. } => {
                "a file that is mounted by itself can't be replaced; change it where it comes from"
            }
        }
    }
}

/// Replaces the target of `path` with `after`, if its text is still `before`. Mode, owner and extended attributes
/// stay.
pub fn replace(path: &Path, before: &str, after: &str) -> Result<(), WriteError> {
    let follow = |source| WriteError::Follow { path: path.to_owned(), source };
    // A link stays a link: its target is replaced.
    let target = fs::canonicalize(path).map_err(follow)?;
    let meta = fs::metadata(&target).map_err(follow)?;
    if meta.nlink() > 1 {
        return Err(WriteError::HardLinks { path: target, links: meta.nlink() });
    }
    // A rename could replace it all the same, but the owner has made it read-only on purpose.
    if meta.mode() & 0o222 == 0 {
        return Err(WriteError::ReadOnly { path: target });
    }
    let dir = target.parent().unwrap_or(Path::new("/")).to_owned();
    let fresh = fresh_name(&target);
    let in_dir = |source| WriteError::Directory { dir: dir.clone(), source };
    // A leash that was killed may have left this file behind.
    let _ = fs::remove_file(&fresh);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(in_dir)?;
    let done = fill(&file, &target, &meta, after).and_then(|()| {
        if places::read(&target).ok().flatten().as_deref() != Some(before) {
            return Err(WriteError::Changed { path: target.clone() });
        }
        fs::rename(&fresh, &target).map_err(|source| WriteError::Replace { path: target.clone(), source })
    });
    if done.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    done?;
    // The rename is durable after a sync of the directory. If that fails, the kernel writes it later.
    let _ = File::open(&dir).and_then(|dir| dir.sync_all());
    Ok(())
}

/// The name of the new file until it replaces the old one.
fn fresh_name(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.leash-new"))
}

fn fill(file: &File, target: &Path, meta: &fs::Metadata, after: &str) -> Result<(), WriteError> {
    let dir = || target.parent().unwrap_or(Path::new("/")).to_owned();
    let mut writer = file;
    writer.write_all(after.as_bytes()).map_err(|source| WriteError::Directory { dir: dir(), source })?;
    let ours = file.metadata().map_err(|source| WriteError::Directory { dir: dir(), source })?;
    if (ours.uid(), ours.gid()) != (meta.uid(), meta.gid()) {
        fchown(file, Some(Uid::from_raw(meta.uid())), Some(Gid::from_raw(meta.gid())))
            .map_err(|error| WriteError::Owner { path: target.to_owned(), source: error.into() })?;
    }
    copy_attributes(file, target);
    file.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o7777))
        .and_then(|()| file.sync_all())
        .map_err(|source| WriteError::Directory { dir: dir(), source })
}

/// Copies access lists and labels. Attributes that the system manages itself can't be set and need not be.
fn copy_attributes(file: &File, target: &Path) {
    let Ok(old) = File::open(target) else { return };
    let mut names = vec![0u8; 64 << 10];
    let Ok(length) = flistxattr(&old, &mut names) else { return };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 64 << 10];
        if let Ok(length) = fgetxattr(&old, name, &mut value) {
            let _ = fsetxattr(file, name, &value[..length], XattrFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use testkit::Scratch;

    #[test]
    fn mode_and_links_are_kept() {
        let dir = Scratch::new();
        let (file, link) = (dir.join("real.json"), dir.join("link.json"));
        fs::write(&file, "old").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("its mode");
        symlink("real.json", &link).expect("a link");
        // A leash that was killed left this file behind.
        fs::write(dir.join(".real.json.leash-new"), "half").expect("a file");
        replace(&link, "old", "new").expect("it is replaced");
        assert_eq!(fs::read_to_string(&file).expect("readable"), "new");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::metadata(&file).expect("there").mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(&*dir).expect("readable").count(), 2);
    }

    #[test]
    fn a_file_changed_meanwhile_is_not_replaced() {
        let dir = Scratch::new();
        let file = dir.join("a");
        fs::write(&file, "theirs").expect("a file");
        assert!(matches!(replace(&file, "old", "new"), Err(WriteError::Changed { .. })));
        fs::hard_link(&file, dir.join("b")).expect("a link");
        assert!(matches!(replace(&file, "theirs", "new"), Err(WriteError::HardLinks { links: 2, .. })));
        assert!(matches!(replace(&dir.join("none"), "", "new"), Err(WriteError::Follow { .. })));
        assert_eq!(fs::read_to_string(&file).expect("readable"), "theirs");
        assert_eq!(fs::read_dir(&*dir).expect("readable").count(), 2);
    }
}
