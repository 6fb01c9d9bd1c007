//! The control socket's path: whoever holds the lock beside it owns it. A socket that a killed gateway left is replaced under that
//! lock, so that of many who start at once one gets it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::ControlError;
use leash_model::limits;
use leash_tree::ledger::store;
use leash_tree::ledger::store::StoreError;
use leash_tree::platform::private_file;

/// For the owner alone.
const MODE: u32 = 0o600;

/// A path that is ours. Dropped, it is given up: the socket is removed if it is still the one that was made here, and the lock is
/// free for the next one.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    lock_path: PathBuf,
    lock: File,
    /// Device and inode of the socket that was made here.
    born: Option<(u64, u64)>,
}

impl Claim {
    /// Takes the path and listens on it. The directory must be there, and be ours alone to write.
    pub(super) fn take(path: &Path) -> Result<(Claim, UnixListener), ControlError> {
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
        let mut claim = Claim { path: path.to_owned(), lock_path, lock, born: None };
        // For people who wonder who has it; nothing depends on it.
        let _ = claim.sign();
        claim.clear()?;
        let listener = listen(path).map_err(|errno| make(errno.into()))?;
        let made = fs::symlink_metadata(path).map_err(make)?;
        claim.born = Some((made.dev(), made.ino()));
        Ok((claim, listener))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn sign(&mut self) -> io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        writeln!(self.lock, "{}", std::process::id())
    }

    /// Removes what a dead gateway left, and nothing else.
    fn clear(&self) -> Result<(), ControlError> {
        let path = &self.path;
        let occupied = |what| ControlError::Occupied { path: path.clone(), what };
        let make = |source| ControlError::Make { path: path.clone(), source };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(make(error)),
            Ok(found) if !found.file_type().is_socket() => Err(occupied("no socket")),
            // No gateway listens there, or we would not have the lock; but another program may.
            Ok(_) if UnixStream::connect(path).is_ok() => Err(occupied("another program's socket")),
            Ok(_) => fs::remove_file(path).map_err(make),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path).ok().map(|meta| (meta.dev(), meta.ino()));
        // Already gone is as good, and what somebody else has put there is theirs.
        if now.is_some() && now == self.born {
            let _ = fs::remove_file(&self.path);
        }
        // While it is locked: one who waits for it sees that the path has another file, or none.
        if store::still_at(&self.lock, &self.lock_path) {
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

/// What is wrong with a directory, which need not be the runtime directory.
fn why(error: &StoreError) -> String {
    match error {
        StoreError::NotOurs { owner, .. } => format!("it belongs to uid {owner}"),
        StoreError::Open { mode, .. } => format!("others may write to it (mode {mode:o})"),
        StoreError::NotADirectory { .. } => "it is not a directory".to_owned(),
        StoreError::Unusable { source, .. } | StoreError::Write { source, .. } => source.to_string(),
    }
}

/// `control.lock` beside `control.sock`.
fn lock_path(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "sock") {
        return path.with_extension("lock");
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// The lock, unless somebody has it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = store::open_lock(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The one who had it may have removed it in the meantime.
            Ok(()) if store::still_at(&file, path) => return Ok(Some(file)),
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Who has signed a lock.
fn holder(path: &Path) -> Option<i32> {
    let mut text = String::new();
    private_file::read(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn listen(path: &Path) -> Result<UnixListener, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Linux makes the file with the mode that the socket has, less the umask: there is no moment at which others could connect.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(MODE))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let ready = fs::set_permissions(path, fs::Permissions::from_mode(MODE))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(|()| rustix::net::listen(&socket, limits::BACKLOG as i32));
    // Nobody could use it.
    ready.inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(socket.into())
}
