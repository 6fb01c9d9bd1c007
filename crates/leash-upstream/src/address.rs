//! The address of an HTTP server and the headers sent to it: the same checks for a file, for `--url` and for `connect`.

use std::fmt;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use thiserror::Error;

/// The transport of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP, every revision.
    #[default]
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// A server elsewhere. Made by [`upstream`], which checks it.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamServer {
    /// How it speaks.
    pub transport: HttpTransport,
    /// Its endpoint: http or https, with a host, without user name and fragment.
    pub url: Uri,
    /// Headers sent with every request; the values are marked as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl fmt::Debug for UpstreamServer {
    /// Does not show the query: users put keys there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.url.query().is_some() { "?***" } else { "" };
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        let shown = format!("{}://{authority}{}{query}", self.url.scheme_str().unwrap_or_default(), self.url.path());
        f.debug_struct("Upstream")
            .field("transport", &self.transport)
            .field("url", &shown)
            .field("headers", &self.headers)
            .finish()
    }
}

/// Headers that belong to the connection or to the protocol. A value from a configuration would contradict the message
/// that it is sent with: wrong framing, another session, or (`accept-encoding`) a stream that leash cannot read.
const OURS: [&str; 14] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that users of some clients must configure, although every request has its own. They are left out.
const NEEDLESS: [&str; 2] = ["accept", "content-type"];

/// True if a header belongs to one message: a DELETE of the same program must not repeat it.
pub fn belongs_to_message(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OURS.contains(&&*name) || NEEDLESS.contains(&&*name) || name.starts_with("mcp-")
}

/// The reason that an upstream is refused. No message contains the address or a value: both may be secret.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    /// It is not a valid URL.
    #[error("the URL is not valid: {0}")]
    Url(String),
    /// The scheme is neither http nor https.
    #[error("the URL does not start with `http://` or `https://`")]
    Scheme,
    /// It contains a user name or a password.
    #[error("the URL contains a user name or a password")]
    UserInfo,
    /// It has a fragment.
    #[error("the URL has a fragment (`#...`), which is never sent")]
    Fragment,
    /// A header name with characters that no header has.
    #[error("`{0}` is not a header name")]
    HeaderName(String),
    /// A header value with characters that no header has.
    #[error("the value of header `{0}` has a character that a header cannot carry")]
    HeaderValue(String),
    /// A header that leash or the client sets.
    #[error("header `{0}` cannot be set here")]
    Ours(String),
    /// A header given twice.
    #[error("header `{0}` is given twice")]
    Twice(String),
}

impl AddressError {
    /// The hint: how to fix it.
    pub fn hint(&self) -> &'static str {
        match self {
            AddressError::Url(_) => "write it as in `https://example.com/mcp`; percent-encode special characters",
            AddressError::Scheme => "write it as in `https://example.com/mcp`",
            AddressError::UserInfo => {
                "send them as a header: `\"headers\": {\"Authorization\": \"Basic ${CREDENTIALS}\"}`"
            }
            AddressError::Fragment => "remove the `#` and what follows; write `%23` if it is part of the path",
            AddressError::HeaderName(_) => "a name has letters, digits and `-`, as in `X-Api-Key`",
            AddressError::HeaderValue(_) => "use plain ASCII; a variable may hold a line break",
            AddressError::Ours(_) => "remove it: it belongs to each message, and leash takes care of it",
            AddressError::Twice(_) => "names are the same in upper and lower case; keep one of them",
        }
    }
}

/// Checks an upstream; returns the first mistake.
pub fn upstream(
    url: &str,
    headers: &[(String, String)],
    transport: HttpTransport,
) -> Result<UpstreamServer, AddressError> {
    let mut upstream = UpstreamServer { transport, url: address(url)?, headers: Vec::new() };
    for (name, value) in headers {
        if let Some(header) = header(name, value)? {
            if upstream.headers.iter().any(|(there, _)| *there == header.0) {
                return Err(AddressError::Twice(name.clone()));
            }
            upstream.headers.push(header);
        }
    }
    Ok(upstream)
}

/// Checks a url.
pub fn address(url: &str) -> Result<Uri, AddressError> {
    // These checks come before parsing: `Uri` drops the fragment, and its errors do not explain what is wrong with such
    // hosts.
    if !url.is_ascii() {
        return Err(AddressError::Url("it has a character that is not ASCII".to_owned()));
    }
    let Some((scheme, rest)) = url.split_once("://") else { return Err(AddressError::Scheme) };
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(AddressError::Scheme);
    }
    if rest.contains('#') {
        return Err(AddressError::Fragment);
    }
    let host_and_port = rest.split(['/', '?']).next().unwrap_or_default();
    if host_and_port.contains('@') {
        return Err(AddressError::UserInfo);
    }
    let uri: Uri = url.parse().map_err(|error: hyper::http::uri::InvalidUri| AddressError::Url(error.to_string()))?;
    if uri.host().is_none_or(str::is_empty) {
        return Err(AddressError::Url("it has no host".to_owned()));
    }
    // `port()` is `None` both without a port and with one that is not a number, so the text after the host decides.
    let has_port = host_and_port.rsplit(']').next().is_some_and(|tail| tail.contains(':'));
    if has_port && uri.port_u16().is_none_or(|port| port == 0) {
        return Err(AddressError::Url("its port is not a number from 1 to 65535".to_owned()));
    }
    Ok(uri)
}

