//! The control socket's path. The process that holds the lock file beside it owns the path. It replaces the socket of a
//! killed gateway under that lock, so that only one of several starting gateways gets it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::error::ControlError;
use leash_model::limits;
use leash_tree::ledger::store::{self, StoreError};
use leash_tree::platform::private_file;

/// Only the owner may connect.
const MODE: u32 = 0o600;

/// A path that this process owns. Dropping it removes the socket, if it is still the one that was created here, and
/// releases the lock.
#[derive(Debug)]
pub(super) struct SocketClaim {
    path: PathBuf,
    lock_path: PathBuf,
    lock: File,
    /// Device and inode of the socket that was created here.
    born: Option<(u64, u64)>,
}

impl SocketClaim {
    /// Takes the path and listens at it. The directory must exist, and only our user may write to it.
    pub(super) fn take(path: &Path) -> Result<(SocketClaim, UnixListener), ControlError> {
        if path.as_os_str().len() > limits::SOCKET_PATH {
            return Err(ControlError::TooLong(path.to_owned()));
        }
        let make = |source: io::Error| ControlError::Make { path: path.to_owned(), source };
        let dir = path.parent().unwrap_or(Path::new("/"));
        store::check_ours(dir).map_err(|error| ControlError::Directory { dir: dir.to_owned(), why: why(&error) })?;
        let lock_path = lock_path(path);
        let Some(lock) = lock(&lock_path).map_err(make)? else {
            return Err(ControlError::Held { path: path.to_owned(), pid: holder(&lock_path) });
        };
        let mut claim = SocketClaim { path: path.to_owned(), lock_path, lock, born: None };
        // The process id is only for messages to people, so an error does not matter.
        let _ = claim.sign();
        claim.clear()?;
        let listener = listen(path).map_err(|errno| make(errno.into()))?;
        let made = fs::symlink_metadata(path).map_err(make)?;
        claim.born = Some((made.dev(), made.ino()));
        Ok((claim, listener))
    }

    /// The path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn sign(&mut self) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        writeln!(self.lock, "{}", std::process::id())
    }

    /// Removes the socket of a dead gateway, and nothing else.
    fn clear(&self) -> Result<(), ControlError> {
        let path = &self.path;
        let occupied = |what| ControlError::Occupied { path: path.clone(), what };
        let make = |source| ControlError::Make { path: path.clone(), source };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(make(error)),
            Ok(found) if !found.file_type().is_socket() => Err(occupied("not a socket")),
            // No gateway listens there, because this process has the lock. But another program may.
            Ok(_) if UnixStream::connect(path).is_ok() => Err(occupied("another program's socket")),
            Ok(_) => fs::remove_file(path).map_err(make),
        }
    }
}

impl Drop for SocketClaim {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path).ok().map(|meta| (meta.dev(), meta.ino()));
        // The socket may be gone already, and a file of another program is left alone.
        if now.is_some() && now == self.born {
            let _ = fs::remove_file(&self.path);
        }
        // Removed while it is locked: a process that gets the old lock sees that the path has another file, or none.
        if store::still_at(&self.lock, &self.lock_path) {
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

/// Describes the problem with a directory, which need not be the runtime directory.
fn why(error: &StoreError) -> String {
    match error {
        StoreError::NotOurs { owner, .. } => format!("it belongs to uid {owner}"),
        StoreError::Open { mode, .. } => format!("others may write to it (mode {mode:o})"),
        StoreError::NotADirectory { .. } => "it is not a directory".to_owned(),
        StoreError::Unusable { source, .. } | StoreError::Write { source, .. } => source.to_string(),
    }
}

/// Returns the path of the lock: `control.lock` for `control.sock`.
fn lock_path(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "sock") {
        return path.with_extension("lock");
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Takes the lock. `None` if another process has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = store::open_lock(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The previous holder may have removed the file in the meantime.
            Ok(()) if store::still_at(&file, path) => return Ok(Some(file)),
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Returns the process id in a lock file.
fn holder(path: &Path) -> Option<i32> {
    let mut text = String::new();
    private_file::read(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn listen(path: &Path) -> Result<UnixListener, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux creates the file with the socket's mode, less the umask, so that other users can never connect.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(MODE))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let ready = fs::set_permissions(path, fs::Permissions::from_mode(MODE))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(|()| rustix::net::listen(&socket, limits::BACKLOG as i32));
    // A socket that does not listen is of no use.
    ready.inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(socket.into())
}
