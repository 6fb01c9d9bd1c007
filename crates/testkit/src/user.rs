//! The two kinds of users that every process test runs as.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The kind of user that runs leash in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The superuser.
    Root,
    /// An unprivileged user.
    User,
}

impl Who {
    /// The user that runs the tests, for files that only this user can read or execute.
    pub fn me() -> Self {
        if am_root() { Self::Root } else { Self::User }
    }
}

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// `None`: the user that runs the tests.
    uid: Option<u32>,
}

/// Far above the uids of people, of systemd's dynamic users and of usual subordinate ranges.
const FIRST: u32 = 3_000_000_000;

impl User {
    /// The user for `who`; the error says why there is none. As root, the unprivileged one is a fresh uid without a
    /// name and without groups; otherwise it is the current user.
    pub fn find(who: Who) -> Result<Self, &'static str> {
        match (who, am_root()) {
            (Who::Root, true) | (Who::User, false) => Ok(Self { uid: None }),
            (Who::Root, false) => Err("the tests do not run as root"),
            (Who::User, true) => {
                let uid = FIRST + crate::random() as u32 % (1 << 30);
                Ok(Self { uid: Some(uid) })
            }
        }
    }

    /// The user with this uid.
    pub fn numbered(uid: u32) -> Self {
        let is_me = uid == rustix::process::getuid().as_raw();
        Self { uid: (!is_me).then_some(uid) }
    }

    /// The uid of this user.
    pub fn uid(&self) -> u32 {
        self.uid.unwrap_or_else(|| rustix::process::getuid().as_raw())
    }

    /// True if this user is root.
    pub fn is_root(&self) -> bool {
        self.uid() == 0
    }

    /// Makes `command` run as this user; std drops the supplementary groups as well.
    pub fn run(&self, command: &mut Command) {
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
    }

    /// Calls `act` on a thread with the credentials of this user.
    ///
    /// # Panics
    /// If `act` does, or if the tests run neither as root nor as this user.
    pub fn act<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let Some(uid) = self.uid else { return act() };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                // This affects only the current thread: the kernel keeps credentials per thread, and only the wrappers
                // of libc set them for all threads.
                set_thread_groups(&[]).expect("groups");
                set_thread_res_gid(gid, gid, gid).expect("gid");
                set_thread_res_uid(uid, uid, uid).expect("uid");
                act()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Gives `path` to this user.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        match self.uid {
            Some(uid) => chown(path, Some(uid), Some(uid)),
            None => Ok(()),
        }
    }

    /// A path under which this user can execute `program`: the program itself, or a copy, because a checkout may be
    /// below a private directory.
    pub fn executable(&self, program: &Path) -> io::Result<PathBuf> {
        if self.uid.is_none() || is_open_to_all(program) {
            return Ok(program.to_owned());
        }
        let meta = fs::metadata(program)?;
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let copy = std::env::temp_dir().join(format!(
            "leash-test-{name}-{:x}-{:x}-{:x}",
            meta.ino(),
            meta.size(),
            meta.mtime_nsec() ^ meta.mtime(),
        ));
        // Any user can write to the directory, so a copy only counts if root owns it.
        if fs::symlink_metadata(&copy).is_ok_and(|meta| meta.uid() == 0 && meta.is_file()) {
            return Ok(copy);
        }
        let fresh = copy.with_extension(std::process::id().to_string());
        fs::copy(program, &fresh)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
        fs::rename(&fresh, &copy)?;
        Ok(copy)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}", self.uid())
    }
}

fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True if other users may search every directory above `file` and execute it.
fn is_open_to_all(file: &Path) -> bool {
    file.ancestors().all(|path| fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o001 != 0))
}
