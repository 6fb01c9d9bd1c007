//! A stdio server that the test itself plays: a process of the zoo passes on what it gets, and says what it is told to.

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

/// Where puppets report.
#[derive(Debug)]
pub struct Theatre {
    listener: UnixListener,
    path: PathBuf,
}

impl Theatre {
    /// Opens it.
    ///
    /// # Panics
    /// When there is one on this scene.
    pub fn open(scene: &Scene) -> Self {
        let path = scene.dir().join("puppets");
        let listener = UnixListener::bind(&path).expect("a scene has one theatre");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        Self { listener, path }
    }

    /// The words that start a puppet that is a tree of some kind.
    pub fn words(&self, scene: &Scene, kind: &str) -> Vec<OsString> {
        scene.tree(kind, ["--puppet".as_ref(), self.path.as_os_str()])
    }

    /// The next puppet that reports.
    ///
    /// # Panics
    /// When none does for too long.
    pub fn next(&self) -> Puppet {
        assert!(wait::ready(&self.listener, PollFlags::IN, LIMIT), "no puppet reports");
        let (stream, _) = self.listener.accept().expect("one has reported");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket has a timeout");
        Puppet { stream: BufReader::new(stream) }
    }
}

/// A server in the hands of the test. Dropping it makes it exit at once, with code 3.
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
    /// When there is none.
    pub fn hear(&mut self) -> Vec<u8> {
        self.try_hear().expect("the puppet hears nothing")
    }

    /// The next line as text.
    ///
    /// # Panics
    /// When there is none.
    pub fn hear_text(&mut self) -> String {
        String::from_utf8(self.hear()).expect("the line is not UTF-8")
    }

    /// Makes it say a line.
    ///
    /// # Panics
    /// When it is gone.
    pub fn say(&mut self, line: impl AsRef<[u8]>) {
        self.write(&[line.as_ref(), b"\n"].concat()).expect("the puppet is gone");
    }

    /// Makes it write these bytes to its stdout. Blocks while nobody reads that.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Another handle of it, to speak from another thread.
    ///
    /// # Panics
    /// When there are no descriptors left.
    pub fn mouth(&self) -> UnixStream {
        self.stream.get_ref().try_clone().expect("a socket can be copied")
    }

    /// Makes it close its stdout and live on.
    pub fn fall_silent(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// Answers the `initialize` that it hears next, as a server that speaks `version`.
    ///
    /// # Panics
    /// When it hears something else.
    pub fn initialize(&mut self, version: &str) {
        let line = self.hear_text();
        assert!(line.contains("\"initialize\""), "{line}");
        let message: serde_json::Value = serde_json::from_str(&line).expect("`initialize` is JSON");
        let info = r#"{"name":"puppet","version":"1"}"#;
        let result = format!(r#"{{"protocolVersion":"{version}","capabilities":{{}},"serverInfo":{info}}}"#);
        self.say(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message["id"]));
    }
}
