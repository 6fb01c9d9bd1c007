//! A plain HTTP/1.1 client over a blocking socket: tests see every byte, and no library repairs a fault of leash.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType};
use serde_json::Value;

use crate::wait::{Deadline, LIMIT};

/// An answer, read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers: names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
}

impl Reply {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON: the whole body, or the last message of an event stream.
    ///
    /// # Panics
    /// If it is neither.
    pub fn json(&self) -> Value {
        let text = self.text();
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ").filter(|data| !data.is_empty()));
        match serde_json::from_str(last.unwrap_or(&text)) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {self:?}"),
        }
    }
}

/// One connection; it may be used for several requests.
#[derive(Debug)]
pub struct Connection<S: Read = TcpStream> {
    stream: BufReader<S>,
    host: String,
}

impl Connection<UnixStream> {
    /// Connects to a Unix socket.
    pub fn open_local(path: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream: BufReader::new(stream), host: "localhost".to_owned() })
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Panics
    /// If no server listens.
    pub fn open(address: SocketAddr) -> Self {
        Self::attempt(address).expect("no server listens")
    }

    /// Connects. The error is expected if no server listens.
    pub fn attempt(address: SocketAddr) -> std::io::Result<Self> {
        Self::of(TcpStream::connect(address)?, address)
    }

    /// Connects from the given local port.
    pub fn open_from(port: u16, address: SocketAddr) -> std::io::Result<Self> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], port)))?;
        rustix::net::connect(&socket, &address)?;
        Self::of(TcpStream::from(socket), address)
    }

    fn of(stream: TcpStream, address: SocketAddr) -> std::io::Result<Self> {
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), host: address.to_string() })
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// The socket alone. Bytes that were read ahead are lost.
    pub fn into_socket(self) -> TcpStream {
        self.stream.into_inner()
    }
}

impl<S: Read + Write> Connection<S> {
    /// Sends a request. Adds `Host` and `Content-Length` unless they are given.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<()> {
        let given = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !given("host") {
            head.push_str(&format!("Host: {}\r\n", self.host));
        }
        if !given("content-length") && !given("transfer-encoding") && (method == "POST" || !body.is_empty()) {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut whole = head.into_bytes();
        whole.extend_from_slice(body);
        self.stream.get_mut().write_all(&whole)
    }

    /// Reads the head of an answer.
    pub fn head(&mut self) -> std::io::Result<Reply> {
        let status = self.line()?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = code.ok_or_else(|| std::io::Error::other(format!("not a status line: `{status}`")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Reply { status, headers, body: Vec::new() })
    }

    /// Reads a whole answer.
    pub fn reply(&mut self) -> std::io::Result<Reply> {
        let mut reply = self.head()?;
        if let Some(length) = reply.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
            reply.body.resize(length, 0);
            self.stream.read_exact(&mut reply.body)?;
        } else if reply.header("transfer-encoding") == Some("chunked") {
            // A stream with keep-alive comments never pauses, so the read timeout alone would not end this.
            let deadline = Deadline::after(LIMIT);
            while let Some(chunk) = self.chunk()? {
                reply.body.extend(chunk);
                if deadline.is_over() {
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
            }
        }
        Ok(reply)
    }

    /// The next chunk of a streamed answer; `None` at its end.
    pub fn chunk(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let size = self.line()?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk)?;
        self.line()?;
        Ok((size > 0).then_some(chunk))
    }

    /// Sends a request and returns its answer.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(method, path, headers, body).expect("cannot send the request");
        self.reply().expect("there is no answer")
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// The headers that every client of Streamable HTTP sends with a POST.
pub const POST: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

/// `initialize` of a client that speaks `version`.
pub fn initialize(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"testkit","version":"1"}}}}}}"#
    )
}
