//! Watches a configuration file. Editors replace files instead of writing to them, and a mounted configuration is a
//! link whose target is exchanged. So leash watches the directory, and checks the file after each event there.

use std::path::{Path, PathBuf};
use std::{fs, mem::MaybeUninit, os::fd::OwnedFd, os::unix::fs::MetadataExt as _, time::Duration};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::unix::AsyncFd;

use leash_model::limits;
use leash_tree::platform::linux;

/// The watch. If it cannot be created (no inotify left, the directory is gone), it never reports a change. SIGHUP still
/// works.
pub(crate) struct FileWatch {
    file: PathBuf,
    events: Option<AsyncFd<OwnedFd>>,
    /// The file at the last reported change.
    last: Option<FileState>,
}

/// The facts that differ when a file was replaced or written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl FileWatch {
    pub(crate) fn new(file: &Path) -> FileWatch {
        let events = open(file).and_then(|fd| linux::readable(fd).ok());
        FileWatch { file: file.to_owned(), events, last: read_state(file) }
    }

    /// Waits until the file has changed and then stayed unchanged for a moment.
    pub(crate) async fn changed(watch: Option<&mut FileWatch>) {
        let Some(FileWatch { file, events: Some(events), last }) = watch else { return std::future::pending().await };
        loop {
            let mut seen = read_state(file);
            if seen == *last {
                wait_for_event(events).await;
                continue;
            }
            // Waits for this file alone, whatever else happens in the directory.
            loop {
                pause(limits::RELOAD_QUIET).await;
                let now = read_state(file);
                if std::mem::replace(&mut seen, now) == now {
                    break;
                }
            }
            *last = seen;
            return;
        }
    }
}

fn open(file: &Path) -> Option<OwnedFd> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let changes = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::MOVED_FROM;
    inotify::add_watch(&fd, dir, changes).ok()?;
    Some(fd)
}

fn read_state(file: &Path) -> Option<FileState> {
    let found = fs::metadata(file).ok()?;
    let changed = (found.ctime(), found.ctime_nsec());
    Some(FileState { file: (found.dev(), found.ino()), size: found.size(), changed })
}

/// Waits until something happens in the directory.
async fn wait_for_event(events: &AsyncFd<OwnedFd>) {
    let Ok(mut ready) = events.readable().await else { return std::future::pending().await };
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(events.get_ref(), &mut buffer);
    // Reads all pending events.
    while reader.next().is_ok() {}
    ready.clear_ready();
}

async fn pause(time: Duration) {
    tokio::time::sleep_until(tokio::time::Instant::now() + time).await;
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use leash_upstream::scripted;
    use testkit::Scratch;

    /// True if a change is reported within this time.
    async fn told(watch: &mut FileWatch, within: Duration) -> bool {
        tokio::time::timeout(within, FileWatch::changed(Some(watch))).await.is_ok()
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn writing_replacing_or_removing_the_file_is_reported_once() {
        let dir = Scratch::new();
        let file = dir.join("leash.json");
        fs::write(&file, "1").unwrap();
        scripted::run(async {
            let mut watch = FileWatch::new(&file);
            assert!(!told(&mut watch, limits::RELOAD_QUIET * 3).await, "the file has not changed");
            fs::write(&file, "2").unwrap();
            assert!(told(&mut watch, LONG).await);
            fs::write(dir.join("new"), "2").unwrap();
            fs::rename(dir.join("new"), &file).unwrap();
            assert!(told(&mut watch, LONG).await);
            fs::remove_file(&file).unwrap();
            assert!(told(&mut watch, LONG).await);
            assert!(!told(&mut watch, limits::RELOAD_QUIET * 3).await, "the change was reported before");
        });
    }

    /// Kubernetes mounts a ConfigMap this way: the file is a link into a directory that is itself a link, which is
    /// exchanged.
    #[test]
    fn exchanging_the_target_of_a_link_is_reported() {
        let dir = Scratch::new();
        let at = |name: &str| dir.join(name);
        for (version, text) in [("..1", "1"), ("..2", "2")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("leash.json"), text).unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/leash.json", at("leash.json")).unwrap();
        scripted::run(async {
            let mut watch = FileWatch::new(&at("leash.json"));
            symlink("..2", at("..next")).unwrap();
            fs::rename(at("..next"), at("..data")).unwrap();
            assert!(told(&mut watch, LONG).await);
        });
    }

    #[test]
    fn other_files_in_the_directory_neither_cause_nor_delay_a_report() {
        let dir = Scratch::new();
        let file = dir.join("leash.json");
        fs::write(&file, "1").unwrap();
        scripted::run(async {
            let noise = async {
                loop {
                    fs::write(dir.join("log"), "x").unwrap();
                    pause(limits::RELOAD_QUIET / 10).await;
                }
            };
            let told = async {
                let mut watch = FileWatch::new(&file);
                assert!(!told(&mut watch, limits::RELOAD_QUIET * 3).await, "another file has changed");
                fs::write(&file, "2").unwrap();
                assert!(told(&mut watch, LONG).await);
            };
            tokio::select! {
                () = noise => {}
                () = told => {}
            }
        });
    }
}
