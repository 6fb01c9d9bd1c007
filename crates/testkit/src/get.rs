//! A minimal HTTP client for our test servers, with one connection per request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wait::LIMIT;

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status code.
    pub status: u16,
    /// The headers, by their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body. It must end.
    pub body: String,
}

impl Page {
    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Gets `path`.
///
/// # Panics
/// If no HTTP server answers.
pub fn get(address: SocketAddr, path: &str) -> Page {
    send(address, &format!("GET {path}"), &[], "")
}

/// Sends a request. `line` is its method and its path.
///
/// # Panics
/// If no HTTP server answers, or the answer does not end.
pub fn send(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &str) -> Page {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).expect("cannot connect");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit is a timeout");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("cannot ask");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer does not end");
    parse(&String::from_utf8_lossy(&answer)).unwrap_or_else(|| panic!("not HTTP: {}", String::from_utf8_lossy(&answer)))
}

fn parse(answer: &str) -> Option<Page> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let (first, rest) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.split(' ').nth(1)?.parse().ok()?;
    let headers = rest.split("\r\n").filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let mut page = Page { status, headers, body: body.to_owned() };
    if page.header("transfer-encoding") == Some("chunked") {
        page.body = join(body)?;
    }
    Some(page)
}

/// Joins the chunks of a body.
fn join(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n")?;
        let length = usize::from_str_radix(length.trim(), 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..length)?);
        chunks = rest.get(length..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bodies_with_length_and_in_chunks() {
        let whole = parse("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nX-Y:  z \r\n\r\nno").expect("it is HTTP");
        assert_eq!((whole.status, whole.body.as_str(), whole.header("x-y")), (404, "no", Some("z")));
        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(parse(chunks).expect("it is HTTP").body, "abc0123456789");
        assert_eq!(parse("SSH-2.0"), None);
    }
}
