//! The smallest HTTP client that can ask a server of ours how it is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wait::LIMIT;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status code.
    pub status: u16,
    /// The headers, one a line.
    pub head: String,
    /// The body. Only bodies with a known length are understood.
    pub body: String,
}

/// Gets `path`.
///
/// # Panics
/// When nobody answers in HTTP.
pub fn get(address: SocketAddr, path: &str) -> Page {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).expect("cannot connect");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit is a timeout");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("cannot ask");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("cannot read the answer");
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not HTTP: {answer}"));
    assert!(!head.to_ascii_lowercase().contains("\r\ntransfer-encoding:"), "not a short answer: {head}");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Page {
        status: status.unwrap_or_else(|| panic!("no status: {head}")),
        head: head.replace("\r\n", "\n"),
        body: body.to_owned(),
    }
}