/// Checks a header; `None` if it is to be left out.
pub fn header(name: &str, value: &str) -> Result<Option<(HeaderName, HeaderValue)>, AddressError> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| AddressError::HeaderName(name.to_owned()))?;
    if NEEDLESS.contains(&parsed.as_str()) {
        return Ok(None);
    }
    if OURS.contains(&parsed.as_str()) {
        return Err(AddressError::Ours(name.to_owned()));
    }
    let value = Some(value.trim_matches([' ', '\t']))
        .filter(|value| value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)))
        .and_then(|value| HeaderValue::from_str(value).ok());
    let mut value = value.ok_or_else(|| AddressError::HeaderValue(name.to_owned()))?;
    value.set_sensitive(true);
    Ok(Some((parsed, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, headers: &[(&str, &str)], expected: &str) {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let told = match upstream(url, &headers, HttpTransport::Streamable) {
            Ok(upstream) => {
                let headers = upstream.headers.iter();
                let headers = headers.map(|(name, value)| format!(" {name}={}", value.to_str().unwrap_or("?")));
                format!("{}{}", upstream.url, headers.collect::<String>())
            }
            Err(error) => {
                assert!(!error.hint().is_empty());
                error.to_string()
            }
        };
        assert_eq!(told, expected, "{url}");
    }

    #[test]
    fn valid_addresses_are_accepted() {
        for (url, as_read) in [
            ("http://127.0.0.1:9000/mcp", "http://127.0.0.1:9000/mcp"),
            ("https://h", "https://h/"),
            ("https://h/mcp?key=a@b:c", "https://h/mcp?key=a@b:c"),
            ("http://[::1]:80/x", "http://[::1]:80/x"),
            ("http://[::1]/x", "http://[::1]/x"),
            ("HTTP://Host/x", "http://Host/x"),
        ] {
            check(url, &[], as_read);
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        let scheme = "the URL does not start with `http://` or `https://`";
        for url in ["", "h/mcp", "/mcp", "ftp://h/", "stdio://x", "localhost:80"] {
            check(url, &[], scheme);
        }
        for url in ["http://u:p@h/", "http://u@h/"] {
            check(url, &[], "the URL contains a user name or a password");
        }
        check("http://h/#x", &[], "the URL has a fragment (`#...`), which is never sent");
        check("http://h#x", &[], "the URL has a fragment (`#...`), which is never sent");
        check("http://h\u{f6}/", &[], "the URL is not valid: it has a character that is not ASCII");
        for url in ["http://h:x/", "http://h:99999/", "http://h:0/", "http://h:/"] {
            let told = upstream(url, &[], HttpTransport::Sse).map_err(|error| error.to_string());
            assert!(told.as_ref().is_err_and(|text| text.starts_with("the URL is not valid: ")), "{url}: {told:?}");
        }
        for url in ["http:///mcp", "http://", "http://?x", "http://h h/", "http://h/a b", "http://:80/"] {
            let told = upstream(url, &[], HttpTransport::Sse).map_err(|error| error.to_string());
            assert!(told.as_ref().is_err_and(|text| text.starts_with("the URL is not valid: ")), "{url}: {told:?}");
        }
    }

    #[test]
    fn headers_are_checked() {
        let url = "http://h/";
        check(url, &[("X-Key", " a b "), ("Authorization", "Bearer t")], "http://h/ x-key=a b authorization=Bearer t");
        check(url, &[("Content-Type", "application/json"), ("accept", "*/*")], "http://h/");
        check(url, &[("X Key", "a")], "`X Key` is not a header name");
        check(url, &[("", "a")], "`` is not a header name");
        for bad in ["a\nb", "a\u{e4}", "a\0", "\u{7f}"] {
            check(url, &[("x-key", bad)], "the value of header `x-key` has a character that a header cannot carry");
        }
        for name in ["Host", "content-length", "Connection", "transfer-encoding", "Mcp-Session-Id"] {
            check(url, &[(name, "1")], &format!("header `{name}` cannot be set here"));
        }
        check(url, &[("a", "1"), ("A", "2")], "header `A` is given twice");
    }

    #[test]
    fn debug_output_has_no_secrets() {
        let headers = [("authorization".to_owned(), "Bearer hush".to_owned())];
        let upstream = upstream("https://h/mcp?key=hush", &headers, HttpTransport::Sse).expect("valid");
        let shown = format!("{upstream:?}");
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("https://h/mcp?***"), "{shown}");
    }
}
