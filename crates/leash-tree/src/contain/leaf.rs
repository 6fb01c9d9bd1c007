//! `leaf`: a cgroup2 directory of its own for each tree.
//!
//! Every fork inherits membership, which does not depend on descent, group, session or user. `cgroup.kill` ends all
//! members at once, atomically against fork. A process that moves itself to another cgroup leaves the leaf; the reaper
//! finds it by descent.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::caps::CapSetting;
use super::memory::{MemoryGauge, MemoryUse, count};
use crate::platform::proc::{ProcessList, read_small};

/// The name of the leaf in a scope of its own.
pub(crate) const TREE: &str = "tree";

/// An open leaf.
#[derive(Debug)]
pub(crate) struct Leaf {
    dir: PathBuf,
    fd: OwnedFd,
    /// `cgroup.events`, open. It wakes a poll (POLLPRI) when the last member is gone.
    events: File,
    /// Present if the tree has a memory budget of its own.
    gauge: Option<MemoryGauge>,
    /// Another process removed the directory: it has no members, and its events would wake us for ever.
    vanished: Cell<bool>,
}

impl Leaf {
    /// Makes a leaf with these settings. The error text is ready to be shown.
    pub(crate) fn create(dir: &Path, settings: &[CapSetting]) -> Result<Leaf, String> {
        let parent = dir.parent().ok_or("no parent cgroup")?;
        for setting in settings {
            enable_controller(parent, setting.controller)?;
        }
        fs::create_dir(dir).map_err(|error| format!("mkdir {}: {error}", dir.display()))?;
        let made = Leaf::open(dir).map_err(|error| format!("open {}: {error}", dir.display())).and_then(|leaf| {
            if !dir.join("cgroup.kill").exists() {
                return Err("no cgroup.kill (Linux 5.14 has it)".to_owned());
            }
            leaf.set(settings)?;
            // The files of the memory controller exist from now on.
            Leaf::open(dir).map_err(|error| format!("open {}: {error}", dir.display()))
        });
        if made.is_err() {
            // We have just made it and it has no member. If removing it fails, an empty directory stays.
            let _ = fs::remove_dir(dir);
        }
        made
    }

