//! A terminal that can be closed, for a host under test.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{io, os::unix::fs::OpenOptionsExt as _};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The traditional terminal size: programs that draw ask for it.
const SIZE: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

/// Opens both sides: the master side for leash, and the other side for the programs.
pub(super) fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    tcsetwinsize(&ours, SIZE)?;
    let name = ptsname(&ours, Vec::new())?;
    let path = name.to_str().map_err(io::Error::other)?;
    let theirs = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)?;
    Ok((ours, File::into(theirs)))
}

/// Starts a new session and makes the terminal on stderr the controlling terminal, stdin and stdout of this process.
/// The process must not lead a process group.
pub fn take_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    let terminal: BorrowedFd<'_> = rustix::stdio::stderr();
    rustix::process::ioctl_tiocsctty(terminal.as_fd())?;
    rustix::stdio::dup2_stdin(terminal)?;
    rustix::stdio::dup2_stdout(terminal)?;
    Ok(())
}
