//! The open descriptors of a process, as its `/proc/PID/fd` shows them.
//!
//! No call here waits for another process: the directory is a table of the kernel, and the kernel makes up the names of
//! its links, even for a file on a dead network disk. A descriptor takes 4 us, and no allocation.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

/// The descriptor table of a process. It stays with that process, even if its PID is reused, and is empty once the
/// process is gone.
#[derive(Debug)]
pub struct Descriptors(OwnedFd);

/// The pipe or socket that a descriptor is, by inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A pipe.
    Pipe(u64),
    /// A socket.
    Socket(u64),
}

impl Descriptors {
    /// Opens the table in a directory of a process: `/proc/PID`, or that of one of its threads.
    pub fn open(dir: impl fmt::Display) -> Result<Descriptors, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, format!("{dir}/fd"), flags, Mode::empty()).map(Descriptors)
    }

    /// Calls `visit` with the number of each descriptor, and with its link if that is a pipe or a socket.
    pub fn each(&self, mut visit: impl FnMut(&CStr, Option<Link>)) -> Result<(), Errno> {
        let all = |number: &CStr, link| {
            visit(number, link);
            false
        };
        self.any(all).map(drop)
    }

    /// True if `wanted` is true for a descriptor; the search ends there. A process that exits meanwhile has no more
    /// descriptors, so this is no error.
    pub fn any(&self, mut wanted: impl FnMut(&CStr, Option<Link>) -> bool) -> Result<bool, Errno> {
        rustix::fs::seek(&self.0, SeekFrom::Start(0))?;
        let mut space = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(&self.0, &mut space);
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) if wanted(entry.file_name(), self.link(entry.file_name())) => return Ok(true),
                Ok(_) => {}
                Err(Errno::NOENT | Errno::SRCH) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    /// The pipe or socket that a descriptor is.
    pub fn link(&self, number: &CStr) -> Option<Link> {
        // Longer links are cut off; they are neither a pipe nor a socket.
        let mut space = [MaybeUninit::uninit(); 40];
        Link::parse(self.target(number, &mut space).ok()?)
    }

    /// The text of a descriptor's link, cut off where `space` ends.
    pub fn target<'s>(&self, number: &CStr, space: &'s mut [MaybeUninit<u8>]) -> Result<&'s [u8], Errno> {
        rustix::fs::readlinkat_raw(&self.0, number, space).map(|(target, _)| &*target)
    }

    /// Tells whether a descriptor reads and writes: the kernel shows it as the mode of the link. If the mode can't be
    /// read, both are assumed.
    pub fn access(&self, number: &CStr) -> (bool, bool) {
        match rustix::fs::statat(&self.0, number, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => (stat.st_mode & 0o400 != 0, stat.st_mode & 0o200 != 0),
            Err(_) => (true, true),
        }
    }
}

/// The pipe or socket that one descriptor of a process is.
pub fn link_of(pid: i32, fd: u32) -> Option<Link> {
    let mut space = [MaybeUninit::uninit(); 40];
    let (target, _) = rustix::fs::readlinkat_raw(CWD, format!("/proc/{pid}/fd/{fd}"), &mut space).ok()?;
    Link::parse(target)
}

impl Link {
    /// Reads `pipe:[N]` and `socket:[N]`.
    pub fn parse(link: &[u8]) -> Option<Link> {
        let number = |prefix: &[u8]| {
            let number = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
            std::str::from_utf8(number).ok()?.parse().ok()
        };
        number(b"pipe:[").map(Link::Pipe).or_else(|| number(b"socket:[").map(Link::Socket))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn pipes_and_sockets_are_told_from_files() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (reads, writes) = std::io::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let fds = Descriptors::open("/proc/self").unwrap();
        let number = |fd: &dyn AsRawFd| CString::new(fd.as_raw_fd().to_string()).unwrap();
        let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
        let pipe = rustix::fs::fstat(&reads).unwrap().st_ino;
        assert_eq!(fds.link(&number(&socket)), Some(Link::Socket(inode)));
        assert_eq!(fds.link(&number(&reads)), Some(Link::Pipe(pipe)));
        let own = |fd: &dyn AsRawFd| link_of(std::process::id() as i32, fd.as_raw_fd() as u32);
        assert_eq!((own(&socket), own(&null)), (Some(Link::Socket(inode)), None));
        assert_eq!((fds.link(&number(&null)), fds.link(&number(&fds.0))), (None, None));
        assert_eq!((fds.access(&number(&reads)), fds.access(&number(&writes))), ((true, false), (false, true)));
        let mut ends = 0;
        fds.each(|_, link| ends += usize::from(link == Some(Link::Pipe(pipe)))).unwrap();
        assert_eq!(ends, 2);
        assert_eq!(fds.any(|_, link| link == Some(Link::Socket(inode))), Ok(true));
        assert_eq!(fds.any(|_, link| link == Some(Link::Socket(u64::MAX))), Ok(false));
    }
}
