//! A server that a test controls through a Unix socket: the test reads the server's stdin and writes its stdout.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys::exit_now;
use crate::write::write_all;

/// Serves until the end of input. When the test closes the socket, it exits with code 3.
pub(crate) fn serve(socket: &Path) -> io::Result<()> {
    let socket = UnixStream::connect(socket)?;
    let told = socket.try_clone()?;
    std::thread::spawn(move || {
        let _ = copy(&told, &rustix::stdio::stdout());
        // The test has sent everything: close stdout. The server exits when the test closes the socket.
        let nowhere = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        if nowhere.is_ok_and(|nowhere| rustix::stdio::dup2_stdout(&nowhere).is_ok()) {
            while !testkit::wait::ready(&told, PollFlags::empty(), testkit::wait::LIMIT) {}
        }
        exit_now(3);
    });
    // It fails if the test no longer reads the socket, which is fine.
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
