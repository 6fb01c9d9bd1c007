//! Reads standard descriptors, and asks the kernel about the other ends of pipes.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::holders::SearchedEnd;
use crate::facts::{DescriptorKind, UnreadReason};
use leash_tree::platform::descriptors::{Descriptors, Link};

/// The standard descriptors of a process.
pub(super) struct StandardDescriptors {
    pub(super) stdin: DescriptorKind,
    pub(super) stdout: DescriptorKind,
    /// True if one of the three is a terminal that was closed.
    pub(super) terminal_gone: bool,
}

/// Reads the standard descriptors of a process.
pub(super) fn standard(dir: &str) -> StandardDescriptors {
    let fds = match Descriptors::open(dir) {
        Ok(fds) => fds,
        Err(_) => {
            return StandardDescriptors {
                stdin: DescriptorKind::Unread,
                stdout: DescriptorKind::Unread,
                terminal_gone: false,
            };
        }
    };
    let [stdin, stdout, stderr] = [c"0", c"1", c"2"].map(|name| kind(&fds, name));
    let gone = [&stdin, &stdout, &stderr].iter().any(|(_, gone)| *gone);
    StandardDescriptors { stdin: stdin.0, stdout: stdout.0, terminal_gone: gone }
}

/// The kind of a descriptor, and true if it is a terminal that was closed.
fn kind(fds: &Descriptors, name: &CStr) -> (DescriptorKind, bool) {
    let mut space = [MaybeUninit::uninit(); 256];
    let link = match fds.target(name, &mut space) {
        Ok(link) => link,
        Err(Errno::NOENT) => return (DescriptorKind::Closed, false),
        Err(_) => return (DescriptorKind::Unread, false),
    };
    match Link::parse(link) {
        Some(Link::Pipe(inode)) => return (DescriptorKind::Pipe { inode }, false),
        Some(Link::Socket(inode)) => return (DescriptorKind::Socket { inode }, false),
        None => {}
    }
    match link {
        b"/dev/null" => (DescriptorKind::Null, false),
        link if is_terminal(link) => (DescriptorKind::Tty, link.ends_with(b" (deleted)")),
        _ => (DescriptorKind::File, false),
    }
}

fn is_terminal(link: &[u8]) -> bool {
    let numbered = |rest: &[u8]| rest.first().is_some_and(u8::is_ascii_digit);
    link.strip_prefix(b"/dev/pts/").is_some_and(numbered)
        || link.strip_prefix(b"/dev/tty").is_some()
        || link == b"/dev/console"
}

/// A pipe of a server, and whether the kernel may be asked about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipe {
    /// The server's stdin.
    Stdin,
    /// The server's stdout while a host may still use it: only its readers are searched for.
    Stdout,
    /// The server's stdout when its stdin is closed at the other end.
    StdoutAlone,
}

impl Pipe {
    /// The end that another process holds.
    pub(super) fn sought(self, inode: u64) -> SearchedEnd {
        match self {
            Pipe::Stdin => SearchedEnd::Writing(inode),
            Pipe::Stdout | Pipe::StdoutAlone => SearchedEnd::Reading(inode),
        }
    }

    /// Asks the kernel whether the other end is closed: only the kernel knows every holder. `None`: the kernel was not
    /// asked.
    ///
    /// /proc lets us open the server's own end of a pipe again, and a poll with timeout zero tells whether the other
    /// end exists. While we hold the second copy, for some microseconds, a host would not see the end of its server's
    /// output. So the writing end is not opened while a host may exist.
    pub(super) fn other_end(self, dir: &str, inode: u64) -> Option<Result<bool, UnreadReason>> {
        let (fd, mode, gone) = match self {
            Pipe::Stdin => (0, OFlags::RDONLY, PollFlags::HUP),
            Pipe::StdoutAlone => (1, OFlags::WRONLY, PollFlags::ERR),
            Pipe::Stdout => return None,
        };
        let flags = mode | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let end = match rustix::fs::openat(CWD, format!("{dir}/fd/{fd}"), flags, Mode::empty()) {
            Ok(end) => end,
            Err(Errno::ACCESS | Errno::PERM) => return Some(Err(UnreadReason::NotPermitted)),
            Err(Errno::NOENT | Errno::SRCH) => return Some(Err(UnreadReason::Unseen)),
            Err(_) => return Some(Err(UnreadReason::Exhausted)),
        };
        // The server may have replaced the descriptor meanwhile.
        let same = rustix::fs::fstat(&end)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo && stat.st_ino == inode);
        if !same {
            return Some(Err(UnreadReason::Unseen));
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let mut fds = [PollFd::new(&end, PollFlags::empty())];
            match rustix::event::poll(&mut fds, Some(&at_once)) {
                Err(Errno::INTR) => {}
                Err(_) => return Some(Err(UnreadReason::Exhausted)),
                Ok(_) => return Some(Ok(fds[0].revents().contains(gone))),
            }
        }
    }
}
