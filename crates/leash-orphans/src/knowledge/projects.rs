//! Finds the projects in which processes work, so that leash knows the servers of a project from every directory.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use leash_tree::platform::proc::Proc;

/// The most directories in which leash looks for configuration files. A user's processes have some tens.
const DIRECTORIES: usize = 512;

/// The most parents of a working directory that may be the root of its project.
const PARENTS: usize = 16;

/// The directories in which the configuration of a project may be: the working directories of this user's processes,
/// and their parents up to the root of a repository or the home directory. Directories that can't be read are left out.
pub fn directories(proc: &Proc, uid: u32, home: Option<&Path>) -> Vec<PathBuf> {
    let mounts = Mounts::read(home);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for pid in proc.numbers().found {
        if fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == uid)
            && let Ok(cwd) = fs::read_link(format!("/proc/{pid}/cwd"))
            && is_path(&cwd)
        {
            add(&cwd, home, &mounts, &mut seen, &mut found);
        }
        if found.len() >= DIRECTORIES {
            break;
        }
    }
    found.truncate(DIRECTORIES);
    found
}

/// False for a directory that was removed, or that is outside of our own root.
fn is_path(cwd: &Path) -> bool {
    cwd.is_absolute() && !cwd.as_os_str().as_encoded_bytes().ends_with(b" (deleted)")
}

/// Adds a working directory and its parents.
fn add(cwd: &Path, home: Option<&Path>, mounts: &Mounts, seen: &mut HashSet<PathBuf>, found: &mut Vec<PathBuf>) {
    for dir in cwd.ancestors().take(PARENTS) {
        let is_root = dir.parent().is_none();
        if is_root && dir != cwd || mounts.may_hang(dir) || !seen.insert(dir.to_owned()) {
            return;
        }
        found.push(dir.to_owned());
        if Some(dir) == home || dir.join(".git").symlink_metadata().is_ok() {
            return;
        }
    }
}

/// The mounted file systems that depend on another machine or on a process: an access may wait for it without end.
struct Mounts {
    /// Mount points, and true if an access may hang.
    points: Vec<(PathBuf, bool)>,
    /// The mount point of the home directory: leash reads files there in any case.
    home: Option<PathBuf>,
}

impl Mounts {
    fn read(home: Option<&Path>) -> Mounts {
        Mounts::of(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), home)
    }

    /// `mountinfo` is the text of the kernel's file.
    fn of(mountinfo: &str, home: Option<&Path>) -> Mounts {
        let points = mountinfo.lines().filter_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            Some((PathBuf::from(unescaped(mount.split(' ').nth(4)?)), is_remote(system.split(' ').next()?)))
        });
        let mut mounts = Mounts { points: points.collect(), home: None };
        mounts.home = home.and_then(|home| mounts.point(home)).map(|(point, _)| point.clone());
        mounts
    }

    /// The mount point of a path: of several, the innermost, and of these the one that was mounted last.
    fn point(&self, path: &Path) -> Option<&(PathBuf, bool)> {
        let around = self.points.iter().filter(|(point, _)| path.starts_with(point));
        around.max_by_key(|(point, _)| point.components().count())
    }

    fn may_hang(&self, path: &Path) -> bool {
        self.point(path).is_some_and(|(point, is_remote)| *is_remote && self.home.as_ref() != Some(point))
    }
}

fn is_remote(system: &str) -> bool {
    matches!(system, "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "afs" | "ceph" | "autofs")
        || system.starts_with("fuse")
}

/// The kernel writes blanks and a few other bytes as three octal digits.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Scratch;

    fn around(cwd: &Path, home: Option<&Path>, mountinfo: &str) -> Vec<PathBuf> {
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        add(cwd, home, &Mounts::of(mountinfo, home), &mut seen, &mut found);
        found
    }

    #[test]
    fn parents_are_searched_up_to_the_repository_or_the_home() {
        let top = Scratch::new();
        let inner = top.join("home/repo/src/deep");
        fs::create_dir_all(&inner).unwrap();
        let names = |found: Vec<PathBuf>| -> Vec<String> {
            let name = |dir: &PathBuf| dir.file_name().map(|name| name.to_string_lossy().into_owned());
            found.iter().filter_map(name).collect()
        };
        let home = top.join("home");
        assert_eq!(names(around(&inner, Some(&home), "")), ["deep", "src", "repo", "home"]);
        fs::write(top.join("home/repo/.git"), "gitdir: elsewhere").unwrap();
        assert_eq!(names(around(&inner, Some(&home), "")), ["deep", "src", "repo"]);
        let long = (0..40).fold(PathBuf::from("/"), |path, at| path.join(at.to_string()));
        assert_eq!(around(&long, None, "").len(), PARENTS);
        assert_eq!(around(Path::new("/"), None, ""), [Path::new("/")]);
        assert_eq!(around(Path::new("/a"), None, ""), [Path::new("/a")]);
    }

    #[test]
    fn a_directory_is_listed_once_and_removed_ones_never() {
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        let mounts = Mounts::of("", None);
        for cwd in ["/a/b/c", "/a/b", "/a/b/d"] {
            add(Path::new(cwd), None, &mounts, &mut seen, &mut found);
        }
        assert_eq!(found, ["/a/b/c", "/a/b", "/a", "/a/b/d"].map(PathBuf::from));
        assert!(
            !is_path(Path::new("/a (deleted)")) && !is_path(Path::new("(unreachable)/a")) && is_path(Path::new("/a"))
        );
    }

    #[test]
    fn file_systems_that_may_hang_are_left_out() {
        let mountinfo = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            22 21 0:30 / /mnt/my\\040share rw shared:1 - nfs4 host:/x rw\n\
            23 21 0:31 / /net rw - autofs auto rw\n\
            24 21 0:32 / /home rw - fuse.sshfs host: rw\n";
        let home = Path::new("/home/u");
        assert_eq!(around(Path::new("/mnt/my share/p"), Some(home), mountinfo), Vec::<PathBuf>::new());
        assert_eq!(around(Path::new("/net/p"), Some(home), mountinfo), Vec::<PathBuf>::new());
        assert_eq!(around(Path::new("/srv/p"), Some(home), mountinfo).len(), 2);
        assert_eq!(around(Path::new("/home/u/p"), Some(home), mountinfo).len(), 2, "the home is read anyway");
        assert_eq!(around(Path::new("/home/u/p"), None, mountinfo), Vec::<PathBuf>::new());
    }

    #[test]
    fn our_own_directory_is_among_them() {
        let here = std::env::current_dir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert!(directories(&Proc::own().unwrap(), uid, None).contains(&here));
    }
}
