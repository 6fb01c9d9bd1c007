//! A running `server-everything`, the usual test server for MCP clients.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::deps::Deps;
use crate::lines::Lines;
use crate::wait::LIMIT;

/// The server. It is killed when dropped.
#[derive(Debug)]
pub struct Everything {
    child: Child,
    url: String,
    _says: Lines<ChildStderr>,
}

/// The transport that it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP, at `/mcp`.
    StreamableHttp,
    /// HTTP+SSE of 2024-11-05, at `/sse`.
    Sse,
}

impl Everything {
    /// Starts one.
    ///
    /// # Panics
    /// If it does not listen on any of a few free ports.
    pub fn start(deps: &Deps, transport: Transport) -> Self {
        // It cannot be told to take any free port and to print it, so another process may take the port first.
        let mut tries = (0..5).filter_map(|_| Self::listen_on(free_port(), deps, transport));
        tries.next().expect("server-everything does not listen")
    }

    fn listen_on(port: u16, deps: &Deps, transport: Transport) -> Option<Self> {
        let (word, path, says) = match transport {
            Transport::StreamableHttp => ("streamableHttp", "mcp", "listening on port"),
            Transport::Sse => ("sse", "sse", "running on port"),
        };
        let mut child = Command::new("node")
            .arg(deps.everything())
            .arg(word)
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cannot start node");
        let mut lines = Lines::new(child.stderr.take().expect("stderr is a pipe"));
        let is_there = lines.wait(LIMIT, |line| line.contains(says).then_some(())).is_some();
        let this = Self { child, url: format!("http://127.0.0.1:{port}/{path}"), _says: lines };
        is_there.then_some(this)
    }

    /// Its pid; not reused while this value exists.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    listener.local_addr().expect("a listener has an address").port()
}