    /// Opens an existing leaf.
    pub(crate) fn open(dir: &Path) -> io::Result<Leaf> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir, flags, Mode::empty())?;
        let events = File::open(dir.join("cgroup.events"))?;
        // A server may make cgroups of its own in it; their events count.
        let gauge = MemoryGauge::open(dir, "memory.events")?;
        Ok(Leaf { dir: dir.to_owned(), fd, events, gauge, vanished: Cell::new(false) })
    }

    /// Looks for a leaf. `None` if it is proved to be gone. Any other failure says nothing about its members.
    pub(crate) fn find(dir: &Path) -> io::Result<Option<Leaf>> {
        // Checked first, because stat needs no descriptor.
        let found = rustix::fs::stat(dir).map_err(io::Error::from).and_then(|_| Leaf::open(dir));
        let error = match found {
            Ok(leaf) => return Ok(Some(leaf)),
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::NODEV) => Ok(None),
            // If no cgroup2 is mounted there, a missing path proves nothing.
            Some(Errno::NOENT) if dir.ancestors().any(is_cgroup2) => Ok(None),
            Some(Errno::NOENT) => Err(io::Error::other(format!("no cgroup2 is mounted above {}", dir.display()))),
            _ => Err(error),
        }
    }

    fn set(&self, settings: &[CapSetting]) -> Result<(), String> {
        for setting in settings {
            let path = self.dir.join(setting.file);
            match path.exists() {
                true => fs::write(&path, setting.value.as_ref())
                    .map_err(|error| format!("write {}: {error}", path.display()))?,
                false if setting.required => {
                    let controller = setting.controller;
                    return Err(format!("the `{controller}` controller is not available in {}", self.dir.display()));
                }
                false => {}
            }
        }
        Ok(())
    }

    /// The directory, for clone3.
    pub(crate) fn as_cgroup(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The descriptors to poll; none if the leaf was removed and will report no change.
    pub(crate) fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let files = [Some(self.events.as_fd()), self.gauge.as_ref().map(MemoryGauge::as_fd)];
        files.into_iter().flatten().filter(|_| !self.vanished.get())
    }

    /// How the tree keeps to its own memory budget; `None` if it has none.
    pub(crate) fn memory_use(&self) -> Option<MemoryUse> {
        self.gauge.as_ref()?.read()
    }

    /// The name of the scope around it.
    pub(crate) fn scope(&self) -> String {
        let parent = self.dir.parent().and_then(Path::file_name);
        parent.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The number of processes in it that the kernel killed for lack of memory, in the tree or on the machine; 0
    /// without the memory controller.
    pub(crate) fn memory_kills(&self) -> u64 {
        read_small(self.dir.join("memory.events")).map_or(0, |text| count(&text, "oom_kill"))
    }

    /// True if a living process is in it or below it, or may be.
    pub(crate) fn populated(&self) -> bool {
        let mut text = [0; 256];
        match rustix::io::pread(&self.events, &mut text, 0) {
            Ok(read) => !String::from_utf8_lossy(&text[..read]).lines().any(|line| line == "populated 0"),
            // A removed cgroup has no members.
            Err(Errno::NODEV) => {
                self.vanished.set(true);
                false
            }
            Err(_) => true,
        }
    }

    /// Kills every member, also those forked during the kill.
    pub(crate) fn kill(&self) -> io::Result<()> {
        File::options().write(true).open(self.dir.join("cgroup.kill"))?.write_all(b"1")
    }

    /// The members, in it and below it, as numbers of our own PID namespace.
    pub(crate) fn procs(&self) -> ProcessList<i32> {
        let (dirs, complete) = self.subtree();
        let mut procs = ProcessList { found: Vec::new(), complete };
        for dir in dirs {
            match fs::read_to_string(dir.join("cgroup.procs")) {
                Ok(list) => {
                    for pid in list.lines().filter_map(|line| line.parse::<i32>().ok()) {
                        match pid {
                            // The kernel writes 0 for a process of a PID namespace that we can't see.
                            0 => procs.complete = false,
                            pid => procs.found.push(pid),
                        }
                    }
                }
                Err(error) => procs.complete &= is_removed(&error),
            }
        }
        procs
    }

    /// The threads in it and below it, as far as they can be listed. `cgroup.procs` does not name a process that was
    /// moved here after its main thread had died.
    pub(crate) fn threads(&self) -> Vec<i32> {
        let lists = self.subtree().0.into_iter().filter_map(|dir| read_small(dir.join("cgroup.threads")));
        lists.flat_map(|list| list.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>()).collect()
    }

    /// Moves a process out of the leaf, to the cgroup above.
    pub(crate) fn release(&self, pid: i32) -> io::Result<()> {
        let parent = self.dir.parent().ok_or(io::ErrorKind::NotFound)?;
        fs::write(parent.join("cgroup.procs"), pid.to_string())
    }

    /// Removes the leaf and all directories below it. This works only if it is empty, and callers ask only then.
    pub(crate) fn remove(&self) {
        for dir in self.subtree().0.iter().rev() {
            // A directory that can't be removed is empty and harmless. A sweep tries again only if a record names it.
            let _ = fs::remove_dir(dir);
        }
    }

    /// The leaf's directory and all directories below it, parents first. The flag is true if the list is complete.
    fn subtree(&self) -> (Vec<PathBuf>, bool) {
        let (mut dirs, mut complete) = (vec![self.dir.clone()], true);
        let mut next = 0;
        while let Some(dir) = dirs.get(next).cloned() {
            next += 1;
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(error) => {
                    complete &= is_removed(&error);
                    continue;
                }
            };
            dirs.extend(
                entries
                    .flatten()
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        (dirs, complete)
    }
}

fn is_cgroup2(dir: &Path) -> bool {
    /// From linux/magic.h: `CGROUP2_SUPER_MAGIC`.
    const CGROUP2: u64 = 0x6367_7270;
    rustix::fs::statfs(dir).is_ok_and(|fs| fs.f_type as u64 == CGROUP2)
}

/// True if an error means that a cgroup was removed. It has no members then.
fn is_removed(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV))
}

