//! A file that people edit. Editors replace files rather than write them, so its directory is what is watched.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::unix::AsyncFd;

use crate::limits;
use crate::tree::linux;

/// The watch. Where there can be none (no inotify left, the directory is gone), it never says anything: SIGHUP still works.
pub(crate) struct FileWatch {
    name: OsString,
    events: Option<AsyncFd<OwnedFd>>,
}

impl FileWatch {
    pub(crate) fn new(file: &Path) -> FileWatch {
        let name = file.file_name().unwrap_or_default().to_owned();
        FileWatch { name, events: open(file).and_then(|fd| linux::readable(fd).ok()) }
    }

    /// Returns when the file was changed and is quiet again.
    pub(crate) async fn changed(watch: Option<&mut FileWatch>) {
        let Some(FileWatch { name, events: Some(events) }) = watch else { return std::future::pending().await };
        while !next(events, name).await {}
        // Wait until nothing more comes; each further change begins the wait anew.
        while let Ok(true | false) = tokio::time::timeout(limits::RELOAD_QUIET, next(events, name)).await {}
    }
}

fn open(file: &Path) -> Option<OwnedFd> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let changes = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::MOVED_FROM;
    inotify::add_watch(&fd, dir, changes).ok()?;
    Some(fd)
}

/// Waits for events; whether one of them was about our file.
async fn next(events: &AsyncFd<OwnedFd>, name: &OsString) -> bool {
    let Ok(mut ready) = events.readable().await else { return std::future::pending().await };
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(events.get_ref(), &mut buffer);
    let mut ours = false;
    // Until nothing more is there to be read.
    while let Ok(event) = reader.next() {
        let of_ours = event.file_name().is_some_and(|file| file.to_bytes() == name.as_encoded_bytes());
        // An overflow may have swallowed ours.
        ours |= of_ours || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
    }
    ready.clear_ready();
    ours
}
