//! A stdio server that the test itself plays: a process of the zoo passes its stdin to the test, and prints what the
//! test sends.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::event::PollFlags;

use crate::scene::Scene;
use crate::wait::{self, LIMIT};

/// The socket that puppets connect to.
#[derive(Debug)]
pub struct Theatre {
    listener: UnixListener,
    path: PathBuf,
}

impl Theatre {
    /// Opens the socket.
    ///
    /// # Panics
    /// If the scene has one already.
    pub fn open(scene: &Scene) -> Self {
        let path = scene.dir().join("puppets");
        let listener = UnixListener::bind(&path).expect("a scene has one puppet socket");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        Self { listener, path }
    }

    /// The command line of a puppet that is a tree of this kind.
    pub fn words(&self, scene: &Scene, kind: &str) -> Vec<OsString> {
        scene.tree(kind, ["--puppet".as_ref(), self.path.as_os_str()])
    }

    /// Waits for the next puppet that connects.
    ///
    /// # Panics
    /// If none connects in time.
    pub fn next(&self) -> Puppet {
        assert!(wait::ready(&self.listener, PollFlags::IN, LIMIT), "no puppet connects");
        let (stream, _) = self.listener.accept().expect("a puppet has connected");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket has a timeout");
        Puppet { stream: BufReader::new(stream) }
    }
}

/// A server that the test controls. Dropping it makes the process exit at once, with code 3.
#[derive(Debug)]
pub struct Puppet {
    stream: BufReader<UnixStream>,
}

impl Puppet {
    /// The next line on its stdin, without the newline. An error at the end.
    pub fn try_hear(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        match line.pop() {
            Some(b'\n') => Ok(line),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The next line on its stdin, without the newline.
    ///
    /// # Panics
    /// If there is none.
    pub fn hear(&mut self) -> Vec<u8> {
        self.try_hear().expect("the puppet got no line")
    }

    /// The next line as text.
    ///
    /// # Panics
    /// If there is none.
    pub fn hear_text(&mut self) -> String {
        String::from_utf8(self.hear()).expect("the line is not UTF-8")
    }

    /// Makes it print a line.
    ///
    /// # Panics
    /// If the process has exited.
    pub fn say(&mut self, line: impl AsRef<[u8]>) {
        self.write(&[line.as_ref(), b"\n"].concat()).expect("the puppet is gone");
    }

    /// Makes it write these bytes to its stdout. Blocks while the host does not read them.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Another handle, to write from another thread.
    ///
    /// # Panics
    /// If there are no descriptors left.
    pub fn mouth(&self) -> UnixStream {
        self.stream.get_ref().try_clone().expect("a socket can be copied")
    }

    /// Makes it close its stdout and continue to run.
    pub fn fall_silent(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// Answers the next `initialize` on its stdin, as a server that speaks `version`.
    ///
    /// # Panics
    /// If the next line is something else.
    pub fn initialize(&mut self, version: &str) {
        let line = self.hear_text();
        assert!(line.contains("\"initialize\""), "{line}");
        let message: serde_json::Value = serde_json::from_str(&line).expect("`initialize` is JSON");
        let info = r#"{"name":"puppet","version":"1"}"#;
        let result = format!(r#"{{"protocolVersion":"{version}","capabilities":{{}},"serverInfo":{info}}}"#);
        self.say(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message["id"]));
    }
}
