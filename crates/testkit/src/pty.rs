//! A terminal that can be closed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::event::PollFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::sys::Step;
use crate::wait::{self, Deadline, LIMIT};

/// The side of a pseudo-terminal that a terminal emulator holds. Dropping it closes the terminal.
#[derive(Debug)]
pub struct Pty {
    master: OwnedFd,
}

impl Pty {
    /// Opens a new one.
    pub fn open() -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        Ok(Self { master })
    }

    /// Gives the terminal this many columns.
    pub fn resize(&self, columns: u16) -> io::Result<()> {
        let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(&self.master, size)?)
    }

    /// The side that programs open.
    pub fn terminal(&self) -> io::Result<OwnedFd> {
        let name = ptsname(&self.master, Vec::new())?;
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name.to_str().map_err(io::Error::other)?)?;
        Ok(file.into())
    }

    /// The step that makes it the controlling terminal of a child, in a new session.
    pub fn control(&self) -> io::Result<Step> {
        Ok(Step::ControllingTerminal(self.terminal()?))
    }

    /// Types a text.
    pub fn enter(&self, text: &str) -> io::Result<()> {
        rustix::io::write(&self.master, text.as_bytes())?;
        Ok(())
    }

    /// Waits until `text` is on the screen `times` times.
    pub fn wait_shown(&self, text: &str, times: usize) -> Result<(), String> {
        self.read_until(text, times).map(drop)
    }

    /// Reads what programs write until `text` was written `times` times; everything that was read. The error is that, too.
    pub fn read_until(&self, text: &str, times: usize) -> Result<String, String> {
        let deadline = Deadline::after(LIMIT);
        let mut screen = Vec::new();
        loop {
            let shown = String::from_utf8_lossy(&screen);
            if shown.matches(text).count() >= times {
                return Ok(shown.into_owned());
            }
            if !wait::ready(&self.master, PollFlags::IN, deadline.left()) {
                return Err(shown.into_owned());
            }
            let mut buffer = [0; 4096];
            match rustix::io::read(&self.master, &mut buffer) {
                Ok(got @ 1..) => screen.extend_from_slice(&buffer[..got]),
                _ => return Err(shown.into_owned()),
            }
        }
    }

    /// Everything that programs wrote, until the last one has closed the terminal.
    pub fn screen(self) -> String {
        let deadline = Deadline::after(LIMIT);
        let (mut screen, mut buffer) = (Vec::new(), [0; 4096]);
        while wait::ready(&self.master, PollFlags::IN, deadline.left()) {
            match rustix::io::read(&self.master, &mut buffer) {
                Ok(got @ 1..) => screen.extend_from_slice(&buffer[..got]),
                _ => break,
            }
        }
        String::from_utf8_lossy(&screen).into_owned()
    }

    /// Closes the terminal: the kernel sends SIGHUP to the processes in front of it.
    pub fn close(self) {
        drop(self.master);
    }
}