/// Makes the kernel count the memory of the leaf at `dir`, which does not exist yet, if that is possible.
pub(crate) fn count_memory(dir: &Path) {
    let _ = dir.parent().map(|parent| enable_controller(parent, "memory"));
}

/// Makes a controller available in the children of `parent`.
fn enable_controller(parent: &Path, controller: &str) -> Result<(), String> {
    let listed = |file: &str| {
        read_small(parent.join(file)).unwrap_or_default().split_ascii_whitespace().any(|word| word == controller)
    };
    if !listed("cgroup.controllers") {
        return Err(format!("the `{controller}` controller is not available in {}", parent.display()));
    }
    if listed("cgroup.subtree_control") {
        return Ok(());
    }
    let file = parent.join("cgroup.subtree_control");
    fs::write(&file, format!("+{controller}")).map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::BUSY.raw_os_error() => {
            format!(
                "{} holds processes, so its `{controller}` controller can't be handed to a leaf below it",
                parent.display()
            )
        }
        _ => format!("write {}: {error}", file.display()),
    })
}

/// Moves the calling process into a cgroup below `scope`. Returns the path for the tree's leaf beside it. This lets
/// `scope` hand controllers down, which a cgroup with its own members may not do.
pub(crate) fn move_to_sibling(scope: &Path) -> Result<PathBuf, String> {
    let aside = scope.join("keeper");
    fs::create_dir(&aside).map_err(|error| format!("mkdir {}: {error}", aside.display()))?;
    fs::write(aside.join("cgroup.procs"), "0").map_err(|error| format!("move into {}: {error}", aside.display()))?;
    Ok(scope.join(TREE))
}

/// The cgroup2 directory of the calling process.
pub(crate) fn own_cgroup() -> Result<PathBuf, String> {
    let list = read_small("/proc/self/cgroup").ok_or("/proc/self/cgroup is not readable")?;
    let path = list.lines().find_map(|line| line.strip_prefix("0::")).ok_or("no cgroup2 hierarchy")?;
    directory_of(Path::new(path))
}

fn directory_of(path: &Path) -> Result<PathBuf, String> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("our cgroup {} lies outside of our cgroup namespace", path.display()));
    }
    let mounts = read_small("/proc/self/mountinfo").ok_or("/proc/self/mountinfo is not readable")?;
    mounts
        .lines()
        .filter_map(cgroup2_mount)
        .find_map(|(root, point)| {
            let dir = point.join(path.strip_prefix(&root).ok()?);
            dir.join("cgroup.procs").exists().then_some(dir)
        })
        .ok_or_else(|| "no cgroup2 mount shows our cgroup".to_owned())
}

/// Root and mount point of a mountinfo line, if it is a cgroup2 mount.
fn cgroup2_mount(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (mount, filesystem) = line.split_once(" - ")?;
    if filesystem.split(' ').next()? != "cgroup2" {
        return None;
    }
    let mut fields = mount.split(' ').skip(3);
    Some((unescape(fields.next()?), unescape(fields.next()?)))
}

/// Decodes a field: mountinfo writes space, tab, newline and backslash as octal.
fn unescape(field: &str) -> PathBuf {
    PathBuf::from(field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_parsed() {
        let line = r"35 24 0:30 / /sys/fs/cgroup/uni\040fied rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(cgroup2_mount(line), Some((PathBuf::from("/"), PathBuf::from("/sys/fs/cgroup/uni fied"))));
        assert_eq!(cgroup2_mount("35 24 0:30 / /proc rw - proc proc rw"), None);
        assert_eq!(cgroup2_mount(""), None);
    }

    #[test]
    fn a_cgroup_outside_of_the_namespace_is_refused() {
        assert!(directory_of(Path::new("/../other")).is_err());
    }
}
