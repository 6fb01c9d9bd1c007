//! A server without a will of its own: a test at a Unix socket hears what it hears and says what it says.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys::exit_now;
use crate::trees::write_all;

/// Serves until the end of input. When the test lets go of the socket, it exits with code 3.
pub(crate) fn serve(socket: &Path) -> io::Result<()> {
    let socket = UnixStream::connect(socket)?;
    let told = socket.try_clone()?;
    std::thread::spawn(move || {
        let _ = copy(&told, &rustix::stdio::stdout());
        // The test has said everything: stdout is closed, and with the test the server is gone.
        let nowhere = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        if nowhere.is_ok_and(|nowhere| rustix::stdio::dup2_stdout(&nowhere).is_ok()) {
            while !testkit::wait::ready(&told, PollFlags::empty(), testkit::wait::LIMIT) {}
        }
        exit_now(3);
    });
    // A socket that nobody reads any more is the test's business.
    let _ = copy(&rustix::stdio::stdin(), &socket);
    Ok(())
}

fn copy(from: &impl AsFd, to: &impl AsFd) -> io::Result<()> {
    let mut buffer = vec![0; 65536];
    loop {
        match rustix::io::read(from, &mut buffer[..]) {
            Ok(0) => return Ok(()),
            Ok(got) => write_all(to, &buffer[..got])?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
