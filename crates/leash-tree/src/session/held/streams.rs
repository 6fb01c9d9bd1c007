//! A server's pipes, for programs that speak MCP through them.

use std::process::{ChildStdin, ChildStdout};

use crate::tree::Tree;

impl Tree {
    /// The server's stdin and stdout, for blocking code; `None` if one of them was taken before. Dropping stdin begins
    /// the end of the tree. The caller must go on reading stdout.
    pub fn take_streams(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.take_stdin()?, self.take_stdout()?))
    }
}

/// A server's stdin (`AsyncWrite`) and stdout (`AsyncRead`) on tokio.
#[cfg(feature = "tokio")]
pub type AsyncStreams = (tokio::net::unix::pipe::Sender, tokio::net::unix::pipe::Receiver);

#[cfg(feature = "tokio")]
impl Tree {
    /// The server's stdin and stdout, for tokio. An error if they were taken before, or if tokio could not register
    /// them. In the second case they are closed, and the tree ends.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn take_async_streams(&mut self) -> std::io::Result<AsyncStreams> {
        use std::os::fd::OwnedFd;

        use tokio::net::unix::pipe::{Receiver, Sender};

        let (stdin, stdout) =
            self.take_streams().ok_or_else(|| std::io::Error::other("the streams of the server were taken"))?;
        // The server does not share the open file descriptions of our ends of the pipes, so O_NONBLOCK affects only us.
        Ok((Sender::from_owned_fd(OwnedFd::from(stdin))?, Receiver::from_owned_fd(OwnedFd::from(stdout))?))
    }
}
